// A scatter of measured points with the front as a staircase, drawn as SVG that a keyboard and a screen reader can walk.
//
//   const view = chart(host, { t })     host: an empty block; its width decides the drawing's
//   view.draw(data)  -> { drawn, outside }   how many points stand in the drawing, how many with values do not
//   view.show(i), view.hide()           a point's tooltip, from the table beside it
//   view.focus(i), view.close(), view.node (the svg)
//
//   data = {
//     label,                                       what the whole drawing is, for a screen reader
//     x, y: { label, better: "higher"|"lower"|"neither", log, how: display(…) of format.js, word: "higher is better" }
//     points: { x: [], y: [], line: [i], state: ["on"|"beyond"|"dominated"|"excluded"|"absent"], official: [bool],
//               x_low, x_high, y_low, y_high: [] or null entries }           base units, null where absent
//     series: [{ label, path: [[x, y]…], shown }], lines: [{ series, label, points: [i] }]      shown ones are drawn
//     front: [[x, y]…],                            the staircase over everything
//     dominated: true,                             false: only points of fronts
//     target, targetLabel, marks: [{ x, y, kind: "floor"|"estimate" }]       a line across at x = target, and what was read
//     name(i), tip(i) -> [node…], href(i), tag(i)  words for a point: for readers aloud, tooltip, address, short label
//   }
// Also: swatch(i, official, small) the series' sign as a small svg, without its dash where `small`; ticks(low, high, count, log); style(i) -> { colour, shape, dash }.
// Keys: Tab enters, left and right along a line, up and down between lines, Home and End, Enter opens, Escape hides.

import { el, fill, svg } from "./dom.js";
import { exact } from "./format.js";

const SHAPES = [
  "M-5 0a5 5 0 1 0 10 0a5 5 0 1 0 -10 0Z", "M-4.5 -4.5h9v9h-9Z", "M0 -5.8L5.4 4.2H-5.4Z", "M0 -6.2L6.2 0L0 6.2L-6.2 0Z",
  "M0 5.8L5.4 -4.2H-5.4Z", "M-6 0L-3 -5.2H3L6 0L3 5.2H-3Z", "M-2 -6h4v4h4v4h-4v4h-4v-4h-4v-4h4Z", "M0 -6L1.8 -1.8L6 0L1.8 1.8L0 6L-1.8 1.8L-6 0L-1.8 -1.8Z",
];
const DASHES = ["", "7 4", "2 3", "10 3 2 3", "4 2", "12 4", "1 4", "8 3 1 3 1 3"];
const SVG = "http://www.w3.org/2000/svg";
const DENSE = 150; // points from which on the rest steps back
const REACH = 26; // px around a point in which the pointer finds it

export function style(i) {
  const lap = Math.floor(i / 8);
  return { colour: "var(--s" + (i % 8) + ")", shape: SHAPES[(i + lap * 3) % 8], dash: DASHES[(i + lap) % 8] };
}

export function swatch(i, official = true, small = false) {
  const { colour, shape, dash } = style(i);
  if (small) return svg("svg", { class: "swatch", width: 14, height: 14, viewBox: "-7 -7 14 14", "aria-hidden": "true", vars: { "--c": colour } }, svg("path", { d: shape, class: official ? "dot on" : "dot on unofficial" }));
  return svg("svg", { class: "swatch", width: 30, height: 14, viewBox: "-15 -7 30 14", "aria-hidden": "true", vars: { "--c": colour } },
    svg("path", { d: "M-15 0H15", class: "step", "stroke-dasharray": dash }),
    svg("path", { d: shape, class: official ? "dot on" : "dot on unofficial" }));
}

export function ticks(low, high, count, log = false) {
  if (log) {
    const found = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power += 1) {
      for (const step of [1, 2, 5]) found.push(step * 10 ** power);
    }
    const inside = found.filter((v) => v >= low * 0.999 && v <= high * 1.001);
    const thin = inside.length > count + 2 ? inside.filter((v) => /^1(e|0*$|\.)|^0\.0*1$/.test(String(Number(v.toPrecision(3))))) : inside;
    return thin.length > 1 ? thin : inside;
  }
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 2.5, 5, 10].find((each) => each * power >= rough * 0.999);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(Math.abs(v) < step / 1e6 ? 0 : v);
  return found;
}

