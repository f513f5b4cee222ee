// Unofficial results laid over a page: files dropped anywhere on it or chosen by a button. The server keeps them in memory
// only, for a while, and never among the official ones.
//
//   const zone = dropZone(root, ctx, (id) => …)     id: of all overlays together, for the query key `overlay`
//   zone.button(t) -> node, zone.remove(id), zone.close()

import { send } from "./api.js";
import { el, fill } from "./dom.js";
import { notice, trouble } from "./notices.js";

export function dropZone(root, ctx, done) {
  const { t } = ctx;
  const veil = el("div", { class: "veil", hidden: true, "aria-hidden": "true" }, el("p", {}, t("web.overlay.drop")));
  const told = el("div", { class: "overlay-told", role: "status" });
  document.body.append(veil);
  let inside = 0;

  async function take(files) {
    if (!files.length) return;
    fill(told, notice("info", el("p", {}, t("web.overlay.reading", { files: files.length }))));
    if (!told.isConnected) root.prepend(told);
    try {
      const ids = [];
      const problems = [];
      for (const file of files) {
        const found = await send("POST", "/api/v1/overlays", file, { "Content-Type": "application/octet-stream", "X-Servemark-Name": encodeURIComponent(file.name) });
        ids.push(found.id);
        problems.push(...(found.problems || []));
      }
      const before = ctx.params.get("overlay");
      done([...(before ? before.split(",") : []), ...ids].join(","));
      fill(told, problems.length ? notice("warn", el("ul", { class: "plain" }, problems.slice(0, 8).map((each) => el("li", {}, typeof each === "string" ? each : each.text || each.title || JSON.stringify(each))))) : null);
    } catch (error) {
      fill(told, trouble(error, () => take(files)));
    }
  }

  const carries = (event) => event.dataTransfer && [...event.dataTransfer.types].includes("Files");
  const enter = (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    inside += 1;
    veil.hidden = false;
  };
  const over = (event) => carries(event) && event.preventDefault();
  const leave = (event) => {
    if (!carries(event)) return;
    inside = Math.max(0, inside - 1);
    veil.hidden = inside === 0;
  };
  const drop = (event) => {
    if (!carries(event)) return;
    event.preventDefault();
    inside = 0;
    veil.hidden = true;
    take([...event.dataTransfer.files]);
  };
  const heard = { dragenter: enter, dragover: over, dragleave: leave, drop };
  for (const [name, f] of Object.entries(heard)) addEventListener(name, f);

  return {
    button: (words) => {
      const input = el("input", { type: "file", multiple: true, class: "sr", "aria-label": words("web.overlay.choose"), onchange: (event) => take([...event.target.files]) });
      return el("label", { class: "button quiet file", title: words("web.overlay.drop") }, input, words("web.overlay.add"));
    },
    remove: (ids) => {
      for (const id of ids.split(",")) send("DELETE", "/api/v1/overlays/" + encodeURIComponent(id)).catch(() => null);
    },
    close: () => {
      for (const [name, f] of Object.entries(heard)) removeEventListener(name, f);
      veil.remove();
    },
  };
}
