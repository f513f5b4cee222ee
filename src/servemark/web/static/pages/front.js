// Fronts: what was measured of one model and scenario, its staircase, a read at a target, the same rows as a table.

import { chart, style, swatch } from "../chart.js";
import { debounce, el, fill } from "../dom.js";
import { axisPicker, splitAxes } from "../axes.js";
import { filters } from "../filters.js";
import { display, exact, range } from "../format.js";
import { scenarioName } from "../names.js";
import { copy, empty, notice, save, trouble } from "../notices.js";
import { dropZone } from "../overlay.js";
import { picture } from "../png.js";
import { query, report } from "../state.js";
import { table, toCsv } from "../table.js";

// What of the address is the page's own and no part of the question to the server.
const OWN = ["log", "series", "only", "sort"];
const BEST = 3; // series that are drawn in any case where somebody asks for a target

export function title(t) {
  return t("web.front.title");
}

export async function render(root, ctx) {
  let now = ctx;
  const early = ctx.params.has("x") ? ask(ctx).catch(() => null) : null; // a whole address needs no choices first
  settle(ctx, await choicesOf(ctx));
  const parts = skeleton(ctx);
  const plot = chart(parts.chart, ctx);
  const state = { facets: null, parts, plot, view: null, set: (changes, again = true) => move(changes, again) };
  const drops = ctx.report ? null : dropZone(root, ctx, (id) => move({ overlay: id }));

  async function move(changes, again = true) {
    now.set(changes, { replace: !again || Object.hasOwn(changes, "target") });
    now = { ...now, params: new URLSearchParams(location.href.includes("#") && now.report ? location.hash.split("?")[1] : location.search) };
    now.params.delete("lang");
    if (again) await load(null);
    else paint(now, state);
  }

  async function load(given) {
    parts.node.setAttribute("aria-busy", "true");
    const asked = now.params.toString();
    try {
      const [view, facets] = await Promise.all([given || ask(now), choicesOf(now)]);
      if (asked !== now.params.toString()) return;
      Object.assign(state, { view, facets });
      if (!now.params.has("y")) { // the answer's choice is part of the address from here on: a link shows the same later
        now.set({ y: view.y.address });
        now.params.set("y", view.y.address);
      }
      if (!parts.node.isConnected) fill(root, parts.node);
      paint(now, state);
    } catch (error) {
      if (error.name === "AbortError") return;
      if (!state.view) throw error; // nothing to stay at: the frame tells of it
      fill(parts.trouble, trouble(error, () => load(null)));
    } finally {
      if (asked === now.params.toString() || settledUp(asked, now.params)) parts.node.removeAttribute("aria-busy");
    }
  }

  const first = early && (await early);
  state.drops = drops;
  const close = () => {
    plot.close();
    if (drops) drops.close();
  };
  try {
    await load(first);
  } catch (error) {
    close();
    throw error;
  }
  return {
    update: async (next) => {
      now = next;
      settle(now, await choicesOf(now));
      await load(null);
    },
    close,
  };
}

// Whether an address is the one asked for, with the upper axis that the answer chose.
function settledUp(asked, params) {
  const before = new URLSearchParams(params);
  before.delete("y");
  return before.toString() === asked;
}

function ask(ctx) {
  return ctx.get("/api/v1/front", asked(ctx.params));
}

// What there is to choose from, with the counts of this model and scenario.
function choicesOf(ctx) {
  const chosen = { model: ctx.params.get("model"), scenario: ctx.params.get("scenario") };
  return ctx.shared("facets" + JSON.stringify(chosen), () => ctx.get("/api/v1/facets", chosen));
}

function asked(params) {
  const kept = new URLSearchParams(params);
  for (const name of OWN) kept.delete(name);
  return kept;
}

// A first visit gets the usual view, and its address says so: a copied link shows the same later.
function settle(ctx, facets) {
  const usual = facets.default || {};
  const missing = {};
  const fresh = !ctx.params.has("x"); // an address that this page wrote has its axes; there, no precision means any
  if (fresh && !ctx.params.has("run")) for (const key of ["model", "scenario", "precision"]) if (!ctx.params.has(key)) missing[key] = usual[key];
  // What is measured up the chart is left to the answer: these points may not have what the most of the store have.
  for (const key of ctx.report ? ["x", "y"] : ["x"]) if (!ctx.params.has(key)) missing[key] = usual[key];
  if (!Object.values(missing).some(Boolean)) return;
  ctx.set(missing);
  for (const [key, value] of query(missing)) ctx.params.set(key, value);
}

