"""The engines of an arm as a simulated replay takes them: how many of each role, and what one of them runs at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from servemark.predict.sim_rules import Deployment

if TYPE_CHECKING:
    from servemark.catalog import deployment as recipes
    from servemark.predict.cache_config import CacheConfig
    from servemark.predict.cache_sizes import SizedCache

_RUNNING = ("max-num-seqs", "max-running-requests", "max-batch-size", "parallel")
_CHUNK = ("max-num-batched-tokens", "chunked-prefill-size", "max-num-tokens", "batch-size")
_MOST = 1_000_000_000


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """What a recipe says of one worker; None where it does not. `slots` are a llama.cpp server's, which share its
    context."""

    max_running: int | None = None
    chunk_tokens: int | None = None
    slots: int | None = None


def engine_limits(deployment: recipes.Deployment) -> EngineLimits:
    """From the arguments of the role that decodes (requests at once), and of the first one (prompt tokens in a step)."""
    first = deployment.roles[0]
    decoding = deployment.role("decode") or first
    slots = _count(first, ("parallel",))
    return EngineLimits(_count(decoding, _RUNNING), _count(first, _CHUNK), slots)


def _count(role: recipes.RoleSpec, names: tuple[str, ...]) -> int | None:
    for name in names:
        value = role.flag(name)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MOST:
            return value
    return None


def engines_of(
    sized: SizedCache, config: CacheConfig, limits: EngineLimits, gpus: int, *, fitted: bool
) -> Deployment:
    """The deployment behind a cache, with as many workers as it has pools (each data-parallel share of the attention is
    one). Of another number of workers than the arm's nobody has said how many GPUs they take. `fitted` step times hold
    the wait for other prompts already, so that prompts do not wait for each other a second time."""
    usual = Deployment()
    return Deployment(
        workers=config.workers,
        decode_workers=sized.decode_workers,
        gpus=(gpus or None) if config.workers == sized.config.workers else None,
        kv_tokens=config.gpu_tokens or None,
        decode_kv_tokens=sized.decode_tokens,
        max_running=limits.max_running or usual.max_running,
        chunk_tokens=limits.chunk_tokens or usual.chunk_tokens,
        prefills_at_once=None if fitted else usual.prefills_at_once,
    )
