// Every page: its address, its words in the menu (`web.nav.NAME`), its module. A new page adds two lines here.
// `menu`: "main" stands in the bar, "more" under More, null in neither. `/point` also takes `/point/REF`.

import { title as changelogTitle, render as changelogRender } from "./pages/changelog.js";
import { title as compareTitle, render as compareRender } from "./pages/compare.js";
import { title as costTitle, render as costRender } from "./pages/cost.js";
import { title as frontTitle, render as frontRender } from "./pages/front.js";
import { title as healthTitle, render as healthRender } from "./pages/health.js";
import { title as historyTitle, render as historyRender } from "./pages/history.js";
import { title as metricsTitle, render as metricsRender } from "./pages/metrics.js";
import { title as overviewTitle, render as overviewRender } from "./pages/overview.js";
import { title as pointTitle, render as pointRender } from "./pages/point.js";
import { title as reliabilityTitle, render as reliabilityRender } from "./pages/reliability.js";
import { title as sweepsTitle, render as sweepsRender } from "./pages/sweeps.js";

export const PAGES = [
  { path: "/", name: "overview", menu: "main", title: overviewTitle, render: overviewRender },
  { path: "/front", name: "front", menu: "main", title: frontTitle, render: frontRender },
  { path: "/compare", name: "compare", menu: "main", title: compareTitle, render: compareRender },
  { path: "/history", name: "history", menu: "main", title: historyTitle, render: historyRender },
  { path: "/cost", name: "cost", menu: "main", title: costTitle, render: costRender },
  { path: "/sweeps", name: "sweeps", menu: "more", title: sweepsTitle, render: sweepsRender },
  { path: "/health", name: "health", menu: "more", title: healthTitle, render: healthRender },
  { path: "/changelog", name: "changelog", menu: "more", title: changelogTitle, render: changelogRender },
  { path: "/reliability", name: "reliability", menu: "more", title: reliabilityTitle, render: reliabilityRender },
  { path: "/metrics", name: "metrics", menu: "more", title: metricsTitle, render: metricsRender },
  { path: "/point", name: "point", menu: null, title: pointTitle, render: pointRender },
];

export const HOME = "/front";

// The page of a path and what follows its name (`/point/REF` -> REF); null for no page.
export function pageOf(path) {
  const wanted = path === "/" && !PAGES.some((each) => each.path === "/") ? HOME : path;
  for (const page of PAGES) {
    if (wanted === page.path) return { page, rest: "" };
    if (page.path !== "/" && wanted.startsWith(page.path + "/")) return { page, rest: wanted.slice(page.path.length + 1) };
  }
  return null;
}
