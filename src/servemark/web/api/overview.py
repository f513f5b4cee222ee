"""`/overview`: what there is, what came last, and what is wrong with it."""

from __future__ import annotations

from servemark.results.gates.words import title
from servemark.store.overview import imported_runs, left_out, quarantined, store_state
from servemark.store.reasons import reason_text
from servemark.web.api.base import Query, Route
from servemark.web.site import Context

MAX_RUNS = 25
MAX_REASONS = 40


def reply(ctx: Context, query: Query) -> object:
    """Newest runs with how many of their points may be used; gates with how many points they doubt; rows without a point
    by reason."""
    store = ctx.store
    points, newest, version = store_state(store)
    lang = query.lang
    runs = [
        {
            "source": run.source,
            "run": run.run,
            "date": run.at_utc or None,
            "models": run.models,
            "lines": run.lines,
            "points": run.points,
            "usable": run.usable,
        }
        for run in reversed(imported_runs(store, None, MAX_RUNS))
    ]
    gates = [
        {"gate": gate, "title": title(gate, lang), "severity": severity, "points": count}
        for gate, severity, count in quarantined(store)[:MAX_REASONS]
    ]
    rows = [
        {"status": each.status, "reason": reason_text(each.reason, each.values, lang), "rows": each.rows}
        for each in left_out(store)[:MAX_REASONS]
    ]
    return {
        "store": {"points": points, "newest": newest, "version": version},
        "runs": runs,
        "gates": gates,
        "left_out": rows,
    }


ROUTE = Route("/overview", "serve.api.overview", reply)
