"""A trace's figures on a terminal: a table, facts, and small plots in at most the given width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import click

from servemark.base.messages import text
from servemark.base.printable import one_line
from servemark.cli.text_table import padded, shortened, table, wrapped
from servemark.metrics.percentiles import Distribution
from servemark.traces.stats import TraceStats

_BARS = " ▁▂▃▄▅▆▇█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def stats_lines(
    stats: TraceStats, source: Mapping[str, object], width: int, *, plots: bool = True, colour: bool = False
) -> list[str]:
    """Lines no wider than `width` columns (at least 60)."""
    width = max(60, width)
    counts = text("traces.show.counts", None, sessions=f"{stats.sessions:,}", requests=f"{stats.requests:,}")
    lines = [shortened(f"{one_line(stats.name)} · {stats.kind}", width), *wrapped(counts, width, ""), ""]
    lines += _table(stats, width)
    lines += ["", *(line for fact in _facts(stats, source) for line in wrapped(fact, width, ""))]
    if plots:
        for key, sample in (("traces.show.isl", stats.isl_sample), ("traces.show.osl", stats.osl_sample)):
            lines += _histogram(text(key), sample, width, colour)
        lines += _rate(stats, width, colour)
        lines += _ceilings(stats, width, colour)
    return lines


def _table(stats: TraceStats, width: int) -> list[str]:
    rows: list[list[str]] = []

    def add(key: str, found: Distribution | None, seconds: bool = False) -> None:
        if found is None:
            return
        values = (found.mean, found.p50, found.p90, found.p99, found.max)
        shown = [_seconds(v) if seconds else _number(v) for v in values]
        indent = "  " if key in {"isl_main", "isl_sub_agent"} else ""
        rows.append([indent + text(f"traces.show.{key}"), f"{found.n:,}", *shown])

    add("isl", stats.isl)
    if stats.isl_sub_agent is not None:
        add("isl_main", stats.isl_main)
        add("isl_sub_agent", stats.isl_sub_agent)
    add("osl", stats.osl)
    if stats.requests > stats.sessions:
        add("turns", stats.turns)
        add("sub_agent_turns", stats.sub_agent_turns)
        add("requests_per_session", stats.requests_per_session if stats.sub_agents else None)
        add("gap_main", stats.gap_main_s, seconds=True)
        add("gap_sub_agent", stats.gap_sub_agent_s, seconds=True)
        add("session_distinct", stats.session_distinct_tokens)
    add("inter_arrival", stats.inter_arrival_s, seconds=True)
    heads = [text("traces.show.quantity"), "n", text("traces.show.mean"), "p50", "p90", "p99", "max"]
    return table(heads, rows, width) if rows else []


def _facts(stats: TraceStats, source: Mapping[str, object]) -> list[str]:
    facts: list[str] = []

    def say(key: str, **values: object) -> None:
        facts.append(text(f"traces.show.{key}", None, **values))

    if stats.input_tokens is not None:
        outputs = "?" if stats.output_tokens is None else f"{stats.output_tokens:,}"
        say("tokens", inputs=f"{stats.input_tokens:,}", outputs=outputs)
    if stats.unknown_input:
        say("unknown_input", count=f"{stats.unknown_input:,}")
    if stats.unknown_output:
        say("unknown_output", count=f"{stats.unknown_output:,}")
    if stats.sub_agents:
        share = f"{100 * stats.sessions_with_sub_agents / stats.sessions:.1f}"
        say(
            "sub_agents",
            count=f"{stats.sub_agents:,}",
            share=share,
            background=f"{stats.background_sub_agents:,}",
        )
    if stats.span_s:
        rate = f"{stats.sessions / stats.span_s:.3g}"
        say("arrivals", span=_seconds(stats.span_s), rate=rate, peak=f"{stats.peak_rps or 0:.3g}")
    if stats.hit_ceiling:
        best = stats.hit_ceiling[0]
        say("ceiling", share=f"{best.share:.3f}", block=best.block_tokens)
        if stats.requests > stats.sessions and stats.within_session_share is not None:
            say("within", share=f"{stats.within_session_share:.3f}")
    elif stats.input_tokens is not None:
        say("no_content")
    if stats.distinct_tokens is not None:
        say("working_set", tokens=f"{stats.distinct_tokens:,}")
    for name in ("failed_rows_left_out", "conversations_without_reply"):
        count = source.get(name)
        if isinstance(count, int) and count:
            say(name, count=f"{count:,}")
    return facts


def _histogram(title: str, sample: Sequence[int], width: int, colour: bool) -> list[str]:
    """Shares of values in bins that double: 1-2-5 steps would hide that lengths span four decades."""
    if len(sample) < 2:
        return []
    low = max(1, min(sample))
    high = max(sample)
    edges = [2 ** math.floor(math.log2(low))]
    while edges[-1] <= high:
        edges.append(edges[-1] * 2)
    if len(edges) > 13:  # merge the low end: few values lie there
        edges = [0, *edges[-12:]]
    counts = [0] * (len(edges) - 1)
    for value in sample:
        counts[sum(value >= edge for edge in edges[1:-1])] += 1
    labels = [f"{_number(a)} - {_number(b)}" for a, b in pairwise(edges)]
    return ["", title, *_bars(labels, [c / len(sample) for c in counts], width, colour)]


def _bars(labels: Sequence[str], shares: Sequence[float], width: int, colour: bool) -> list[str]:
    side = max(map(len, labels))
    room = width - side - 10
    top = max(shares) or 1.0
    lines = []
    for label, share in zip(labels, shares, strict=True):
        eighths = round(share / top * room * 8)
        bar = _EIGHTHS[8] * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
        painted = click.style(bar, fg="cyan") if colour and bar else bar
        lines.append(f"{padded(label, side, left=False)} {painted}{' ' if bar else ''}{100 * share:.1f}%")
    return lines


def _rate(stats: TraceStats, width: int, colour: bool) -> list[str]:
    if not stats.rate_rps or not stats.peak_rps:
        return []
    columns = [_BARS[max(1 if r else 0, round(r / stats.peak_rps * 8))] for r in stats.rate_rps]
    line = "".join(columns)[: width - 2]
    title = text("traces.show.rate", None, peak=f"{stats.peak_rps:.3g}", span=_seconds(stats.span_s or 0))
    return ["", *wrapped(title, width, ""), click.style(line, fg="cyan") if colour else line]


def _ceilings(stats: TraceStats, width: int, colour: bool) -> list[str]:
    if not stats.hit_ceiling:
        return []
    labels = [f"{c.block_tokens:,}" for c in stats.hit_ceiling]
    title = wrapped(text("traces.show.by_block"), width, "")
    return ["", *title, *_bars(labels, [c.share for c in stats.hit_ceiling], width, colour)]


def _number(value: float) -> str:
    """Three digits and a unit of thousands; exact below 10,000."""
    if value < 10_000:
        return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.1f}"
    for limit, unit in ((1e6, "k"), (1e9, "M"), (1e12, "G")):
        if value < limit * 0.9995:
            return f"{value / limit * 1000:.3g}{unit}"
    return f"{value:.3g}"


def _seconds(value: float) -> str:
    if value >= 36_000:
        return f"{value / 3600:.1f} h"
    return f"{value:.3g} s" if value < 1000 else f"{value:.0f} s"
