"""`/reliability`: how often jobs end well, by hardware and source, with denominators, intervals and reasons."""

from __future__ import annotations

from servemark.analysis.reliability import Outcome, published_outcomes, reliability, sweep_outcomes
from servemark.runs.outcomes import run_outcomes
from servemark.store.sweeps import SweepStore
from servemark.web.api.base import Query, Route
from servemark.web.depends import Depends
from servemark.web.site import Context

NEWEST_RUNS = 200
"""Each is read and checked against its hashes, so a page does not look at more."""


def reply(ctx: Context, query: Query) -> object:
    """Published jobs, attempts of sweeps, and runs of this home; each source for itself."""
    found: list[Outcome] = []
    if ctx.home.store.exists():
        found += published_outcomes(ctx.store, ctx.raw)[0]
    sweeps = SweepStore.read(ctx.home.sweeps)
    if sweeps is not None:
        with sweeps:
            found += sweep_outcomes(sweeps)
    found += run_outcomes(ctx.home.runs, NEWEST_RUNS)
    return reliability(found, query.lang)


ROUTE = Route("/reliability", "serve.api.reliability", reply, depends=Depends.HOME)