function skeleton(ctx) {
  const { t } = ctx;
  const block = (name, tag = "div") => el(tag, { class: name });
  const parts = { badges: block("badges"), heading: el("h1", { class: "sr" }), lead: el("p", { class: "lead-line" }), findings: block("findings"), picks: block("heads"), filters: block("filter-part"), banner: block("banner"), trouble: block("trouble") };
  Object.assign(parts, { yAxis: block("axis-pick y"), xAxis: block("axis-pick x"), chart: block("chart-box"), legend: block("legend"), read: el("div", { class: "read-part", "aria-live": "polite" }), words: el("p", { class: "note" }), target: block("target-pick"), options: block("view-options") });
  Object.assign(parts, { table: block("table-box"), tableTools: block("tools"), chartTools: block("tools"), left: block("left-out"), notes: block("notes") });
  parts.node = el("div", { class: "front-page" },
    parts.heading,
    el("div", { class: "title-row" }, parts.picks, parts.chartTools),
    parts.badges,
    parts.lead,
    parts.banner,
    el("section", { class: "asks", "aria-label": t("web.filters") }, parts.filters),
    parts.trouble,
    el("section", { class: "board", "aria-label": t("web.front.chart") },
      el("div", { class: "board-head" }, parts.yAxis, parts.target),
      el("div", { class: "board-body" }, el("div", { class: "plot-part" }, parts.chart, parts.xAxis), el("div", { class: "side" }, parts.read, parts.legend)),
      el("div", { class: "board-foot" }, parts.words, parts.options)),
    parts.findings,
    el("section", { class: "rows" }, el("div", { class: "title-row" }, el("h2", {}, t("web.front.rows")), parts.tableTools), parts.table),
    parts.left,
    parts.notes);
  return parts;
}

function paint(ctx, state) {
  const { parts, view, facets } = state;
  const { t } = ctx;
  const how = { x: display(view.x.unit, view.columns.x), y: display(view.y.unit, view.columns.y) };
  const only = ctx.params.get("only");
  const shown = shownSeries(ctx, view);
  const drawn = view.series.map((each, i) => ({ ...each, shown: shown.has(i) }));
  const none = !canStand(view);
  fill(parts.trouble, none && view.columns.x.length ? keptOff(ctx, view) : null);
  parts.node.classList.toggle("void", none);
  const data = chartData(ctx, view, drawn, how, only !== "front");
  const counts = state.plot.draw(data); // first: it reads its width, and nothing else has changed yet
  parts.heading.textContent = headline(ctx, facets);
  ctx.heading(headline(ctx, facets));
  fill(parts.badges, (view.badges || []).map((text) => el("span", { class: "pill warn" }, text)));
  parts.lead.textContent = view.findings[0] || "";
  const rest = view.findings.slice(1).filter((text) => !view.target || text !== view.target.text);
  fill(parts.findings, rest.length ? [el("h2", { class: "sr" }, t("web.front.findings")), el("ul", {}, rest.map((text) => el("li", {}, text)))] : null);
  fill(parts.banner, ctx.params.get("overlay") ? banner(ctx, state) : null);
  if (!keepsFocus(parts.picks)) fill(parts.picks, picks(ctx, state));
  if (!keepsFocus(parts.filters)) fill(parts.filters, ctx.report ? null : filters(ctx, facets, state.set));
  axes(ctx, state);
  parts.words.textContent = inWords(t, view, drawn, counts, only);
  fill(parts.read, reading(ctx, view, how));
  if (!keepsFocus(parts.legend)) legend(ctx, state, how, drawn, shown);
  else refreshLegend(parts.legend, shown);
  if (!keepsFocus(parts.target)) fill(parts.target, ctx.report ? null : targetPick(ctx, state, how));
  if (!keepsFocus(parts.options)) fill(parts.options, viewOptions(ctx, state));
  const key = [...shown].join(" "); // a change of scale leaves the rows as they are
  if (state.rowsOf !== view || state.rowsKey !== key) soon(state, () => rows(ctx, state, how, shown));
  Object.assign(state, { rowsOf: view, rowsKey: key });
  tools(ctx, state, how);
  fill(parts.left, leftOut(ctx, view));
  fill(parts.notes, view.notes.length ? [el("h2", {}, t("web.front.notes")), el("ul", { class: "plain" }, view.notes.map((text) => el("li", {}, text)))] : null);
}

