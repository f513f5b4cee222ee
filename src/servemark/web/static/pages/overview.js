// Overview: where to look, what changed for real, what is new, what is broken.

import { el, fill } from "../dom.js";
import { empty } from "../notices.js";
import { table } from "../table.js";

const FEW = 6;

export function title(t) {
  return t("web.nav.overview");
}

export async function render(root, ctx) {
  const { t } = ctx;
  const view = await ctx.get("/api/v1/overview");
  const [first, ...rest] = view.findings;
  const changed = el("section", { class: "rows", "aria-busy": "true" }, el("h2", {}, t("web.overview.changed")), el("p", { class: "note" }, t("web.overview.looking")));
  fill(root, el("h1", {}, t("web.nav.overview")), el("p", { class: "lead" }, first),
    view.starts.length ? [starts(ctx, view.starts), changed, news(ctx, view.runs)] : empty(t("web.overview.none"), t("web.overview.none.next")),
    broken(ctx, view, rest));
  if (view.starts.length) changes(ctx, view.starts[0], changed);
  return null;
}

function starts(ctx, some) {
  const { t } = ctx;
  const card = (each) => el("li", {}, el("a", { href: ctx.href("/front", { model: each.model, scenario: each.scenario }) }, el("b", {}, each.model), el("span", {}, each.scenario)),
    el("small", {}, t("web.overview.start", { points: each.points, hardware: each.hardware.length, newest: each.newest || "—" })));
  return el("section", { class: "rows" }, el("h2", {}, t("web.overview.starts")), el("ul", { class: "starts" }, some.slice(0, FEW).map(card)),
    some.length > FEW ? el("details", { class: "more-starts" }, el("summary", {}, t("web.overview.starts.more", { count: some.length - FEW })), el("ul", { class: "starts" }, some.slice(FEW).map(card))) : null);
}

// Changes that chance would seldom make, in the model and scenario with the most points: those that series share, then the newest.
async function changes(ctx, start, part) {
  const { t } = ctx;
  const asked = { model: start.model, scenario: start.scenario };
  const head = [el("h2", {}, t("web.overview.changed")), el("p", { class: "note" }, t("web.overview.changed.where", asked))];
  try {
    const view = await ctx.get("/api/v1/history", asked);
    const own = view.series.filter((each) => each.changes.length).slice(0, FEW);
    const items = [
      ...view.shared.map((each) => el("li", {}, each.text)),
      ...own.map((each) => el("li", {}, el("a", { href: ctx.href("/history", { ...asked, series: each.key }) }, each.label), ": ", each.changes[each.changes.length - 1].text)),
    ];
    fill(part, head, items.length ? el("div", { class: "findings" }, el("ul", {}, items)) : el("p", {}, t("web.overview.changed.none")),
      view.notes.length ? el("p", { class: "note" }, view.notes[0]) : null, el("p", {}, el("a", { href: ctx.href("/history", asked) }, t("web.overview.changed.all"))));
  } catch (error) {
    if (error.name !== "AbortError") fill(part, head, el("p", { class: "note" }, error.detail || error.message));
  }
  part.removeAttribute("aria-busy");
}

function news(ctx, runs) {
  const { t } = ctx;
  const columns = [
    { key: "date", label: t("web.overview.date"), value: (run) => run.date, cell: (run) => (run.date || "—").slice(0, 10) },
    { key: "run", label: t("web.facet.run"), value: (run) => run.run, cell: (run) => el("a", { href: ctx.href("/front", { model: run.models.split(",")[0], run: run.run, all: "yes" }) }, run.run) },
    { key: "source", label: t("web.facet.source"), value: (run) => run.source },
    { key: "models", label: t("web.overview.models"), value: (run) => run.models.replaceAll(",", ", ") },
    { key: "points", label: t("web.overview.points"), number: true, value: (run) => run.points },
    { key: "usable", label: t("web.overview.usable"), number: true, value: (run) => run.usable },
  ];
  return el("section", { class: "rows" }, el("h2", {}, t("web.overview.new")), table({ caption: t("web.overview.new"), columns, rows: runs, more: (count) => t("web.table.more", { count }) }).node);
}

function broken(ctx, view, sentences) {
  const { t } = ctx;
  const gates = [
    { key: "title", label: t("web.overview.gate"), value: (gate) => gate.title },
    { key: "severity", label: t("web.overview.effect"), value: (gate) => gate.severity, cell: (gate) => el("span", { class: "tag " + (gate.severity === "quarantine" ? "bad" : "warn") }, t("web.overview." + gate.severity)) },
    { key: "points", label: t("web.overview.points"), number: true, value: (gate) => gate.points },
  ];
  const whole = view.gates.length || view.left_out.length || view.accuracy.length;
  return el("section", { class: "rows" }, el("h2", {}, t("web.overview.broken")),
    whole ? sentences.map((text) => el("p", {}, text)) : el("p", {}, t("web.overview.broken.none")),
    view.accuracy.length ? [el("h3", {}, t("web.overview.accuracy")), el("ul", { class: "plain" }, view.accuracy.map((low) => el("li", {}, el("a", { href: ctx.href("/point/" + low.ref) }, low.text))))] : null,
    view.gates.length ? [el("h3", {}, t("web.overview.gates")), table({ caption: t("web.overview.gates"), columns: gates, rows: view.gates, more: (count) => t("web.table.more", { count }) }).node] : null,
    view.left_out.length ? [el("h3", {}, t("web.overview.rows")), el("ul", { class: "plain" }, view.left_out.map((row) => el("li", {}, el("b", {}, String(row.rows)), " × ", row.reason)))] : null,
    el("p", {}, el("a", { href: ctx.href("/reliability") }, t("web.overview.failed"))));
}
