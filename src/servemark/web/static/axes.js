// Choosing what an axis shows: a metric, its percentile, and in words which way is better and what it means.
//
//   splitAxes(metrics) -> [{ base, label, statistics: {"p90": AxisInfo, "": AxisInfo} }]      from facets.metrics
//   axisPicker(ctx, "x"|"y", AxisInfo now, split, set) -> nodes; `set({ x: address })`

import { el } from "./dom.js";

const STATISTIC = /\.(p\d+(?:\.\d+)?|mean|min|max|std|n)$/;

export function splitAxes(metrics) {
  const found = new Map();
  for (const info of metrics || []) {
    const [base, statistic] = apart(info.address);
    if (!found.has(base)) found.set(base, { base, label: statistic && info.label.endsWith(" " + statistic) ? info.label.slice(0, -statistic.length - 1) : info.label, statistics: {} });
    found.get(base).statistics[statistic] = info;
  }
  return [...found.values()];
}

function apart(address) {
  const found = STATISTIC.exec(address);
  return found ? [address.slice(0, found.index), found[1]] : [address, ""];
}

export function axisPicker(ctx, name, now, split, set) {
  const { t } = ctx;
  const [base, statistic] = apart(now.address);
  const mine = split.find((each) => each.base === base) || { base, label: now.label, statistics: { [statistic]: now } };
  const all = split.includes(mine) ? split : [mine, ...split];
  const statistics = Object.keys(mine.statistics).filter(Boolean);
  const choose = (to) => {
    const has = Object.keys(to.statistics);
    const kept = has.includes(statistic) ? statistic : has.includes("p90") ? "p90" : has[0];
    set({ [name]: to.statistics[kept].address, ...(name === "x" ? { target: null } : {}) });
  };
  const arrow = { higher: name === "y" ? "↑" : "→", lower: name === "y" ? "↓" : "←" }[now.better];
  return [
    el("label", { class: "axis-name" }, el("span", { class: "sr" }, t("web.axis." + name)),
      el("select", { title: now.definition, onchange: (event) => choose(all[event.target.selectedIndex]) }, all.map((each) => el("option", { value: each.base, selected: each === mine }, each.label)))),
    statistics.length > 1 ? el("label", { class: "axis-stat" }, el("span", { class: "sr" }, t("web.axis.statistic." + name)),
      el("select", { onchange: (event) => set({ [name]: mine.statistics[event.target.value].address, ...(name === "x" ? { target: null } : {}) }) }, statistics.map((each) => el("option", { value: each, selected: each === statistic }, each)))) : null,
    el("span", { class: "axis-way" }, arrow ? arrow + " " : "", t("web.better." + now.better)),
    el("details", { class: "axis-what" }, el("summary", { "aria-label": t("web.axis.what", { metric: now.label }) }, "?"),
      el("div", { class: "pop" }, el("p", {}, el("b", {}, now.label)), el("p", {}, now.definition), now.formula ? el("p", { class: "mono" }, now.formula) : null, el("p", {}, el("a", { href: ctx.href("/metrics", { metric: base }) }, t("web.axis.all"))))),
  ];
}
