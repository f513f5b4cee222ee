// Small drawings of distributions and of quantities over time, as wide as their place; text keeps its size.
//
//   hist(view, label) -> node      bars with their words, a line a percentile (analysis/request_types.py HistogramView)
//   track(view, duration) -> node  one quantity over time with its range

import { el, svg } from "./dom.js";

const HIGH = 96;

export function hist(view, label) {
  const low = view.edges[0];
  const high = view.edges[view.edges.length - 1];
  const place = (v) => view.log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low || 1);
  const at = (v) => Math.min(1, Math.max(0, high > low ? place(v) : 0)) * 100;
  const most = Math.max(1, ...view.counts);
  const bars = view.counts.map((count, k) => {
    const left = high > low ? at(view.edges[k]) : 0;
    const right = high > low ? at(view.edges[k + 1]) : 100;
    const tall = count ? Math.max(1.5, (count / most) * HIGH) : 0;
    return svg("rect", { x: left + "%", width: Math.max(0, right - left) + "%", y: HIGH - tall, height: tall }, svg("title", {}, view.texts[k]));
  });
  const lines = view.marks.map(([name, value]) => svg("line", { class: "pm " + name, x1: at(value) + "%", x2: at(value) + "%", y1: -6, y2: HIGH }));
  return el("figure", { class: "hist" },
    el("figcaption", {}, el("b", {}, view.label), el("span", { class: "pms" }, view.marks.map(([name, , text]) => el("span", { class: "pm-key " + name }, el("i", { "aria-hidden": "true" }), name + " ", el("b", {}, text))))),
    svg("svg", { class: "hist-plot", width: "100%", height: HIGH, role: "img", "aria-label": label }, svg("g", { class: "bars" }, bars), lines),
    el("p", { class: "hist-ends" }, el("span", {}, view.texts.length ? ends(view, low) : ""), el("span", {}, ends(view, high))),
    view.note ? el("p", { class: "note" }, view.note) : null);
}

function ends(view, value) {
  return Number(value.toPrecision(3)) + " " + view.unit;
}

export function track(view, duration) {
  const span = duration || 1;
  const room = view.high - view.low || 1;
  let pen = "M";
  let path = "";
  view.values.forEach((value, k) => {
    if (value === null) {
      pen = "M";
      return;
    }
    path += pen + ((view.at[k] / span) * 1000).toFixed(1) + " " + (44 - ((value - view.low) / room) * 42).toFixed(1);
    pen = "L";
  });
  return el("figure", { class: "track" },
    el("figcaption", {}, el("b", {}, view.label), el("span", { class: "faint" }, view.text)),
    svg("svg", { viewBox: "0 0 1000 45", preserveAspectRatio: "none", width: "100%", height: 45, role: "img", "aria-label": view.label + ": " + view.text }, svg("path", { class: "base", d: "M0 44.5H1000" }), svg("path", { class: "run", d: path })));
}
