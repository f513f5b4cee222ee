// Names of the store's own words for people.
//
//   scenarioName(t, "fixed-seq-len:8192/1024") -> "8192 in → 1024 out"; a word that is not known stays as it is;
// a data set that is known by its hash alone is named by the beginning of it.

export function scenarioName(t, id) {
  const fixed = /^fixed-seq-len:(\d+)\/(\d+)$/.exec(id || "");
  if (fixed) return t("web.scenario.fixed", { isl: fixed[1], osl: fixed[2] });
  const known = /^(agentic-coding|eval):(.+)$/.exec(id || "");
  if (known) return t("web.scenario." + known[1], { name: /^[0-9a-f]{40,64}$/.test(known[2]) ? known[2].slice(0, 10) + "…" : known[2] });
  return id === "unknown" ? t("web.scenario.unknown") : id;
}
