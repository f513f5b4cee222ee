// Reliability: how many jobs of how many ended well, by source and hardware, over several spans; and why the others did not.

import { el, fill } from "../dom.js";
import { empty } from "../notices.js";
import { table } from "../table.js";

export function title(t) {
  return t("web.nav.reliability");
}

export async function render(root, ctx) {
  const { t } = ctx;
  const view = await ctx.get("/api/v1/reliability");
  const sources = [...new Set(view.rows.map((row) => row.source))];
  fill(root, el("h1", {}, t("web.nav.reliability")), el("p", { class: "lead" }, t("web.reliability.lead")),
    sources.length ? sources.map((source) => part(ctx, view, source)) : empty(t("web.reliability.none"), t("web.reliability.none.next")),
    view.reasons.length ? reasons(ctx, view) : null,
    view.notes.length ? el("section", { class: "notes" }, el("h2", {}, t("web.front.notes")), el("ul", { class: "plain" }, view.notes.map((text) => el("li", {}, text)))) : null);
  return null;
}

function part(ctx, view, source) {
  const { t } = ctx;
  const rows = view.rows.filter((row) => row.source === source);
  const columns = [
    { key: "hardware", label: t("web.facet.hardware"), value: (row) => row.hardware, cell: (row) => el("b", {}, row.hardware) },
    ...view.windows.map((name, i) => ({ key: name, label: view.window_labels[i], number: true, value: (row) => row.cells[i].share, cell: (row) => share(row.cells[i]) })),
  ];
  return el("section", { class: "rows" },
    el("div", { class: "title-row" }, el("h2", {}, rows[0].source_label), el("p", { class: "note" }, t("web.reliability.until", { day: view.until[source] }))),
    table({ caption: rows[0].source_label, columns, rows, more: (count) => t("web.table.more", { count }) }).node);
}

// The share, its interval as a thin bar from 0 to 100 %, and the numbers that it is made of.
function share(cell) {
  if (cell.share === null) return el("span", { class: "faint" }, cell.text);
  return el("span", { class: "share", title: cell.text }, el("b", {}, (100 * cell.share).toFixed(1) + " %"), el("small", {}, cell.ok + " / " + cell.total),
    el("span", { class: "share-bar", "aria-hidden": "true", vars: { "--l": cell.low, "--h": cell.high, "--s": cell.share } }));
}

function reasons(ctx, view) {
  const { t } = ctx;
  const columns = [
    { key: "text", label: t("web.reliability.why"), value: (each) => each.text, cell: (each) => each.text || each.layer_label },
    { key: "layer", label: t("web.reliability.layer"), value: (each) => each.layer_label },
    { key: "hardware", label: t("web.facet.hardware"), value: (each) => each.hardware },
    { key: "source", label: t("web.facet.source"), value: (each) => each.source_label },
    { key: "count", label: t("web.reliability.count"), number: true, value: (each) => each.count },
    { key: "last", label: t("web.reliability.last"), value: (each) => each.last },
  ];
  return el("section", { class: "rows" }, el("h2", {}, t("web.reliability.reasons")), table({ caption: t("web.reliability.reasons"), columns, rows: view.reasons, sort: { key: "count", down: true }, more: (count) => t("web.table.more", { count }) }).node);
}
