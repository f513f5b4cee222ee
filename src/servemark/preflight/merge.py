"""Many nodes' lines into one table, fact by fact, that points at the odd node out.

Every fact is compared with what most nodes have. Words and counts must be equal; sizes and times, which vary by
nature, may differ from the median by a stated share. Two nodes that differ have no majority: both are named, none
is called odd.
"""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import ServemarkError, input_error
from servemark.base.messages import text
from servemark.preflight.facts import MIB
from servemark.preflight.finding import Saying, say, size
from servemark.preflight.report import SCHEMA

MAX_FILE = 64 * MIB
MAX_NODES = 10_000
Facts = dict[str, dict[str, object]]
"""Topic -> the plain facts of its finding."""


@dataclass(frozen=True, slots=True)
class Node:
    """One node's line."""

    name: str
    taken_at: float
    arm: str | None
    counts: dict[str, int]
    facts: Facts
    failed_topics: tuple[str, ...]

    @property
    def failed(self) -> bool:
        """Whether a finding of this node contradicts the arm's needs."""
        return bool(self.failed_topics)


@dataclass(frozen=True, slots=True)
class Row:
    """One fact over all nodes. `common`: what most have (None: no majority); `odd`: node -> what it has instead."""

    fact: str
    common: str | None
    agreeing: int
    odd: dict[str, str]


@dataclass(frozen=True, slots=True)
class Merged:
    """All nodes and every fact; `odd` names the nodes that stand out, worst first, with the facts."""

    nodes: tuple[Node, ...]
    rows: tuple[Row, ...]

    @property
    def odd(self) -> dict[str, tuple[str, ...]]:
        """Node -> facts in which it differs from most; nodes with most of them first."""
        found: dict[str, list[str]] = {}
        for row in self.rows:
            if row.common is not None:
                for node in row.odd:
                    found.setdefault(node, []).append(row.fact)
        return {node: tuple(found[node]) for node in sorted(found, key=lambda n: (-len(found[n]), n))}

    def plain(self) -> dict[str, object]:
        """One JSON object."""
        return {
            "schema": SCHEMA,
            "kind": "preflight-merge",
            "arm": self.nodes[0].arm,
            "nodes": [
                {"node": n.name, "taken_at": n.taken_at, "counts": n.counts, "failed": list(n.failed_topics)}
                for n in self.nodes
            ],
            "facts": [
                {"fact": r.fact, "common": r.common, "agreeing": r.agreeing, "odd": r.odd} for r in self.rows
            ],
            "odd": {node: list(facts) for node, facts in self.odd.items()},
        }


@dataclass(frozen=True, slots=True)
class Compared:
    """How one fact is read from a node and compared. `share`: allowed distance from the median; None: equal."""

    fact: str
    topic: str
    read: Callable[[dict[str, object]], object]
    shown: Callable[[object], str]
    share: float | None = None


def _key(name: str) -> Callable[[dict[str, object]], object]:
    return lambda facts: facts.get(name)


def _sum(name: str) -> Callable[[dict[str, object]], object]:
    def read(facts: dict[str, object]) -> object:
        values = facts.get(name)
        if not isinstance(values, list):
            return None
        numbers = [value for value in values if isinstance(value, (int, float))]
        return sum(numbers) if numbers else None

    return read


def _pool(field: str) -> Callable[[dict[str, object]], object]:
    def read(facts: dict[str, object]) -> object:
        pool = facts.get("2048kB")
        return pool.get(field) if isinstance(pool, dict) else None

    return read


def _free(use: str) -> Callable[[dict[str, object]], object]:
    def read(facts: dict[str, object]) -> object:
        disk = facts.get(use)
        return disk.get("free_bytes") if isinstance(disk, dict) else None

    return read


def _slowest(name: str) -> Callable[[dict[str, object]], object]:
    def read(facts: dict[str, object]) -> object:
        found = facts.get("slowest")
        return found.get(name) if isinstance(found, dict) else None

    return read


def _tera(unit: str) -> Callable[[object], str]:
    return lambda value: f"{value / 1e12:.3g} {unit}" if isinstance(value, (int, float)) else "?"


