"""The open loop in a model: requests come at their intended times, whatever the engines do with those before them."""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import partial
from typing import Final

from servemark.base.errors import input_error
from servemark.predict.sim_engine import Engines, SimRequest
from servemark.predict.sim_prompts import Prompts
from servemark.predict.sim_result import SimulatedRun, Tally
from servemark.predict.sim_rules import Deployment, ReplayRules
from servemark.predict.sim_sessions import SessionPlan, plan_session
from servemark.predict.types import PrefixCache, StepTimes
from servemark.replay.open_loop import OpenPlan, in_order
from servemark.traces.template import TemplateTokens
from servemark.traces.types import Session, Workload

_INF: Final = math.inf
_HELD: Final = 256
"""Sessions kept ready: those whose turns are being sent."""


def simulate_open(  # noqa: PLR0917 - as closed_loop.simulate
    workload: Workload,
    cache: PrefixCache | None,
    times: StepTimes,
    rules: ReplayRules,
    deployment: Deployment,
    block_tokens: int,
    template: TemplateTokens | None,
    *,
    keep: bool = False,
) -> SimulatedRun:
    """See `closed_loop.simulate`. Sends in the order, at the times and with the cap that `replay.open_loop` has."""
    return _OpenLoop(workload, cache, times, rules, deployment, block_tokens, template, keep=keep).run()


class _OpenLoop:
    """The state of one simulated open loop."""

    def __init__(  # noqa: PLR0917 - as simulate_open
        self,
        workload: Workload,
        cache: PrefixCache | None,
        times: StepTimes,
        rules: ReplayRules,
        deployment: Deployment,
        block_tokens: int,
        template: TemplateTokens | None,
        *,
        keep: bool,
    ) -> None:
        if rules.arrivals is None:
            raise input_error("predict.replay.one_load")
        self._rules = rules
        self._template = template
        self._plan = OpenPlan(
            workload,
            rules.arrivals,
            rules.cache_bust,
            "",
            duration_s=rules.duration_s,
            max_requests=rules.max_requests,
            max_in_flight=rules.max_in_flight,
        )
        if not workload.requests:
            raise input_error("predict.replay.no_requests", name=workload.name)
        self._prompts = None if cache is None else Prompts(block_tokens, rules.cache_bust, template)
        self._engines = Engines(deployment, times, cache)
        self._tally = Tally(deployment, keep=keep)
        self._held: OrderedDict[str, SessionPlan] = OrderedDict()
        self._left: dict[str, int] = {}
        self._now_s = 0.0

    def run(self) -> SimulatedRun:
        """Send everything, then wait for what is in flight as long as the grace allows."""
        rules, tally = self._rules, self._tally
        limit = _INF if rules.max_requests is None else rules.max_requests
        end_s = _INF if rules.duration_s is None else rules.duration_s
        tally.end_s = end_s
        sent = passes = 0
        last_s = 0.0
        for due_s, place in in_order(self._plan):
            if sent >= limit or due_s >= end_s:
                break
            self._until(due_s + rules.client_s)
            while rules.max_in_flight is not None and self._engines.in_flight >= rules.max_in_flight:
                self._until(self._engines.next_s(), inclusive=True)
            if self._now_s >= end_s:
                break
            stream = "" if place.agent is None else place.agent.id
            self._send(place.session, place.pass_number, stream, place.number)
            sent += 1
            passes = max(passes, place.pass_number)
            last_s = self._now_s
        grace_from_s = end_s if end_s < _INF else last_s
        self._until(_INF if rules.grace_s is None else grace_from_s + rules.grace_s)
        for request in self._engines.cancel_all(self._now_s):
            tally.cut_off(request)
        window = (0.0, end_s if end_s < _INF else tally.last_s)
        return tally.result(window, self._engines, None, sent=sent, passes=passes + 1)

    def _until(self, end_s: float, *, inclusive: bool = False) -> None:
        engines = self._engines
        while True:
            at_s = engines.next_s()
            if at_s == _INF or at_s > end_s or (at_s == end_s and not inclusive):
                break
            self._now_s = at_s
            engines.handle(at_s)
            for request in engines.ended:
                self._tally.add(request)
                self._end(request)
            engines.ended.clear()
        if end_s < _INF:
            self._now_s = max(self._now_s, end_s)

    def _send(self, session: Session, pass_number: int, stream: str, number: int) -> None:
        plan = self._plan_of(session)
        tree = plan.id if pass_number == 0 else f"{plan.id}#{pass_number + 1}"
        turns = plan.streams[stream]
        request = SimRequest(
            None, tree, stream, number,
            turns.input_tokens[number], turns.output_tokens[number], turns.known_tokens[number], True,
        )  # fmt: skip
        request.owner = plan.id
        self._left[tree] = self._left.get(tree, plan.requests)
        if self._prompts is not None:
            request.cache = self._prompts.of(plan.id, partial(_same, session), tree, stream, number)
            request.input_tokens = max(1, request.cache.input_tokens)
        self._engines.submit(request, self._now_s)
        self._tally.max_in_flight = max(self._tally.max_in_flight, self._engines.in_flight)

    def _plan_of(self, session: Session) -> SessionPlan:
        plan = self._held.get(session.id)
        if plan is None:
            plan = plan_session(
                session, self._rules.cache_bust, 1.0, self._template, known=self._prompts is None
            )
            self._held[session.id] = plan
            if len(self._held) > _HELD:
                self._held.popitem(last=False)
        return plan

    def _end(self, request: SimRequest) -> None:
        """When the tree's last request has ended, what it alone had is let go of."""
        tree = request.tree
        self._left[tree] -= 1
        if self._left[tree]:
            return
        del self._left[tree]
        self._engines.forget(tree)
        if self._prompts is not None:
            self._prompts.forget(str(request.owner), tree)


def _same(session: Session) -> Session:
    return session