// The table stands below the chart and is filled when the chart has been seen; only the last one asked for is made.
function soon(state, make) {
  const host = state.parts.table;
  state.making = make;
  host.setAttribute("aria-busy", "true");
  const now = () => {
    if (state.making !== make) return;
    state.making = null;
    make();
    host.removeAttribute("aria-busy");
  };
  if (window.requestIdleCallback) requestIdleCallback(now, { timeout: 300 });
  else setTimeout(now, 60);
}

// A control that the reader is using stays as it is.
function keepsFocus(node) {
  return node.contains(document.activeElement);
}

function headline(ctx, facets) {
  const model = ctx.params.get("model");
  const scenario = ctx.params.get("scenario");
  const found = (facets.models || []).find((each) => each.id === model);
  const said = found && found.scenarios.find((each) => each.id === scenario);
  return [model, scenarioName(ctx.t, said ? said.label : scenario)].filter(Boolean).join(" · ") || ctx.t("web.front.title");
}

function picks(ctx, state) {
  const { t } = ctx;
  const { facets, set } = state;
  const model = ctx.params.get("model");
  const found = (facets.models || []).find((each) => each.id === model);
  const pick = (name, options, onchange) => el("label", {}, el("span", { class: "sr" }, t("web.facet." + name)), choices(options, ctx.params.get(name) || "", onchange));
  const counted = (id, name, points, chosen) => [id, id === chosen ? name : t("web.count", { name, points })];
  const models = facets.models.map((each) => counted(each.id, each.id, each.points, model));
  const scenarios = ((found && found.scenarios) || []).map((each) => counted(each.id, scenarioName(t, each.label), each.points, ctx.params.get("scenario")));
  return [
    pick("model", withAny(t, "model", models, model), (value) => {
      const next = facets.models.find((each) => each.id === value);
      const same = next && next.scenarios.find((each) => each.id === ctx.params.get("scenario"));
      set({ model: value, scenario: next && !same && next.scenarios.length ? next.scenarios[0].id : ctx.params.get("scenario"), y: null, precision: null, series: null, target: null }); // another model may have other figures
    }),
    pick("scenario", withAny(t, "scenario", scenarios, ctx.params.get("scenario")), (value) => set({ scenario: value || null, series: null, target: null })),
  ];
}

function withAny(t, name, options, chosen) {
  if (report && chosen) return options; // a report holds its selection and no more
  const known = !chosen || options.some(([id]) => id === chosen);
  return [["", t("web.any." + name)], ...(known ? [] : [[chosen, chosen]]), ...options];
}

function choices(options, chosen, onchange) {
  return el("select", { onchange: (event) => onchange(event.target.value) }, options.map(([id, text]) => el("option", { value: id, selected: id === chosen }, text)));
}

function axes(ctx, state) {
  const { parts, view, facets, set } = state;
  for (const name of ["x", "y"]) {
    const host = parts[name + "Axis"];
    if (!keepsFocus(host)) fill(host, axisPicker(ctx, name, view[name], splitAxes(facets.metrics), set));
  }
}

// Series by what they give at the target, the best first; none where nobody asked for a target.
function ranked(view) {
  if (!view.target || !view.target.chosen) return [];
  const sign = view.y.better === "higher" ? -1 : 1;
  const value = (each) => sign * view.columns.y[each.floor];
  return view.target.series.filter((each) => known(each.floor)).sort((a, b) => value(a) - value(b));
}

function shownSeries(ctx, view) {
  const asked = ctx.params.getAll("series");
  const found = new Set();
  view.series.forEach((each, i) => {
    if (asked.length ? asked.includes(each.id) : each.shown) found.add(i);
  });
  if (!asked.length) for (const { series } of ranked(view).slice(0, BEST)) found.add(series);
  return found;
}

function toggle(ctx, state, shown, i) {
  const next = new Set(shown);
  if (!next.delete(i)) next.add(i);
  const ids = [...next].sort((a, b) => a - b).map((each) => state.view.series[each].id);
  return state.set({ series: ids.length ? ids : ["none"] }, false);
}

