// Compare: what really differs between two selections. The verdict, each figure over all pairs, one curve of either side
// with its bands, every pair; and what had no partner.

import { chart, swatch } from "../chart.js";
import { el, fill } from "../dom.js";
import { display } from "../format.js";
import { empty, notice, trouble } from "../notices.js";
import { choicesOf, moved, scope, settled } from "../scope.js";
import { table } from "../table.js";

const FIELDS = ["hardware", "engine", "precision", "speculation", "disaggregated", "run"];
const BANDS = { worse: "bad", better: "good" };
const MARKS = { worse: "✗ ", better: "✓ ", same: "= ", cannot_tell: "? " };

export function title(t) {
  return t("web.nav.compare");
}

export async function render(root, ctx) {
  const { t } = ctx;
  let now = ctx;
  const parts = {};
  for (const name of ["picks", "asks", "body"]) parts[name] = el("div", { class: name === "picks" ? "heads" : "" });
  const box = el("div", { class: "chart-box" });
  const plot = chart(box, ctx);
  fill(root, el("h1", { class: "sr" }, t("web.nav.compare")), parts.picks, el("p", { class: "lead-line" }, t("web.compare.lead")), parts.asks, parts.body);
  const set = (changes) => {
    now = moved(now, changes);
    return load();
  };

  async function load() {
    root.setAttribute("aria-busy", "true");
    try {
      now = settled(now, await choicesOf(now));
      const facets = await choicesOf(now);
      const [one, other] = FIELDS.map((name) => (facets.facets[name] || []).map((each) => name + "=" + each.id)).find((each) => each.length > 1) || [];
      now = settled(now, facets, { a: one, b: other });
      const asked = new URLSearchParams(now.params);
      asked.delete("curve");
      const view = now.params.get("a") && now.params.get("b") ? await now.get("/api/v1/compare", asked) : null;
      if (!parts.picks.contains(document.activeElement)) fill(parts.picks, scope(now, facets, set));
      fill(parts.asks, sides(now, facets, set));
      fill(parts.body, view ? said(now, view, box) : empty(t("web.compare.none")));
      if (view && view.curves.some((each) => each.text)) draw(now, view, plot, set);
    } catch (error) {
      if (error.name !== "AbortError") fill(parts.body, trouble(error, load));
    } finally {
      root.removeAttribute("aria-busy");
    }
  }

  await load();
  return { update: (next) => { now = next; return load(); }, close: () => plot.close() };
}

function sides(ctx, facets, set) {
  const { t } = ctx;
  const pick = (side, i) => {
    const chosen = ctx.params.get(side) || "";
    const groups = FIELDS.map((name) => [name, (facets.facets[name] || []).map((each) => [name + "=" + each.id, each.label])]).filter(([, each]) => each.length > 1);
    const known = groups.some(([, each]) => each.some(([id]) => id === chosen));
    const option = ([id, label]) => el("option", { value: id, selected: id === chosen }, label);
    return el("label", { class: "axis-name" }, swatch(i), " ", t("web.compare." + side), " ",
      el("select", { id: "side-" + side, onchange: (event) => set({ [side]: event.target.value, curve: null }) }, known ? null : option([chosen, chosen]),
        groups.map(([name, each]) => el("optgroup", { label: t("web.facet." + name) }, each.map(option)))));
  };
  const word = (side) => el("label", {}, side.toUpperCase() + " ", el("input", { value: ctx.params.get(side) || "", onchange: (event) => set({ [side]: event.target.value, curve: null }) }));
  return el("section", { class: "asks board-head", "aria-label": t("web.filters") }, pick("a", 0), pick("b", 1),
    el("details", { class: "left-out" }, el("summary", {}, t("web.compare.words")), el("p", { class: "note" }, t("web.compare.words.next")), word("a"), " ", word("b")));
}

function said(ctx, view, box) {
  const { t } = ctx;
  const lists = [["A", view.left_a], ["B", view.left_b]].filter(([, each]) => each.length);
  return [
    notice(view.counts.worse && view.counts.better ? "warn" : BANDS[view.verdict] || "info", el("h2", {}, MARKS[view.verdict], view.headline), el("p", {}, view.common), view.hints.map((hint) => el("p", {}, hint))),
    view.curves.some((each) => each.text) ? el("section", { class: "board cost-board" }, el("div", { class: "board-head curve-pick" }), box, el("div", { class: "board-foot curve-said" })) : null,
    view.pairs.length ? [
      [["figures", figures], ["pairs", pairs]].map(([name, rows]) => el("section", { class: "rows" }, el("div", { class: "title-row" }, el("h2", {}, t("web.compare." + name))), rows(ctx, view))),
    ] : empty(t("web.compare.none")),
    el("div", { class: "left-part" },
      lists.map(([side, each]) => el("details", { class: "left-out" }, el("summary", {}, side + " · " + t("web.compare.left", { count: each.length })), el("ul", {}, each.map((one) => el("li", {}, el("a", { href: ctx.href("/point/" + one.ref) }, one.label), ": ", one.reason))))),
      view.how.length ? el("details", { class: "left-out" }, el("summary", {}, t("web.compare.how")), el("ul", {}, view.how.map((each) => el("li", {}, each)))) : null),
  ];
}

const verdict = (each) => el("span", { class: "change " + each.verdict }, el("b", {}, (MARKS[each.verdict] || "") + each.verdict_text));

