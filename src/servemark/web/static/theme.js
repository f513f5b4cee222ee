// Before the first paint: the colours that were chosen, where they differ from the system's.
try {
  const chosen = localStorage.getItem("servemark.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // no storage: the system's colours
}
// And before the script has come: what the page is going to ask first, so that answers and script arrive together. Only
// where this file is one of its own, not within a report.
if (document.currentScript && document.currentScript.src) {
  const params = new URLSearchParams(location.search);
  const stored = (() => {
    try {
      return localStorage.getItem("servemark.lang");
    } catch {
      return null;
    }
  })();
  const codes = [params.get("lang"), stored, ...(navigator.languages || [])].map((each) => (each || "").slice(0, 2).toLowerCase());
  const lang = codes.find((each) => each === "en" || each === "zh") || "en";
  params.delete("lang");
  const chosen = new URLSearchParams();
  const early = (window.servemarkEarly = new Map());
  const ask = (path, query) => {
    query.set("lang", lang);
    const address = "/api/v1/" + path + "?" + query;
    const answer = fetch(address, { cache: "no-cache", headers: { Accept: "application/json" } });
    answer.catch(() => null); // whoever takes it hears of it
    early.set(address, answer);
  };
  ask("messages", new URLSearchParams());
  if (location.pathname === "/front") {
    for (const name of ["model", "scenario"]) if (params.get(name)) chosen.set(name, params.get(name));
    for (const name of ["log", "series", "only", "sort"]) params.delete(name); // as pages/front.js leaves them out
    if (params.has("x")) ask("front", params);
    ask("facets", chosen);
  } else if (location.pathname === "/") {
    ask("overview", new URLSearchParams());
    ask("facets", chosen);
  }
}
