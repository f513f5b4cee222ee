"""`servemark trace simulate`: what a prefix cache would do with a trace."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, cast

import click

from servemark.base.errors import input_error
from servemark.cli.options import Finite, SubVerb, common

if TYPE_CHECKING:
    from servemark.predict.cache_config import CacheConfig, CachePolicy, Routing
    from servemark.predict.cache_sizes import SizedCache
    from servemark.predict.simulate import CacheReport, Source, Tier
    from servemark.traces.open import TraceFormat
    from servemark.traces.types import CacheBust

FORMATS = ("weka", "mooncake", "messages", "recipe")
GIB = 1 << 30


class TraceVerb(SubVerb):
    """A verb of the group `trace`."""

    prefix = "trace"


@dataclass(frozen=True, slots=True)
class Asked:
    """The options, by their names on the command line. None where one was not given."""

    target: str | None
    cache: str | None
    block: int | None
    dcp: int
    gpu_tokens: int | None
    gpu_blocks: int | None
    dram: float | None
    store: float | None
    ranks: int | None
    token_bytes: float | None
    workers: int | None
    routing: Routing
    seed: int
    slots: int
    unified: bool
    state_tokens: int | None
    states_twice: bool
    states_every: int | None
    watermark: float | None
    evict: float | None
    lease: float
    concurrency: int | None
    prefill_rate: float
    tpot: float
    think_scale: float
    think_cap: float | None
    cache_bust: CacheBust
    find: Tier | None
    fall: float
    form: str | None
    sessions: int | None
    link: bool


@click.command(cls=TraceVerb, name="simulate")
@click.argument("path", metavar="TRACE")
@click.option("--for", "target", metavar="ARM|RECIPE", help="predict.simulate.option.for")
@click.option(
    "--cache",
    type=click.Choice(["vllm", "sglang", "llamacpp", "mooncake"]),
    help="predict.simulate.option.cache",
)
@click.option(
    "--block", type=click.IntRange(1, 1 << 20), metavar="TOKENS", help="predict.simulate.option.block"
)
@click.option("--dcp", type=click.IntRange(1, 1024), default=1, help="predict.simulate.option.dcp")
@click.option(
    "--gpu-tokens",
    type=click.IntRange(0, 1 << 50),
    metavar="TOKENS",
    help="predict.simulate.option.gpu_tokens",
)
@click.option(
    "--gpu-blocks", type=click.IntRange(0, 1 << 40), metavar="N", help="predict.simulate.option.gpu_blocks"
)
@click.option("--dram", type=Finite(0, 1 << 30), metavar="GIB", help="predict.simulate.option.dram")
@click.option("--store", type=Finite(0, 1 << 30), metavar="GIB", help="predict.simulate.option.store")
@click.option("--ranks", type=click.IntRange(1, 1 << 16), help="predict.simulate.option.ranks")
@click.option(
    "--token-bytes", type=Finite(0.001, 1e9), metavar="BYTES", help="predict.simulate.option.token_bytes"
)
@click.option("--workers", type=click.IntRange(1, 4096), help="predict.simulate.option.workers")
@click.option(
    "--routing",
    type=click.Choice(["affinity", "random", "round-robin"]),
    default="affinity",
    help="predict.simulate.option.routing",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, help="predict.simulate.option.seed")
@click.option("--slots", type=click.IntRange(1, 256), default=1, help="predict.simulate.option.slots")
@click.option("--unified", is_flag=True, help="predict.simulate.option.unified")
@click.option(
    "--state-tokens",
    type=click.IntRange(1, 1 << 30),
    metavar="TOKENS",
    help="predict.simulate.option.state_tokens",
)
@click.option("--states-twice", is_flag=True, help="predict.simulate.option.states_twice")
@click.option(
    "--states-every",
    type=click.IntRange(1, 1 << 30),
    metavar="TOKENS",
    help="predict.simulate.option.states_every",
)
@click.option("--watermark", type=Finite(0.01, 1), help="predict.simulate.option.watermark")
@click.option("--evict", type=Finite(0.001, 1), help="predict.simulate.option.evict")
@click.option(
    "--lease", type=Finite(0, 86_400), default=60.0, metavar="SECONDS", help="predict.simulate.option.lease"
)
@click.option("--concurrency", type=click.IntRange(1, 1_000_000), help="predict.simulate.option.concurrency")
@click.option(
    "--prefill-rate",
    type=Finite(1, 1e9),
    default=20_000.0,
    metavar="TOKENS/S",
    help="predict.simulate.option.prefill_rate",
)
@click.option("--tpot", type=Finite(0, 1e6), default=20.0, metavar="MS", help="predict.simulate.option.tpot")
@click.option("--think-scale", type=Finite(0, 1000), default=1.0, help="cli.trace.think_scale")
@click.option("--think-cap", type=Finite(0, 1e9), metavar="SECONDS", help="predict.simulate.option.think_cap")
@click.option(
    "--cache-bust",
    type=click.Choice(["none", "session", "request"]),
    default="none",
    help="predict.simulate.option.cache_bust",
)
@click.option("--find", type=click.Choice(["gpu", "dram", "store"]), help="predict.simulate.option.find")
@click.option(
    "--fall", type=Finite(0.01, 50), default=1.0, metavar="POINTS", help="predict.simulate.option.fall"
)
@click.option("--format", "form", type=click.Choice(FORMATS), help="cli.trace.format")
@click.option("--sessions", type=click.IntRange(1), help="cli.trace.first")
@click.option("--link", is_flag=True, help="cli.trace.link")
@common
def simulate(path: str, home: str | None, as_json: bool, **options: object) -> int:
    """Text comes from the catalogue."""
    del home  # nothing is written
    from servemark.cli.simulate_progress import SimulateProgress  # noqa: PLC0415
    from servemark.cli.trace_simulate_view import simulation_lines  # noqa: PLC0415 - --help imports no room
    from servemark.predict.session_clock import Pacing  # noqa: PLC0415
    from servemark.predict.simulate import simulate as play  # noqa: PLC0415

    asked = Asked(**options)  # type: ignore[arg-type]  # the command line's own types
    sized = None
    if asked.target is not None:
        from servemark.predict.cache_sizes import sized_cache  # noqa: PLC0415

        sized = sized_cache(asked.target)
    config, ranks = cache_of(asked, sized)
    source = _source(path, asked)
    pacing = Pacing(asked.concurrency, 1 / asked.prefill_rate, asked.tpot / 1000)
    progress = SimulateProgress()
    try:
        report = play(source, config, pacing, find=asked.find, fall=asked.fall / 100, on_progress=progress)
    finally:
        progress.close()
    if as_json:
        click.echo(json.dumps(_plain(report, config, source, ranks), ensure_ascii=False, allow_nan=False))
        return 0
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    assumed = sized.assumed if sized is not None else ()
    given = {"gpu_tokens": asked.gpu_tokens or asked.gpu_blocks, "high_watermark": asked.watermark}
    assumed = tuple(name for name in assumed if given.get(name) is None)
    for line in simulation_lines(report, config, pacing, source.workload.name, ranks, assumed, width):
        click.echo(line)
    return 0


def cache_of(asked: Asked, sized: SizedCache | None) -> tuple[CacheConfig, int]:
    """The cache that the options describe, over what a recipe says, and the ranks that share the lower tier (for a store
    those of all workers). Raises ServemarkError (exit code 2) where bytes are given and a token's are not known."""
    config = _tuned(_pool(_rules(asked, sized), asked), asked)
    ranks = asked.ranks or (sized.ranks if sized is not None else 1)
    store_ranks = ranks * config.workers
    if sized is not None and asked.ranks is None and asked.workers is None and sized.store_ranks:
        store_ranks = sized.store_ranks
    if asked.dram is not None:
        config = replace(config, dram_tokens=_tokens(asked.dram * ranks, config.token_bytes, "--dram"))
    if asked.store is not None:
        config = replace(
            config, store_tokens=_tokens(asked.store * store_ranks, config.token_bytes, "--store")
        )
    if config.policy == "llamacpp" and asked.find == "gpu":
        raise input_error("predict.simulate.find_slots")
    with_store = config.store_tokens != 0 or asked.find == "store"
    if asked.cache == "mooncake" and not with_store:
        raise input_error("predict.simulate.mooncake_size")
    return config, store_ranks if with_store else ranks


