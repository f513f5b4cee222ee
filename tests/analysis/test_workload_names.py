"""Workloads by name: the hash only where names are alike or unsaid."""

from __future__ import annotations

from dataclasses import replace

from tests.analysis.made_points import IDENTITY

from servemark.analysis.workload_names import named, workload_names
from servemark.results.point import PointIdentity, Scenario

ONE, OTHER = "5ff5c8e1" * 8, "0a1b2c3d" * 8


def of(dataset: str, name: str | None) -> PointIdentity:
    """An identity of this workload."""
    extra: dict[str, object] = {} if name is None else {"scenario": {"name": name}}
    return replace(IDENTITY, scenario=Scenario(type="agentic-coding", dataset=dataset), extra=extra)


def test_a_name_stands_for_its_hash() -> None:
    """Alone without a digit of it; a data set that has a name of its own is left as it is."""
    names = workload_names([of(ONE, "agentic-small"), of(ONE, None), of("sharegpt", "x")])
    assert names == {ONE: "agentic-small"}
    assert named(f"m · agentic-coding:{ONE} rules r", names) == "m · agentic-coding:agentic-small rules r"


def test_two_of_one_name_are_told_apart() -> None:
    """By the first eight digits, which stand alone where no name is known."""
    assert workload_names([of(ONE, "small"), of(OTHER, "small")]) == {
        ONE: "small 5ff5c8e1…",
        OTHER: "small 0a1b2c3d…",
    }
    assert workload_names([of(ONE, None)]) == {ONE: "5ff5c8e1…"}