function figures(ctx, view) {
  const { t } = ctx;
  const words = new Map(view.pairs.flatMap((pair) => pair.judged.map((each) => [each.verdict, each.verdict_text])));
  return table({
    caption: t("web.compare.figures"),
    columns: [
      { key: "figure", label: t("web.compare.figure"), value: (each) => each.label, cell: (each) => el("span", { title: each.definition }, each.label) },
      { key: "verdict", label: t("web.compare.verdict"), value: (each) => each.verdict_text, cell: (each) => (each.verdict ? verdict(each) : "—") },
      { key: "mean", label: t("web.compare.mean"), number: true, value: (each) => each.mean_percent, cell: (each) => each.mean_text || "—" },
      ...["worse", "better", "cannot_tell", "same"].filter((name) => words.has(name)).map((name) => ({ key: name, label: words.get(name), number: true, value: (each) => each.counts[name] || 0 })),
    ],
    rows: view.metrics,
    more: (count) => t("web.table.more", { count }),
  }).node;
}

function pairs(ctx, view) {
  const { t } = ctx;
  const rows = view.pairs.flatMap((pair) => pair.judged.map((each) => ({ pair, ...each })));
  const order = ["worse", "better", "cannot_tell", "same"];
  rows.sort((x, y) => (order.indexOf(x.verdict) + 9) % 9 - (order.indexOf(y.verdict) + 9) % 9 || (x.p_adjusted || 0) - (y.p_adjusted || 0));
  const value = (side) => ({ key: side, label: side.toUpperCase(), number: true, value: (each) => each[side], cell: (each) => (each[side] === null ? "—" : el("a", { href: ctx.href("/point/" + each.pair[side + "_refs"][0]) }, each[side + "_text"], each["n_" + side] > 1 ? " ×" + each["n_" + side] : "")) });
  return table({
    caption: t("web.compare.pairs"),
    columns: [
      { key: "figure", label: t("web.compare.figure"), value: (each) => each.label },
      { key: "verdict", label: t("web.compare.verdict"), value: (each) => each.verdict_text, cell: (each) => el("span", { title: [each.reason, each.noise].filter(Boolean).join("\n") || null }, verdict(each)) },
      { key: "effect", label: t("web.compare.effect"), number: true, value: (each) => each.effect, cell: (each) => each.effect_text || "—" },
      { key: "point", label: t("web.compare.point"), value: (each) => each.pair.label, cell: (each) => el("span", { title: each.pair.changed.map((one) => one.label + ": " + one.a + " → " + one.b).join("\n") || null }, each.pair.label) },
      value("a"),
      value("b"),
      { key: "interval", label: t("web.compare.interval"), number: true, value: (each) => each.low, cell: (each) => each.interval_text || "—" },
    ],
    rows,
    more: (count) => t("web.table.more", { count }),
  }).node;
}

// The curve that is worth a look first: a difference, one line rather than many, many points; as the terminal chooses.
function telling(drawn) {
  const worth = (each) => (each.verdict === "worse" || each.verdict === "better" ? 1e6 : 0) + (each.kind === "line" ? 1e5 : 0) + each.a.length + each.b.length;
  return drawn.reduce((best, each, i) => (worth(each) > worth(drawn[best]) ? i : best), 0);
}

function draw(ctx, view, plot, set) {
  const { t } = ctx;
  const drawn = view.curves.filter((each) => each.text);
  const asked = ctx.params.get("curve");
  const place = Math.min(asked === null ? telling(drawn) : Number(asked) || 0, drawn.length - 1);
  const curve = drawn[place];
  const all = [...curve.a, ...curve.b];
  const how = Object.fromEntries(["x", "y"].map((name) => [name, display(curve[name].unit, all.map((each) => each[name]))]));
  const axis = (name) => ({ ...curve[name], log: false, how: how[name], word: t("web.better." + curve[name].better) });
  const points = { state: all.map(() => "on"), official: all.map(() => true), line: all.map((_, i) => (i < curve.a.length ? 0 : 1)) };
  for (const name of ["x", "y", "x_low", "x_high", "y_low", "y_high"]) points[name] = all.map((each) => each[name]);
  const series = [view.a_label, view.b_label].map((label, i) => ({ label, shown: true, path: [curve.a_path, curve.b_path][i] }));
  const order = (side) => [...all.keys()].filter((i) => points.line[i] === side).sort((i, j) => points.x[i] - points.x[j]);
  const load = (i) => (all[i].concurrency === null ? "" : "c" + all[i].concurrency);
  const words = (i) => ({ side: series[points.line[i]].label, load: load(i), x: curve.x.label + " " + how.x.text(points.x[i]), y: curve.y.label + " " + how.y.text(points.y[i]) });
  fill(document.querySelector(".curve-pick"),
    el("label", { class: "axis-name" }, el("span", { class: "sr" }, t("web.compare.curve")), el("select", { onchange: (event) => set({ curve: event.target.value }) }, drawn.map((each, i) => el("option", { value: i, selected: i === place }, (MARKS[each.verdict] || "") + t("web.compare." + each.kind) + " " + each.label)))),
    el("span", { class: "axis-way" }, curve.y.label + " (" + curve.y.unit + ")"));
  fill(document.querySelector(".curve-said"), el("p", { class: "note" }, curve.text + ". " + t("web.compare.marked")), el("span", { class: "axis-way" }, curve.x.label + " (" + curve.x.unit + ") →"));
  plot.draw({
    label: t("web.chart.label", { y: curve.y.label, x: curve.x.label, points: all.length }),
    x: axis("x"), y: axis("y"), points, series, front: [], marks: [],
    lines: [0, 1].map((side) => ({ series: side, label: series[side].label, points: order(side) })),
    href: (i) => ctx.href("/point/" + all[i].ref),
    tag: load,
    name: (i) => t("web.compare.say", words(i)),
    tip: (i) => [el("p", { class: "tip-head" }, swatch(points.line[i]), el("b", {}, words(i).side)), el("p", { class: "tip-line" }, load(i)), el("p", {}, words(i).y), el("p", {}, words(i).x)],
  });
}
