"""Workloads in words: a trace is known by the hash of its content, and people by the name it was replayed under.

Identities keep the hash; these names are for reading alone, and the beginning of the hash tells two of one name apart.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping

from servemark.results.point import PointIdentity

SHORT = 8
"""Hex digits of a hash that are shown."""
_HASH = re.compile(r"[0-9a-f]{16,64}")


def workload_names(identities: Iterable[PointIdentity]) -> dict[str, str]:
    """Data set -> its name, of every data set that is a hash; the beginning of the hash follows where names are alike, and
    stands alone where nobody gave a name."""
    known: dict[str, str] = {}
    for identity in identities:
        dataset = identity.scenario.dataset
        if dataset is not None and _HASH.fullmatch(dataset):
            known[dataset] = max(known.get(dataset, ""), _name(identity))
    alike = Counter(known.values())
    return {
        dataset: name if name and alike[name] == 1 else " ".join(filter(None, (name, f"{dataset[:SHORT]}…")))
        for dataset, name in known.items()
    }


def named(words: str, names: Mapping[str, str]) -> str:
    """Words that hold data sets, with their names instead."""
    for dataset, name in names.items():
        words = words.replace(dataset, name)
    return words


def _name(identity: PointIdentity) -> str:
    scenario = identity.extra.get("scenario")
    said = scenario.get("name") if isinstance(scenario, Mapping) else None
    return said.strip() if isinstance(said, str) else ""
