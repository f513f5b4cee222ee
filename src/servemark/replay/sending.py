"""What every way of replaying shares: a turn becomes a request, the request a record, the record goes to the
sink; counted for progress, for the failure limit and for whoever watches what is in flight."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256

from servemark.replay.client import Client
from servemark.replay.profiles import FailureGate, GoneGate, Replies
from servemark.replay.progress import Progress
from servemark.replay.prompts import SegmentText, SessionPrompts
from servemark.replay.record import Phase, RequestRecord
from servemark.replay.stop import StopSignal
from servemark.replay.target import ChatRequest
from servemark.traces.types import CacheBust, Session, SubAgent, Turn

TOO_MANY_FAILED = "failed_requests"
SERVER_GONE = "server_gone"
"""Why a replay ended itself: more failed than its profile allows, or nobody takes connections any more."""
"""Reason of the stop when more requests failed than the profile allows."""


@dataclass(frozen=True, slots=True)
class SendRules:
    """What is the same in every request of a replay. `marker_salt` names the point, so that two points never
    share a cache-bust marker; `seed` goes into each request for the engine's sampler."""

    cache_bust: CacheBust
    marker_salt: str
    temperature: float = 0.0
    seed: int | None = None
    ignore_eos: bool = True
    stream: bool = True
    replies: Replies = "recorded"
    phase: Phase = "measured"
    process: int | None = None

    def salt(self, pass_number: int) -> str:
        """The salt of the n-th time that the workload is gone through: markers of passes differ."""
        return self.marker_salt if pass_number == 0 else f"{self.marker_salt}\0pass {pass_number}"


@dataclass(slots=True, eq=False)
class Live:
    """One stream of a session that is being sent: its place, its prompts, and the replies it got."""

    session: Session
    pass_number: int
    agent: SubAgent | None
    parent: str | None
    prompts: SessionPrompts
    replies: dict[int, str]

    @property
    def key(self) -> str:
        """Names the session tree in records and headers; a session that comes again has a name of its own."""
        return self.session.id if self.pass_number == 0 else f"{self.session.id}#{self.pass_number + 1}"


class Sender:
    """One per replay and process. Everything happens in one event loop, so nothing is locked."""

    def __init__(  # noqa: PLR0917 - made in two places
        self,
        rules: SendRules,
        client: Client,
        text: SegmentText,
        sink: Callable[[RequestRecord], None],
        stop: StopSignal,
        progress: Progress,
        gate: FailureGate | None = None,
    ) -> None:
        self.rules = rules
        self.client = client
        self.progress = progress
        self._text = text
        self._sink = sink
        self._sink_broken = False
        self._stop = stop
        self._gate = gate
        self._gone = GoneGate()
        # Unique in the logs of a server that serves several points and phases, and short enough for a header.
        self._salt_id = sha256(rules.marker_salt.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        self.begun: Callable[[str], None] | None = None
        self.ended: Callable[[str], None] | None = None
        self.open: set[str] = set()
        """Ids of the requests that have not ended."""

    def live(
        self,
        session: Session,
        pass_number: int,
        agent: SubAgent | None = None,
        parent: str | None = None,
        salt: str | None = None,
    ) -> Live:
        """A stream about to be sent."""
        salt = self.rules.salt(pass_number) if salt is None else salt
        prompts = SessionPrompts(session, self._text, self.rules.cache_bust, salt, agent)
        return Live(session, pass_number, agent, parent, prompts, {})

    def request(
        self,
        live: Live,
        number: int,
        turn: Turn,
        messages: bytes,
        lane: int | None,
        *,
        phase: Phase | None = None,
        max_tokens: int | None = None,
    ) -> ChatRequest:
        """The request of one turn; `phase` and `max_tokens` are the turn's own unless given."""
        rules = self.rules
        phase = phase or rules.phase
        again = "" if live.pass_number == 0 else f".{live.pass_number + 1}"
        stream = "" if live.agent is None else f"/{live.agent.id}"
        extra: dict[str, object] = {} if rules.seed is None else {"seed": rules.seed}
        return ChatRequest(
            id=f"{phase[0]}{self._salt_id}{again}-{number}-{live.session.id}{stream}",
            session=live.key,
            turn=number,
            phase=phase,
            messages=messages,
            max_tokens=max_tokens if max_tokens is not None else turn.output_tokens,
            temperature=rules.temperature,
            stream=rules.stream,
            ignore_eos=rules.ignore_eos,
            keep_text=rules.replies == "live",
            expected_input_tokens=None if live.replies else turn.input_tokens,
            lane=lane,
            extra=extra,
            agent=None if live.agent is None else live.agent.id,
            parent=live.parent,
            process=rules.process,
        )

    async def send(self, request: ChatRequest) -> RequestRecord:
        """Send, and hand the record to the sink however it ends, also when this is cancelled."""
        record = request.new_record()
        measured = request.phase == self.rules.phase
        self.progress.sent += measured
        self.open.add(request.id)
        if self.begun is not None:
            self.begun(request.session)
        try:
            await self.client.send(request, record)
        finally:
            self.open.discard(request.id)
            if self.ended is not None:
                self.ended(request.session)
            self._keep(record, measured)
        return record

    def note_reply(self, live: Live, number: int, turn: Turn, record: RequestRecord) -> None:
        """Where live replies are asked for: the turn's own answer stands in later prompts, and is kept no
        longer than it is needed."""
        if self.rules.replies != "live":
            return
        if record.outcome == "ok" and record.text:
            live.replies[len(turn.messages)] = record.text

    def _keep(self, record: RequestRecord, measured: bool) -> None:
        """After the sink has failed once there is nowhere to put records."""
        if self._gone.add(record, self.client.now_s()):
            self._stop.request("now", SERVER_GONE)
        if measured:
            self.progress.add(record)
            if self._gate is not None and self._gate.add(record):
                self._stop.request("now", TOO_MANY_FAILED)
        if self._sink_broken:
            return
        try:
            self._sink(record)
        except BaseException:  # whatever the sink raised is raised again when everything has ended
            self._sink_broken = True
            raise
