// Cost: what each series costs at a target, by a rate card that is named with its date; bars, the same rows as a table,
// and the card itself with where each figure was read.

import { debounce, el, fill } from "../dom.js";
import { filters } from "../filters.js";
import { display } from "../format.js";
import { empty, save, trouble } from "../notices.js";
import { choicesOf, moved, scope, settled } from "../scope.js";
import { table, toCsv } from "../table.js";

const FIRST = "usd_per_million_total_tokens";
const OWN = ["y"];

export function title(t) {
  return t("web.nav.cost");
}

export async function render(root, ctx) {
  const { t } = ctx;
  let now = ctx;
  const parts = {};
  for (const name of ["picks", "filters", "asks", "body"]) parts[name] = el("div", { class: "cost-" + name + (name === "picks" ? " heads" : name === "filters" ? " filter-part" : "") });
  fill(root, el("h1", { class: "sr" }, t("web.nav.cost")), parts.picks, el("p", { class: "lead-line" }, t("web.cost.lead")), el("section", { class: "asks", "aria-label": t("web.filters") }, parts.filters), parts.asks, parts.body);
  const set = (changes, again = true) => {
    now = moved(now, changes);
    return load(again);
  };
  let view = null;
  let cards = null;

  async function load(again = true) {
    root.setAttribute("aria-busy", "true");
    try {
      let facets = await choicesOf(now);
      now = settled(now, facets);
      facets = await choicesOf(now);
      const asked = now.params.toString();
      if (again || !view) [view, cards] = await Promise.all([now.get("/api/v1/costs", without(now.params)), ctx.shared("cards", () => now.get("/api/v1/cards"))]);
      if (asked !== now.params.toString()) return;
      if (!parts.picks.contains(document.activeElement)) fill(parts.picks, scope(now, facets, set));
      if (!parts.filters.contains(document.activeElement)) fill(parts.filters, filters(now, facets, set));
      if (!parts.asks.contains(document.activeElement)) fill(parts.asks, asks(now, view, cards, set));
      fill(parts.body, body(now, view));
    } catch (error) {
      if (error.name !== "AbortError") fill(parts.body, trouble(error, () => load()));
    } finally {
      root.removeAttribute("aria-busy");
    }
  }

  await load();
  return { update: (next) => { now = next; return load(); } };
}

function without(params) {
  const kept = new URLSearchParams(params);
  for (const name of OWN) kept.delete(name);
  return kept;
}

function asks(ctx, view, cards, set) {
  const { t } = ctx;
  const chosen = view.card ? view.card.edition : "";
  const target = debounce((value) => set({ target: value || null }), 250);
  const shown = ctx.params.get("y") || FIRST;
  return el("div", { class: "cost-controls" },
    el("label", {}, el("span", {}, t("web.cost.card")), el("select", { onchange: (event) => set({ card: event.target.value }) }, cards.cards.map((card) => el("option", { value: card.edition, selected: card.edition === chosen }, card.name + " · " + card.date + " (" + card.origin_label + ")")))),
    el("label", {}, el("span", {}, t("web.target", { metric: view.x.label })), el("span", { class: "target-box" }, el("input", { type: "number", min: "0", step: "any", inputmode: "decimal", value: ctx.params.get("target"), placeholder: view.target === null ? null : String(view.target), oninput: (event) => target(event.target.value) }), el("span", { class: "unit" }, view.x.unit))),
    el("label", {}, el("span", {}, t("web.cost.metric")), el("select", { onchange: (event) => set({ y: event.target.value }, false) }, view.columns.map((each) => el("option", { value: each.address, selected: each.address === shown }, each.label)))));
}

function cell(at, address) {
  return at && at.costs.find((each) => each.address === address);
}

function value(at, address) {
  const found = cell(at, address);
  return found ? found.value : null;
}

function body(ctx, view) {
  const { t } = ctx;
  if (!view.rows.length) return empty(t("web.cost.none"), t("web.cost.none.next"));
  const info = view.columns.find((each) => each.address === (ctx.params.get("y") || FIRST)) || view.columns[0];
  const rows = view.rows.filter((row) => value(row.measured, info.address) !== null);
  const others = view.rows.filter((row) => !rows.includes(row));
  rows.sort((a, b) => (info.better === "lower" ? 1 : -1) * (value(a.measured, info.address) - value(b.measured, info.address)));
  const card = view.card ? t("web.cost.by", { name: view.card.name, date: view.card.date }) : "";
  return [
    rows.length ? el("section", { class: "board cost-board" },
      el("div", { class: "legend-head" }, el("h2", {}, info.label, el("span", { class: "unit" }, " " + info.unit)), el("span", {}, t("web.cost.at", { target: view.target_text }) + " · " + card)),
      el("p", { class: "note" }, el("span", { class: "axis-way" }, (info.better === "lower" ? "↓ " : "↑ ") + t("web.better." + info.better)), " · ", info.definition),
      bars(ctx, rows, info),
      el("p", { class: "note" }, t("web.cost.key"))) : empty(t("web.cost.no_cost"), t("web.cost.no_cost.next")),
    others.length ? el("details", { class: "left-out", open: !rows.length }, el("summary", {}, t("web.cost.without", { count: others.length })), el("ul", { class: "reasons" }, others.map((row) => el("li", {}, el("b", {}, row.label), " ", reason(row, info))))) : null,
    all(ctx, view, card),
    view.card ? cardPart(ctx, view.card) : null,
    el("section", { class: "notes" }, el("h2", {}, t("web.front.notes")), el("ul", { class: "plain" }, view.notes.map((text) => el("li", {}, text)))),
  ];
}

