"""Histories: one value a run, gaps as gaps, changes with what changed, and what is never claimed."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from tests.analysis.change_point_series import SERIES
from tests.analysis.made_points import IDENTITY, measured

from servemark.analysis.changelog_match import matching, names_configuration
from servemark.analysis.history import history
from servemark.analysis.measured import Measured
from servemark.base.errors import ServemarkError
from servemark.catalog.changelog import ChangelogEntry, entries_of
from servemark.catalog.yaml_nodes import parse_yaml
from servemark.results.point import Speculation

RATE = "total_tokens_per_s_per_gpu"
STEP = [100.0, 101, 100.5, 99.5, 100.2, 120, 121, 120.5, 119.8, 120.2]
"""A step of a fifth between the fifth and the sixth value."""


def runs(values: list[float], **changes: object) -> list[Measured]:
    """One run a day, from 2026-01-01 on; `changes` go to the identity of the last five."""
    found = []
    for place, value in enumerate(values):
        identity = replace(IDENTITY, image="engine:v1.0.0")
        if place >= 5 and changes:
            identity = replace(identity, **changes)  # type: ignore[arg-type]
        found.append(
            measured({RATE: value}, identity=identity, run=f"r{place:02}", at=f"2026-01-{place + 1:02}")
        )
    return found


def test_a_step_is_found_dated_and_joined_with_what_changed() -> None:
    """Medians 100.2 -> 120.2: +19.96 %; the image changed with it, nothing else is known."""
    view = history(runs(STEP, image="engine:v1.1.0"), RATE)
    series = view.series[0]
    assert [point.date for point in series.points] == [f"2026-01-{day:02}" for day in range(1, 11)]
    assert [point.segment for point in series.points] == [0] * 5 + [1] * 5
    assert len(series.changes) == 1
    change = series.changes[0]
    assert (change.at, change.last_before) == (5, 4)
    assert (change.since, change.date, change.verdict) == ("2026-01-05", "2026-01-06", "better")
    assert change.magnitude == pytest.approx(120.2 / 100.2 - 1)
    assert change.p_value <= 0.02
    image = change.differences[0]
    assert (image.name, image.before, image.after, image.same) == (
        "image",
        "engine:v1.0.0",
        "engine:v1.1.0",
        False,
    )
    assert change.differences[1].same is None
    assert change.cause == "Changed with it: image."
    assert view.tested == view.changed == 1
    assert "would by chance" in view.notes[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"image": None}, "Only one side states image"),
        ({"recipe_fingerprint": "f"}, "Only one side states recipe"),
        ({}, "the same: look at the machines"),
    ],
)
def test_what_is_not_stated_is_not_called_the_same(changes: dict[str, object], said: str) -> None:
    assert said in history(runs(STEP, **changes), RATE).series[0].changes[0].cause


def test_a_lower_latency_is_better_and_a_property_is_only_changed() -> None:
    points = [
        measured({"ttft_s.p50": v / 100, "window_s": v}, run=f"r{i}", at=f"2026-01-{i + 1:02}")
        for i, v in enumerate(STEP)
    ]
    assert history(points, "ttft_s.p50").series[0].changes[0].verdict == "worse"
    assert history(points, "window_s").series[0].changes[0].verdict == "changed"


def test_gaps_stay_gaps_with_their_reasons() -> None:
    """A quarantined run and one without the figure keep their places; nothing is carried over them or to a later day."""
    points = runs(STEP)
    points[2] = replace(points[2], verdict="quarantined")
    points[7] = replace(points[7], figures={})
    series = history(points, RATE).series[0]
    assert len(series.points) == 10
    assert [point.value for point in series.points if point.gap] == [None, None]
    assert "quarantined" in (series.points[2].gap or "")
    assert "not recorded" in (series.points[7].gap or "")
    assert series.points[2].segment is None
    assert series.values == 8
    assert "8 values" in (series.note or "")
    assert series.points[-1].date == "2026-01-10"


def test_one_value_a_run_the_last_attempt_and_the_copy_that_states_more() -> None:
    """Published rows come twice, once without the image: one point. A later attempt replaces an earlier one. Unlike
    values of one attempt are repeats."""
    bare = measured({RATE: 100.0}, identity=replace(IDENTITY, image=None), ref="a:0")
    full = measured({RATE: 100.0}, identity=replace(IDENTITY, image="engine:v1"), ref="b:0")
    assert bare.series_key == full.series_key
    found = history([bare, full, measured({}, ref="c:0")], RATE).series[0].points
    assert [(point.ref, point.image) for point in found] == [("b:0", "engine:v1")]
    again = measured({RATE: 90.0}, ref="d:0", attempt=2)
    assert [point.ref for point in history([full, again], RATE).series[0].points] == ["d:0"]
    repeat = measured({RATE: 101.0}, ref="e:0")
    assert [point.ref for point in history([full, repeat], RATE).series[0].points] == ["b:0", "e:0"]


def test_one_last_value_alone_is_no_change_but_is_said() -> None:
    series = history(runs([*STEP[:5], *STEP[:4], 150.0]), RATE).series[0]
    assert series.changes == ()
    assert "150" in (series.note or "")


def test_series_do_not_mix_and_the_newest_change_comes_first() -> None:
    """Another concurrency is another series; an image is not."""
    other = [
        replace(p, identity=replace(p.identity, concurrency=32), series_key="zz", ref=f"o{p.ref}")
        for p in runs(STEP[::-1])
    ]
    later = [replace(p, at_utc=p.at_utc.replace("2026-01", "2026-02")) for p in other]
    view = history([*runs(STEP, image="engine:v2"), *later], RATE)
    assert [len(series.points) for series in view.series] == [10, 10]
    assert view.series[0].key == "zz"
    assert "32" in view.series[0].label


def test_changes_of_several_series_at_once_are_one_finding() -> None:
    points = []
    for load in (4, 16, 64):
        for point in runs(STEP[::-1]):
            points.append(
                replace(
                    point,
                    identity=replace(point.identity, concurrency=load),
                    series_key=str(load),
                    ref=f"{load}{point.ref}",
                )
            )
    view = history(points, RATE)
    assert len(view.shared) == 1
    shared = view.shared[0]
    assert (len(shared.series), shared.verdict, shared.hardware) == (3, "worse", ("h100",))
    assert "3 series got worse between 2026-01-05 and 2026-01-06" in shared.text


CHANGELOG = """\
- config-keys: [dsr1-fp8-h100-sglang]
  description: ["Update SGLang image from v0.5.9 to v0.5.12"]
  pr-link: https://example.org/1
