// What there is, what came last and what is doubted: the page that a day begins with.

import { el, fill } from "../dom.js";
import { group } from "../format.js";
import { scenarioName } from "../names.js";
import { empty, trouble } from "../notices.js";
import { table } from "../table.js";

const MODELS = 12; // cards; the rest on demand

export function title(t) {
  return t("web.overview.title");
}

export async function render(root, ctx) {
  const { t } = ctx;
  const [facets, view] = await Promise.all([ctx.shared("facets{}", () => ctx.get("/api/v1/facets")), ctx.get("/api/v1/overview")]);
  if (!view.store.points) {
    fill(root, el("h1", {}, t("web.overview.title")), empty(t("web.overview.none"), t("web.overview.none.next")));
    return;
  }
  const changed = el("section", { class: "part", "aria-busy": "true" }, el("h2", {}, t("web.overview.changed")), el("p", { class: "note" }, t("web.loading")));
  fill(root,
    el("h1", {}, t("web.overview.title")),
    el("p", { class: "lead" }, t("web.overview.lead", { points: group(String(view.store.points)), models: facets.models.length, date: day(view.store.newest) })),
    el("section", { class: "part" }, el("h2", {}, t("web.overview.models")), el("ul", { class: "cards" }, facets.models.slice(0, MODELS).map((model) => card(ctx, model))),
      facets.models.length > MODELS ? el("details", { class: "left-out" }, el("summary", {}, t("web.overview.more_models", { count: facets.models.length - MODELS })), el("ul", { class: "cards" }, facets.models.slice(MODELS).map((model) => card(ctx, model)))) : null),
    changed,
    el("div", { class: "halves" },
      el("section", { class: "part" }, el("h2", {}, t("web.overview.runs")), runs(ctx, view.runs)),
      el("div", {}, doubts(ctx, view), accuracy(ctx, view), leftOut(ctx, view))));
  changes(ctx, facets.default, changed);
}

// What history says of the usual selection; it comes later, since it looks through all runs.
async function changes(ctx, usual, node) {
  const { t } = ctx;
  const chosen = { model: usual.model, scenario: usual.scenario };
  try {
    const view = await ctx.get("/api/v1/history", chosen);
    const own = view.series.filter((each) => each.changes.length).map((each) => [each.changes[each.changes.length - 1], each.label]);
    own.sort(([a], [b]) => (a.date < b.date ? 1 : -1));
    const said = [...view.shared.map((each) => each.text), ...own.slice(0, 3).map(([change, label]) => label + ": " + change.text)];
    fill(node, el("h2", {}, t("web.overview.changed")),
      said.length ? el("ul", { class: "findings flat" }, said.slice(0, 5).map((text) => el("li", {}, text))) : el("p", { class: "note" }, t("web.overview.no_change")),
      el("p", {}, el("a", { href: ctx.href("/history", chosen) }, t("web.overview.history", { model: usual.model, scenario: scenarioName(t, usual.scenario) }))));
  } catch (error) {
    if (error.name !== "AbortError") fill(node, el("h2", {}, t("web.overview.changed")), trouble(error));
  }
  node.removeAttribute("aria-busy");
}

function day(text) {
  return (text || "").slice(0, 10);
}

function card(ctx, model) {
  const { t } = ctx;
  const measured = model.scenarios.filter((each) => !each.id.startsWith("eval:"));
  const shown = (measured.length ? measured : model.scenarios).slice(0, 4);
  return el("li", { class: "card" },
    el("h3", {}, model.id),
    el("ul", {}, shown.map((each) => el("li", {}, el("a", { href: ctx.href("/front", { model: model.id, scenario: each.id }) }, scenarioName(t, each.label)), el("span", { class: "count" }, group(String(each.points)))))));
}

function runs(ctx, list) {
  const { t } = ctx;
  return table({
    caption: t("web.overview.runs"),
    rows: list,
    more: (count) => t("web.table.more", { count }),
    columns: [
      { key: "run", label: t("web.column.run"), value: (row) => row.run, cell: (row) => el("a", { href: ctx.href("/front", { model: row.models.split(", ")[0], run: row.run, all: "yes" }) }, row.run) },
      { key: "date", label: t("web.column.date"), value: (row) => row.date, cell: (row) => day(row.date) || "—" },
      { key: "models", label: t("web.facet.model"), value: (row) => row.models },
      { key: "points", label: t("web.overview.points"), number: true, value: (row) => row.points },
      { key: "usable", label: t("web.overview.usable"), number: true, value: (row) => row.usable / row.points, cell: (row) => el("span", { class: row.usable < row.points ? "some-lost" : null }, row.usable + " / " + row.points) },
    ],
  }).node;
}

function doubts(ctx, view) {
  const { t } = ctx;
  return el("section", { class: "part" }, el("h2", {}, t("web.overview.doubts")),
    view.gates.length ? el("ul", { class: "tally" }, view.gates.map((each) => el("li", {}, el("b", {}, group(String(each.points))), el("span", {}, each.title), el("small", { class: "grade " + each.severity }, t("web.grade." + each.severity))))) : el("p", { class: "note" }, t("web.overview.no_doubts")));
}

// No threshold is stated for these, so nothing failed: a reader has to know.
function accuracy(ctx, view) {
  const { t } = ctx;
  if (!view.accuracy.length) return null;
  return el("section", { class: "part" }, el("h2", {}, t("web.overview.accuracy")), el("ul", { class: "plain" }, view.accuracy.map((low) => el("li", {}, el("a", { href: ctx.href("/point/" + low.ref) }, low.text)))));
}

function leftOut(ctx, view) {
  const { t } = ctx;
  if (!view.left_out.length) return null;
  return el("section", { class: "part" }, el("h2", {}, t("web.overview.left_out")), el("ul", { class: "tally" }, view.left_out.map((each) => el("li", {}, el("b", {}, group(String(each.rows))), el("span", {}, each.reason)))));
}
