"""A cache simulation on a terminal: what was simulated, hits by tier, what moved, over time, and how small it may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servemark.base.joined import sentences
from servemark.base.messages import text
from servemark.base.printable import one_line
from servemark.cli.text_table import shortened, table, wrapped

if TYPE_CHECKING:
    from servemark.predict.cache_config import CacheConfig
    from servemark.predict.session_clock import Pacing
    from servemark.predict.simulate import CacheReport, LeastSize

GIB = 1 << 30
_BARS = " ▁▂▃▄▅▆▇█"
_TIERS = ("gpu", "dram", "store")


def simulation_lines(  # noqa: PLR0917 - one report's parts
    report: CacheReport,
    config: CacheConfig,
    pacing: Pacing,
    name: str,
    ranks: int,
    assumed: tuple[str, ...],
    width: int,
) -> list[str]:
    """Lines no wider than `width` columns (at least 60)."""
    width = max(60, width)
    lines = [shortened(one_line(name), width), *wrapped(_cache(config), width, "")]
    lines += wrapped(_pacing(report, pacing), width, "")
    for figure in assumed:
        lines += wrapped(text("predict.simulate.assumed", None, figure=figure), width, "")
    lines += ["", *_hits(report, config, width), ""]
    for fact in _facts(report, config):
        lines += wrapped(fact, width, "")
    lines += _over_time(report, width)
    lines += _curve(report, config, width)
    if report.least is not None:
        lines += ["", *wrapped(_least(report.least, config, ranks), width, "")]
    return lines


def _cache(config: CacheConfig) -> str:
    parts = [
        text(
            f"predict.simulate.policy.{config.policy}",
            None,
            block=f"{config.block_tokens:,}",
            slots=config.slots,
        )
    ]
    if config.policy != "llamacpp":
        parts.append(text("predict.simulate.tier.gpu", None, size=_size(config.gpu_tokens, config)))
    if config.dram_tokens != 0:
        parts.append(text("predict.simulate.tier.dram", None, size=_size(config.dram_tokens, config)))
    if config.store_tokens != 0:
        parts.append(
            text("predict.simulate.tier.store", None, size=_size(config.store_tokens, config),
                 watermark=f"{config.high_watermark:g}", evict=f"{config.evict_ratio:g}", lease=f"{config.lease_s:g}")
        )  # fmt: skip
    if config.states is not None:
        parts.append(text("predict.simulate.states", None, tokens=f"{config.states.state_tokens:,}"))
    if config.workers > 1:
        routing = text(f"predict.simulate.routing.{config.routing}")
        parts.append(text("predict.simulate.workers", None, workers=config.workers, routing=routing))
    return " · ".join(parts)


def _size(tokens: int | None, config: CacheConfig) -> str:
    if tokens is None:
        return text("predict.simulate.unbounded")
    if tokens and config.token_bytes:
        return text(
            "predict.simulate.tokens_gib",
            None,
            tokens=_count(tokens),
            gib=f"{tokens * config.token_bytes / GIB:,.1f}",
        )
    return text("predict.simulate.tokens", None, tokens=_count(tokens))


def _pacing(report: CacheReport, pacing: Pacing) -> str:
    values = {
        "rate": f"{1 / pacing.prefill_s:,.0f}", "tpot": f"{1000 * pacing.decode_s:g}", "span": _seconds(report.span_s),
    }  # fmt: skip
    if pacing.lanes is None:
        return text("predict.simulate.as_recorded", None, **values)
    return text("predict.simulate.lanes", None, lanes=pacing.lanes, **values)


def _hits(report: CacheReport, config: CacheConfig, width: int) -> list[str]:
    counts = report.counts
    rows = []
    for tier in _TIERS:
        if tier == "gpu" or getattr(config, f"{tier}_tokens") != 0:
            evicted = getattr(counts, f"evicted_{tier}_tokens")
            label = "slots" if tier == "gpu" and config.policy == "llamacpp" else tier
            rows.append([
                text(f"predict.simulate.row.{label}"), _percent(report.share(getattr(counts, f"{tier}_tokens"))),
                _count(getattr(counts, f"{tier}_tokens")), _count(evicted), _count(report.peak_held[tier]),
            ])  # fmt: skip
    hits = counts.gpu_tokens + counts.dram_tokens + counts.store_tokens
    rows.append([text("predict.simulate.row.all"), _percent(report.hit_share), _count(hits), "", ""])
    heads = [text(f"predict.simulate.head.{h}") for h in ("tier", "share", "found", "evicted", "peak")]
    return table(heads, rows, width)


def _facts(report: CacheReport, config: CacheConfig) -> list[str]:
    counts = report.counts
    facts = [
        text("predict.simulate.prompts", None, requests=f"{counts.requests:,}", tokens=_count(counts.prompt_tokens),
             distinct=_count(report.distinct_tokens))
    ]  # fmt: skip
    if report.share_unbounded is not None:
        facts.append(text("predict.simulate.ceiling", None, share=_percent(report.share_unbounded)))
    moved = counts.loaded_tokens, counts.written_dram_tokens + counts.written_store_tokens
    if any(moved):
        shown = [_moved(tokens, config) for tokens in moved]
        facts.append(text("predict.simulate.moved", None, loaded=shown[0], written=shown[1]))
    if counts.rejected_store_tokens:
        facts.append(text("predict.simulate.rejected", None, tokens=_count(counts.rejected_store_tokens)))
    if report.waited_requests:
        mean = _seconds(report.waited_s / report.waited_requests)
        facts.append(text("predict.simulate.waited", None, requests=f"{report.waited_requests:,}", mean=mean))
    if counts.overcommitted_tokens:
        facts.append(text("predict.simulate.overcommitted", None, tokens=_count(counts.overcommitted_tokens)))
    return facts


def _moved(tokens: int, config: CacheConfig) -> str:
    if config.token_bytes:
        return f"{tokens * config.token_bytes / GIB:,.1f} GiB"
    return text("predict.simulate.tokens", None, tokens=_count(tokens))


def _over_time(report: CacheReport, width: int) -> list[str]:
    if len(report.windows) < 2:
        return []
    cells = []
    for window in report.windows:
        shares = (window.gpu, window.dram, window.store)
        if shares[0] is None:
            cells.append("·")
            continue
        total = sum(share or 0.0 for share in shares)
        cells.append(_BARS[max(1, min(8, round(total * 8)))] if total > 0 else " ")
    return ["", *wrapped(text("predict.simulate.over_time"), width, ""), f"|{''.join(cells)}|"]


def _curve(report: CacheReport, config: CacheConfig, width: int) -> list[str]:
    if not report.curve:
        return []
    rows = [[_size(point.tokens, config), _percent(point.share)] for point in report.curve]
    heads = [text("predict.simulate.head.pool"), text("predict.simulate.head.share")]
    return ["", *wrapped(text("predict.simulate.by_size"), width, ""), *table(heads, rows, width)]


def _least(least: LeastSize, config: CacheConfig, ranks: int) -> str:
    values = {
        "tier": text(f"predict.simulate.row.{least.tier}"), "size": _size(least.tokens, config),
        "share": _percent(least.share), "best": _percent(least.share_unbounded), "fall": f"{100 * least.fall:g}",
    }  # fmt: skip
    said = text("predict.simulate.least", None, **values)
    if config.token_bytes and least.tier != "gpu" and ranks > 1:
        each = f"{least.tokens * config.token_bytes / GIB / ranks:,.2f}"
        said = sentences([said, text("predict.simulate.least_rank", None, each=each, ranks=ranks)])
    how = text(f"predict.simulate.method.{least.method}", None, runs=least.runs)
    return sentences([said, how])


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%"


def _count(value: int) -> str:
    """Three digits and a unit of thousands; exact below 10,000."""
    if value < 10_000:
        return f"{value:,}"
    for limit, unit in ((1e6, "k"), (1e9, "M"), (1e12, "G"), (1e15, "T")):
        if value < limit * 0.9995:
            return f"{value / limit * 1000:.3g}{unit}"
    return f"{value:.3g}"


def _seconds(value: float) -> str:
    if value >= 7200:
        return f"{value / 3600:.1f} h"
    return f"{value:.3g} s" if value < 1000 else f"{value:.0f} s"