def _rules(asked: Asked, sized: SizedCache | None) -> CacheConfig:
    """Whose rules, in which blocks."""
    from servemark.predict.cache_config import CacheConfig  # noqa: PLC0415

    config = sized.config if sized is not None else CacheConfig()
    if asked.cache is not None:
        policy = cast("CachePolicy", "vllm" if asked.cache == "mooncake" else asked.cache)
        states = config.states if policy == "vllm" else None
        tokens_alone = policy == "llamacpp" or (policy == "sglang" and sized is None)
        block = 1 if tokens_alone else config.block_tokens
        config = replace(config, policy=policy, states=states, block_tokens=block)
    if asked.block is not None or asked.dcp > 1:
        config = replace(config, block_tokens=(asked.block or config.block_tokens) * asked.dcp)
    return config


def _pool(config: CacheConfig, asked: Asked) -> CacheConfig:
    """The GPU pool, the workers and the bytes of a token."""
    if asked.gpu_tokens is not None and asked.gpu_blocks is not None:
        raise input_error("predict.simulate.two_sizes")
    if asked.gpu_tokens is not None:
        config = replace(config, gpu_tokens=asked.gpu_tokens)
    if asked.gpu_blocks is not None:
        config = replace(config, gpu_tokens=asked.gpu_blocks * config.block_tokens)
    each = config.token_bytes if asked.token_bytes is None else asked.token_bytes
    return replace(config, token_bytes=each, workers=asked.workers or config.workers)


