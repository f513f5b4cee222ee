"""One way into every workload: a path or a spec, told apart by content, never by name alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal, get_args

from servemark.base.errors import ServemarkError, input_error
from servemark.traces.identity import source_id
from servemark.traces.trace_files import file_hash, head, lines, name_of, require_file, trace_files_of
from servemark.traces.types import Session, Workload

TraceFormat = Literal["weka", "mooncake", "azure", "burstgpt", "sharegpt", "messages", "recipe"]
FORMATS: tuple[str, ...] = get_args(TraceFormat)
MAX_RECIPE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class TraceOptions:
    """How a trace becomes a workload. What a format has no use for must be left at its default.

    `format` None: told by content. `sessions`: the first N (Mooncake linked: N linked chains of `min_turns` to
    `max_turns` requests). `link`: Mooncake rows are linked to sessions by shared prefix; else single requests
    at their recorded times. Gaps are cut at `think_cap_s`, then multiplied by `think_scale`.
    """

    format: TraceFormat | None = None
    sessions: int | None = None
    scale_lengths: float = 1.0
    think_scale: float = 1.0
    think_cap_s: float = math.inf
    link: bool = False
    min_turns: int = 4
    max_turns: int = 6


def open_workload(spec: str | Path, options: TraceOptions | None = None) -> Workload:
    """The workload of a trace file, a folder of session files, a recipe, or `random:isl=…,osl=…`.

    Session files (weka, messages) are indexed and read when a session is asked for: every session's JSON, id,
    times and lengths are looked at here, the rest when it is read, where it may still raise. Other formats are
    read whole, packed. Raises ServemarkError (exit code 2), with file and line, for all that is wrong.
    """
    options = options or TraceOptions()
    _check_options(options)
    if isinstance(spec, str) and spec.startswith("random:"):
        from servemark.traces.random_lengths import parse_spec, random_workload  # noqa: PLC0415

        return random_workload(parse_spec(spec))
    path = Path(spec)
    try:
        folder = path.is_dir()
    except ValueError:  # a NUL in the name
        raise input_error("traces.no_such_file", path=repr(str(path))) from None
    if folder:
        return _session_files(trace_files_of(path), options.format, options, path)
    require_file(path)
    found = options.format or detect(path)
    reader = _READERS.get(found)
    return reader(path, options) if reader else _session_files([path], found, options, None)


def detect(path: Path) -> TraceFormat:
    """The format of a regular file by its content. Raises ServemarkError when it is none that we know."""
    start = head(path).lstrip()
    if not start:
        raise input_error("traces.empty_file", path=str(path))
    if b"\0" in start[:4096]:
        raise _unknown(path, "binary data")
    first_line = start.split(b"\n", 1)[0].decode("utf-8", "replace")
    if start[:1] == b"[":
        return "sharegpt"
    if start[:1] == b"{":
        return _json_kind(path)
    from servemark.traces.request_rows import csv_kind  # noqa: PLC0415

    kind = csv_kind(first_line.strip())
    if kind is not None:
        return "azure" if kind == "azure" else "burstgpt"
    if path.suffix in {".yaml", ".yml"}:
        return "recipe"
    raise _unknown(path, first_line.strip()[:60])


_MARKS: tuple[tuple[frozenset[str], TraceFormat], ...] = (
    (frozenset({"requests"}), "weka"),
    (frozenset({"timestamp", "input_length"}), "mooncake"),
    (frozenset({"conversations"}), "sharegpt"),
    (frozenset({"conversation"}), "sharegpt"),
    (frozenset({"turns"}), "messages"),
    (frozenset({"messages"}), "messages"),
    (frozenset({"kind"}), "recipe"),
    (frozenset({"seed", "sessions", "turns"}), "recipe"),
)


def _json_kind(path: Path) -> TraceFormat:
    """By the keys of the first object: the first line, or the whole file where it is one object."""
    import msgspec  # noqa: PLC0415 - slow, and a CSV file does without

    from servemark.traces.lazy_sessions import MAX_SESSION_BYTES  # noqa: PLC0415
    from servemark.traces.trace_files import whole  # noqa: PLC0415

    number, line = next(lines(path, MAX_SESSION_BYTES, 64_000_000_000))
    where = f"{path}:{number}"
    try:
        keys = msgspec.json.decode(line, type=dict[str, msgspec.Raw]).keys()
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        try:  # one object over several lines
            keys = msgspec.json.decode(whole(path, MAX_SESSION_BYTES), type=dict[str, msgspec.Raw]).keys()
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            raise input_error("traces.bad_json", where=where, reason=str(error)[:200]) from None
    for marks, kind in _MARKS:
        if marks <= keys:
            if kind == "messages" and "seed" in keys:
                return "recipe"
            return kind
    near = {"timestamp", "input_length", "output_length", "hash_ids"} & keys
    if near:  # a Mooncake row that lacks a field: its reader says which
        return "mooncake"
    raise _unknown(path, ", ".join(sorted(keys))[:60])


def _unknown(path: Path, start: str) -> ServemarkError:
    return input_error("traces.unknown_format", where=str(path), start=start, known=", ".join(FORMATS))


def _check_options(options: TraceOptions) -> None:
    for name, value, low, high in (
        ("scale_lengths", options.scale_lengths, 0.0, 100.0),
        ("think_scale", options.think_scale, 0.0, 1000.0),
        ("think_cap_s", options.think_cap_s, 0.0, math.inf),
    ):
        if not low <= value <= high or (name == "scale_lengths" and value == 0):
            raise input_error(
                "traces.option_out_of_range",
                option=name,
                value=value,
                low=f"{low:g} <= {name}",
                high=f"{high:g}",
            )
    if options.sessions is not None and options.sessions < 1:
        raise input_error(
            "traces.option_out_of_range",
            option="sessions",
            value=options.sessions,
            low="1 <= sessions",
            high="∞",
        )


def _session_files(
    files: list[Path], kind: TraceFormat | None, options: TraceOptions, root: Path | None
) -> Workload:
    from servemark.traces import messages_format, weka  # noqa: PLC0415 - msgspec is slow to import
    from servemark.traces.lazy_sessions import LazySessions, index_sessions  # noqa: PLC0415

    kind = kind or detect(files[0])
    if kind not in {"weka", "messages"}:
        raise input_error("traces.not_sessions", where=str(files[0]), found=kind)
    parse: Callable[[bytes, str], Session]
    if kind == "weka":
        glance = weka.glance
        rules = weka.WekaOptions(options.scale_lengths, options.think_scale, options.think_cap_s)
        parse = partial(weka.parse, options=rules)
    else:
        _refuse_scale(options)
        glance = messages_format.glance
        parse = partial(
            messages_format.parse, think_scale=options.think_scale, think_cap_s=options.think_cap_s
        )
    found = index_sessions(files, glance, parse, options.sessions, root)
    name = name_of(root or files[0])
    source: dict[str, object] = {
        "kind": kind, "file": name, "sha256": found.sha256, "sessions": len(found.places),
        "scale_lengths": options.scale_lengths, "think_scale": options.think_scale,
        "think_cap_s": None if math.isinf(options.think_cap_s) else options.think_cap_s,
    }  # fmt: skip
    if kind == "weka":
        source |= {"split_rule": weka.SPLIT_RULE, "join_rule": weka.JOIN_RULE}
    return Workload(source_id(source), name, LazySessions(found.places, parse), source, found.requests)


def _refuse_scale(options: TraceOptions) -> None:
    if options.scale_lengths != 1.0:
        raise input_error(
            "traces.option_out_of_range", option="scale_lengths", value=options.scale_lengths,
            low="1 <= scale_lengths", high="1",
        )  # fmt: skip


def _mooncake(path: Path, options: TraceOptions) -> Workload:
    if not options.link:
        from servemark.traces.mooncake_rows import mooncake_requests  # noqa: PLC0415

        return mooncake_requests(path, options.sessions, options.scale_lengths)
    from servemark.traces.chains import DEFAULT_THINK_CAP_S, mooncake_workload  # noqa: PLC0415

    return mooncake_workload(
        path,
        sessions=options.sessions or 1,
        scale_lengths=options.scale_lengths,
        think_scale=options.think_scale,
        think_cap_s=min(options.think_cap_s, DEFAULT_THINK_CAP_S),
        min_turns=options.min_turns,
        max_turns=options.max_turns,
    )


def _azure(path: Path, options: TraceOptions) -> Workload:
    from servemark.traces.request_rows import read_azure  # noqa: PLC0415

    return read_azure(path, options.sessions, options.scale_lengths)


def _burstgpt(path: Path, options: TraceOptions) -> Workload:
    from servemark.traces.request_rows import read_burstgpt  # noqa: PLC0415

    return read_burstgpt(path, options.sessions, options.scale_lengths)


def _sharegpt(path: Path, options: TraceOptions) -> Workload:
    from servemark.traces.sharegpt import read_sharegpt  # noqa: PLC0415

    _refuse_scale(options)
    return read_sharegpt(path, options.sessions)


def _recipe(path: Path, options: TraceOptions) -> Workload:
    """A recipe of a suite (YAML or JSON)."""
    from servemark.catalog.nodes import errors_of, problems_error  # noqa: PLC0415
    from servemark.catalog.yaml_nodes import read_yaml  # noqa: PLC0415
    from servemark.traces.generator import generate  # noqa: PLC0415
    from servemark.traces.recipe import AgenticRecipe  # noqa: PLC0415

    _refuse_scale(options)
    node, problems = read_yaml(path, str(path))
    faults = errors_of(problems)
    if faults:
        raise problems_error(faults)
    plain = node.plain()
    content: Mapping[str, object] = plain if isinstance(plain, dict) else {}
    if options.sessions is not None:
        content = {**content, "sessions": options.sessions}
    if options.think_scale != 1.0:
        content = {**content, "think_scale": options.think_scale}
    made = generate(AgenticRecipe.from_mapping(content, str(path)))
    return Workload(made.id, made.name, made.sessions, {**made.source, "sha256": file_hash(path)})


_READERS: Mapping[str, Callable[[Path, TraceOptions], Workload]] = {
    "mooncake": _mooncake,
    "azure": _azure,
    "burstgpt": _burstgpt,
    "sharegpt": _sharegpt,
    "recipe": _recipe,
}
