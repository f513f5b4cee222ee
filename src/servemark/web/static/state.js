// The address is the state: a path and a query. Served, they are the address itself; in a report on disk they follow "#".
//
//   report                          true in a one-file report
//   where()                         { path, params: URLSearchParams }
//   href(path, params)              an address for a link; params: URLSearchParams or {key: text | [texts] | null}
//   go(path, params, { replace, quiet })   moves there; `replace` leaves no step behind; `quiet` tells nobody
//   onMove(f)                       f() after each move, also back and forward
//   query(params)                   URLSearchParams of either form, empty values left out, keys in the order given
//   change(params, {key: value})    a copy with some keys set; null takes one away

export const report = document.getElementById("servemark-data") !== null;
const listeners = [];

export function where() {
  const full = report ? location.hash.slice(1) || "/" : location.pathname + location.search;
  const at = full.indexOf("?");
  return { path: decode(at < 0 ? full : full.slice(0, at)), params: new URLSearchParams(at < 0 ? "" : full.slice(at)) };
}

export function query(params) {
  if (params instanceof URLSearchParams) return params;
  const made = new URLSearchParams();
  for (const [key, value] of Object.entries(params || {})) {
    for (const each of Array.isArray(value) ? value : [value]) {
      if (each !== null && each !== undefined && each !== "") made.append(key, each);
    }
  }
  return made;
}

export function change(params, changes) {
  const made = new URLSearchParams(params);
  for (const [key, value] of Object.entries(changes)) {
    made.delete(key);
    for (const [name, each] of query({ [key]: value })) made.append(name, each);
  }
  return made;
}

export function href(path, params) {
  const asked = where().params.get("lang");
  const made = new URLSearchParams(query(params));
  if (asked && !made.has("lang")) made.set("lang", asked); // a language that was asked for goes along
  // Commas, colons and slashes of a selection stay readable in the address.
  const text = made.toString().replaceAll("%2C", ",").replaceAll("%3A", ":").replaceAll("%2F", "/");
  return (report ? "#" : "") + path + (text ? "?" + text : "");
}

export function go(path, params, { replace = false, quiet = false } = {}) {
  const address = href(path, params);
  history[replace ? "replaceState" : "pushState"](null, "", address);
  if (!replace && !quiet) for (const each of listeners) each();
}

export function onMove(f) {
  listeners.push(f);
  if (listeners.length === 1) {
    addEventListener("popstate", () => listeners.forEach((each) => each()));
    document.addEventListener("click", follow);
  }
}

// A plain click on a link of this page moves without loading it again.
function follow(event) {
  const link = event.target.closest && event.target.closest("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const address = link.getAttribute("href");
  if (link.hasAttribute("download") || link.hasAttribute("target") || address.startsWith("/api/")) return;
  if (!address.startsWith(report ? "#/" : "/")) return;
  event.preventDefault();
  history.pushState(null, "", address);
  for (const each of listeners) each();
}

function decode(path) {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
