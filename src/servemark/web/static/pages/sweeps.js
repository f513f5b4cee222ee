// Sweeps of this home: how far each is, what waits and what failed; asked again every few seconds while one runs.

import { el, fill, svg } from "../dom.js";
import { display } from "../format.js";
import { empty } from "../notices.js";
import { table } from "../table.js";

const AGAIN_MS = 4000;
const LIVE = ["running", "pausing", "cancelling"];
const ORDER = ["done", "running", "failed", "skipped", "cancelled", "waiting"];

export function title(t) {
  return t("web.sweeps.title");
}

export async function render(root, ctx) {
  const { t } = ctx;
  const body = el("div", { class: "part" });
  const chosen = ctx.params.get("sweep");
  let timer = 0;
  let closed = false;
  let last = "";

  async function show() {
    const found = chosen ? { sweeps: [await ctx.get("/api/v1/sweeps/" + encodeURIComponent(chosen))] } : await ctx.get("/api/v1/sweeps");
    const text = JSON.stringify(found);
    if (text !== last) fill(body, chosen ? whole(ctx, found.sweeps[0]) : list(ctx, found.sweeps));
    last = text;
    if (!closed && found.sweeps.some((each) => LIVE.includes(each.state))) timer = setTimeout(again, AGAIN_MS);
  }

  // A look that failed is tried again: a server that is started anew comes back by itself.
  function again() {
    show().catch((error) => error.name === "AbortError" || closed || (timer = setTimeout(again, AGAIN_MS)));
  }

  await show();
  fill(root, chosen ? el("p", {}, el("a", { href: ctx.href("/sweeps") }, "← " + t("web.sweeps.title"))) : null, el("h1", {}, chosen || t("web.sweeps.title")), chosen ? null : el("p", { class: "lead" }, t("web.sweeps.lead")), body);
  return { close: () => { closed = true; clearTimeout(timer); } };
}

function list(ctx, sweeps) {
  const { t } = ctx;
  if (!sweeps.length) return empty(t("web.sweeps.none"), t("web.sweeps.none.next"));
  return el("ul", { class: "sweeps" }, sweeps.map((each) => el("li", { class: "card" },
    el("h2", {}, el("a", { href: ctx.href("/sweeps", { sweep: each.sweep_id }) }, each.sweep_id), " ", state(t, each.state)),
    progress(ctx, each))));
}

function state(t, name) {
  return el("span", { class: "pill " + ({ done: "good", failed: "bad", running: "live" }[name] || "") }, t("web.sweep." + name));
}

function progress(ctx, sweep) {
  const { t } = ctx;
  const known = Object.keys(sweep.counts).filter((name) => sweep.counts[name]).sort((a, b) => place(a) - place(b));
  let from = 0;
  const bar = svg("svg", { class: "progress", viewBox: "0 0 1000 10", preserveAspectRatio: "none", "aria-hidden": "true" }, known.map((name) => {
    const wide = (1000 * sweep.counts[name]) / Math.max(1, sweep.total);
    const piece = svg("rect", { class: "piece " + name, x: from, y: 0, width: wide, height: 10 });
    from += wide;
    return piece;
  }));
  const eta = sweep.eta_s === null ? null : t("web.sweeps.eta", { time: display("s", [sweep.eta_s]).text(sweep.eta_s) });
  return [bar, el("ul", { class: "grades" }, known.map((name) => el("li", {}, el("b", {}, String(sweep.counts[name])), " ", el("span", { class: "grade " + name }, t("web.sweep_point." + name))))), el("p", { class: "note" }, [sweep.created_utc.replace("T", " ").replace("Z", " UTC"), eta].filter(Boolean).join(" · "))];
}

function place(name) {
  const at = ORDER.indexOf(name);
  return at < 0 ? ORDER.length : at;
}

function whole(ctx, sweep) {
  const { t } = ctx;
  return [el("p", {}, state(t, sweep.state)), progress(ctx, sweep), table({
    caption: t("web.sweeps.points"),
    rows: sweep.points,
    more: (count) => t("web.table.more", { count }),
    columns: [
      { key: "arm", label: t("web.sweeps.arm"), value: (row) => row.arm },
      { key: "topology", label: t("web.column.topology"), value: (row) => row.topology },
      { key: "concurrency", label: t("web.column.concurrency"), number: true, value: (row) => row.concurrency },
      { key: "cluster", label: t("web.sweeps.cluster"), value: (row) => row.cluster },
      { key: "state", label: t("web.column.state"), value: (row) => row.state, cell: (row) => el("span", { class: "grade " + row.state }, t("web.sweep_point." + row.state)) },
      { key: "failure", label: t("web.sweeps.failure"), value: (row) => row.failure && row.failure.what, cell: (row) => (row.failure && row.failure.what) || "—" },
      { key: "run", label: t("web.column.run"), value: (row) => row.run_id, cell: (row) => (row.run_id ? el("a", { href: ctx.href("/front", { run: row.run_id, all: "yes" }) }, row.run_id) : "—") },
    ],
  }).node];
}
