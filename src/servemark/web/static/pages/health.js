// What the checks say of the suites that are served, by rule, the gravest first; each finding with its place and the way out.

import { el, fill } from "../dom.js";
import { empty, notice } from "../notices.js";

const GRADES = ["error", "warning", "note"];

export function title(t) {
  return t("web.health.title");
}

export async function render(root, ctx) {
  const { t } = ctx;
  const { suites } = await ctx.get("/api/v1/health");
  fill(root, el("h1", {}, t("web.health.title")), el("p", { class: "lead" }, t("web.health.lead")),
    suites.length ? suites.map((suite) => part(ctx, suite)) : empty(t("web.suites.none"), t("web.suites.none.next")));
}

function part(ctx, suite) {
  const { t } = ctx;
  if (suite.error) return el("section", { class: "part" }, el("h2", {}, suite.name), notice("bad", el("p", {}, suite.error)));
  return el("section", { class: "part" },
    el("h2", {}, suite.name),
    el("p", { class: "note" }, t("web.health.counts", { arms: suite.arms, recipes: suite.recipes, rules: suite.rules_run })),
    el("ul", { class: "grades" }, GRADES.map((grade) => el("li", {}, el("b", {}, String(suite.counts[grade] || 0)), " ", el("span", { class: "grade " + grade }, t("web.grade." + grade + "s"))))),
    suite.rules.length ? el("ul", { class: "rules" }, suite.rules.map((each) => el("li", {}, rule(ctx, each)))) : notice("good", el("p", {}, t("web.health.clean"))));
}

function rule(ctx, each) {
  const { t } = ctx;
  const count = GRADES.reduce((sum, grade) => sum + (each.counts[grade] || 0), 0);
  const list = el("ol", { class: "found" });
  return el("details", { ontoggle: () => list.childElementCount || fill(list, each.findings.map((one) => finding(one))) },
    el("summary", {}, el("span", { class: "grade " + each.severity }, t("web.grade." + each.severity)), el("span", { class: "rule-name" }, each.summary), el("span", { class: "faint mono" }, each.code), el("b", {}, String(count))),
    each.why ? el("p", { class: "because" }, each.why) : null,
    list,
    count > each.findings.length ? el("p", { class: "note" }, t("web.health.more", { shown: each.findings.length, count })) : null);
}

function finding(one) {
  return el("li", {}, el("p", {}, one.message), one.next ? el("p", { class: "next" }, "→ ", one.next) : null,
    el("p", { class: "faint mono" }, one.file + (one.line ? ":" + one.line + (one.column ? ":" + one.column : "") : ""), one.arm ? " · " + one.arm : ""));
}