function reason(row, info) {
  const found = cell(row.measured, info.address);
  return (found && found.absent_because) || row.said || "";
}

// A bar for the measured point; a tick where the estimate of one line lies.
function bars(ctx, rows, info) {
  const { t } = ctx;
  const known = rows.flatMap((row) => [value(row.measured, info.address), value(row.estimate, info.address)]).filter((each) => each !== null);
  const most = Math.max(...known);
  const how = display(info.unit, known);
  return el("ol", { class: "cost-bars" }, rows.map((row) => {
    const [here, guess] = [value(row.measured, info.address), value(row.estimate, info.address)];
    const formula = cell(row.measured, info.address).formula;
    return el("li", {},
      el("a", { href: ctx.href("/point/" + row.measured.refs[0]), class: "cost-name" }, el("b", {}, row.label), el("span", {}, row.measured.configuration + " · " + row.measured.x_text)),
      el("span", { class: "cost-track", vars: { "--w": here / most, "--e": guess === null ? 0 : guess / most } }, el("span", { class: "cost-fill" }), guess === null ? null : el("span", { class: "cost-tick", title: t("web.cost.estimate", { value: how.text(guess), where: row.estimate.configuration }) })),
      el("span", { class: "cost-value", title: formula }, how.number(here), guess === null ? null : el("small", {}, t("web.cost.est", { value: how.number(guess) }))));
  }));
}

function all(ctx, view, card) {
  const { t } = ctx;
  const rows = view.rows.flatMap((row) => [row.measured, row.estimate].filter(Boolean).map((at) => ({ row, at })));
  if (!rows.length) return null;
  const shown = (info) => display(info.unit, rows.map(({ at }) => value(at, info.address)));
  const columns = [
    { key: "series", label: t("web.column.series"), value: ({ row }) => row.label, cell: ({ row, at }) => el("span", { class: "cost-name" }, el("b", {}, row.label), el("span", {}, at.configuration)) },
    { key: "kind", label: t("web.cost.kind"), value: ({ at }) => t(at.estimated ? "web.cost.estimated" : "web.cost.measured") },
    { key: "x", label: view.x.label + " (" + view.x.unit + ")", number: true, csv: view.x.address, value: ({ at }) => at.x, cell: ({ at }) => at.x_text.replace(/[^0-9.,\u202f]+.*/, "") },
    ...view.columns.map((info) => {
      const how = shown(info);
      return { key: info.address, label: info.label + " (" + info.unit + ")", title: info.definition, number: true, csv: info.address, value: ({ at }) => value(at, info.address), cell: ({ at }) => {
        const found = cell(at, info.address);
        return el("span", { title: found.formula || found.absent_because }, how.number(found.value));
      } };
    }),
    { key: "card", label: t("web.cost.card"), value: ({ at }) => at.card },
  ];
  const made = table({ caption: t("web.cost.rows") + " · " + card, columns, rows, more: (count) => t("web.table.more", { count }) });
  const csv = () => save("servemark-cost.csv", "text/csv", toCsv(columns, rows));
  return el("section", { class: "rows" }, el("div", { class: "title-row" }, el("h2", {}, t("web.cost.rows")), el("div", { class: "tools" }, el("button", { type: "button", class: "quiet", onclick: csv }, "CSV"))), el("p", { class: "note" }, card), made.node);
}

function cardPart(ctx, card) {
  const { t } = ctx;
  const source = (text, read) => (text ? [/^https?:/.test(text) ? el("a", { href: text, rel: "noreferrer noopener", target: "_blank" }, text.replace(/^https?:\/\//, "")) : text, el("span", { class: "faint" }, " · " + read)] : "—");
  const columns = [
    { key: "gpu", label: "GPU", value: (gpu) => gpu.gpu },
    { key: "usd", label: t("web.cost.price"), number: true, value: (gpu) => gpu.usd_per_gpu_hour, cell: (gpu) => (gpu.usd_per_gpu_hour === null ? "—" : gpu.usd_per_gpu_hour) },
    { key: "price", label: t("web.cost.source"), value: (gpu) => gpu.price_source, cell: (gpu) => source(gpu.price_source, gpu.price_read) },
    { key: "kw", label: t("web.cost.power"), number: true, value: (gpu) => gpu.kw_per_gpu, cell: (gpu) => (gpu.kw_per_gpu === null ? "—" : gpu.kw_per_gpu) },
    { key: "scope", label: t("web.cost.scope"), value: (gpu) => gpu.power_scope_label, cell: (gpu) => gpu.power_scope_label || "—" },
    { key: "from", label: t("web.cost.source"), value: (gpu) => gpu.power_source, cell: (gpu) => source(gpu.power_source, gpu.power_read) },
    { key: "note", label: t("web.cost.note"), value: (gpu) => gpu.note, cell: (gpu) => gpu.note || "" },
  ];
  return el("section", { class: "rows card-part" }, el("h2", {}, t("web.cost.card_of", { name: card.name, date: card.date })), el("p", { class: "note" }, card.origin_label, card.note ? ". " + card.note : ""), table({ caption: card.edition, columns, rows: card.gpus, more: (count) => t("web.table.more", { count }) }).node);
}
