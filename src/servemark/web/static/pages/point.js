// One point: verdict, figures (each says where it comes from), configuration, declared against observed, accuracy with
// samples, its line and its other runs, and for our own runs what the raw records show.

import { has } from "../api.js";
import { el, fill } from "../dom.js";
import { hist, track } from "../hist.js";
import { lanes } from "../lanes.js";
import { notice, trouble } from "../notices.js";

const TONES = { valid: "good", warnings: "warn", quarantined: "bad" };

export function title(t) {
  return t("web.point.title");
}

export async function render(root, ctx) {
  const { t } = ctx;
  const path = "/api/v1/points/" + ctx.rest;
  const view = await ctx.get(path);
  ctx.heading(view.title);
  const more = el("div", {});
  const section = (name, heading, ...children) => el("section", { class: "part " + name }, el("h2", {}, heading), children);
  fill(root,
    el("p", { class: "crumb" }, el("a", { href: ctx.href("/front", view.front) }, "← " + t("web.point.back", { model: view.front.model || view.title }))),
    el("div", { class: "title-row" }, el("div", {}, el("h1", {}, view.title), el("p", { class: "lead" }, view.subtitle)), el("span", { class: "pill " + TONES[view.verdict] }, view.verdict_text)),
    view.standing.map((text) => notice("warn", el("p", {}, text))),
    el("dl", { class: "headline" }, view.headline.map((fact) => el("div", {}, el("dt", {}, fact.label), el("dd", {}, fact.value)))),
    section("checks", t("web.point.checks"), checks(view, t)),
    section("figures", t("web.point.figures"), el("p", { class: "note" }, t("web.point.figures.lead")), view.groups.map((group) => figures(group, ctx, path))),
    view.prediction ? section("foretold", t("web.point.foretold"), foretold(view.prediction, t)) : null,
    section("config", t("web.point.config"), facts([...view.facts.filter(plain), ...view.roles.map((role) => ({ label: role.label, value: role.text }))]),
      view.facts.every(plain) ? null : el("details", { class: "fold" }, el("summary", {}, t("web.point.config.more")), facts(view.facts.filter((fact) => !plain(fact))))),
    section("provenance", t("web.point.provenance"), provenance(view, t)),
    view.evals.length ? section("evals", t("web.point.evals"), evals(view, ctx, path)) : null,
    more,
    section("line", t("web.point.line"), others(view.siblings, ctx, false)),
    section("runs", t("web.point.runs"), others(view.history, ctx, true), ctx.report ? null : el("p", {}, el("a", { href: ctx.href("/history", { series: view.series_key }) }, t("web.point.history")))),
    section("files", t("web.point.files"), files(view, t)));
  if (view.has_requests && has(path + "/requests")) requests(more, ctx, path);
}

function checks(view, t) {
  const fold = (label, items) => items.length ? el("details", { class: "fold" }, el("summary", {}, label), el("ul", { class: "plain" }, items)) : null;
  return [
    view.gates.length
      ? el("ul", { class: "gates" }, view.gates.map((gate) => el("li", { class: gate.severity },
        el("h3", {}, gate.title), el("p", {}, gate.sentence), gate.next ? el("p", { class: "next" }, "→ " + gate.next) : null,
        gate.why ? el("details", { class: "fold" }, el("summary", {}, t("web.point.checks.why")), el("p", {}, gate.why)) : null)))
      : el("p", { class: "calm" }, t("web.point.checks.none")),
    el("div", { class: "folds" },
      fold(t("web.point.checks.passed", { count: view.passed.length }), view.passed.map((text) => el("li", {}, text))),
      fold(t("web.point.checks.skipped", { count: view.skipped.length }), view.skipped.map(([name, reason]) => el("li", {}, el("b", {}, name), ": " + reason)))),
  ];
}

