// The frame around every page: words, menu, language, colours, moving between pages, focus, what is said aloud.
//
// A page module exports `title(t, ctx)` and `async render(root, ctx)`; render may return { update(ctx), close() }:
// `update` is called instead of a new render when only the query changed, `close` when another page comes. `ctx` holds
//   t, lang, path, rest (what follows the page's path), params (URLSearchParams, `lang` left out), report (true on disk)
//   get(path, params) -> body      of this visit: given up when the reader moves on
//   href(path, params), go(path, params, { replace })
//   set({ key: value }, { replace: true })   keys of the page's own query; the page draws itself anew, nothing is called
//   say(text)                      to a screen reader
//   shared(name, make)             a value made once and kept while the page is open: ctx.shared("facets", () => ctx.get(…))
//   heading(text)                  for pages whose title comes with their data: sets the document's title too

import { fill, el } from "./dom.js";
import { get } from "./api.js";
import { remember, remembered, setWords, lang, t, wanted } from "./i18n.js";
import { change, go, href, onMove, report, where } from "./state.js";
import { PAGES, pageOf } from "./pages.js";
import { trouble } from "./notices.js";

const main = document.getElementById("main");
const kept = new Map();
let open = null;

async function start() {
  try {
    await speak(wanted(where().params.get("lang") || document.documentElement.dataset.lang));
  } catch (problem) {
    fill(main, el("p", { class: "wrap" }, String(problem.title || problem)));
    return;
  }
  onMove(show);
  addEventListener("hashchange", () => report && show());
  show();
}

async function speak(code) {
  setWords({}, code);
  setWords((await get("/api/v1/messages", {})).messages, code);
  frame();
}

async function show() {
  const { path, params } = where();
  const asked = params.get("lang");
  if (asked && wanted(asked) !== lang()) return speak(wanted(asked)).then(show);
  params.delete("lang");
  const found = pageOf(path);
  mark(found && found.page);
  if (open && found && open.page === found.page && open.rest === found.rest && open.lang === lang() && open.view && open.view.update) {
    open.visit.abort();
    open.visit = new AbortController();
    return attempt(open, () => open.view.update(context(open, path, params)), false);
  }
  const moved = open !== null;
  if (open) leave(open);
  open = { page: found && found.page, rest: found ? found.rest : "", lang: lang(), visit: new AbortController(), view: null };
  const root = el("div", { class: "wrap page", "aria-busy": "true" });
  open.root = root;
  fill(main, root);
  if (!found) return fill(root, el("h1", {}, t("web.lost")), el("p", {}, el("a", { href: href("/") }, t("web.lost.next"))));
  const ctx = context(open, path, params);
  document.title = found.page.title(t, ctx) + " · servemark";
  fill(root, el("p", { class: "loading" }, t("web.loading")));
  await attempt(open, async () => {
    open.view = (await found.page.render(root, ctx)) || null;
  }, moved);
}

function leave(old) {
  old.visit.abort();
  if (old.view && old.view.close) old.view.close();
}

async function attempt(here, work, moved) {
  try {
    await work();
    if (here !== open) return;
    if (moved) focusHeading(here.root);
  } catch (error) {
    if (error.name === "AbortError" || here !== open) return;
    fill(here.root, el("h1", { tabindex: "-1" }, here.page.title(t, {})), trouble(error, show), error.status === 400 ? el("p", { class: "part-end" }, el("a", { href: href(here.page.path) }, t("web.anew"))) : null);
    here.view = null;
  }
  here.root.removeAttribute("aria-busy");
}

function focusHeading(root) {
  const heading = root.querySelector("h1");
  scrollTo(0, 0);
  if (!heading) return;
  heading.setAttribute("tabindex", "-1");
  heading.focus({ preventScroll: true });
}

function context(here, path, params) {
  return {
    t,
    lang: lang(),
    path,
    rest: here.rest,
    params,
    report,
    href,
    go,
    get: (to, query) => get(to, query, here.visit.signal),
    set: (changes, { replace = true } = {}) => {
      const now = where();
      go(now.path, change(now.params, changes), { replace, quiet: true });
    },
    say: (text) => fill(document.getElementById("said"), text),
    shared: (name, make) => {
      const key = lang() + name;
      if (!kept.has(key)) kept.set(key, Promise.resolve(make()).catch((error) => (kept.delete(key), Promise.reject(error))));
      return kept.get(key);
    },
    heading: (text) => {
      document.title = text + " · servemark";
    },
  };
}

