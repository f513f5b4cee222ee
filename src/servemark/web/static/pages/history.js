// History: the same deployment at the same load through time. Values as dots, runs without a value as open marks, changes
// that are more than chance as steps, with what changed beside them.

import { axisPicker, splitAxes } from "../axes.js";
import { ticks } from "../chart.js";
import { el, fill, svg } from "../dom.js";
import { filters } from "../filters.js";
import { display, exact } from "../format.js";
import { empty, trouble } from "../notices.js";
import { choicesOf, moved, scope, settled } from "../scope.js";
import { table } from "../table.js";

const FEW = 8;

export function title(t) {
  return t("web.nav.history");
}

export async function render(root, ctx) {
  const { t } = ctx;
  let now = ctx;
  let view = null;
  let whole = false;
  const parts = {};
  for (const name of ["picks", "filters", "metric", "body"]) parts[name] = el("div", { class: { picks: "heads", filters: "filter-part no-all", metric: "axis-pick y history-metric" }[name] || "history-body" });
  fill(root, el("h1", { class: "sr" }, t("web.nav.history")), parts.picks, el("p", { class: "lead-line" }, t("web.history.lead")), el("section", { class: "asks", "aria-label": t("web.filters") }, parts.filters), parts.metric, parts.body);
  const set = (changes) => {
    now = moved(now, changes);
    return load();
  };

  async function load() {
    root.setAttribute("aria-busy", "true");
    try {
      let facets = await choicesOf(now);
      now = settled(now, facets);
      facets = await choicesOf(now);
      const asked = now.params.toString();
      const query = new URLSearchParams(now.params);
      if (query.has("y")) query.set("metric", query.get("y"));
      for (const name of ["y", "all"]) query.delete(name);
      view = await now.get("/api/v1/history", query);
      if (asked !== now.params.toString()) return;
      for (const [name, nodes] of [["picks", scope(now, facets, set)], ["filters", filters(now, facets, set)], ["metric", axisPicker(now, "y", view.metric, splitAxes(facets.metrics), set)]]) {
        if (!parts[name].contains(document.activeElement)) fill(parts[name], nodes);
      }
      paint();
    } catch (error) {
      if (error.name !== "AbortError") fill(parts.body, trouble(error, load));
    } finally {
      root.removeAttribute("aria-busy");
    }
  }

  function paint() {
    const shown = whole ? view.series : view.series.slice(0, FEW);
    const rest = view.series.length - shown.length;
    fill(parts.body, view.series.length ? [
      el("div", { class: "findings" }, el("h2", {}, t("web.history.found")), el("ul", {}, [...view.shared.map((each) => each.text), ...view.notes].map((text) => el("li", {}, text)))),
      shown.map((series) => card(now, view, series)),
      rest > 0 ? el("p", { class: "table-more" }, el("button", { type: "button", onclick: () => { whole = true; paint(); } }, t("web.history.more", { count: rest }))) : null,
    ] : empty(t("web.history.none"), t("web.history.none.next")));
    for (const host of parts.body.querySelectorAll(".history-chart")) draw(now, view, host);
  }

  const size = new ResizeObserver(() => {
    for (const host of parts.body.querySelectorAll(".history-chart")) if (Math.abs(host.clientWidth - Number(host.dataset.width || 0)) > 2) draw(now, view, host);
  });
  size.observe(root);
  await load();
  return { update: (next) => { now = next; return load(); }, close: () => size.disconnect() };
}

function card(ctx, view, series) {
  const { t } = ctx;
  const one = el("a", { href: ctx.href("/history", { model: series.model, scenario: series.scenario, y: view.metric.address, series: series.key }) }, series.label);
  return el("article", { class: "board history-card" },
    el("h2", {}, one),
    series.changes.map((change) => el("p", { class: "change " + change.verdict }, el("b", { "aria-hidden": "true" }, change.after > change.before ? "▲ " : "▼ "), change.text)),
    el("div", { class: "history-chart", "data-key": series.key }),
    series.note ? el("p", { class: "note" }, series.note) : null,
    series.changes.length ? el("details", { class: "left-out" }, el("summary", {}, t("web.history.what")), series.changes.map((change) => what(ctx, change))) : null,
    el("details", { class: "left-out" }, el("summary", {}, t("web.history.rows", { count: series.points.length })), rows(ctx, view, series)));
}

function what(ctx, change) {
  const { t } = ctx;
  const said = (text) => text || el("span", { class: "faint" }, t("web.history.unsaid"));
  return el("div", { class: "what" }, el("p", {}, change.cause),
    el("dl", {}, change.differences.filter((each) => each.before || each.after).map((each) => [el("dt", {}, each.label), el("dd", {}, said(each.before), " → ", said(each.after))])),
    change.changelog.entries.map((entry) => el("p", {}, el("a", { href: entry.link, rel: "noreferrer noopener", target: "_blank" }, t("web.history.entry", { number: entry.number })), " ", entry.description.join(" "))),
    change.changelog.others ? el("p", { class: "note" }, t("web.history.others", { count: change.changelog.others })) : null);
}

