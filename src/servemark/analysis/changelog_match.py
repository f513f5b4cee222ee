"""Which changelog entries belong to a change: those that name the configuration and the image or version that is new.

A changelog has an order and no dates, so an entry that names the configuration alone cannot be placed in time; such
entries are counted, and nothing is called a cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from servemark.analysis.measured import Measured
from servemark.catalog.changelog import ChangelogEntry
from servemark.results.importers.inferencex_names import FRAMEWORKS, hardware_id, model_id
from servemark.results.importers.precision_names import FAMILIES

MAX_ENTRIES = 5
MIN_TAG = 5
"""Shorter image tags (`main`, `v1`) stand in too many sentences to mean anything."""


@dataclass(frozen=True, slots=True)
class MatchedEntry:
    """One entry of a changelog. `number` is its place in the file from 1, the newest the highest; `word` the image tag or
    version in it."""

    number: int
    word: str
    config_keys: tuple[str, ...]
    description: tuple[str, ...]
    link: str


@dataclass(frozen=True, slots=True)
class Matches:
    """Entries that name the configuration and what is new after a change, the newest first; and how many others name the
    configuration alone, at a time that the changelog does not tell."""

    entries: tuple[MatchedEntry, ...]
    others: int


def matching(entries: Sequence[ChangelogEntry], before: Measured, after: Measured) -> Matches:
    """The entries for the step from one point to the next."""
    news = _news(before, after)
    found, others = [], 0
    for number, entry in enumerate(entries, 1):
        if not any(names_configuration(key, after) for key in entry.config_keys):
            continue
        said = " ".join(entry.description)
        word = next((each for each in news if each in said), None)
        if word is None:
            others += 1
        else:
            found.append(MatchedEntry(number, word, entry.config_keys, entry.description, entry.pr_link))
    return Matches(tuple(found[::-1][:MAX_ENTRIES]), others)


def _news(before: Measured, after: Measured) -> list[str]:
    """Words of the new state that the old one did not have: the image's tag, the engine's version."""
    found = []
    if after.identity.image and after.identity.image != before.identity.image:
        tag = after.identity.image.partition("@")[0].rpartition(":")[2]
        if len(tag) >= MIN_TAG and "/" not in tag:
            found.append(tag)
    version = after.identity.engine_version
    if version and version != before.identity.engine_version and len(version) >= MIN_TAG:
        found.append(version)
    return found


def names_configuration(key: str, point: Measured) -> bool:
    """Whether a config key (`dsr1-fp8-mi355x-sglang-mtp`, `gptoss-fp4-*-trt`, `dsr1*`, or an arm's own name) names the
    configuration of a point. Parts that are not known say nothing; a key without `*` also says what it leaves out."""
    identity = point.identity
    arm = identity.extra.get("arm")
    if isinstance(arm, str):
        return fnmatchcase(arm, key)
    first, *rest = key.lower().split("-")
    if first not in ("*", "") and model_id(first.rstrip("*")) != identity.model:
        return False
    if any(_contradicts(part, point) for part in rest):
        return False
    if "*" in key:
        return True
    speculates = identity.speculation is not None
    return ("mtp" in rest) == speculates and ("disagg" in rest) == bool(identity.disaggregated)


def _contradicts(part: str, point: Measured) -> bool:
    """Whether a part of a key is the name of other hardware, another precision or another engine."""
    hardware = hardware_id(part)
    if hardware is not None:
        return hardware != point.identity.hardware
    if part in FAMILIES:
        return FAMILIES[part] != point.identity.precision.family
    return part in FRAMEWORKS and FRAMEWORKS[part][1] != point.identity.engine
