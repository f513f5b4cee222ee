"""llm-d's benchmark report 0.2: import of YAML or JSON, and a point written as such a report.

Every statistic states its unit. What `time_per_output_token` and `inter_token_latency` mean depends on the load tool that
the report names, so they go where that tool's own importer puts them and the definition id names the tool too.
An accelerator's `count` beside `replicas` above 1 does not say whether it is of one replica or of all: it is then only
`gpus_stated`. Schema: llmd-benchmark-report 0.2.1 (`schema_v0_2.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

import msgspec

from servemark.results.errors import bad_file
from servemark.results.importers.base import Given, Importer
from servemark.results.importers.json_values import json_objects
from servemark.results.importers.mapping import Draft, RowError, number, part, rows_of, utc, whole, words
from servemark.results.point import (
    Execution,
    Figure,
    Mapped,
    Point,
    PointIdentity,
    Requests,
    RoleName,
    RoleTopology,
    Scenario,
    point_plain,
)

VERSION = 2
REPORT_VERSION = "0.2.1"
MAX_BYTES = 16 << 20
_UNITS = {
    "s": 1.0,
    "ms": 1e-3,
    "s/token": 1.0,
    "ms/token": 1e-3,
    "count": 1.0,
    "tokens/s": 1.0,
    "queries/s": 1.0,
}
_LATENCY = {
    "time_to_first_token": "ttft_s",
    "inter_token_latency": "itl_s",
    "time_per_output_token": "tpot_s",
    "normalized_time_per_output_token": "e2el_per_token_s",
    "request_latency": "e2el_s",
}
_BY_TOOL = {
    "guidellm": {"time_per_output_token": "e2el_per_token_s", "inter_token_latency": "tpot_s"},
    "aiperf": {"inter_token_latency": "tpot_s"},
}
"""Where a tool's name means something else; see its importer."""
_RATES = {
    "input_token_rate": "input_tokens_per_s",
    "output_token_rate": "output_tokens_per_s",
    "total_token_rate": "total_tokens_per_s",
    "request_rate": "requests_per_s",
}
_LENGTHS = {"input_length": "input_tokens", "output_length": "output_tokens"}
_ROLES: dict[str, RoleName] = {
    "prefill": "prefill",
    "decode": "decode",
    "replica": "aggregated",
    "aggregate": "aggregated",
}
_STANDARD = {"stddev": "std", "mean": "mean", "min": "min", "max": "max",
             "p50": "p50", "p75": "p75", "p90": "p90", "p95": "p95", "p99": "p99"}  # fmt: skip


def _detect(given: Given) -> float:
    head = given.head
    if b"request_performance" in head and b"scenario" in head and b"version" in head:
        return 0.9
    return 0.0


