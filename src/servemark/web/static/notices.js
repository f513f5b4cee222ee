// What every page says when there is trouble, nothing, or something to heed.
//
//   trouble(error, again)     a Problem: what is wrong, why, what to do; `again` is offered as a button
//   empty(text, next)         nothing to show, and what helps
//   notice(kind, ...children) a band: "info", "warn", "bad", "good"
//   save(name, type, text)    hands text or a Blob to the browser as a file
//   copy(text)                to the clipboard; resolves to true when it worked

import { send } from "./api.js";
import { el, fill } from "./dom.js";
import { t } from "./i18n.js";

export function trouble(error, again) {
  const known = error && error.title;
  if (error && error.status === 401) return door(again);
  if (!known) console.error(error);
  return el("section", { class: "notice bad", role: "alert" },
    el("h2", {}, known ? error.title : t("web.problem.page")),
    el("p", {}, known ? error.detail : String(error && error.message)),
    el("p", {}, known ? error.next : t("web.problem.page.next")),
    again ? el("p", {}, el("button", { type: "button", onclick: again }, t("web.again"))) : null);
}

// A server that others can reach asks for its token once; the browser then holds a cookie that no script can read.
function door(again) {
  const input = el("input", { type: "password", autocomplete: "off", required: true, id: "token" });
  const said = el("p", { role: "alert" });
  const enter = async (event) => {
    event.preventDefault();
    try {
      await send("POST", "/api/v1/session", null, { Authorization: "Bearer " + input.value.trim() });
      again();
    } catch (error) {
      fill(said, error.detail || error.title);
    }
  };
  return el("form", { class: "notice info door", onsubmit: enter }, el("h2", {}, t("web.door")), el("p", {}, t("web.door.next")), el("p", {}, el("label", { for: "token" }, t("web.door.token")), " ", input, " ", el("button", {}, t("web.door.enter"))), said);
}

export function empty(text, next) {
  return el("div", { class: "empty" }, el("p", {}, el("b", {}, text)), next ? el("p", {}, next) : null);
}

export function notice(kind, ...children) {
  return el("div", { class: "notice " + kind }, children);
}

export function save(name, type, text) {
  const address = URL.createObjectURL(text instanceof Blob ? text : new Blob([text], { type }));
  const link = el("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}