// A group's metrics: those with statistics as rows of a table, the others side by side. A figure opens the panel below
// that says where it is from.
function figures(group, ctx, path) {
  const { t } = ctx;
  const panel = el("div", { class: "why", hidden: true });
  let opened = null;

  const close = () => {
    if (opened) opened.setAttribute("aria-expanded", "false");
    panel.hidden = true;
    const old = opened;
    opened = null;
    return old;
  };
  const open = async (address, button) => {
    if (close() === button) return;
    opened = button;
    button.setAttribute("aria-expanded", "true");
    panel.hidden = false;
    fill(panel, el("p", { class: "faint" }, t("web.loading")));
    try {
      const found = await ctx.get(address);
      if (opened === button) fill(panel, why(found, t, () => { const old = close(); if (old) old.focus(); }));
    } catch (error) {
      if (error.name !== "AbortError" && opened === button) fill(panel, trouble(error));
    }
  };
  const cell = (metric, figure) => {
    const address = path + "/why/" + encodeURIComponent(figure.address);
    const dot = figure.stated ? null : el("i", { class: "made", title: t("web.point.made") });
    if (!has(address)) return el("span", { class: "figure" }, figure.text, dot);
    const button = el("button", { type: "button", class: "figure", "aria-expanded": "false", title: t("web.point.why", { figure: metric.label + " " + figure.statistic }), onclick: () => open(address, button) }, figure.text, dot);
    return button;
  };
  const what = (metric) => el("details", { class: "metric-what" }, el("summary", {}, metric.label), el("p", {}, metric.definition), metric.formula ? el("p", { class: "mono" }, metric.formula) : null, metric.defined_by.length ? el("p", { class: "faint" }, t("web.point.by", { tools: metric.defined_by.join(", ") })) : null);
  const wide = group.metrics.filter((metric) => metric.figures.every((figure) => ORDER.includes(figure.statistic)));
  const alone = group.metrics.filter((metric) => !wide.includes(metric));
  const columns = ORDER.filter((name) => wide.some((metric) => metric.figures.some((figure) => figure.statistic === name)));
  return el("div", { class: "group" },
    el("h3", {}, group.label),
    wide.length ? el("div", { class: "table-scroll", role: "region", tabindex: "0", "aria-label": group.label },
      el("table", { class: "plain-table" },
        el("thead", {}, el("tr", {}, el("th", { scope: "col", class: "first" }, t("web.point.metric")), columns.map((name) => el("th", { scope: "col", class: "number" }, name)))),
        el("tbody", {}, wide.map((metric) => el("tr", {}, el("th", { scope: "row", class: "first" }, what(metric)),
          columns.map((name) => el("td", { class: "number" }, metric.figures.filter((figure) => figure.statistic === name).map((figure) => cell(metric, figure))))))))) : null,
    alone.length ? el("dl", { class: "facts scalars" }, alone.map((metric) => el("div", {}, el("dt", {}, what(metric)), metric.figures.map((figure) => el("dd", {}, cell(metric, figure)))))) : null,
    panel);
}

const ORDER = ["p50", "p75", "p90", "p95", "p99", "p99.9", "mean", "std", "min", "max", "n"];

function why(found, t, close) {
  const rows = [
    [t("web.point.why.formula"), found.formula],
    [t("web.point.why.numbers"), found.substituted],
    [t("web.point.why.parts"), found.parts.map((part) => el("div", {}, el("b", {}, part.address + ": " + part.stated), " " + part.at + " · " + part.conversion + " · " + part.definition))],
    [t("web.point.why.evidence"), found.evidence.map((each) => el("div", { class: "mono" }, [each.place, each.request, each.field, each.text].filter(Boolean).join("  ")))],
    [t("web.point.why.check"), found.check],
    [t("web.point.why.file"), t("web.point.why.row", { file: found.file, row: found.row })],
    [t("web.point.why.bytes"), el("span", { class: found.raw_state === "ok" ? "" : "differ" }, found.raw_text)],
    [t("web.point.why.read"), found.mapping_text],
    [t("web.point.why.command"), el("code", { class: "mono" }, found.command)],
  ];
  return [
    el("div", { class: "title-row" }, el("h4", {}, found.label + " = " + (found.absent_because || found.text)), el("button", { type: "button", class: "quiet", onclick: close }, t("web.point.why.close"))),
    el("p", { class: "note" }, found.definition),
    el("dl", { class: "pairs" }, rows.filter(([, value]) => (Array.isArray(value) ? value.length : value)).map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)])),
  ];
}

const plain = (fact) => !fact.id.startsWith("extra:") || fact.value.length < 40;

function facts(list) {
  return el("dl", { class: "facts" }, list.map((fact) => el("div", {}, el("dt", {}, fact.label), el("dd", {}, fact.value))));
}

function simple(caption, heads, rows) {
  return el("div", { class: "table-scroll", role: "region", tabindex: "0", "aria-label": caption },
    el("table", { class: "plain-table" }, el("thead", {}, el("tr", {}, heads.map((head, k) => el("th", { scope: "col", class: head.number ? "number" : k ? "" : "first" }, head.label)))), el("tbody", {}, rows)));
}

