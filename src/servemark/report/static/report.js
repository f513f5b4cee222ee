// Everything here is comfort: the page says the same without it.
"use strict";
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // One tip for all charts. Native <title> tips become ours, so that touch and keyboard show them too.
  const tip = document.createElement("div");
  tip.id = "tip";
  tip.setAttribute("aria-hidden", "true");
  tip.hidden = true;
  document.body.append(tip);
  const adopt = (owner, words) => {
    owner.setAttribute("aria-label", words);
    owner.dataset.tip = "";
  };
  for (const title of all("svg.plot title")) {
    const owner = title.parentNode;
    adopt(owner, title.textContent);
    if (owner.tagName === "g") owner.setAttribute("role", "img");
    title.remove();
  }
  for (const cell of all("td[title]")) {
    adopt(cell, cell.title);
    cell.removeAttribute("title");
  }
  const show = (owner) => {
    tip.textContent = owner.getAttribute("aria-label").replace(/;\n/g, "\n");
    tip.hidden = false;
    const box = (owner.querySelector(".dot") || owner).getBoundingClientRect();
    const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
    const left = Math.max(8, Math.min(box.left + box.width / 2 - tip.offsetWidth / 2, room));
    const above = box.top - tip.offsetHeight - 14;
    tip.style.left = `${left + scrollX}px`;
    tip.style.top = `${(above > 52 ? above : box.bottom + 14) + scrollY}px`;
  };
  const hide = () => { tip.hidden = true; };
  for (const name of ["pointerover", "focusin"]) {
    document.addEventListener(name, (event) => {
      const owner = event.target.closest("[data-tip], .mark");
      if (owner) show(owner);
      else hide();
    });
  }
  document.addEventListener("focusout", hide);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // A point and its row light up together.
  const light = (row, on) => {
    for (const item of all(`#${row}, .mark[data-row="${row}"]`)) item.classList.toggle("lit", on);
  };
  const pair = (element, row) => {
    for (const name of ["pointerenter", "focusin"]) element.addEventListener(name, () => light(row, true));
    for (const name of ["pointerleave", "focusout"]) element.addEventListener(name, () => light(row, false));
  };
  for (const mark of all(".mark")) pair(mark, mark.dataset.row);
  for (const row of all("tr[id]")) pair(row, row.id);

  // Arrow keys walk a chart; in a timeline only one bar at a time takes part in Tab.
  const walk = (items, rove) => {
    if (rove) items.forEach((item, place) => item.setAttribute("tabindex", place ? "-1" : "0"));
    items.forEach((item, place) => item.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const next = step ? items[place + step] : { Home: items[0], End: items.at(-1) }[event.key];
      if (!next) return;
      event.preventDefault();
      if (rove) {
        item.setAttribute("tabindex", "-1");
        next.setAttribute("tabindex", "0");
      }
      next.focus();
    }));
  };
  for (const chart of all("svg.front")) walk(all(".mark", chart), false);
  for (const chart of all("svg.lanes")) walk(all("g[data-tip]", chart), true);

  // A table sorts by its column's raw value; absent ones stay last either way.
  for (const table of all("table.sortable")) {
    const heads = all("thead tr:last-child th", table);
    heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const value = (row) => row.cells[column].dataset.v;
      const body = table.tBodies[0];
      body.append(...[...body.rows].sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        return down ? y - x : x - y;
      }));
    }));
  }

  // Print shows what is folded away.
  addEventListener("beforeprint", () => { for (const fold of all("details")) fold.open = true; });
})();
