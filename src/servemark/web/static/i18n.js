// Words come from the catalogue base/messages/{en,zh}/web.json; nothing is written in code.
//
//   setWords(words, lang)          the catalogue: {"web.key": "text with {name}"}
//   lang()                         "en" or "zh"
//   t("web.key", { name: value })  the text; an unknown key shows itself, so that it is seen
//   wanted(asked)                       "en" or "zh": asked for in the address, remembered, or the browser's

let words = {};
let code = "en";

export function setWords(found, language) {
  words = found;
  code = language;
  document.documentElement.lang = code === "zh" ? "zh-Hans" : "en";
}

export function lang() {
  return code;
}

export function t(key, values = {}) {
  const text = Object.hasOwn(words, key) ? words[key] : key;
  return text.replace(/\{(\w+)\}/g, (whole, name) => (name in values ? String(values[name]) : whole));
}

export function wanted(asked) {
  for (const each of [asked, remembered("lang"), ...(navigator.languages || [])]) {
    const short = (each || "").slice(0, 2).toLowerCase();
    if (short === "en" || short === "zh") return short;
  }
  return "en";
}

// Storage may be refused (private windows, files): then a choice lasts as long as the page.
export function remembered(key) {
  try {
    return localStorage.getItem("servemark." + key);
  } catch {
    return null;
  }
}

export function remember(key, value) {
  try {
    localStorage.setItem("servemark." + key, value);
  } catch {
    // nothing to do
  }
}
