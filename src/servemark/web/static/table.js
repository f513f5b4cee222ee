// A table whose columns sort by a button in their head; the first column stays in sight on a phone.
//
//   const view = table({ caption, columns, rows, sort, more, onsort, mark })
//     columns  [{ key, label, title?, number?: true, value(row) -> number|text|null (sorted by; null last), cell(row) -> text|node }]
//     rows     any values; `sort` { key, down: bool }, null: as given; `onsort(sort)` hears of changes
//     more     how a button that shows the rest is named: (count) => text; LIMIT rows stand there at first
//     mark     row => { class, attributes… } of its <tr>
//   view.node, view.update(rows)
//   toCsv(columns, rows) -> text         RFC 4180 of `value`s; a formula's first letter is defused for spreadsheets

import { el, fill } from "./dom.js";

const LIMIT = 100;

export function table({ caption, columns, rows, sort = null, more, onsort, mark }) {
  let order = sort;
  let all = rows;
  let whole = false;
  const head = el("tr", {});
  const body = el("tbody", {});
  const foot = el("p", { class: "table-more" });
  const node = el("div", { class: "table-part" },
    el("div", { class: "table-scroll", role: "region", tabindex: "0", "aria-label": caption },
      el("table", {}, el("caption", { class: "sr" }, caption), el("thead", {}, head), body)),
    foot);

  function heads() {
    fill(head, columns.map((column, k) => {
      const now = order && order.key === column.key;
      const button = el("button", { type: "button", title: column.title, onclick: () => sortBy(column, button) }, column.label, el("span", { class: "arrow", "aria-hidden": "true" }, now ? (order.down ? "↓" : "↑") : "↕"));
      return el("th", { scope: "col", class: (column.number ? "number" : "") + (k === 0 ? " first" : ""), "aria-sort": now ? (order.down ? "descending" : "ascending") : null }, button);
    }));
  }

  function sortBy(column, button) {
    const place = [...head.children].indexOf(button.parentNode);
    order = order && order.key === column.key ? { key: column.key, down: !order.down } : { key: column.key, down: Boolean(column.number) };
    show();
    head.children[place].firstChild.focus();
    if (onsort) onsort(order);
  }

  function show() {
    heads();
    const sorted = order ? sortedBy(all, columns.find((each) => each.key === order.key), order.down) : all;
    const some = whole ? sorted : sorted.slice(0, LIMIT);
    fill(body, some.map((row) => el("tr", mark ? mark(row) : {}, columns.map((column, k) =>
      el(k ? "td" : "th", { class: (column.number ? "number" : "text") + (k === 0 ? " first" : ""), scope: k ? null : "row" }, column.cell ? column.cell(row) : column.value(row))))));
    fill(foot, some.length < sorted.length ? el("button", { type: "button", class: "quiet", onclick: () => { whole = true; show(); } }, more(sorted.length)) : null);
  }

  show();
  return { node, update: (next) => { all = next; show(); } };
}

function sortedBy(rows, column, down) {
  if (!column) return rows;
  const keyed = rows.map((row, k) => [column.value(row), k, row]);
  const words = new Intl.Collator(undefined, { numeric: true });
  keyed.sort(([a, i], [b, j]) => {
    const [noA, noB] = [a === null || a === undefined || a === "", b === null || b === undefined || b === ""];
    if (noA || noB) return noA - noB || i - j;
    const by = typeof a === "number" && typeof b === "number" ? a - b : words.compare(String(a), String(b));
    return (down ? -by : by) || i - j;
  });
  return keyed.map((each) => each[2]);
}

export function toCsv(columns, rows) {
  const cell = (value) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text)) text = "'" + text;
    return /[",\r\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
  };
  return [columns.map((each) => cell(each.csv || each.label)), ...rows.map((row) => columns.map((each) => cell(each.value(row))))].map((line) => line.join(",") + "\r\n").join("");
}
