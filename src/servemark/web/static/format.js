// How a figure is written: the rules of analysis/format.py, so that a page and a terminal print the same text.
//
//   significant(v, digits = 3)     "12 300", "0.0123", never an exponent
//   display(unit, values)          one unit for a whole column: { unit, factor, number(v), text(v) }; s below 1 are ms
//   exact(how, v)                  a chosen number in that unit: "50", "0.25"
//   range(shown, low, high)        "12.1 – 13.0 ms"

export const ABSENT = "—";
const SPACE = "\u202f";
const COUNTED = new Set(["count", "requests", "sessions", "GPUs", ""]);

export function significant(value, digits = 3) {
  if (!Number.isFinite(value)) return ABSENT;
  if (Math.abs(value) < 1e-9) return "0";
  const size = Math.abs(value);
  const places = Math.min(12, Math.max(0, digits - 1 - Math.floor(Math.log10(size))));
  const text = value.toFixed(places);
  // Rounding may carry into a new digit: 99.96 is 100, not 100.0.
  return group(places && Math.abs(text) >= 10 ** (digits - places) ? value.toFixed(places - 1) : text);
}

// A number that somebody chose (a tick, a target): as short as it is exact, "50" and not "50.0".
export function exact(how, value) {
  const text = String(Number((value * how.factor).toPrecision(6)));
  return text.includes("e") ? text : group(text);
}

export function group(text) {
  const [, sign, whole, rest] = /^(-?)(\d+)(.*)$/.exec(text) || [null, "", text, ""];
  return sign + (whole.length > 4 ? whole.replace(/\B(?=(\d{3})+$)/g, SPACE) : whole) + rest;
}

export function display(unit, values = []) {
  let largest = 0;
  for (const v of values) if (Number.isFinite(v)) largest = Math.max(largest, Math.abs(v));
  if (unit === "s" && largest > 0 && largest < 1) return shown(largest < 1e-3 ? "µs" : "ms", largest < 1e-3 ? 1e6 : 1e3);
  if (unit === "share") return shown("%", 100);
  return COUNTED.has(unit || "") ? shown("", 1, true) : shown(unit, 1, unit === "tokens");
}

export function range(how, low, high) {
  return low === null || high === null ? ABSENT : how.number(low) + " – " + how.text(high);
}

function shown(unit, factor, whole = false) {
  const number = (v) => {
    if (v === null || v === undefined || !Number.isFinite(v)) return ABSENT;
    const scaled = v * factor;
    return whole && Number.isInteger(scaled) ? group(String(scaled)) : significant(scaled);
  };
  return {
    unit,
    factor,
    number,
    text: (v) => {
      const said = number(v);
      return said === ABSENT || !unit ? said : said + SPACE + unit;
    },
  };
}
