"""A deployment's prefix cache, ready for requests."""

from __future__ import annotations

from servemark.predict.cache_config import CacheConfig, CachePolicy, Routing, StateRule
from servemark.predict.cache_tiers import CacheCounts, Deployment

__all__ = ["CacheConfig", "CacheCounts", "CachePolicy", "Deployment", "Routing", "StateRule", "build"]


def build(config: CacheConfig) -> Deployment:
    """An empty cache of this deployment: a PrefixCache that counts what it does."""
    return Deployment(config)
