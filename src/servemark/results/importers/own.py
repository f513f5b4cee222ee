"""Our own `result.json` -> the same point as any other source: figures by address, identity, provenance.

Derived rates of the whole deployment are stated with their formula, so that gates can check them against each other;
interactivity is not, because whoever reads it derives it from the latencies.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from servemark.base.errors import ServemarkError
from servemark.metrics.accuracy import EvalScore
from servemark.metrics.address import Address, all_addresses, parse
from servemark.metrics.derive import Reading
from servemark.metrics.derive import read as read_figure
from servemark.metrics.registry import Kind
from servemark.results.importers.base import Given, Importer
from servemark.results.importers.inferencex_names import hardware_id, model_id
from servemark.results.importers.json_rows import first_byte, read_object
from servemark.results.importers.precision_names import precision
from servemark.results.point import (
    Eval,
    Execution,
    Figure,
    Mapped,
    Offload,
    Point,
    PointIdentity,
    Requests,
    RoleTopology,
    Scenario,
    Speculation,
)
from servemark.results.row import ResultRow, WindowTokens
from servemark.results.serialize import (
    MANIFEST_NAME,
    MAX_RESULT_BYTES,
    decode_json,
    row_from_json,
    row_to_json,
    verified_json,
)

ID = "servemark"
VERSION = 4

_KEYS = re.compile(rb'"(row_sha256|run_id|point_id|distributions|schema)"\s*:')
_USED = frozenset(
    {
        "model", "hardware", "framework", "engine", "image", "precision", "spec_decoding", "topology", "deployment",
        "kv_offloading", "concurrency", "router", "urls",
    }
)  # fmt: skip
"""Parts of our canonical identity that have a field of their own in a point's."""


def detect(given: Given) -> float:
    """Sure where the keys of a row stand at the beginning (keys are sorted, so the last of them may lie beyond)."""
    if first_byte(given) != b"{":
        return 0.0
    found = set(_KEYS.findall(given.head))
    if b"row_sha256" in found and b"distributions" in found:
        return 1.0
    return 0.9 if {b"distributions", b"point_id"} <= found else 0.0


def read(given: Given) -> Iterator[Mapped]:
    """The one row. Raises ServemarkError (layer results): no JSON, changed since it was written, another schema."""
    plain = verified_json(read_object(given), given.name)
    row = row_from_json(plain, given.name)
    yield Mapped(0, "mapped", point_of(row, plain, _expected(given, row)))


def point_of(
    row: ResultRow, plain: Mapping[str, Any] | None = None, expected: Mapping[str, object] | None = None
) -> Point:
    """The point of a row; `plain` is its JSON where that is at hand, `expected` what its manifest says."""
    values = row_to_json(row) if plain is None else plain
    counts = row.counts
    evals = tuple(
        Eval(
            score.task,
            score.score,
            f"share correct, version {score.version}",
            score.stderr,
            score.n,
            _passed(row, score),
            score.concurrency,
        )
        for score in row.evals
        if score.answered
    )
    return Point(
        identity=_identity(row),
        execution=Execution(row.line_id, 1, row.started_utc, row.finished_utc),
        figures=_figures(values),
        source=ID,
        mapping_version=VERSION,
        status=row.status,
        requests=Requests(
            counts.planned, counts.ok, counts.error + counts.timeout, counts.incomplete, counts.cancelled
        ),
        duration_s=row.window_s,
        steady_s=_steady(row),
        gpus_deployed=row.gpus_deployed,
        gpus_stated=_count(row.declared.get("gpus")),
        evals=evals,
        expected=dict(expected or {}),
        declared=dict(row.declared),
        observed={**row.observed, **_acceptance(values, row)},
        client={
            "limited": row.client.limited,
            "loop_lag_p99_s": row.client.loop_lag_p99_s,
            "loop_lag_max_s": row.client.loop_lag_max_s,
            "harness": "servemark",
            "harness_version": row.versions.get("servemark"),
        },
        notes=_notes(row),
    )


def _notes(row: ResultRow) -> tuple[str, ...]:
    notes = [f"warning.{warned.code}" for warned in row.warnings]
    if row.counts.timeout:
        notes.append(f"{row.counts.timeout} timeouts are counted as errors")
    notes += [f"{score.task} got no answer: no score" for score in row.evals if not score.answered]
    return tuple(notes)


@cache
def _addresses() -> tuple[tuple[str, Address], ...]:
    """Every address whose figure a point states: all but rates that are the inverse of a latency."""
    every = ((text, parse(text)) for text in all_addresses())
    return tuple(
        (text, address)
        for text, address in every
        if address.metric.inverse_of is None and address.metric.kind not in {Kind.TASK, Kind.TELEMETRY}
    )


def _figures(values: Mapping[str, Any]) -> dict[str, Figure]:
    figures = {}
    for text, address in _addresses():
        reading = read_figure(values, address)
        if reading.value is not None:
            figures[text] = _figure(reading, address.metric.definition_id)
    for score in values.get("evals", ()):
        reading = read_figure(values, f"eval_score.{score['task']}")
        if reading.value is not None:
            figures[f"eval_score.{score['task']}"] = _figure(
                reading, f"share correct, version {score['version']}"
            )
    return figures


def _figure(reading: Reading, definition: str) -> Figure:
    """A figure with the place of its first part, and its formula with numbers where it was derived."""
    first = reading.operands[0].field if reading.operands else ""
    at = "/" + first.replace("~", "~0").replace("/", "~1").replace(".", "/")
    return Figure(float(reading.value or 0.0), definition, at, None, reading.substituted or None)