function legend(ctx, state, how, drawn, shown) {
  const { t } = ctx;
  const { view } = state;
  const reads = new Map(((view.target && view.target.series) || []).map((each) => [each.series, each]));
  const value = (i) => {
    const read = reads.get(i);
    return read && known(read.floor) ? how.y.number(view.columns.y[read.floor]) : "—";
  };
  const key = (series, i, on = series.shown) => el("li", {}, el("button", { type: "button", class: "key", "aria-pressed": String(on), "data-i": i, onclick: () => toggle(latest(ctx), state, shownSeries(latest(ctx), view), i) },
    swatch(i, series.official !== false), el("span", { class: "key-name", title: series.label.length > 60 ? series.label : null }, series.label), el("span", { class: "key-value" }, value(i))));
  const place = new Map(ranked(view).map((each, at) => [each.series, at]));
  const all = drawn.map((series, i) => [series, i]);
  if (place.size) all.sort(([, a], [, b]) => (place.get(a) ?? place.size) - (place.get(b) ?? place.size) || a - b);
  const mine = all.filter(([, i]) => shown.has(i));
  const others = all.filter(([, i]) => !shown.has(i));
  const open = state.parts.legend.querySelector("details[open]") !== null;
  const rest = el("ul", {}, open ? others.map(([series, i]) => key(series, i)) : null);
  const unfold = () => { // dozens, seldom looked at; meanwhile some may have been switched on
    const now = shownSeries(latest(ctx), view);
    if (!rest.firstChild) fill(rest, others.map(([series, i]) => key(series, i, now.has(i))));
  };
  fill(state.parts.legend,
    el("div", { class: "legend-head" }, el("h3", { id: "legend-head" }, t("web.front.series")), view.target ? el("span", {}, t("web.target.unit", { unit: how.y.unit || view.y.label, value: targetText(how, view.target) })) : null),
    el("ul", { "aria-labelledby": "legend-head" }, mine.map(([series, i]) => key(series, i))),
    others.length ? el("details", { open, ontoggle: unfold }, el("summary", {}, t("web.front.others", { count: others.length })), rest) : null,
    others.length || ctx.params.has("series") ? el("p", { class: "key-tools" },
      others.length ? el("button", { type: "button", class: "quiet", onclick: () => state.set({ series: view.series.map((each) => each.id) }, false) }, t("web.front.all")) : null,
      ctx.params.has("series") ? el("button", { type: "button", class: "quiet", onclick: () => state.set({ series: null }, false) }, t("web.front.usual")) : null) : null);
}

// The query as it is now: a listener made earlier would see an old one.
function latest(ctx) {
  return { ...ctx, params: new URLSearchParams(ctx.report ? location.hash.split("?")[1] : location.search) };
}

function refreshLegend(host, shown) {
  for (const button of host.querySelectorAll("button.key")) button.setAttribute("aria-pressed", String(shown.has(Number(button.dataset.i))));
}

function chartData(ctx, view, series, how, dominated) {
  const { t } = ctx;
  const log = new Set((ctx.params.get("log") || "").split(","));
  const c = view.columns;
  const axis = (name) => ({ ...view[name], log: log.has(name), how: how[name], word: t("web.better." + view[name].better) });
  const read = view.target;
  const marks = [];
  if (read && known(read.overall.floor)) marks.push({ x: c.x[read.overall.floor], y: c.y[read.overall.floor], kind: "floor" });
  const place = (i) => view.lines[c.line[i]];
  const at = pointsAt(ctx);
  const names = (view.names = view.names || []); // said once for each view, however often it is drawn
  return {
    label: t("web.chart.label", { y: view.y.label, x: view.x.label, points: c.x.length }),
    x: axis("x"),
    y: axis("y"),
    points: c,
    series,
    lines: view.lines,
    front: view.front.path,
    dominated,
    target: read ? read.target : null,
    targetLabel: read ? targetText(how, read) : "",
    marks,
    href: (i) => at(c.ref[i]),
    tag: (i) => place(i).label,
    name: (i) => names[i] || (names[i] = t("web.chart.point", { series: series[place(i).series].label, line: place(i).label, load: load(t, c.concurrency[i]), x: view.x.label + " " + how.x.text(c.x[i]), y: view.y.label + " " + how.y.text(c.y[i]), state: stateText(t, view, i) })),
    tip: (i) => tip(ctx, view, series, how, i),
  };
}

function pointHref(ctx, ref) {
  return pointsAt(ctx)(ref);
}