def _documents(given: Given) -> Iterator[tuple[bytes, dict[str, object]]]:
    if given.head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["):
        yield from json_objects(given)
        return
    from servemark.catalog.yaml_nodes import errors_of, parse_yaml, problems_error  # noqa: PLC0415 - YAML only

    with given.open() as stream:
        data = stream.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise bad_file("import_value_too_large", given.name, limit=MAX_BYTES >> 20)
    node, problems = parse_yaml(data, given.name)
    errors = errors_of(problems)
    if errors:
        raise problems_error(errors)
    plain = node.plain()
    if not isinstance(plain, dict):
        raise bad_file("import_not_json", given.name, reason="not a mapping")
    yield data, plain


def _statistics(draft: Draft, stats: dict[str, object], metric: str, at: str) -> None:
    unit = str(stats.get("units"))
    if unit not in _UNITS:
        raise RowError("results.import_unknown_unit", field=f"{at}/units", unit=unit[:40])
    draft.spread(metric, {name: stats.get(name) for name in _STANDARD}, at, _UNITS[unit])


def _figures(draft: Draft, row: Mapping[str, object], tool: str) -> None:
    base = "/results/request_performance/aggregate"
    aggregate = part(row, "results", "request_performance", "aggregate")
    latency, own = part(aggregate, "latency"), _BY_TOOL.get(tool, {})
    for name, metric in _LATENCY.items():
        stats = part(latency, name)
        if stats:
            _statistics(draft, stats, own.get(name, metric), f"{base}/latency/{name}")
    for name, metric in _LENGTHS.items():
        stats = part(aggregate, "requests", name)
        if stats:
            _statistics(draft, stats, metric, f"{base}/requests/{name}")
    for name, metric in _RATES.items():
        stats = part(aggregate, "throughput", name)
        if stats and str(stats.get("units")) not in _UNITS:
            raise RowError(
                "results.import_unknown_unit",
                field=f"{base}/throughput/{name}/units",
                unit=str(stats.get("units"))[:40],
            )
        draft.add(metric, stats.get("mean"), f"{base}/throughput/{name}/mean")
    requests = part(aggregate, "requests")
    total, failed, cut = (
        whole(requests.get(key), f"{base}/requests/{key}") for key in ("total", "failures", "incomplete")
    )
    ok = total - (failed or 0) - (cut or 0) if total is not None and failed is not None else None
    if ok is not None and ok < 0:
        raise RowError("results.import_negative", field=f"{base}/requests/total", value=str(ok))
    draft.requests = Requests(planned=total, ok=ok, error=failed, incomplete=cut)


def _stack(draft: Draft, row: Mapping[str, object]) -> None:
    roles, stated, certain, models = [], 0, True, []
    for index, component in enumerate(rows_of(part(row, "scenario").get("stack"))):
        about = part(component, "standardized")
        if about.get("kind") != "inference_engine":
            if words(about.get("tool")):
                draft.declared[f"component_{index}"] = (
                    f"{about.get('tool')} {about.get('tool_version') or ''}".strip()[:200]
                )
            continue
        at = f"/scenario/stack/{index}/standardized"
        role = _ROLES.get(str(about.get("role")))
        if role is None:
            raise RowError(
                "results.import_unknown_role", field=f"{at}/role", value=str(about.get("role"))[:40]
            )
        chip, shape = part(about, "accelerator"), part(about, "accelerator", "parallelism")
        count, replicas = (
            whole(chip.get("count"), f"{at}/accelerator/count"),
            whole(about.get("replicas"), f"{at}/replicas"),
        )
        sizes = {
            name: whole(shape.get(name), f"{at}/accelerator/parallelism/{name}")
            for name in ("tp", "pp", "dp", "ep")
        }
        certain = certain and count is not None and replicas == 1
        stated += count or 0
        roles.append(
            RoleTopology(
                role,
                workers=replicas,
                gpus=count if replicas == 1 else None,
                hardware=words(chip.get("model")),
                tp=sizes["tp"],
                pp=sizes["pp"],
                dp=sizes["dp"],
                ep=sizes["ep"],
            )
        )
        draft.engine, draft.engine_version = words(about.get("tool")), words(about.get("tool_version"))
        models.append(words(part(about, "model").get("name")))
    if not roles:
        return
    chips = {role.hardware for role in roles}
    draft.hardware = next(iter(chips)) if len(chips) == 1 else None
    draft.model = models[0] if len(set(models)) == 1 else None
    draft.topology = tuple(replace(role, hardware=None) if len(chips) == 1 else role for role in roles)
    draft.gpus_stated = stated or None
    if not certain:
        draft.notes.append("accelerator count beside replicas above 1: of one or of all is not said")


def _load(draft: Draft, row: Mapping[str, object]) -> str:
    about = part(row, "scenario", "load", "standardized")
    tool = words(about.get("tool")) or "unknown"
    at = "/scenario/load/standardized"
    limit, rate = about.get("concurrency"), about.get("rate_qps")
    draft.concurrency = None if limit == float("inf") else whole(limit, f"{at}/concurrency")
    lengths = []
    for key in ("input_seq_len", "output_seq_len"):
        length = part(about, key)
        fixed = length.get("distribution") == "fixed"
        lengths.append(whole(length.get("value"), f"{at}/{key}/value") if fixed else None)
    pace = None if rate in (None, float("inf")) else number(rate, f"{at}/rate_qps")
    draft.scenario = Scenario(words(about.get("source")) or "unknown", lengths[0], lengths[1],
                              arrivals=f"rate:{pace:g}" if pace else None)  # fmt: skip
    draft.client.update({"harness": tool, "harness_version": words(about.get("tool_version"))})
    for key in ("stage", "prefix", "multi_turn"):
        if about.get(key):
            try:
                draft.extra[key] = json.loads(json.dumps(about[key], allow_nan=False))
            except (ValueError, TypeError):
                raise RowError("results.import_not_finite", field=f"{at}/{key}", value="—") from None
    return tool


def _seconds(text: object) -> float | None:
    """An ISO 8601 duration of hours, minutes and seconds."""
    if not isinstance(text, str) or not text.startswith("PT"):
        return None
    total, digits = 0.0, ""
    for letter in text[2:40]:
        if letter in "HMS":
            try:
                total += float(digits) * {"H": 3600, "M": 60, "S": 1}[letter]
            except ValueError:
                return None
            digits = ""
        else:
            digits += letter
    return total if not digits else None


def _moment(text: object) -> str | None:
    if not isinstance(text, str):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return utc(moment.timestamp()) if moment.tzinfo is not None else moment.strftime("%Y-%m-%d")


def _fill(draft: Draft, row: dict[str, object]) -> None:
    version = str(row.get("version"))
    if not version.startswith("0.2"):
        raise RowError("results.import_other_version", found=version[:20], known="0.2")
    if not part(row, "results", "request_performance", "aggregate"):
        raise RowError("results.import_wrong_shape", missing="results/request_performance/aggregate")
    tool = _load(draft, row)
    draft.definition = f"llmd-0.2:{tool}"
    _stack(draft, row)
    _figures(draft, row, tool)
    run = part(row, "run")
    draft.run = words(run.get("eid")) or words(run.get("uid"))
    time = part(run, "time")
    draft.started_utc, draft.finished_utc = _moment(time.get("start")), _moment(time.get("end"))
    draft.duration_s = number(_seconds(time.get("duration")), "/run/time/duration")


def _own(draft: Draft, row: Mapping[str, object], mapped: Mapped) -> Mapped:
    """A report that `to_llmd` wrote holds the point's identity and figures whole; they must agree with its public part."""
    kept = part(row, "scenario", "load", "native", "config", "servemark")
    if mapped.point is None or not kept:
        return mapped

    try:
        identity = msgspec.convert(kept.get("identity"), PointIdentity)
        execution = msgspec.convert(kept.get("execution"), Execution)
        figures = msgspec.convert(kept.get("figures"), dict[str, Figure])
        requests = msgspec.convert(kept.get("requests"), Requests)
        duration = number(kept.get("duration_s"), "/scenario/load/native/config/servemark/duration_s")
        gpus = whole(kept.get("gpus_deployed"), "/scenario/load/native/config/servemark/gpus_deployed")
    except msgspec.ValidationError as error:
        raise RowError("results.import_wrong_shape", missing=str(error)[:200]) from None
    for address, figure in figures.items():
        number(figure.value, f"/scenario/load/native/config/servemark/figures/{address[:80]}")
        public = mapped.point.figures.get(address)
        if public is not None and abs(public.value - figure.value) > 1e-9 * max(abs(figure.value), 1e-12):
            raise RowError("results.import_contradicts", field=address[:80], a=public.value, b=figure.value)
    point = replace(mapped.point, identity=identity, execution=execution, figures=figures, requests=requests,
                    duration_s=duration, gpus_deployed=gpus)  # fmt: skip
    return msgspec.structs.replace(mapped, point=point)


def _read(given: Given) -> Iterator[Mapped]:
    for ordinal, (data, row) in enumerate(_documents(given)):
        draft = Draft(given, ordinal, IMPORTER.id, VERSION, "llmd-0.2", data)
        try:
            _fill(draft, row)
            yield _own(draft, row, draft.mapped())
        except RowError as error:
            yield draft.failed(error)


IMPORTER = Importer("llmd-report", VERSION, "llm-d benchmark report 0.2", _detect, _read)


def _public(point: Point, names: Mapping[str, str], unit: str) -> dict[str, object]:
    """Metrics of one block. The schema asks for a mean: a metric without one stands in the native part only."""
    found: dict[str, object] = {}
    back = {ours: theirs for theirs, ours in _STANDARD.items()}
    for name, metric in names.items():
        stats = {
            back[key]: figure.value
            for key in _STANDARD.values()
            if (figure := point.figures.get(f"{metric}.{key}"))
        }
        per_token = metric in ("itl_s", "tpot_s", "e2el_per_token_s")
        if "mean" in stats:
            found[name] = {"units": "s/token" if per_token else unit, **stats}
    return found


def _length(point: Point, side: str, fixed: int | None) -> dict[str, object]:
    if fixed is not None:
        return {"distribution": "fixed", "value": fixed}
    return {"distribution": "other", "value": point.value(f"{side}_tokens.mean") or 0}


def _component(point: Point, index: int, role: RoleTopology) -> dict[str, object]:
    host = {"aggregated": "replica"}.get(role.role, role.role)
    identity = point.identity
    shape = {
        name: getattr(role, name) for name in ("tp", "pp", "dp", "ep") if getattr(role, name) is not None
    }
    return {
        "metadata": {"label": f"{role.role}-{index}", "cfg_id": identity.config_key},
        "standardized": {
            "kind": "inference_engine", "tool": identity.engine, "tool_version": identity.engine_version or "",
            "role": host, "replicas": role.workers or 1, "model": {"name": identity.model},
            "accelerator": {"model": role.hardware or identity.hardware,
                            "count": (role.gpus or 0) * (role.workers or 1), "parallelism": shape},
        },
        "native": {},
    }  # fmt: skip


def to_llmd(point: Point) -> dict[str, object]:
    """The point as a report 0.2 (plain JSON values, valid by the published schema).

    What the schema has no place for (statistics of a metric without a mean, definition ids, the whole identity) stands
    under `scenario.load.native.config.servemark`, so that an import gives the same point again. A component is written
    per role with known GPUs; without topology there is no stack."""
    counts, rates = point.requests, {}
    for name, metric in _RATES.items():
        value = point.value(metric)
        if value is not None:
            rates[name] = {"units": "queries/s" if name == "request_rate" else "tokens/s", "mean": value}
    requests: dict[str, object] = _public(point, _LENGTHS, "count")
    known = [n for n in (counts.ok, counts.error, counts.incomplete, counts.cancelled) if n is not None]
    aggregate: dict[str, Any] = {"latency": _public(point, _LATENCY, "s"), "throughput": rates}
    if known or counts.planned is not None:
        total = sum(known) if known else counts.planned
        aggregate["requests"] = {"total": total, "failures": counts.error or 0,
                                 "incomplete": (counts.incomplete or 0) + (counts.cancelled or 0), **requests}  # fmt: skip
    execution, scenario = point.execution, point.identity.scenario
    times = {"start": execution.started_utc, "end": execution.finished_utc,
             "duration": None if point.duration_s is None else f"PT{point.duration_s!r}S"}  # fmt: skip
    load: dict[str, object] = {
        "tool": "servemark", "tool_version": str(point.client.get("harness_version") or ""),
        "source": "random" if scenario.type in ("random", "fixed-seq-len") else "unknown",
        "input_seq_len": _length(point, "input", scenario.isl),
    }  # fmt: skip
    if scenario.osl is not None:
        load["output_seq_len"] = _length(point, "output", scenario.osl)
    if point.identity.concurrency:
        load["concurrency"] = point.identity.concurrency
    whole_point = point_plain(point)
    kept = {
        key: whole_point[key]
        for key in ("identity", "execution", "figures", "requests", "duration_s", "gpus_deployed")
    }
    stack = [_component(point, i, role) for i, role in enumerate(point.identity.topology) if role.gpus]
    report: dict[str, object] = {
        "version": REPORT_VERSION,
        "run": {"uid": f"{execution.run}-{point.identity.point_key}", "eid": execution.run,
                "time": {key: value for key, value in times.items() if value and (key == "duration" or len(value) > 10)}},
        "scenario": {"load": {"metadata": {"cfg_id": point.identity.point_key}, "standardized": load,
                              "native": {"config": {"servemark": json.loads(json.dumps(kept))}}}},
        "results": {"request_performance": {"aggregate": aggregate}},
    }  # fmt: skip
    if stack:
        report["scenario"]["stack"] = stack  # type: ignore[index]
    return report