def _identity(row: ResultRow) -> PointIdentity:
    said, declared = row.identity, row.declared
    engine = row.observed.get("engine")
    seen: Mapping[str, object] = engine if isinstance(engine, dict) else {}
    model = _first(said.get("model"), declared.get("model"), seen.get("served_model"), row.arm) or "unknown"
    hardware = _first(said.get("hardware"), declared.get("hardware")) or "unknown"
    open_loop = row.replayed is not None and row.replayed.mode == "open"
    method = _first(said.get("spec_decoding"))
    tier = _first(said.get("kv_offloading"))
    return PointIdentity(
        model=model_id(model) or model,
        hardware=hardware_id(hardware) or hardware,
        engine=_first(seen.get("engine"), said.get("engine"), said.get("framework")) or "unknown",
        scenario=_scenario(row, open_loop),
        concurrency=None if open_loop else row.concurrency,
        engine_version=_first(seen.get("version")),
        image=_first(said.get("image")),
        precision=precision(_first(said.get("precision"))),
        speculation=_speculation(row, None if method in {None, "none"} else method),
        topology=_topology(said.get("topology")),
        offload=None if tier in {None, "none"} else Offload(str(tier)),
        recipe_fingerprint=_first(said.get("deployment")),
        router=_first(said.get("router")),
        extra=extra_of(said),
    )


def _passed(row: ResultRow, score: EvalScore) -> bool | None:
    """Against the threshold that was written down before the run; None without one. Items left out never pass."""
    limits = row.declared.get("eval_thresholds")
    limit = limits.get(score.task) if isinstance(limits, dict) else None
    if not isinstance(limit, int | float) or isinstance(limit, bool):
        return None
    return score.n >= score.expected_n and score.score >= limit


def _speculation(row: ResultRow, method: str | None) -> Speculation | None:
    """As the row's declaration has it; rows from before it was kept name the master's method alone."""
    said = row.declared.get("speculation")
    asked: Mapping[str, object] = said if isinstance(said, dict) else {}
    method = _first(method, asked.get("method"))
    if method is None:
        return None
    return Speculation(method, _count(asked.get("draft_tokens")), _first(asked.get("acceptance")))


def _acceptance(values: Mapping[str, Any], row: ResultRow) -> dict[str, object]:
    """The acceptance length that gates compare with the declared one, and what the row's evals ran with."""
    found: dict[str, object] = {}
    length = read_figure(values, "acceptance_length").value
    if length is not None:
        found["acceptance_length"] = length
    own, apart = row.declared.get("speculation"), row.observed.get("eval_deployment")
    said = apart if isinstance(apart, dict) else own
    if row.evals and isinstance(said, dict):
        found["eval_acceptance"] = said.get("acceptance")
    return found


def extra_of(said: Mapping[str, object]) -> dict[str, object]:
    """What else the identity tells configurations apart by. The load has a field of its own, and the address of a server
    is not its configuration."""
    extra = {key: value for key, value in said.items() if key not in _USED}
    scenario = extra.get("scenario")
    if isinstance(scenario, dict):
        extra["scenario"] = {key: value for key, value in scenario.items() if key != "concurrency"}
    return extra


def _first(*words: object) -> str | None:
    """The first text that is one."""
    return next((word for word in words if isinstance(word, str) and word), None)


def _scenario(row: ResultRow, open_loop: bool) -> Scenario:
    """Type and lengths as the identity has them; the data set is the workload that was replayed."""
    said = row.identity.get("scenario")
    scenario: Mapping[str, object] = said if isinstance(said, dict) else {}
    isl, osl = _count(scenario.get("isl")), _count(scenario.get("osl"))
    arrivals = row.replayed.options.get("arrivals") if row.replayed is not None and open_loop else None
    return Scenario(
        type=_first(scenario.get("type")) or "trace",
        isl=isl,
        osl=osl,
        dataset=None if isl is not None else _first(row.workload.get("id"), row.workload.get("name")),
        rules=row.replayed.semantics if row.replayed is not None else None,
        arrivals=arrivals if isinstance(arrivals, str) else None,
    )


def _topology(said: object) -> tuple[RoleTopology, ...]:
    """Roles of the deployment as the canonical identity lists them."""
    roles = []
    for role in said if isinstance(said, list) else ():
        name = role.get("role") if isinstance(role, dict) else None
        if name in {"aggregated", "prefill", "decode"}:
            roles.append(
                RoleTopology(
                    name,
                    _count(role.get("workers")),
                    _count(role.get("gpus_per_worker")),
                    _count(role.get("tp")),
                )
            )
    return tuple(roles)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _steady(row: ResultRow) -> tuple[float, float] | None:
    """The steady window, seconds on the client's clock, which starts with the measured window."""
    steady: WindowTokens | None = row.replayed.steady if row.replayed is not None else None
    return None if steady is None else (steady.start_s, steady.end_s)


def _expected(given: Given, row: ResultRow) -> dict[str, object]:
    """What the manifest beside the row wrote down before the run; empty where it is not there or not readable."""
    beside = given.siblings.get(MANIFEST_NAME)
    if beside is None or MANIFEST_NAME not in row.files or beside.size > MAX_RESULT_BYTES:
        return {}
    try:
        with beside.open() as stream:
            manifest = decode_json(stream.read(MAX_RESULT_BYTES), beside.name)
    except (ServemarkError, OSError):
        return {}
    expected = manifest.get("expected")
    return dict(expected) if isinstance(expected, dict) else {}


IMPORTER = Importer(ID, VERSION, "servemark result", detect, read)
