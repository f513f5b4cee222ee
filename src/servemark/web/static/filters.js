// Filters made of what the store holds: one drop-down for each facet, with counts, and what is chosen as tags to take away.
//
//   filters(ctx, facets, set, { keys, skip }) -> nodes       facets.facets = { hardware: [{ id, points, label? }], … }
// On a phone the drop-downs stand behind one button.

import { el } from "./dom.js";

const FIRST = ["hardware", "engine", "precision", "speculation", "disaggregated", "offload"];
const SKIP = ["model", "scenario"];
const KEYS = ["hardware", "engine", "precision", "speculation", "disaggregated", "offload", "source", "run", "image", "concurrency", "config", "line", "date", "all"];

export function filters(ctx, facets, set, { skip = SKIP } = {}) {
  const { t } = ctx;
  const groups = Object.entries(facets.facets || {}).filter(([name, values]) => !skip.includes(name) && (values.length > 1 || ctx.params.has(name)));
  groups.sort(([a], [b]) => order(a) - order(b));
  const count = KEYS.reduce((sum, name) => sum + chosen(ctx, name).length, 0);
  const shown = new Set(groups.map(([name]) => name));
  const tags = KEYS.filter((name) => !shown.has(name) && name !== "all").flatMap((name) => chosen(ctx, name).map((value) => [name, value]));
  const body = el("div", { class: "filter-list", id: "filter-list" },
    groups.map(([name, values]) => facet(ctx, name, values, set)),
    el("label", { class: "tick-box" }, el("input", { type: "checkbox", checked: ctx.params.get("all") === "yes", onchange: (event) => set({ all: event.target.checked ? "yes" : null }) }), t("web.filters.all_runs")));
  const button = el("button", { type: "button", class: "filter-button", "aria-expanded": "false", "aria-controls": "filter-list", onclick: (event) => {
    const now = event.currentTarget;
    now.setAttribute("aria-expanded", String(now.getAttribute("aria-expanded") !== "true"));
  } }, count ? t("web.filters.some", { count }) : t("web.filters"));
  return [
    button,
    body,
    tags.length ? el("ul", { class: "tags-list", "aria-label": t("web.filters.chosen") },
      tags.map(([name, value]) => el("li", {}, el("button", { type: "button", class: "tag", "aria-label": t("web.filters.remove", { name: t("web.facet." + name), value }), onclick: () => set({ [name]: chosen(ctx, name).filter((each) => each !== value).join(",") || null }) },
        el("span", { class: "tag-name" }, t("web.facet." + name)), " ", say(t, name, value), el("span", { "aria-hidden": "true" }, " ×"))))) : null,
    count > 1 ? el("button", { type: "button", class: "quiet", onclick: () => set(Object.fromEntries(KEYS.map((key) => [key, null]))) }, t("web.filters.clear")) : null,
  ];
}

function order(name) {
  const at = FIRST.indexOf(name);
  return at < 0 ? FIRST.length : at;
}

function chosen(ctx, name) {
  return ctx.params.getAll(name).flatMap((each) => each.split(",")).filter(Boolean);
}

// "yes", "no", "none" and "unknown" are the project's words; anything else is the file's own.
function say(t, name, value) {
  return ["yes", "no", "none", "unknown", "open"].includes(value) ? t("web.value." + value) : value;
}

function clip(text) {
  return text.length > 24 ? text.slice(0, 23) + "…" : text;
}

function facet(ctx, name, values, set) {
  const { t } = ctx;
  const now = new Set(chosen(ctx, name));
  const box = (each) => el("label", { class: "tick-box" },
    el("input", { type: "checkbox", value: each.id, checked: now.has(each.id), onchange: (event) => {
      if (event.target.checked) now.add(each.id);
      else now.delete(each.id);
      summary.textContent = head();
      set({ [name]: [...now].join(",") || null, series: null });
    } }),
    el("span", { class: "tick-name" }, each.label || say(t, name, each.id)), el("span", { class: "tick-count" }, each.points));
  const head = () => t("web.facet." + name) + (now.size === 1 ? t("web.colon") + (ctx.lang === "zh" ? "" : " ") + clip(say(t, name, [...now][0])) : now.size ? " · " + now.size : "");
  const summary = el("summary", { class: now.size ? "some" : null }, head());
  let list = [];
  const search = values.length > 12 ? el("input", { type: "search", placeholder: t("web.filters.search"), "aria-label": t("web.filters.search"), oninput: (event) => {
    const text = event.target.value.toLowerCase();
    for (const each of list) each.node.hidden = !each.id.toLowerCase().includes(text);
  } }) : null;
  const boxes = el("fieldset", { class: "pop" }, el("legend", { class: "sr" }, t("web.facet." + name)), search);
  const drop = el("details", { class: "facet", ontoggle: () => {
    if (!drop.open) return;
    if (!list.length) { // made when it is opened for the first time: hundreds of runs wait in there
      list = values.map((each) => ({ id: each.id, node: box(each) }));
      boxes.append(...list.map((each) => each.node));
    }
    const pop = drop.lastChild;
    pop.classList.remove("flip");
    pop.classList.toggle("flip", pop.getBoundingClientRect().right > document.documentElement.clientWidth - 8);
    for (const other of drop.parentNode.querySelectorAll("details[open]")) if (other !== drop) other.open = false;
  } }, summary, boxes);
  return drop;
}