function scale(values, log, from, to) {
  let low = Infinity;
  let high = -Infinity;
  for (const v of values) {
    if (v < low) low = v;
    if (v > high) high = v;
  }
  if (!Number.isFinite(low)) [low, high] = log ? [1, 10] : [0, 1];
  if (log) {
    const room = Math.max(0.04, Math.log10(high / low) * 0.05);
    [low, high] = [low / 10 ** room, high * 10 ** room];
    const at = (v) => from + ((Math.log10(v) - Math.log10(low)) / (Math.log10(high) - Math.log10(low))) * (to - from);
    return { low, high, log, at };
  }
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  low = low >= 0 && (low < (high || 1) * 0.5 || low === high) ? 0 : low - room;
  high += room;
  return { low, high, log, at: (v) => from + ((v - low) / (high - low)) * (to - from) };
}

export function chart(host, { t }) {
  const node = svg("svg", { class: "chart", role: "group" });
  const bubble = el("div", { class: "bubble", role: "presentation", hidden: true });
  fill(host, node, bubble);
  host.classList.add("chart-host");
  let data = null;
  let seen = []; // drawn points: { i, level, px, py, link }
  let ranks = new Map(); // point -> how much it matters
  let place = new Map(); // point -> its entry in seen
  let active = -1;
  let entry = -1; // the point that Tab comes to
  let probe = null;
  let box = {};
  let scales = {};

  const size = new ResizeObserver(() => {
    if (data && Math.abs(host.clientWidth - box.width) > 1) paint();
  });
  size.observe(host);

  function draw(next) {
    data = next;
    active = -1;
    return paint();
  }

  function paint() {
    const width = Math.max(280, host.clientWidth);
    const height = Math.round(Math.max(330, Math.min(500, width * 0.62)));
    const measured = visible(data);
    const inside = measured.filter((i) => (!data.x.log || data.points.x[i] > 0) && (!data.y.log || data.points.y[i] > 0));
    const xs = inside.map((i) => data.points.x[i]);
    const ys = inside.map((i) => data.points.y[i]);
    if (inside.length <= DENSE) {
      for (const [values, name] of [[xs, "x"], [ys, "y"]]) {
        for (const side of [name + "_low", name + "_high"]) {
          for (const i of inside) if (data.points[side] && known(data.points[side][i]) && (!data[name].log || data.points[side][i] > 0)) values.push(data.points[side][i]);
        }
      }
    }
    for (const [x, y] of data.front || []) {
      if ((data.x.log && !(x > 0)) || (data.y.log && !(y > 0))) continue;
      xs.push(x); // the whole front stays in sight, whoever holds it
      ys.push(y);
    }
    if (data.target !== null && data.target !== undefined && (!data.x.log || data.target > 0)) xs.push(data.target);
    const yProbe = scale(ys, data.y.log, 0, 1);
    const marks = ticks(yProbe.low, yProbe.high, height / 64, data.y.log);
    const left = 16 + Math.max(...marks.map((v) => textWidth(exact(data.y.how, v))), 20);
    box = { width, height, left, right: width - 14, top: 14, bottom: height - 30 };
    scales = { x: scale(xs, data.x.log, box.left, box.right), y: scale(ys, data.y.log, box.bottom, box.top) };
    node.setAttribute("viewBox", "0 0 " + width + " " + height);
    node.setAttribute("width", width);
    node.setAttribute("height", height);
    node.setAttribute("aria-label", data.label);
    probe = svg("g", { class: "probe", "aria-hidden": "true" });
    ranks = rank(inside);
    const dense = inside.length > DENSE;
    node.classList.toggle("dense", dense);
    const dots = points(inside);
    fill(node, ground(marks), attained(), connectors(inside), bands(dense ? inside.filter((i) => ranks.get(i) > 0) : inside), steps(), target(), dots, tags(), probe);
    hide();
    return { drawn: inside.length, outside: measured.length - inside.length };
  }

  function ground(marks) {
    const across = ticks(scales.x.low, scales.x.high, (box.right - box.left) / 90, scales.x.log);
    return svg("g", { "aria-hidden": "true" },
      marks.map((v) => [
        svg("path", { class: "grid", d: "M" + box.left + " " + r(scales.y.at(v)) + "H" + box.right }),
        svg("text", { class: "tick", x: box.left - 8, y: r(scales.y.at(v)) + 4, "text-anchor": "end" }, exact(data.y.how, v)),
      ]),
      across.map((v, k) => svg("text", { class: "tick", x: r(scales.x.at(v)), y: box.bottom + 20, "text-anchor": k === 0 && scales.x.at(v) < box.left + 8 ? "start" : "middle" }, exact(data.x.how, v))),
      svg("path", { class: "axis", d: "M" + box.left + " " + box.bottom + "H" + box.right }),
      across.map((v) => svg("path", { class: "axis", d: "M" + r(scales.x.at(v)) + " " + box.bottom + "v4" })),
      better());
  }

  // The corner where both are better.
  function better() {
    if (data.x.better === "neither" || data.y.better === "neither") return null;
    const right = data.x.better === "higher";
    const up = data.y.better === "higher";
    const x = right ? box.right - 6 : box.left + 10;
    const y = up ? box.top + 10 : box.bottom - 10;
    const arrow = up ? (right ? "↗" : "↖") : right ? "↘" : "↙";
    return svg("text", { class: "corner", x, y, "text-anchor": right ? "end" : "start" }, right ? t("web.chart.better") + " " + arrow : arrow + " " + t("web.chart.better"));
  }

  function pathOf(vertices) {
    const fine = vertices.filter(([x, y]) => (!data.x.log || x > 0) && (!data.y.log || y > 0));
    return fine.map(([x, y], k) => (k ? "L" : "M") + r(scales.x.at(x)) + " " + r(scales.y.at(y))).join("");
  }

  // What the front attains, as a quiet ground: from the staircase to the corner where both are worse.
  function attained() {
    const path = pathOf(data.front || []);
    if (!path || data.x.better === "neither" || data.y.better === "neither") return null;
    const worseX = data.x.better === "higher" ? box.left : box.right;
    const worseY = data.y.better === "higher" ? box.bottom : box.top;
    const [first, last] = [data.front[0], data.front[data.front.length - 1]];
    const [easy, hard] = data.x.better === "higher" ? [first, last] : [last, first];
    const close = "V" + worseY + "H" + worseX + "V" + r(scales.y.at(easy[1])) + "Z";
    const ordered = hard === last ? path : pathOf([...data.front].reverse());
    return svg("g", { "aria-hidden": "true" }, svg("path", { class: "attained", d: ordered + close }), svg("path", { class: "edge", d: path }));
  }

  function connectors(inside) {
    const drawn = new Set(inside);
    return svg("g", { class: "connectors", "aria-hidden": "true" }, data.lines.map((line) => {
      const own = line.points.filter((i) => drawn.has(i));
      if (own.length < 2) return null;
      return svg("path", { d: pathOf(own.map((i) => [data.points.x[i], data.points.y[i]])), vars: { "--c": style(line.series).colour } });
    }));
  }

  function bands(inside) {
    const p = data.points;
    const found = data.series.map(() => "");
    for (const i of inside) {
      const s = data.lines[p.line[i]].series;
      const [x, y] = [r(scales.x.at(p.x[i])), r(scales.y.at(p.y[i]))];
      const yLow = p.y_low && p.y_low[i];
      const xLow = p.x_low && p.x_low[i];
      if (known(yLow) && known(p.y_high[i])) found[s] += "M" + x + " " + r(clampY(yLow)) + "V" + r(clampY(p.y_high[i]));
      if (known(xLow) && known(p.x_high[i])) found[s] += "M" + r(clampX(xLow)) + " " + y + "H" + r(clampX(p.x_high[i]));
    }
    return svg("g", { class: "bands", "aria-hidden": "true" }, found.map((d, s) => (d ? svg("path", { d, vars: { "--c": style(s).colour } }) : null)));
  }

  function clampX(v) {
    return scales.x.log && v <= 0 ? box.left : Math.max(box.left, Math.min(box.right, scales.x.at(v)));
  }

  function clampY(v) {
    return scales.y.log && v <= 0 ? box.bottom : Math.max(box.top, Math.min(box.bottom, scales.y.at(v)));
  }

  function steps() {
    return svg("g", { "aria-hidden": "true" }, data.series.map((series, s) => {
      if (!series.shown || !series.path || series.path.length < 2) return null;
      const { colour, dash } = style(s);
      return svg("path", { class: "step", d: pathOf(series.path), "stroke-dasharray": dash, vars: { "--c": colour } });
    }));
  }

  function target() {
    if (!known(data.target) || (data.x.log && data.target <= 0)) return null;
    const x = r(scales.x.at(data.target));
    const rightHalf = x > (box.left + box.right) / 2;
    return svg("g", { class: "target", "aria-hidden": "true" },
      svg("path", { d: "M" + x + " " + box.top + "V" + box.bottom }),
      svg("text", { x: rightHalf ? x - 6 : x + 6, y: box.top + 9, "text-anchor": rightHalf ? "end" : "start" }, data.targetLabel),
      (data.marks || []).map((mark) => svg("circle", { class: "read " + mark.kind, cx: r(scales.x.at(mark.x)), cy: r(scales.y.at(mark.y)), r: mark.kind === "floor" ? 10 : 5 })));
  }

  // One group for each rank and series, so that colour is said once; what matters most is drawn last.
  function points(inside) {
    const groups = [new Map(), new Map(), new Map()];
    const all = svg("g", { class: "dots" });
    seen = [];
    place = new Map();
    for (const i of inside) {
      const s = data.lines[data.points.line[i]].series;
      const level = ranks.get(i);
      if (!groups[level].has(s)) groups[level].set(s, svg("g", { vars: { "--c": style(s).colour } }));
      const at = { i, level, px: r(scales.x.at(data.points.x[i])), py: r(scales.y.at(data.points.y[i])) };
      at.link = dot(at, style(s).shape, level ? "" : inside.length > DENSE ? " scale(.5)" : " scale(.72)");
      groups[level].get(s).append(at.link);
      seen.push(at);
      place.set(i, at);
    }
    for (const each of groups) all.append(...each.values());
    if (!place.has(entry)) entry = seen.length ? seen.reduce((best, each) => (each.level > best.level ? each : best)).i : -1;
    if (place.has(entry)) place.get(entry).link.setAttribute("tabindex", "0");
    return all;
  }

  // Thousands of these are made at once: without the comforts of svg().
  function dot({ i, px, py }, shape, small) {
    const link = document.createElementNS(SVG, "a");
    link.setAttribute("href", data.href(i));
    link.setAttribute("tabindex", "-1");
    link.setAttribute("aria-label", data.name(i));
    link.setAttribute("data-i", i);
    const mark = document.createElementNS(SVG, "path");
    mark.setAttribute("d", shape);
    mark.setAttribute("class", "dot " + data.points.state[i] + (data.points.official[i] === false ? " unofficial" : ""));
    mark.setAttribute("transform", "translate(" + px + " " + py + ")" + small);
    link.append(mark);
    return link;
  }

  // 2: on the front, or beyond it; 1: on the staircase of its own series; 0: neither.
  function rank(inside) {
    const corners = data.series.map((series) => new Set((series.path || []).map(([x, y]) => x + " " + y)));
    const p = data.points;
    return new Map(inside.map((i) => [i, p.state[i] !== "dominated" ? 2 : corners[data.lines[p.line[i]].series].has(p.x[i] + " " + p.y[i]) ? 1 : 0]));
  }

  // Short names beside points of the front, where there is room for them.
  function tags() {
    const taken = seen.filter((each) => each.level || !node.classList.contains("dense")).map(({ px, py }) => [px - 6, py - 6, px + 6, py + 6]);
    const most = box.width < 520 ? 12 : 26;
    const said = new Map();
    const group = svg("g", { class: "tags", "aria-hidden": "true" });
    for (const { i, px, py } of seen.filter((each) => each.level === 2).sort((a, b) => a.px - b.px).slice(0, 60)) {
      const text = clip(data.tag(i), most);
      if ((said.get(text) || -Infinity) > px - 110) continue; // the same word again, close by
      const wide = textWidth(text) * 0.98;
      for (const [dx, dy] of [[9, -8], [9, 15], [-9 - wide, -8], [-9 - wide, 15]]) {
        const area = [px + dx, py + dy - 10, px + dx + wide, py + dy + 2];
        if (area[0] < box.left + 2 || area[2] > box.right || area[1] < box.top + 14 || area[3] > box.bottom - 2) continue;
        if (taken.some((each) => area[0] < each[2] && area[2] > each[0] && area[1] < each[3] && area[3] > each[1])) continue;
        taken.push(area);
        said.set(text, px);
        group.append(svg("text", { x: r(px + dx), y: r(py + dy) }, text));
        break;
      }
    }
    return group;
  }

  function show(i) {
    const at = place.get(i);
    if (!at || !data) return hide();
    active = i;
    const line = data.lines[data.points.line[i]];
    const { colour, shape } = style(line.series);
    const own = line.points.filter((each) => place.has(each));
    fill(probe,
      svg("path", { class: "hair", d: "M" + box.left + " " + at.py + "H" + at.px + "V" + box.bottom }),
      svg("path", { class: "walk", d: pathOf(own.map((each) => [data.points.x[each], data.points.y[each]])), vars: { "--c": colour } }),
      svg("circle", { class: "ring", cx: at.px, cy: at.py, r: 10, vars: { "--c": colour } }),
      svg("path", { class: "dot on", d: shape, transform: "translate(" + at.px + " " + at.py + ")", vars: { "--c": colour } }));
    fill(bubble, data.tip(i));
    bubble.hidden = false;
    const room = { width: bubble.offsetWidth, height: bubble.offsetHeight };
    const x = at.px + 18 + room.width < box.width ? at.px + 18 : Math.max(4, at.px - 18 - room.width);
    const over = x < at.px && x + room.width > at.px;
    const y = over ? (at.py > box.height / 2 ? at.py - room.height - 16 : at.py + 18) : Math.max(0, Math.min(box.height - room.height, at.py - room.height / 2));
    bubble.style.setProperty("transform", "translate(" + Math.round(x) + "px," + Math.round(y) + "px)");
    return undefined;
  }

  function hide() {
    active = -1;
    bubble.hidden = true;
    if (probe) fill(probe);
  }

  function focus(i) {
    const at = place.get(i);
    if (!at) return;
    if (place.has(entry)) place.get(entry).link.setAttribute("tabindex", "-1");
    entry = i;
    at.link.setAttribute("tabindex", "0");
    at.link.focus({ preventScroll: true });
    show(i);
  }

  function nearest(event) {
    const area = node.getBoundingClientRect();
    const [x, y] = [event.clientX - area.left, event.clientY - area.top];
    let found = null;
    let best = REACH * REACH;
    for (const each of seen) {
      const far = (each.px - x) ** 2 + (each.py - y) ** 2 - each.level;
      if (far < best) [found, best] = [each, far];
    }
    return found;
  }

  let touched = -1;
  node.addEventListener("pointermove", (event) => {
    if (event.pointerType === "touch") return;
    const found = nearest(event);
    node.classList.toggle("near", found !== null);
    if (found && found.i !== active) show(found.i);
    else if (!found && active !== -1 && !node.contains(document.activeElement)) hide();
  });
  node.addEventListener("pointerdown", (event) => {
    touched = event.pointerType === "touch" ? active : -2; // a first touch shows, a second opens
  });
  host.addEventListener("pointerleave", () => node.contains(document.activeElement) || hide());
  node.addEventListener("click", (event) => {
    if (event.detail === 0) return; // Enter on a link
    const found = nearest(event);
    if (!found) return event.target.closest("a") ? undefined : hide();
    if (touched !== -2 && touched !== found.i) {
      event.preventDefault();
      return show(found.i);
    }
    if (!event.target.closest("a")) found.link.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ctrlKey: event.ctrlKey, metaKey: event.metaKey }));
    return undefined;
  });
  node.addEventListener("focusin", (event) => {
    const link = event.target.closest("a");
    if (link) focusQuietly(Number(link.dataset.i));
  });
  node.addEventListener("focusout", (event) => {
    if (!node.contains(event.relatedTarget)) hide();
  });
  node.addEventListener("keydown", (event) => {
    const link = event.target.closest("a");
    if (!link || event.altKey || event.ctrlKey || event.metaKey) return;
    const next = step(Number(link.dataset.i), event.key);
    if (next === null) return;
    event.preventDefault();
    if (next === -1) hide();
    else focus(next);
  });

  function focusQuietly(i) {
    if (i !== active) show(i);
  }

  // The point that a key leads to; -1 hides; null is not ours.
  function step(i, key) {
    if (key === "Escape") return -1;
    const here = data.points.line[i];
    const walk = (l) => data.lines[l].points.filter((each) => place.has(each)).sort((a, b) => place.get(a).px - place.get(b).px);
    const own = walk(here);
    const at = own.indexOf(i);
    if (key === "ArrowRight") return own[Math.min(own.length - 1, at + 1)];
    if (key === "ArrowLeft") return own[Math.max(0, at - 1)];
    if (key === "Home") return own[0];
    if (key === "End") return own[own.length - 1];
    if (key !== "ArrowUp" && key !== "ArrowDown") return null;
    const lines = [...new Set(seen.map((each) => data.points.line[each.i]))].sort((a, b) => data.lines[a].series - data.lines[b].series || a - b);
    const next = lines[(lines.indexOf(here) + (key === "ArrowDown" ? 1 : lines.length - 1)) % lines.length];
    const px = place.get(i).px;
    return walk(next).reduce((best, each) => (Math.abs(place.get(each).px - px) < Math.abs(place.get(best).px - px) ? each : best));
  }

    // What hovering brought goes by Escape too, wherever the focus is.
  const escape = (event) => event.key === "Escape" && active !== -1 && hide();
  document.addEventListener("keydown", escape);

  function close() {
    size.disconnect();
    document.removeEventListener("keydown", escape);
  }

  return { node, draw, show, hide, focus, close, get active() { return active; } };
}

function visible(data) {
  const p = data.points;
  const corners = data.dominated === false ? data.series.map((series) => new Set((series.path || []).map((each) => each.join(" ")))) : null;
  const found = [];
  for (let i = 0; i < p.x.length; i += 1) {
    if (!known(p.x[i]) || !known(p.y[i]) || p.state[i] === "excluded" || p.state[i] === "absent") continue;
    const s = data.lines[p.line[i]].series;
    if (!data.series[s].shown) continue;
    if (corners && p.state[i] === "dominated" && !corners[s].has(p.x[i] + " " + p.y[i])) continue;
    found.push(i);
  }
  return found;
}

function known(v) {
  return v !== null && v !== undefined && Number.isFinite(v);
}

function r(v) {
  return Math.round(v * 10) / 10;
}

function clip(text, most) {
  return text.length > most ? text.slice(0, most - 1) + "…" : text;
}

function textWidth(text) {
  let wide = 0;
  for (const letter of text) wide += letter.codePointAt(0) > 0x2e80 ? 12 : 6.6;
  return wide;
}
