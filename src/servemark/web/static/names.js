// Names of the store's own words for people.
//
//   scenarioName(t, "fixed-seq-len:8192/1024") -> "8192 in → 1024 out"; a word that is not known stays as it is

export function scenarioName(t, id) {
  const fixed = /^fixed-seq-len:(\d+)\/(\d+)$/.exec(id || "");
  if (fixed) return t("web.scenario.fixed", { isl: fixed[1], osl: fixed[2] });
  const known = /^(agentic-coding|eval):(.+)$/.exec(id || "");
  if (known) return t("web.scenario." + known[1], { name: known[2] });
  return id === "unknown" ? t("web.scenario.unknown") : id;
}