function provenance(view, t) {
  const row = (each) => el("tr", { class: each.agree === false ? "differs" : "" },
    el("th", { scope: "row", class: "first mono" }, each.field), el("td", {}, each.declared || "—"), el("td", {}, each.observed || "—"),
    el("td", { class: each.agree === false ? "differ" : "agree" }, each.agree === null ? "" : t(each.agree ? "web.point.same" : "web.point.differs")));
  const grid = (rows) => simple(t("web.point.provenance"), ["field", "declared", "observed"].map((name) => ({ label: t("web.point." + name) })).concat([{ label: "" }]), rows.map(row));
  const [declared, seen] = [view.provenance.filter((each) => each.declared !== null), view.provenance.filter((each) => each.declared === null)];
  const short = view.provenance.length <= 12;
  return [
    el("p", { class: view.differing ? "differ" : "note" }, view.provenance_text),
    short && view.provenance.length ? grid(view.provenance) : null,
    short ? null : [declared.length ? grid(declared) : null, seen.length ? el("details", { class: "fold" }, el("summary", {}, t("web.point.observed.only", { count: seen.length })), grid(seen)) : null],
  ];
}

// What was foretold before the run beside what it measured, then how past predictions held.
function foretold(part, t) {
  const number = (label) => ({ label, number: true });
  const within = (inside) => inside === null ? el("td", {}, "—") : el("td", { class: inside ? "agree" : "differ" }, t(inside ? "web.point.foretold.yes" : "web.point.foretold.no"));
  const record = (caption, first, rows) => rows.length ? [el("h3", {}, caption), simple(caption, [{ label: first }, ...["figures", "points", "within", "promised", "error"].map((name) => number(t("web.point.foretold.record." + name))), { label: t("web.point.foretold.record.verdict") }],
    rows.map((row) => el("tr", {}, el("th", { scope: "row", class: "first" }, row.label), [row.figures, row.points, row.coverage, row.promised, row.median_error].map((text) => el("td", { class: "number" }, String(text))), el("td", { class: row.judged === "narrow" ? "differ" : row.judged === "held" ? "agree" : "" }, row.judged_text))))] : null;
  return [
    el("p", { class: "note" }, t("web.point.foretold.made", { when: part.made_utc, words: part.words })),
    simple(t("web.point.foretold"), [{ label: t("web.point.metric") }, ...["predicted", "interval", "measured", "off"].map((name) => number(t("web.point.foretold." + name))), { label: t("web.point.foretold.within") }, { label: t("web.point.foretold.class") }],
      part.rows.map((row) => el("tr", {}, el("th", { scope: "row", class: "first" }, row.label, row.reason ? el("small", { class: "faint" }, " " + row.reason) : null),
        [row.predicted, row.interval, row.measured, row.error].map((text) => el("td", { class: "number" }, text)), within(row.inside), el("td", {}, row.class_text, row.inside === null ? null : el("small", { class: "faint" }, " n=" + row.residuals))))),
    record(t("web.point.foretold.by_class"), t("web.point.foretold.class"), part.record),
    part.months.length > 1 ? record(t("web.point.foretold.by_month"), t("web.point.foretold.month"), part.months) : null,
    el("p", { class: "note" }, part.record_words),
  ];
}

function evals(view, ctx, path) {
  const { t } = ctx;
  const place = el("div", {});
  const show = async (event) => {
    const button = event.currentTarget;
    button.disabled = true;
    try {
      const found = await ctx.get(path + "/samples");
      fill(place, found.tasks.map((task) => [el("p", { class: "note" }, t("web.point.samples.of", { shown: task.samples.length, total: task.samples_total, task: task.task })),
        el("ul", { class: "samples" }, task.samples.map((sample) => el("li", {},
          el("p", { class: sample.correct ? "agree" : "differ" }, t("web.point.sample." + (sample.correct ? "right" : "wrong"))),
          [["asked", sample.prompt], ["reply", sample.reply], ["expected", sample.expected]].map(([name, text]) => el("div", {}, el("h4", {}, t("web.point.sample." + name)), el("p", { class: "quoted" }, text === null ? "—" : text))))))]));
      button.remove();
    } catch (error) {
      if (error.name !== "AbortError") fill(place, trouble(error));
    }
  };
  return [
    el("dl", { class: "facts" }, view.evals.map((each) => el("div", {}, el("dt", {}, each.task), el("dd", {}, each.text, el("small", {}, each.metric), each.ref ? el("small", {}, el("a", { href: ctx.href("/point/" + each.ref) }, each.ref)) : null)))),
    view.has_samples && has(path + "/samples") ? el("p", {}, el("button", { type: "button", onclick: show }, t("web.point.samples"))) : null,
    place,
  ];
}

