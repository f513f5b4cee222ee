"""Which fields of a suite state a fact that its arms state elsewhere too: counted in the files, without a look at any rule.

Two fields state the same fact when, over the arms that have both, their values agree in at least nine of ten arms, and
the values that agree are at least three different ones (so that two constants, or two switches, are not taken for one
fact). Values agree when they are equal, or when one is a part of the other between separators: the version of an image's
tag, the tool's name in a label. A field is its file's kind, its name and its role; one name in two roles is two facts.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from itertools import combinations

from servemark.catalog.arms import Arm
from servemark.catalog.nodes import Node
from servemark.catalog.suite import Suite

Field = tuple[str, str, str]
"""(`master` or `recipe`, name, role: `prefill`, `decode` or empty)."""
LEAST_ARMS = 5
LEAST_SHARE = 0.9
LEAST_VALUES = 3
_ROLES = {"prefill": "prefill", "decode": "decode", "aggregated": "prefill", "agg": "prefill"}
_INNER = re.compile(r"\"([\w.-]+)\"\s*:\s*(\"[^\"]*\"|[\d.]+|true|false)")


def fields_of(kind: str, root: Node) -> Iterator[tuple[Field, str, Node]]:
    """(field, value, node) of every scalar below a node; JSON and NAME=value texts give their inner facts too."""
    for path, node in root.walk():
        if node.entries is not None or node.items is not None or node.scalar is None:
            continue
        names = [name for name in path if not name.isdigit()]
        if not names:
            continue
        role = next(
            (_ROLES[part] for name in names for part in re.split(r"[_-]", name) if part in _ROLES), ""
        )
        value = str(node.scalar).strip().lower()
        if names[-1] == "additional-settings":
            name, _, value = value.partition("=")
            yield (kind, f"additional-settings {name}", role), value, node
        elif value.startswith("{"):
            for name, inner in _INNER.findall(value):
                yield (kind, f"{names[-1]} {name}", role), inner.strip('"'), node
        else:
            name = names[-1] if len(names) < 2 or names[-2] in _ROLES else " ".join(names[-2:])
            for part in value.split("x") if re.fullmatch(r"\d+(x\d+)+", value) else [value]:
                yield (kind, name, role), part, node


def agree(one: str, other: str) -> bool:
    """Whether two values may be one fact: equal, or one a whole part of the other."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    if len(short) < 3 or short.isdigit():
        return False
    return (
        re.search(rf"(?<![\w.]){re.escape(short)}(?![\w.])|(?<=[:v]){re.escape(short)}(?![\w.])", long)
        is not None
    )


def stated_twice(suite: Suite) -> dict[Field, list[Field]]:
    """Field -> the fields that state the same."""
    both: dict[tuple[Field, Field], int] = defaultdict(int)
    equal: dict[tuple[Field, Field], set[str]] = defaultdict(set)
    agreed: dict[tuple[Field, Field], int] = defaultdict(int)
    for arm in suite.arms.values():
        values = values_of(suite, arm)
        for one, other in combinations(sorted(values), 2):
            if one[0] == other[0] and one[1].split()[-1] == other[1].split()[-1]:
                continue
            both[one, other] += 1
            here = {v for v in values[one] if any(agree(v, w) for w in values[other])}
            there = {w for w in values[other] if any(agree(v, w) for v in values[one])}
            if here == values[one] and there == values[other]:
                agreed[one, other] += 1
                equal[one, other] |= here
    found: dict[Field, list[Field]] = defaultdict(list)
    for pair, count in both.items():
        enough = count >= LEAST_ARMS and agreed[pair] >= LEAST_SHARE * count
        if enough and len(equal[pair]) >= LEAST_VALUES:
            found[pair[0]].append(pair[1])
            found[pair[1]].append(pair[0])
    return dict(found)


def values_of(suite: Suite, arm: Arm) -> dict[Field, set[str]]:
    """Field -> the values that it has in an arm and its recipes; {} where no recipe is read."""
    found: dict[Field, set[str]] = defaultdict(set)
    roots = [
        ("recipe", r.deployment.node) for e in arm.entries if (r := suite.recipe(e)).deployment is not None
    ]
    if not roots or arm.node is None:
        return {}
    for kind, root in [("master", arm.node), *roots]:
        for field, value, _ in fields_of(kind, root) if root is not None else ():
            found[field].add(value)
    return found
