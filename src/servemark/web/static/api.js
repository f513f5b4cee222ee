// Asking the server, or in a report the data inlined in the page.
//
//   get(path, params, signal)   the body of a GET; the browser's cache answers 304 by ETag. Throws Problem.
//   send(method, path, body, headers)   a POST or DELETE with the header that other sites cannot set. Throws Problem.
//   keyOf(path, params)         how inlined data are named: path, "?" and the pairs in order of their names, no `lang`
//   has(path, params)           false where a report lacks it
//   Problem                     { title, detail, next, status }: what is wrong and what to do, in the reader's language

import { query, report } from "./state.js";
import { lang, t } from "./i18n.js";

export class Problem extends Error {
  constructor({ title, detail, next, status = 0 }) {
    super(title);
    Object.assign(this, { title, detail, next, status });
  }
}

let inlined = null;

export function keyOf(path, params) {
  const pairs = [...query(params)].filter(([name]) => name !== "lang");
  pairs.sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1] < b[1] ? -1 : a[1] > b[1] ? 1 : 0));
  const text = pairs.map((pair) => pair.map(encodeURIComponent).join("=")).join("&");
  return path + (text ? "?" + text : "");
}

export function has(path, params) {
  return !report || Object.hasOwn(data(), keyOf(path, params));
}

export async function get(path, params, signal) {
  if (report) {
    const key = keyOf(path, params);
    if (Object.hasOwn(data(), key)) return data()[key];
    throw new Problem({ title: t("web.problem.not_in_report"), next: t("web.problem.not_in_report.next") });
  }
  const asked = new URLSearchParams(query(params));
  asked.set("lang", lang());
  const address = path + "?" + asked;
  const early = window.servemarkEarly && window.servemarkEarly.get(address); // under way since before this script (theme.js)
  if (early) window.servemarkEarly.delete(address);
  return answered(() => early || fetch(address, { signal, cache: "no-cache", headers: { Accept: "application/json" } }));
}

export async function send(method, path, body = null, headers = {}) {
  return answered(() => fetch(path + "?lang=" + lang(), { method, body, headers: { "X-Servemark": "1", ...headers } }));
}

async function answered(ask) {
  let reply;
  try {
    reply = await ask();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem({ title: t("web.problem.offline"), next: t("web.problem.offline.next") });
  }
  if (reply.status === 204) return null;
  let found = null;
  try {
    found = await reply.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
  }
  if (reply.ok && found !== null) return found;
  throw new Problem({
    title: t("web.problem.server", { status: reply.status }),
    next: t("web.problem.server.next"),
    ...(found && typeof found === "object" ? found : {}),
    status: reply.status,
  });
}

function data() {
  inlined = inlined || JSON.parse(document.getElementById("servemark-data").textContent);
  return inlined;
}