def _words(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {inner}" for key, inner in sorted(value.items())) or "—"
    if isinstance(value, list):
        return ", ".join(str(one) for one in value) or "—"
    if isinstance(value, bool):
        return text("preflight.merge.yes" if value else "preflight.merge.no")
    return f"{value:,}" if isinstance(value, int) else str(value)


def _bytes(value: object) -> str:
    return size(value) if isinstance(value, (int, float)) else "?"


def _rate(value: object) -> str:
    return f"{value:.3g} s/GiB" if isinstance(value, (int, float)) else "?"


COMPARED: tuple[Compared, ...] = (
    Compared("kernel", "kernel", _key("release"), _words),
    Compared("cpus", "kernel", _key("cpus"), _words),
    Compared("memory_total", "memory", _key("total_bytes"), _bytes, 0.01),
    Compared("memory_available", "memory", _key("available_bytes"), _bytes, 0.1),
    Compared("numa_nodes", "numa", _key("nodes"), _words),
    Compared("huge_total", "huge_pages", _pool("total"), _words),
    Compared("huge_free", "huge_pages", _pool("free"), _words),
    Compared("thp_enabled", "thp", _key("enabled"), _words),
    Compared("thp_defrag", "thp", _key("defrag"), _words),
    Compared("blocks", "blocks", _key("total"), _words, 0.25),
    Compared("memlock", "memlock", _key("bytes"), _bytes),
    Compared("memlock_unlimited", "memlock", _key("unlimited"), _words),
    Compared("cgroup_limit", "cgroup", _key("memory_limit_bytes"), _bytes, 0.01),
    Compared("mooncake", "mooncake", _key("packages"), _words),
    Compared("gpus", "gpus", _key("names"), _words),
    Compared("gpu_driver", "gpus", _key("driver"), _words),
    Compared("gpu_used", "gpus", _sum("used_bytes"), _bytes, 0.5),
    Compared("gpu_states", "gpu_probe", _key("states"), _words),
    Compared("gpu_memory_copy", "gpu_probe", _slowest("memory_copy_bytes_per_s"), _tera("TB/s"), 0.05),
    Compared("gpu_bf16", "gpu_probe", _slowest("bf16_flop_per_s"), _tera("TFLOP/s"), 0.08),
    Compared("nics_active", "nics", _key("active"), _words),
    Compared("nic_rates", "nics", _key("rates_gbit"), _words),
    Compared("efa_domains", "efa", _key("domains"), _words),
    Compared("disk_images", "disk", _free("images"), _bytes, 0.5),
    Compared("clock", "clock", _key("synchronised"), _words),
)
PROBED = ("4k", "thp", "thp-interleave", "hugetlb")
PROBE_SHARE = 1.0
"""A node's fastest run, which other load disturbs least, is odd from twice the median on, or below half of it."""
SMALLEST = {"gpu_used": 2 * 1024 * MIB, "memory_available": 1024 * MIB}
"""Differences below this many bytes are never odd."""


def read_nodes(files: Sequence[Path]) -> tuple[tuple[Node, ...], tuple[Saying, ...]]:
    """(nodes by name, notes). ServemarkError (exit 2) for what is no line of ours, none at all, or different arms."""
    if not files:
        raise input_error("preflight.merge_none")
    found: dict[str, Node] = {}
    notes: list[Saying] = []
    for file in files:
        for node in _lines(file):
            held = found.get(node.name)
            if held is not None:
                notes.append(say("preflight.merge_twice", node=node.name))
            if held is None or node.taken_at >= held.taken_at:
                found[node.name] = node
            if len(found) > MAX_NODES:
                raise input_error("preflight.merge_large", path=str(file), limit=f"{MAX_NODES:,}")
    if not found:
        raise input_error("preflight.merge_empty")
    arms = sorted({node.arm or "—" for node in found.values()})
    if len(arms) > 1:
        raise input_error("preflight.merge_arms", arms=", ".join(arms))
    return tuple(found[name] for name in sorted(found)), tuple(notes_of(notes))


def notes_of(notes: list[Saying]) -> Iterator[Saying]:
    """Each note once."""
    seen = set()
    for note in notes:
        if note.said("en") not in seen:
            seen.add(note.said("en"))
            yield note


def _lines(file: Path) -> Iterator[Node]:
    try:
        if file.stat().st_size > MAX_FILE:
            raise input_error("preflight.merge_large", path=str(file), limit=size(MAX_FILE))
        lines = file.read_bytes().splitlines()
    except OSError as error:
        raise input_error("preflight.merge_unreadable", path=str(file), reason=str(error.strerror)) from error
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _node(line, f"{file}:{number}")


def _node(line: bytes, where: str) -> Node:
    try:
        body = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _bad(where, "JSON") from error
    if not isinstance(body, dict) or body.get("kind") != "preflight":
        raise _bad(where, "kind")
    if body.get("schema") != SCHEMA:
        raise _bad(where, f"schema {str(body.get('schema'))[:20]}")
    name, taken, arm = body.get("node"), body.get("taken_at"), body.get("arm")
    findings = body.get("findings")
    number = isinstance(taken, (int, float)) and not isinstance(taken, bool)
    if not isinstance(name, str) or not 0 < len(name) <= 255 or not number or not isinstance(findings, list):
        raise _bad(where, "node, taken_at, findings")
    facts: Facts = {}
    failed = []
    for finding in findings:
        inner = finding.get("facts") if isinstance(finding, dict) else None
        topic = finding.get("topic") if isinstance(finding, dict) else None
        if not isinstance(topic, str) or not isinstance(inner, dict):
            raise _bad(where, "findings")
        facts[f"{topic}.{inner.get('method')}" if topic == "probe_memory" else topic] = inner
        if finding.get("verdict") == "fail":
            failed.append(topic)
    counts = body.get("counts")
    whole = {str(k): v for k, v in counts.items() if isinstance(v, int)} if isinstance(counts, dict) else {}
    return Node(
        name,
        float(str(taken)),
        arm if isinstance(arm, str) else None,
        whole,
        facts,
        tuple(dict.fromkeys(failed)),
    )


def _bad(where: str, reason: str) -> ServemarkError:
    return input_error("preflight.merge_bad_line", where=where, reason=reason)


def merge_nodes(nodes: Sequence[Node]) -> Merged:
    """Compare every fact that at least one node has."""
    rows = [_row(one, nodes) for one in (*COMPARED, *_probed())]
    return Merged(tuple(nodes), tuple(row for row in rows if row is not None))


def _probed() -> Iterator[Compared]:
    for method in PROBED:
        topic = f"probe_memory.{method}"
        yield Compared(
            f"probe_{method.replace('-', '_')}", topic, _key("fastest_s_per_gib"), _rate, PROBE_SHARE
        )
    yield Compared("probe_thp_huge", "probe_memory.thp", _key("huge_share"), _percent, 0.05)


def _percent(value: object) -> str:
    return f"{value:.0%}" if isinstance(value, (int, float)) else "?"


def _row(one: Compared, nodes: Sequence[Node]) -> Row | None:
    values = {node.name: one.read(node.facts.get(one.topic, {})) for node in nodes}
    if all(value is None for value in values.values()):
        return None
    shown = {name: "—" if value is None else one.shown(value) for name, value in values.items()}
    numbers = {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    if one.share is None or len(numbers) * 2 <= len(nodes):
        return _by_majority(one.fact, shown)
    middle = statistics.median_low(list(numbers.values()))
    floor = SMALLEST.get(one.fact, 0)
    odd = {
        name: words
        for name, words in shown.items()
        if name not in numbers or _far(numbers[name], middle, one.share, floor)
    }
    if len(odd) * 2 >= len(nodes):
        return Row(one.fact, None, 0, shown)
    return Row(one.fact, one.shown(middle), len(nodes) - len(odd), odd)


def _far(value: float, middle: float, share: float, floor: float) -> bool:
    """Outside of middle / (1 + share) to middle x (1 + share), and by more than the floor."""
    if abs(value - middle) <= floor:
        return False
    return value > middle * (1 + share) or value * (1 + share) < middle


def _by_majority(fact: str, shown: dict[str, str]) -> Row:
    (common, count), *_ = Counter(shown.values()).most_common(1)
    if count * 2 <= len(shown):
        return Row(fact, None, 0, shown)
    return Row(fact, common, count, {name: words for name, words in shown.items() if words != common})
