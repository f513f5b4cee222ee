"""Makes an entry of a golden file from an engine's counters, and writes it without touching another byte.

Acceptance length AL = 1 + accepted / steps. A step accepts a prefix of its drafts, so with p_i the share of steps that
accepted draft i, the accepted count X of a step has E[X] = sum p_i and E[X^2] = sum (2 i + 1) p_i, i from 0; the standard
error of AL is sqrt((E[X^2] - E[X]^2) / steps). Without shares by position it is bounded by the widest spread that a mean m
in 0 .. K allows: sqrt(m (K - m) / steps). Steps of one reply are not independent, so both are lower than the truth where
replies differ much.
"""

from __future__ import annotations

import math
import re
import time
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import write_atomic
from servemark.catalog.nodes import Node, errors_of
from servemark.catalog.references import golden_of
from servemark.catalog.yaml_nodes import parse_yaml, read_bytes
from servemark.evals.acceptance import Acceptance, SpecCounters, acceptance, spec_counters
from servemark.evals.forced import Forced, forced_by_counters, forced_by_settings
from servemark.launch.engines.prometheus import parse_prometheus
from servemark.launch.http_probe import ProbeError, fetch

LEAST_STEPS = 30
"""Fewer verify steps make no reference value."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:+-]{0,199}\Z")
_METRICS_BYTES = 16 << 20


@dataclass(frozen=True, slots=True)
class GoldenEntry:
    """A value to be kept: `length` tokens a step over `steps` steps, its standard error, and whether that is exact (from
    shares by position) or a bound."""

    model: str
    mode: str
    draft_tokens: int
    method: str
    length: float
    stderr: float
    exact: bool
    steps: int
    per_position: tuple[float, ...]

    @property
    def comment(self) -> str:
        """What stands behind the value in the file."""
        sign = "" if self.exact else "<= "
        return f"{self.method}, n={self.steps} steps, s.e. {sign}{self.stderr:.3f}"


def entry_of(found: Acceptance, model: str, mode: str, draft_tokens: int, method: str) -> GoldenEntry:
    """The entry that counters give. Raises ServemarkError (exit 2) for forced acceptance, for counters that give no
    length, for too few steps, and for counters that contradict `draft_tokens`."""
    for field, value in (("--model", model), ("--mode", mode), ("--method", method)):
        if not _NAME.match(value):
            raise input_error("evals.golden_name", field=field, value=value[:80])
    if found.length is None or found.steps is None or found.accepted is None or found.drafted is None:
        raise ServemarkError(f"evals.no_length.{found.missing or 'no_counters'}", Layer.ENGINE, exit_code=1)
    rule = forced_by_counters(found)
    if rule is not None:
        raise rule.refusal()
    steps = round(found.steps)
    if steps < LEAST_STEPS:
        raise input_error("evals.golden_few_steps", steps=steps, least=LEAST_STEPS)
    seen = max(found.drafted / found.steps, float(_used(found.per_position)))
    if seen > draft_tokens + 1e-9 or found.length > draft_tokens + 1 + 1e-9:
        raise input_error("evals.golden_more_drafts", seen=f"{seen:.2f}", draft_tokens=draft_tokens)
    shares = found.per_position
    mean = found.length - 1
    exact = bool(shares) and math.isclose(sum(shares), mean, rel_tol=1e-6, abs_tol=1e-6)
    second = sum((2 * i + 1) * share for i, share in enumerate(shares))
    variance = second - mean * mean if exact else mean * (draft_tokens - mean)
    stderr = math.sqrt(max(0.0, variance) / steps)
    return GoldenEntry(model, mode, draft_tokens, method, found.length, stderr, exact, steps, shares)


def _used(shares: tuple[float, ...]) -> int:
    """Positions up to the last that was ever accepted."""
    return max((i + 1 for i, share in enumerate(shares) if share > 0), default=0)


def measure_url(base_url: str, watch_s: float | None = None) -> tuple[Acceptance, Forced | None]:
    """What a running server has counted since it started, or within `watch_s` seconds from now; and whether its own
    configuration says that acceptance is forced. Raises ServemarkError (layer engine) when it does not answer."""
    before = SpecCounters(None, None, None) if watch_s is None else _counters(base_url)
    if watch_s is not None:
        time.sleep(watch_s)
    found = acceptance(before, _counters(base_url))
    return found, forced_by_settings(base_url)


def _counters(base_url: str) -> SpecCounters:
    try:
        reply = fetch(base_url, "/metrics", timeout_s=10.0, max_bytes=_METRICS_BYTES)
        if reply.status != 200:
            raise ProbeError(f"HTTP {reply.status}")
        return spec_counters(parse_prometheus(reply.body.decode("utf-8")))
    except (ProbeError, ValueError) as error:
        raise ServemarkError(
            "launch.engine_no_answer", Layer.ENGINE, url=base_url, reason=str(error)[:200]
        ) from error


def entry_text(entry: GoldenEntry) -> str:
    """The entry as a golden file of its own."""
    lines = (f"{entry.model}:", f"  {entry.mode}:", f"    {_level(entry)}")
    return "\n".join(lines) + "\n"


def _level(entry: GoldenEntry) -> str:
    return f"{entry.draft_tokens}: {entry.length:.2f}  # {entry.comment}"


def append_entry(path: Path, entry: GoldenEntry) -> None:
    """Write the entry into a golden file, new or existing, atomically; every byte that was there stays, and so does a link
    to the file.

    Raises ServemarkError (exit 2) when the file has the value already, is no golden file, or writes the model's values
    in one line.
    """
    try:
        path = path.resolve()  # what a link names is written, the link stays
    except (OSError, RuntimeError) as error:
        raise input_error("evals.golden_link", where=str(path)) from error
    if not path.exists():
        write_atomic(path, entry_text(entry).encode())
        return
    shown = str(path)
    before = read_bytes(path, shown)
    root, problems = parse_yaml(before, shown)
    known = () if root.kind == "null" else golden_of(root, problems)
    for problem in errors_of(problems):
        raise problem.error()
    for one in known:
        if (one.model, one.mode, one.draft_tokens) == (entry.model, entry.mode, entry.draft_tokens):
            raise input_error("evals.golden_there", where=str(one.at), value=f"{one.length:.2f}")
    after = _inserted(before, root, entry, shown)
    again, problems = parse_yaml(after, shown)
    values = {(one.model, one.mode, one.draft_tokens): one.length for one in golden_of(again, problems)}
    wanted = {(one.model, one.mode, one.draft_tokens): one.length for one in known}
    wanted[entry.model, entry.mode, entry.draft_tokens] = round(entry.length, 2)
    if errors_of(problems) or values != wanted:
        raise input_error("evals.golden_layout", where=shown)
    mode = path.stat().st_mode & 0o777
    if not mode & 0o222:
        raise input_error("evals.golden_read_only", where=shown)
    write_atomic(path, after, mode)


def _inserted(before: bytes, root: Node, entry: GoldenEntry, shown: str) -> bytes:
    """The file with the entry's lines put in: below the next smaller number of draft tokens, else as a new mode or model."""
    lines = before.splitlines(keepends=True)
    end = b"\r\n" if lines and lines[0].endswith(b"\r\n") else b"\n"
    model = (root.entries or {}).get(entry.model)
    mode = (model.entries or {}).get(entry.mode) if model is not None else None
    if mode is not None and mode.keys:
        smaller = [
            at for level, at in mode.keys.items() if level.isdigit() and int(level) < entry.draft_tokens
        ]
        line, column = max(smaller, default=min(mode.keys.values()))
        at = line if smaller else line - 1
        new = [(column, _level(entry))]
        _must_begin(lines, line, column, shown)
    elif model is not None and model.keys:
        line, column = max(model.keys.values())
        _must_begin(lines, line, column, shown)
        at = max(_last_line(model), line)
        new = [(column, f"{entry.mode}:"), (column + 2, _level(entry))]
    elif root.entries:
        at = len(lines)
        new = [(1, f"{entry.model}:"), (3, f"{entry.mode}:"), (5, _level(entry))]
    else:
        return before + (b"" if before.endswith(b"\n") or not before else end) + entry_text(entry).encode()
    text = [b" " * (column - 1) + content.encode() + end for column, content in new]
    if 0 < at <= len(lines) and not lines[at - 1].endswith(b"\n"):
        text = [end, *text]
        text[-1] = text[-1][: -len(end)]
    return b"".join([*lines[:at], *text, *lines[at:]])


def _must_begin(lines: list[bytes], line: int, column: int, shown: str) -> None:
    """Only what stands first in its line can have a line put below it."""
    if lines[line - 1][: column - 1].strip(b" \xef\xbb\xbf"):
        raise input_error("evals.golden_layout", where=f"{shown}:{line}:{column}")


def _last_line(node: Node) -> int:
    return max(inner.line for _, inner in node.walk())