// The bar and the foot, in the language that is spoken.
function frame() {
  const links = (menu) => PAGES.filter((page) => page.menu === menu).map((page) => el("li", {}, el("a", { href: href(page.path), "data-page": page.name }, t("web.nav." + page.name))));
  const more = links("more");
  fill(document.getElementById("skip"), t("web.skip"));
  fill(
    document.getElementById("top"),
    el("div", { class: "bar wrap" },
      el("a", { class: "brand", href: href("/") }, el("span", { class: "logo", "aria-hidden": "true" }), "servemark"),
      el("nav", { "aria-label": t("web.nav") },
        el("button", { class: "menu quiet", type: "button", "aria-expanded": "false", "aria-controls": "menu", onclick: toggleMenu }, t("web.nav.menu")),
        el("ul", { id: "menu" }, links("main"), more.length > 3 ? el("li", { class: "more" }, el("details", { onkeydown: shut, onfocusout: left }, el("summary", {}, t("web.nav.more")), el("ul", {}, more))) : more)),
      el("div", { class: "bar-end" }, report ? null : languageButton(), themeButton())),
  );
  fill(document.getElementById("foot"), el("div", { class: "wrap" }, el("p", {}, t(report ? "web.foot.report" : "web.foot"))));
}

function mark(page) {
  for (const link of document.querySelectorAll("#top a[data-page]")) {
    if (page && link.dataset.page === page.name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const each of document.querySelectorAll("#top details")) {
    each.open = false;
    each.firstChild.classList.toggle("now", Boolean(page) && page.menu === "more");
  }
  const button = document.querySelector("#top .menu");
  if (button) button.setAttribute("aria-expanded", "false");
}

// The drop-down closes by Escape and when focus goes elsewhere.
function shut(event) {
  if (event.key !== "Escape") return;
  event.currentTarget.open = false;
  event.currentTarget.firstChild.focus();
}

function left(event) {
  if (event.relatedTarget && !event.currentTarget.contains(event.relatedTarget)) event.currentTarget.open = false;
}

function toggleMenu(event) {
  const button = event.currentTarget;
  button.setAttribute("aria-expanded", String(button.getAttribute("aria-expanded") !== "true"));
}

function languageButton() {
  const other = lang() === "zh" ? "en" : "zh";
  return el("button", { class: "quiet", type: "button", lang: other === "zh" ? "zh-Hans" : "en", onclick: async () => {
    remember("lang", other);
    const { path, params } = where();
    go(path, change(params, { lang: other }), { replace: true });
    await show();
    const again = document.querySelector("#top .bar-end button");
    if (again) again.focus();
  } }, other === "zh" ? "中文" : "English");
}

const THEMES = ["auto", "light", "dark"];

function themeButton() {
  const now = remembered("theme") || "auto";
  return el("button", { class: "quiet icon", type: "button", title: t("web.theme." + now), "aria-label": t("web.theme." + now), "data-now": now, onclick: (event) => {
    const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme || "auto") + 1) % THEMES.length];
    remember("theme", next);
    if (next === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    const made = themeButton();
    made.dataset.now = next;
    made.title = t("web.theme." + next);
    made.setAttribute("aria-label", made.title);
    event.currentTarget.replaceWith(made);
    made.focus();
  } });
}

// Escape closes what is open around the focus.
document.addEventListener("keydown", (event) => {
  const open = event.key === "Escape" && event.target.closest && event.target.closest("details[open]");
  if (!open || !open.querySelector(".pop")) return;
  open.open = false;
  open.querySelector("summary").focus();
});

// A click elsewhere closes what a click had opened over the page.
document.addEventListener("pointerdown", (event) => {
  for (const each of document.querySelectorAll("details[open]")) {
    if (each.querySelector(".pop, #top ul") && !each.contains(event.target)) each.open = false;
  }
});

start();