// Addresses of many points: what they have in common is made once.
function pointsAt(ctx) {
  const [before, after] = ctx.href("/point/~").split("~");
  return (ref) => before + (/^[\w:.-]+$/.test(ref) ? ref : encodeURIComponent(ref)) + after;
}

// As it was asked for; one that nobody chose with no more digits than any figure.
function targetNumber(how, read) {
  const [asked, shown] = [exact(how.x, read.target), how.x.number(read.target)];
  return read.chosen || asked.length <= shown.length ? asked : shown;
}

function targetText(how, read) {
  return targetNumber(how, read) + (how.x.unit ? " " + how.x.unit : "");
}

function load(t, concurrency) {
  return concurrency === null ? t("web.load.open") : t("web.load", { n: concurrency });
}

// Whether any point may stand on a front of some axes: not all are quarantined or failed.
function canStand(view) {
  return view.columns.state.some((each) => each !== "excluded"); // without a value on an axis: another axis may have one
}

function keptOff(ctx, view) {
  const { t } = ctx;
  const c = view.columns;
  const seen = new Map(); // reason -> the first point that has it
  c.reason.forEach((reason, i) => {
    if (known(reason) && !seen.has(reason)) seen.set(reason, i);
  });
  const told = [...seen].slice(0, 3).map(([reason, i]) => el("li", {}, view.reasons[reason] + " ", el("a", { href: pointHref(ctx, c.ref[i]) }, t("web.front.kept_off.next"))));
  return el("div", { class: "notice warn" }, el("p", {}, el("b", {}, t("web.front.kept_off"))), el("ul", {}, told));
}

function stateText(t, view, i) {
  const reason = view.columns.reason[i];
  const state = t("web.state." + view.columns.state[i]);
  return reason === null || reason === undefined ? state : state + ": " + view.reasons[reason];
}

function tip(ctx, view, series, how, i) {
  const { t } = ctx;
  const c = view.columns;
  const line = view.lines[c.line[i]];
  const value = (name) => [el("dt", {}, view[name].label), el("dd", {}, how[name].text(c[name][i]), band(how[name], c[name + "_low"], c[name + "_high"], i))];
  return [
    el("p", { class: "tip-head" }, swatch(line.series, c.official[i] !== false), el("b", {}, series[line.series].label)),
    el("p", { class: "tip-line" }, line.label, " · ", load(t, c.concurrency[i])),
    el("dl", {}, value("y"), value("x")),
    el("p", { class: "tip-foot" }, stateText(t, view, i), line.date ? " · " + line.date : "", c.official[i] === false ? " · " + t("web.unofficial") : ""),
  ];
}

function band(how, lows, highs, i) {
  if (!lows || !known(lows[i]) || !known(highs[i])) return null;
  return el("small", {}, " (" + range(how, lows[i], highs[i]) + ")");
}

function known(v) {
  return v !== null && v !== undefined;
}

function inWords(t, view, series, counts, only) {
  const said = [t("web.chart.drawn", { drawn: counts.drawn, all: view.columns.x.length })];
  const off = series.filter((each) => !each.shown).length;
  if (off) said.push(t("web.chart.off", { series: off }));
  if (counts.outside) said.push(t("web.chart.outside", { points: counts.outside }));
  if (view.front.path.length) said.push(t("web.chart.ground"));
  if (view.columns.y_low.some(known)) said.push(t("web.compare.marked"));
  if (only === "front") said.push(t("web.chart.only"));
  return said.join(" ");
}

function targetPick(ctx, state, how) {
  const { t } = ctx;
  const { view, set } = state;
  const value = ctx.params.get("target");
  const change = debounce((input) => {
    const number = Number(input.value);
    if (input.value && Number.isFinite(number)) set({ target: String(Number((number / how.x.factor).toPrecision(10))) });
    else if (!input.value) set({ target: null });
  }, 160);
  return el("label", { class: "target-label" }, el("span", {}, t("web.target", { metric: view.x.label })),
    el("span", { class: "target-box" }, el("input", { type: "number", inputmode: "decimal", step: "any", value: value === null || value === "" ? null : Number((Number(value) * how.x.factor).toPrecision(10)), placeholder: view.target ? targetNumber(how, view.target) : t("web.target.hint"), oninput: (event) => change(event.target) }), how.x.unit ? el("span", { class: "unit" }, how.x.unit) : null));
}

