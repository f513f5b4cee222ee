// Which model and scenario a page is about: two drop-downs, the usual ones where the address names none, and moving on.
//
//   choicesOf(ctx) -> facets            with the counts of this model and scenario
//   settled(ctx, facets, keys) -> ctx   its address names a model and a scenario; `keys` are further defaults { y: … }
//   moved(ctx, changes) -> ctx          the same page with some keys of its query changed, in the address too
//   scope(ctx, facets, set) -> nodes

import { el } from "./dom.js";
import { scenarioName } from "./names.js";
import { change } from "./state.js";

export function choicesOf(ctx) {
  const chosen = { model: ctx.params.get("model"), scenario: ctx.params.get("scenario") };
  return ctx.shared("facets" + JSON.stringify(chosen), () => ctx.get("/api/v1/facets", chosen));
}

export function moved(ctx, changes) {
  ctx.set(changes);
  return { ...ctx, params: change(ctx.params, changes) };
}

export function settled(ctx, facets, keys = {}) {
  const usual = facets.default || {};
  const missing = {};
  if (!ctx.params.has("model")) Object.assign(missing, { model: usual.model, scenario: usual.scenario });
  for (const [key, value] of Object.entries(keys)) if (!ctx.params.has(key)) missing[key] = value;
  return Object.values(missing).some(Boolean) ? moved(ctx, missing) : ctx;
}

export function scope(ctx, facets, set) {
  const { t } = ctx;
  const model = ctx.params.get("model");
  const found = facets.models.find((each) => each.id === model);
  const pick = (name, options, then) => el("label", {}, el("span", { class: "sr" }, t("web.facet." + name)),
    el("select", { onchange: (event) => set(then(event.target.value)) }, options.map(([id, text]) => el("option", { value: id, selected: id === ctx.params.get(name) }, text))));
  const scenarios = found ? found.scenarios : [];
  return [
    pick("model", facets.models.map((each) => [each.id, each.id]), (id) => {
      const next = facets.models.find((each) => each.id === id);
      const same = next.scenarios.some((each) => each.id === ctx.params.get("scenario"));
      return { model: id, scenario: same || !next.scenarios.length ? ctx.params.get("scenario") : next.scenarios[0].id, precision: null };
    }),
    pick("scenario", scenarios.map((each) => [each.id, scenarioName(t, each.label)]), (id) => ({ scenario: id })),
  ];
}