- config-keys: [dsr1-fp8-h200-sglang]
  description: ["Update SGLang image to v0.5.12"]
  pr-link: https://example.org/2
- config-keys: ["dsr1*"]
  description: ["Longer warm-up"]
  pr-link: https://example.org/3
"""


def entries() -> tuple[ChangelogEntry, ...]:
    root, problems = parse_yaml(CHANGELOG.encode(), "perf-changelog.yaml")
    found = entries_of(root, problems)
    assert not problems
    return found


def test_changelog_entries_are_joined_by_what_they_name() -> None:
    """The entry that names the new image of this configuration; that of other hardware is not meant, and one that names
    the configuration alone cannot be placed in time: it is counted."""
    identity = replace(IDENTITY, model="deepseek-r1", engine="sglang")
    before = measured({RATE: 1.0}, identity=replace(identity, image="lmsysorg/sglang:v0.5.9"))
    after = measured({RATE: 2.0}, identity=replace(identity, image="lmsysorg/sglang:v0.5.12"))
    found = matching(entries(), before, after)
    assert [(entry.number, entry.word, entry.link) for entry in found.entries] == [
        (1, "v0.5.12", "https://example.org/1")
    ]
    assert found.others == 1
    assert matching(entries(), after, after).entries == ()


@pytest.mark.parametrize(
    ("key", "named"),
    [
        ("dsr1-fp8-h100-sglang", True),
        ("dsr1-fp8-*-sglang", True),
        ("dsr1*", True),
        ("*", True),
        ("dsr1-fp4-h100-sglang", False),
        ("dsr1-fp8-h200-sglang", False),
        ("dsr1-fp8-h100-vllm", False),
        ("gptoss*", False),
        ("dsr1-fp8-h100-sglang-mtp", False),
        ("dsr1-fp8-h100-sglang-disagg", False),
    ],
)
def test_config_keys(key: str, named: bool) -> None:
    point = measured({}, identity=replace(IDENTITY, model="deepseek-r1", engine="sglang"))
    assert names_configuration(key, point) == named
    fast = measured({}, identity=replace(point.identity, speculation=Speculation("mtp")))
    assert names_configuration("dsr1-fp8-h100-sglang-mtp", fast)
    arm = measured({}, identity=replace(IDENTITY, extra={"arm": "quickstart"}))
    assert names_configuration("quick*", arm)
    assert not names_configuration("dsr1*", arm)


def test_the_order_of_the_input_does_not_matter() -> None:
    points = runs(SERIES["published_down_up"], image="engine:v2")
    assert history(points[::-1], RATE) == history(points, RATE)


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_views_are_plain_data(lang: str) -> None:
    view = history(runs(STEP, image="engine:v1.1.0"), RATE, lang=lang)
    msgspec.json.encode(msgspec.to_builtins(view))
    assert view.series[0].changes[0].text.isascii() is False
    assert ("变好" in view.series[0].changes[0].text) == (lang == "zh")


def test_nothing_and_nonsense() -> None:
    assert history([], RATE).series == ()
    assert history([replace(runs([1.0])[0], at_utc="")], RATE).series == ()
    with pytest.raises(ServemarkError):
        history([], "no.metric")


def test_without_an_address_it_is_a_figure_that_the_points_have() -> None:
    """Points without a GPU have no throughput per GPU: the history is that of the whole throughput."""
    points = [
        replace(
            measured({"total_tokens_per_s": 90.0 + day}, run=f"r{day}", at=f"2026-01-0{day}"), gpus_deployed=0
        )
        for day in (1, 2, 3)
    ]
    view = history(points, "")
    assert view.metric.address == "total_tokens_per_s"
    assert [point.value for point in view.series[0].points] == [91.0, 92.0, 93.0]
    assert history(runs(STEP), "").metric.address == RATE
