"""`/facets`: what there is to choose from."""

from __future__ import annotations

from servemark.web.api.base import Query, Route
from servemark.web.site import Context

_COUNTED = ("hardware", "engine", "precision", "source")


def reply(ctx: Context, query: Query) -> object:
    """Counts of the newest complete runs, and the store's own size."""
    del query
    store = ctx.store
    joined = "FROM result_point p JOIN result_line l ON l.id = p.line_id JOIN result_config c ON c.id = l.config_id"
    wanted = "WHERE p.current = 1 AND l.latest = 1"
    pairs = store.query(
        f"SELECT c.model, c.scenario, count(*) {joined} {wanted} GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2"
    )
    models: dict[str, list[dict[str, object]]] = {}
    counts: dict[str, int] = {}
    for model, scenario, count in pairs:
        models.setdefault(model, []).append({"id": scenario, "label": scenario, "points": count})
        counts[model] = counts.get(model, 0) + count
    facets = {}
    for name in _COUNTED:
        column = f"l.{name}" if name == "source" else f"c.{name}"
        rows = store.query(f"SELECT {column}, count(*) {joined} {wanted} GROUP BY 1 ORDER BY 2 DESC, 1")
        facets[name] = [{"id": value, "points": count} for value, count in rows]
    points, newest = store.query("SELECT count(*), max(at_utc) FROM result_point WHERE current = 1")[0]
    ranked = sorted(counts, key=lambda model: -counts[model])
    return {
        "models": [{"id": each, "points": counts[each], "scenarios": models[each]} for each in ranked],
        "facets": facets,
        "metrics": [],
        "default": {
            "model": ranked[0] if ranked else None,
            "scenario": models[ranked[0]][0]["id"] if ranked else None,
            "precision": None,
            "x": "interactivity.p50",
            "y": "total_tokens_per_s_per_gpu",
        },
        "store": {"points": points, "newest": newest or None, "version": ctx.site.program},
    }


ROUTE = Route("/facets", "serve.api.facets", reply)