function rows(ctx, view, series) {
  const { t } = ctx;
  const columns = [
    { key: "date", label: t("web.column.date"), value: (each) => each.date, cell: (each) => el("a", { href: ctx.href("/point/" + each.ref) }, each.date) },
    { key: "value", label: view.metric.label, number: true, value: (each) => each.value, cell: (each) => (each.value === null ? el("span", { class: "state excluded" }, each.gap) : each.text) },
    { key: "run", label: t("web.column.run"), value: (each) => each.run },
    { key: "image", label: t("web.facet.image"), value: (each) => each.image, cell: (each) => each.image || "—" },
    { key: "version", label: t("web.history.version"), value: (each) => each.engine_version, cell: (each) => each.engine_version || "—" },
  ];
  return table({ caption: series.label, columns, rows: series.points, more: (count) => t("web.table.more", { count }) }).node;
}

function draw(ctx, view, host) {
  const { t } = ctx;
  const series = view.series.find((each) => each.key === host.dataset.key);
  const values = series.points.filter((each) => each.value !== null);
  const how = display(view.metric.unit, values.map((each) => each.value));
  const width = Math.max(260, host.clientWidth);
  host.dataset.width = host.clientWidth;
  const [left, right, top, bottom] = [64, width - 12, 16, 132];
  const days = series.points.map((each) => Date.parse(each.date));
  const [first, last] = [Math.min(...days), Math.max(...days)];
  let [low, high] = [Math.min(...values.map((each) => each.value)), Math.max(...values.map((each) => each.value))];
  if (!values.length) [low, high] = [0, 1]; // no scale is shown: nothing lies on it
  const room = (high - low || Math.abs(high) || 1) * 0.12;
  [low, high] = [low - room, high + room];
  const x = (day) => (last > first ? left + 8 + ((day - first) / (last - first)) * (right - left - 16) : (left + right) / 2);
  const y = (value) => bottom - ((value - low) / (high - low)) * (bottom - top);
  const median = (k) => (k ? series.changes[k - 1].after : series.changes[0].before);
  const spans = series.changes.length ? [...Array(series.changes.length + 1).keys()].map((k) => {
    const own = series.points.filter((each) => each.segment === k).map((each) => x(Date.parse(each.date)));
    return svg("path", { class: "stretch", d: "M" + (Math.min(...own) - 5) + " " + y(median(k)) + "H" + (Math.max(...own) + 5) });
  }) : null;
  const cuts = series.changes.map((change) => {
    const at = (x(Date.parse(change.since)) + x(Date.parse(change.date))) / 2;
    return svg("path", { class: "cut " + change.verdict, d: "M" + at + " " + top + "V" + bottom });
  });
  const dots = series.points.map((each, i) => {
    const gap = each.value === null;
    const at = "translate(" + x(days[i]) + " " + (gap ? bottom : y(each.value)) + ")";
    const name = t("web.history.point", { date: each.date, value: gap ? each.gap : each.text, run: each.run });
    return svg("a", { href: ctx.href("/point/" + each.ref), tabindex: i === series.points.length - 1 ? "0" : "-1", "aria-label": name }, svg("title", {}, name), svg("path", { class: gap ? "dot gap" : "dot", d: gap ? "M0 -5L5 0L0 5L-5 0Z" : "M-4.5 0a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0Z", transform: at }));
  });
  const walk = (event) => {
    const to = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const here = dots.indexOf(event.target.closest("a"));
    const next = dots[here + to];
    if (!to || !next) return;
    event.preventDefault();
    dots[here].setAttribute("tabindex", "-1");
    next.setAttribute("tabindex", "0");
    next.focus({ preventScroll: true });
  };
  fill(host, svg("svg", { class: "chart", role: "group", width, height: 160, viewBox: "0 0 " + width + " 160", "aria-label": t("web.history.chart", { series: series.label, count: series.points.length }), onkeydown: walk },
    svg("g", { "aria-hidden": "true" },
      (values.length ? [3, 5, 8].map((count) => ticks(low, high, count)).find((found) => found.length > 1) || [] : []).map((v) => [svg("path", { class: "grid", d: "M" + left + " " + y(v) + "H" + right }), svg("text", { class: "tick", x: left - 8, y: y(v) + 4, "text-anchor": "end" }, exact(how, v))]),
      svg("text", { class: "tick", x: left, y: 154 }, series.points[0].date.slice(0, 10)),
      last > first ? svg("text", { class: "tick", x: right, y: 154, "text-anchor": "end" }, series.points[series.points.length - 1].date.slice(0, 10)) : null,
      cuts, spans),
    svg("g", { class: "dots", vars: { "--c": "var(--accent)" } }, dots)));
}