def _tuned(config: CacheConfig, asked: Asked) -> CacheConfig:
    """Routing, slots, states and the store's rules."""
    from servemark.predict.cache_config import StateRule  # noqa: PLC0415

    states = config.states
    if asked.state_tokens or asked.states_twice or asked.states_every:
        base = states or StateRule()
        every = asked.states_every or base.every_tokens
        states = StateRule(
            asked.state_tokens or base.state_tokens, asked.states_twice or base.seen_twice, every
        )
    return replace(
        config, routing=asked.routing, seed=asked.seed, slots=asked.slots, unified=asked.unified, states=states,
        high_watermark=asked.watermark or config.high_watermark,
        evict_ratio=asked.evict or config.evict_ratio, lease_s=asked.lease,
    )  # fmt: skip


def _tokens(gib: float, each: float | None, option: str) -> int:
    if gib == 0:
        return 0
    if each is None:
        raise input_error("predict.simulate.no_token_bytes", option=option)
    return int(gib * GIB / each)


def _source(path: str, asked: Asked) -> Source:
    from servemark.predict.simulate import Source  # noqa: PLC0415
    from servemark.traces.open import TraceOptions, open_workload  # noqa: PLC0415

    cap = math.inf if asked.think_cap is None else asked.think_cap
    form = cast("TraceFormat | None", asked.form)
    found = TraceOptions(
        form, asked.sessions, think_scale=asked.think_scale, think_cap_s=cap, link=asked.link
    )
    return Source(open_workload(path, found), cache_bust=asked.cache_bust)


def _plain(report: CacheReport, config: CacheConfig, source: Source, ranks: int) -> dict[str, object]:
    return {
        "trace": source.workload.name, "workload": source.workload.id, "cache_bust": source.cache_bust,
        "cache": asdict(config), "ranks": ranks, **report.to_json(),
    }  # fmt: skip