function reading(ctx, view, how) {
  const { t } = ctx;
  const read = view.target;
  if (!read) return null;
  const floor = read.overall.floor;
  const head = el("h3", {}, t("web.target.head", { value: targetText(how, read) }));
  if (!known(floor)) return el("section", { class: "read-card none" }, head, el("p", {}, read.text));
  const c = view.columns;
  const line = view.lines[c.line[floor]];
  const estimate = read.overall.estimate;
  const of = (i) => load(t, c.concurrency[i]);
  return el("section", { class: "read-card" }, head,
    el("p", { class: "big" }, how.y.number(c.y[floor]), el("span", { class: "unit" }, " " + (how.y.unit || view.y.label))),
    el("p", {}, el("a", { class: "read-who", href: pointHref(ctx, c.ref[floor]) }, swatch(line.series), view.series[line.series].label)),
    el("p", { class: "faint" }, t("web.target.floor", { line: line.label, load: of(floor), x: how.x.text(c.x[floor]) })),
    estimate ? el("p", { class: "estimate" }, t("web.target.estimate", { y: how.y.text(estimate.y), series: view.series[view.lines[c.line[estimate.low]].series].label, line: view.lines[c.line[estimate.low]].label, low: of(estimate.low), high: of(estimate.high) })) : null,
    read.overall.below_measured ? el("p", { class: "faint" }, t("web.target.below")) : null);
}

function viewOptions(ctx, state) {
  const { t } = ctx;
  const log = new Set((ctx.params.get("log") || "").split(",").filter(Boolean));
  const tick = (label, on, change) => el("label", { class: "tick-box" }, el("input", { type: "checkbox", checked: on, onchange: (event) => change(event.target.checked) }), label);
  const logs = (name) => (on) => {
    const next = new Set((latest(ctx).params.get("log") || "").split(",").filter(Boolean));
    if (on) next.add(name);
    else next.delete(name);
    state.set({ log: [...next].join(",") || null }, false);
  };
  return [
    tick(t("web.options.dominated"), ctx.params.get("only") !== "front", (on) => state.set({ only: on ? null : "front" }, false)),
    tick(t("web.options.log_x"), log.has("x"), logs("x")),
    tick(t("web.options.log_y"), log.has("y"), logs("y")),
  ];
}

function columnsOf(ctx, view, how) {
  const { t } = ctx;
  const c = view.columns;
  const line = (i) => view.lines[c.line[i]];
  const figure = (info, shown, values, lows, highs, key) => ({ key, label: shown.unit ? info.label + " (" + shown.unit + ")" : info.label, csv: info.address + (info.unit ? " (" + info.unit + ")" : ""), title: info.definition, number: true, value: (i) => values[i], cell: (i) => [shown.number(values[i]), lows && known(lows[i]) ? el("small", {}, " " + shown.number(lows[i]) + "–" + shown.number(highs[i])) : null] });
  return [
    { key: "series", label: t("web.column.series"), value: (i) => view.series[line(i).series].label, cell: (i) => el("a", { class: "row-name", href: pointHref(ctx, c.ref[i]) }, swatch(line(i).series, c.official[i] !== false, true), el("span", {}, view.series[line(i).series].label)) },
    { key: "line", label: t("web.column.topology"), value: (i) => line(i).label },
    { key: "concurrency", label: t("web.column.concurrency"), number: true, value: (i) => c.concurrency[i], cell: (i) => (c.concurrency[i] === null ? t("web.load.open") : String(c.concurrency[i])) },
    figure(view.x, how.x, c.x, c.x_low, c.x_high, "x"),
    figure(view.y, how.y, c.y, c.y_low, c.y_high, "y"),
    { key: "state", label: t("web.column.state"), value: (i) => stateText(t, view, i), cell: (i) => el("span", { class: "state " + c.state[i] }, stateText(t, view, i), c.official[i] === false ? " · " + t("web.unofficial") : "") },
    ...(view.more || []).map((info) => figure(info, display(info.unit, view.values[info.address]), view.values[info.address], null, null, info.address)),
    { key: "date", label: t("web.column.date"), value: (i) => line(i).date },
    { key: "run", label: t("web.column.run"), value: (i) => line(i).run },
  ];
}

