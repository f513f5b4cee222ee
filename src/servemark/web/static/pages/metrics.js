// Every metric as data: what it means, which way is better, its formula and what must have been recorded for it to exist.

import { splitAxes } from "../axes.js";
import { debounce, el, fill } from "../dom.js";
import { empty } from "../notices.js";

export function title(t) {
  return t("web.metrics.title");
}

export async function render(root, ctx) {
  const { t } = ctx;
  const { metrics } = await ctx.shared("metrics", () => ctx.get("/api/v1/metrics"));
  const all = splitAxes(metrics).map((each) => ({ ...Object.values(each.statistics)[0], id: each.base, label: each.label, statistics: Object.keys(each.statistics).filter(Boolean) }));
  const list = el("div", { class: "metric-list" });
  const count = el("p", { class: "note", role: "status" });
  const search = el("input", { type: "search", value: ctx.params.get("q") || "", "aria-label": t("web.metrics.search"), placeholder: t("web.metrics.search"), oninput: debounce((event) => {
    ctx.set({ q: event.target.value || null });
    show(event.target.value, null);
  }, 60) });

  function show(text, asked) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    const mine = all.filter((each) => (asked ? each.id === asked : words.every((word) => [each.id, each.label, each.definition].join(" ").toLowerCase().includes(word))));
    fill(list, mine.length ? mine.map((each) => card(ctx, each)) : empty(t("web.metrics.none"), t("web.metrics.none.next")));
    fill(count, t("web.metrics.count", { count: mine.length, all: all.length }), asked ? [" ", el("a", { href: ctx.href("/metrics") }, t("web.metrics.all"))] : null);
  }

  fill(root, el("h1", {}, t("web.metrics.title")), el("p", { class: "lead" }, t("web.metrics.lead")), el("div", { class: "search-row" }, search, count), list);
  show(search.value, ctx.params.get("metric"));
  return { update: (next) => { search.value = next.params.get("q") || ""; show(search.value, next.params.get("metric")); } };
}

function card(ctx, metric) {
  const { t } = ctx;
  const arrow = { higher: "↑ ", lower: "↓ " }[metric.better] || "";
  return el("article", { class: "metric", id: "m-" + metric.id },
    el("h2", {}, metric.label, metric.unit ? el("span", { class: "unit" }, " " + metric.unit) : null),
    el("p", { class: "way" }, arrow + t("web.better." + metric.better)),
    el("p", {}, metric.definition),
    el("dl", {},
      metric.formula ? [el("dt", {}, t("web.metrics.formula")), el("dd", { class: "mono" }, metric.formula)] : null,
      el("dt", {}, t("web.metrics.id")), el("dd", { class: "mono" }, metric.id, metric.statistics.length ? el("span", { class: "faint" }, " ." + metric.statistics.join(" .")) : null)));
}