function others(part, ctx, dated) {
  const { t } = ctx;
  const noted = part.rows.some((row) => row.note);
  const heads = [{ label: t(dated ? "web.point.date" : "web.point.load") }, ...part.columns.map((column) => ({ label: column.label, number: true })), { label: t("web.point.verdict") }];
  if (dated) heads.push({ label: t("web.point.run") });
  if (noted) heads.push({ label: t("web.point.note") });
  return [
    simple(t(dated ? "web.point.runs" : "web.point.line"), heads, part.rows.map((row) => el("tr", { class: row.here ? "here" : "" },
      el("th", { scope: "row", class: "first" }, row.here ? el("b", {}, (dated ? row.date : row.label) + " · " + t("web.point.here")) : has("/api/v1/points/" + row.ref) ? el("a", { href: ctx.href("/point/" + row.ref) }, (dated ? row.date : row.label) || row.ref) : (dated ? row.date : row.label) || row.ref),
      row.values.map((text) => el("td", { class: "number" }, text)),
      el("td", {}, el("span", { class: "pill small " + TONES[row.verdict] }, t("web.point.verdict." + row.verdict))),
      dated ? el("td", { class: "mono" }, row.run) : null,
      noted ? el("td", {}, row.note) : null))),
    part.left_out ? el("p", { class: "note" }, t("web.point.left_out", { count: part.left_out })) : null,
  ];
}

function files(view, t) {
  return [
    simple(t("web.point.files"), ["file", "state"].map((name) => ({ label: t("web.point." + name) })).concat([{ label: "SHA-256" }]), view.files.map((file) => el("tr", {},
      el("th", { scope: "row", class: "first" }, file.name, el("small", { class: "faint" }, " " + file.role)), el("td", { class: file.state === "missing" ? "differ" : "" }, file.state_text), el("td", { class: "mono hash" }, file.sha256 || "")))),
    view.url ? el("p", {}, el("a", { href: view.url, rel: "noopener noreferrer", target: "_blank" }, t("web.point.source_link"))) : null,
    view.notes.length ? el("details", { class: "fold" }, el("summary", {}, t("web.point.notes")), el("ul", { class: "plain" }, view.notes.map((text) => el("li", {}, text)))) : null,
  ];
}

async function requests(place, ctx, path) {
  const { t } = ctx;
  let view;
  try {
    view = await ctx.get(path + "/requests");
  } catch (error) {
    if (error.name !== "AbortError") fill(place, trouble(error));
    return;
  }
  const tracks = (part, name) => part ? [el("h3", {}, t("web.point." + name)), el("div", { class: "tracks" }, part.tracks.map((each) => track(each, part.duration_s))), part.note ? el("p", { class: "note" }, part.note) : null] : null;
  fill(place, el("section", { class: "part requests" },
    el("h2", {}, t("web.point.requests")),
    view.notes.map((text) => notice("warn", el("p", {}, text))),
    lanes(view.lanes, t),
    el("div", { class: "hists" }, view.histograms.map((each) => hist(each, each.label + ": " + each.marks.map(([name, , text]) => name + " " + text).join(", ")))),
    view.cache ? [el("h3", {}, t("web.point.cache")), el("p", { class: "note" }, view.cache.state + " " + view.cache.verdict), facts(view.cache.entries.map((each) => ({ label: each.label, value: each.absent_because || each.text })))] : null,
    tracks(view.engine, "engine"),
    tracks(view.gpus, "gpus"),
    view.failed_total ? [el("h3", {}, t("web.point.failed", { count: view.failed_total })), el("ul", { class: "failed" }, view.failed.map((each) => el("li", {}, el("b", { class: "mono" }, each.request), " " + [each.outcome, each.kind, each.http_status, each.detail].filter(Boolean).join(" · "))))] : null,
    view.logs.length ? [el("h3", {}, t("web.point.logs")), view.logs.map((each) => log(each, ctx, path))] : null));
}

function log(each, ctx, path) {
  const { t } = ctx;
  const name = [el("span", { class: "mono" }, each.name), el("span", { class: "faint" }, " " + t("web.point.log.size", { kib: Math.ceil(each.bytes / 1024) }))];
  if (!has(path + "/logs", { name: each.name })) return el("p", {}, name);
  const body = el("div", {});
  return el("details", { class: "fold", ontoggle: async (event) => {
    if (!event.target.open || body.firstChild) return;
    try {
      const found = await ctx.get(path + "/logs", { name: each.name });
      fill(body, found.note ? el("p", { class: "note" }, found.note) : null, el("pre", { tabindex: "0" }, found.text));
    } catch (error) {
      if (error.name !== "AbortError") fill(body, trouble(error));
    }
  } }, el("summary", {}, name), body);
}