function rows(ctx, state, how, shown) {
  const { t } = ctx;
  const { view, parts } = state;
  const c = view.columns;
  const all = !canStand(view); // then the reasons are what there is to see, whatever is switched on
  const mine = [...c.x.keys()].filter((i) => all || shown.has(view.lines[c.line[i]].series));
  if (!mine.length) {
    fill(parts.table, c.x.length ? empty(t("web.front.off"), t("web.front.off.next")) : empty(t("web.front.none"), t("web.front.none.next")));
    return;
  }
  const first = ["on", "beyond", "dominated", "excluded", "absent"];
  mine.sort((a, b) => first.indexOf(c.state[a]) - first.indexOf(c.state[b]) || (c.x[a] || 0) - (c.x[b] || 0));
  const asked = (ctx.params.get("sort") || "").split("!");
  const made = table({
    caption: t("web.front.rows"),
    columns: columnsOf(ctx, view, how),
    rows: mine,
    sort: asked[0] ? { key: asked[0], down: asked[1] === "down" } : null,
    more: (count) => t("web.table.more", { count }),
    onsort: (sort) => latest(ctx).set({ sort: sort.key + (sort.down ? "!down" : "") }),
    mark: (i) => ({ class: c.state[i], vars: { "--c": style(view.lines[c.line[i]].series).colour }, onpointerenter: () => state.plot.show(i), onpointerleave: () => state.plot.hide() }),
  });
  fill(parts.table, made.node);
  state.rows = mine;
}

function tools(ctx, state, how) {
  const { t } = ctx;
  const { view, parts } = state;
  const name = "front-" + headline(ctx, state.facets).replace(/[^\p{L}\p{N}.]+/gu, "-").slice(0, 80);
  const file = (kind) => {
    if (!ctx.report) return el("a", { class: "button quiet", href: "/api/v1/front." + kind + "?" + asked(ctx.params) + "&lang=" + ctx.lang, download: name + "." + kind }, kind.toUpperCase());
    const all = [...view.columns.x.keys()];
    const columns = columnsOf(ctx, view, how);
    const made = () => (kind === "csv" ? toCsv(columns, all) : JSON.stringify(view));
    return el("button", { type: "button", class: "quiet", onclick: () => save(name + "." + kind, kind === "csv" ? "text/csv" : "application/json", made()) }, kind.toUpperCase());
  };
  if (!keepsFocus(parts.tableTools)) fill(parts.tableTools, file("csv"), file("json"));
  if (keepsFocus(parts.chartTools)) return;
  fill(parts.chartTools,
    el("button", { type: "button", class: "quiet", onclick: async (event) => {
      const button = event.currentTarget;
      const done = await copy(location.href);
      button.textContent = t(done ? "web.copied" : "web.copy.failed");
      ctx.say(button.textContent);
      setTimeout(() => fill(button, t("web.copy")), 2000);
    } }, t("web.copy")),
    el("button", { type: "button", class: "quiet", onclick: async () => save(name + ".png", "image/png", await picture(state.plot.node, {
      title: headline(ctx, state.facets),
      lines: [view.y.label + " (" + t("web.better." + view.y.better) + ") — " + view.x.label + " (" + t("web.better." + view.x.better) + ")", ...view.findings.slice(0, 2)],
      legend: view.series.map((each, i) => ({ ...each, i })).filter((each) => shownSeries(latest(ctx), view).has(each.i)),
      foot: [ctx.params.get("overlay") ? t("web.overlay.flag") : "", location.href].filter(Boolean).join(" · "),
    })) }, "PNG"),
    state.drops ? state.drops.button(t) : null);
}

function banner(ctx, state) {
  const { t } = ctx;
  const c = state.view.columns;
  const count = c.official.filter((each) => each === false).length;
  const id = ctx.params.get("overlay");
  return notice("warn overlay", el("p", {}, el("b", {}, t("web.overlay.banner", { points: count })), " ", t("web.overlay.banner.more")),
    el("button", { type: "button", onclick: () => {
      if (state.drops) state.drops.remove(id);
      state.set({ overlay: null });
    } }, t("web.overlay.remove")));
}

function leftOut(ctx, view) {
  const { t } = ctx;
  if (!view.left_out.length) return null;
  const count = view.left_out.reduce((sum, each) => sum + each.points, 0);
  return el("details", {}, el("summary", {}, t("web.front.left_out", { points: count })),
    el("ul", { class: "reasons" }, view.left_out.map((each) => el("li", {}, el("b", {}, String(each.points)), " ", each.reason))));
}
