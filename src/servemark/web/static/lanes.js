// Requests over time, one row a lane: waiting for the first token, then streaming. One stop for the tab key; arrow keys walk
// the requests in order of their start, up and down between lanes.
//
//   lanes(view, t) -> node      view: analysis/request_types.py LanesView

import { el, fill, svg } from "./dom.js";

export function lanes(view, t) {
  const count = view.start.length;
  if (!count) return el("p", { class: "note" }, view.note);
  const row = view.lanes <= 8 ? 22 : view.lanes <= 24 ? 13 : view.lanes <= 80 ? 7 : 3;
  const span = view.duration_s || 1;
  const x = (s) => (s / span) * 100;
  const said = el("p", { class: "lane-said", "aria-hidden": "true" }, t("web.point.lanes.keys"));
  const bars = view.start.map((start, k) => {
    const first = view.first[k] === null ? view.end[k] : view.first[k];
    const y = view.lane[k] * row + 1;
    const part = (from, to, name) => svg("rect", { class: name, x: x(from) + "%", width: Math.max(0.08, x(to) - x(from)) + "%", y, height: row - 2 });
    return svg("g", { class: view.ok[k] ? "request" : "request failed", tabindex: k ? "-1" : "0", role: "img", "aria-label": view.said[k] }, part(start, first, "wait"), view.first[k] === null ? null : part(first, view.end[k], "stream"));
  });
  const order = view.start.map((start, k) => k).sort((a, b) => view.start[a] - view.start[b]);
  const rank = new Map(order.map((k, place) => [k, place]));
  let now = 0;

  function walk(to) {
    bars[now].setAttribute("tabindex", "-1");
    now = to;
    bars[now].setAttribute("tabindex", "0");
    bars[now].focus();
  }

  function keyed(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const down = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step && !down) return;
    event.preventDefault();
    if (step) return walk(order[Math.min(count - 1, Math.max(0, rank.get(now) + step))]);
    const near = order.filter((k) => (view.lane[k] - view.lane[now]) * down > 0);
    near.sort((a, b) => Math.abs(view.lane[a] - view.lane[now]) - Math.abs(view.lane[b] - view.lane[now]) || Math.abs(view.start[a] - view.start[now]) - Math.abs(view.start[b] - view.start[now]));
    if (near.length) walk(near[0]);
  }

  const tell = (event) => {
    const k = bars.indexOf(event.target.closest("g.request"));
    if (k >= 0) {
      if (event.type === "focusin") now = k;
      fill(said, view.said[k]);
    }
  };
  const tall = view.lanes * row;
  const grid = view.ticks.map(([at, text]) => [
    svg("line", { class: "grid", x1: x(at) + "%", x2: x(at) + "%", y1: 0, y2: tall }),
    svg("text", { class: "tick", x: x(at) + "%", y: tall + 16, "text-anchor": at === 0 ? "start" : x(at) > 94 ? "end" : "middle" }, text),
  ]);
  return el("figure", { class: "lanes" },
    el("figcaption", {}, el("b", {}, t("web.point.lanes")), el("span", { class: "lane-key" }, ["wait", "stream", "failed"].map((name) => el("span", {}, el("i", { class: name, "aria-hidden": "true" }), t("web.point.lanes." + name))))),
    svg("svg", { width: "100%", height: tall + 22, role: "group", "aria-label": t("web.point.lanes") + ". " + t("web.point.lanes.keys"), onkeydown: keyed, onfocusin: tell, onpointermove: tell }, grid, bars),
    said,
    el("p", { class: "note" }, view.note));
}
