// What changed in the suites that are served, the newest first: which configurations, why, and where that was agreed.

import { debounce, el, fill } from "../dom.js";
import { empty, notice } from "../notices.js";

const AT_FIRST = 60;

export function title(t) {
  return t("web.changelog.title");
}

export async function render(root, ctx) {
  const { t } = ctx;
  const { suites } = await ctx.get("/api/v1/changelog");
  const search = el("input", { type: "search", value: ctx.params.get("q") || "", "aria-label": t("web.changelog.search"), placeholder: t("web.changelog.search"), oninput: debounce((event) => {
    ctx.set({ q: event.target.value || null });
    show();
  }, 80) });
  const body = el("div", {});
  const show = () => fill(body, suites.map((suite) => part(ctx, suite, search.value.toLowerCase().split(/\s+/).filter(Boolean))));
  fill(root, el("h1", {}, t("web.changelog.title")), el("p", { class: "lead" }, t("web.changelog.lead")),
    suites.length ? [el("div", { class: "search-row" }, search), body] : empty(t("web.suites.none"), t("web.suites.none.next")));
  show();
  return { update: (next) => { search.value = next.params.get("q") || ""; show(); } };
}

function part(ctx, suite, words) {
  const { t } = ctx;
  const all = [...suite.entries].reverse().filter((each) => {
    const text = [...each.config_keys, ...each.description].join(" ").toLowerCase();
    return words.every((word) => text.includes(word));
  });
  const list = el("ol", { class: "changes" }, all.slice(0, AT_FIRST).map((each) => entry(ctx, each)));
  const more = all.length > AT_FIRST ? el("p", { class: "table-more" }, el("button", { type: "button", class: "quiet", onclick: () => {
    list.append(...all.slice(AT_FIRST).map((each) => entry(ctx, each)));
    more.remove();
  } }, t("web.changelog.more", { count: all.length }))) : null;
  return el("section", { class: "part" }, el("h2", {}, suite.name),
    suite.error ? notice("bad", el("p", {}, suite.error)) : el("p", { class: "note", role: "status" }, t("web.changelog.count", { count: all.length, all: suite.total })),
    list, more);
}

function entry(ctx, each) {
  const { t } = ctx;
  const kept = each.config_keys.slice(0, 6);
  const flags = ["evals_only", "all_evals", "append_only"].filter((name) => each[name]);
  return el("li", {},
    el("ul", { class: "keys" }, kept.map((key) => el("li", { class: "mono" }, key)), each.config_keys.length > kept.length ? el("li", { class: "faint" }, "+" + (each.config_keys.length - kept.length)) : null),
    each.description.map((line) => el("p", {}, line)),
    el("p", { class: "faint" }, flags.map((name) => t("web.changelog." + name) + " · "), each.link ? [el("a", { href: each.link, rel: "noreferrer" }, t("web.changelog.link")), " · "] : null, el("span", { class: "mono" }, each.file + ":" + each.line)));
}
