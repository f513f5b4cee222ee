"""servemark's own plan: ids, duplicates, names, clusters, canaries, evals, order, summary; by hand and on the real suite."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.base.canonical import content_hash
from servemark.base.errors import ServemarkError
from servemark.catalog.clusters import Clusters
from servemark.catalog.master import arms_of
from servemark.catalog.nodes import Problem
from servemark.catalog.priorities import priorities_of
from servemark.catalog.selector import parse_selector
from servemark.catalog.suite import Suite, load_suite
from servemark.catalog.yaml_nodes import parse_yaml
from servemark.plan.points import choose, points
from servemark.plan.selection import Selection, parse_concurrencies
from servemark.plan.strict import Plan, Wishes, plan_suite
from servemark.plan.summary import summarize
from servemark.plan.validate import validated

MASTER = """\
{key}:
  image: img
  model: org/m
  model-prefix: {prefix}
  precision: {precision}
  framework: vllm
  runner: {runner}
  multinode: {multi}
  scenarios:
"""
FIXED = "    fixed-seq-len:\n    - {isl: 8192, osl: 1024, search-space: [%s]}\n"
AGENTIC = "    agentic-coding:\n    - {search-space: [%s]}\n"
BLOCKS = "prefill: {num-worker: 1, tp: 4, ep: 1, dp-attn: false}, decode: {num-worker: 2, tp: 8, ep: 1, dp-attn: false}"


def arm(
    key: str,
    space: str,
    *,
    runner: str = "cluster:x",
    multi: str = "false",
    prefix: str = "m",
    precision: str = "fp8",
) -> str:
    """One arm's text."""
    return MASTER.format(key=key, prefix=prefix, precision=precision, runner=runner, multi=multi) + space


def suite(*texts: str) -> Suite:
    """A suite of made-up arms with one known label."""
    root, problems = parse_yaml("".join(texts).encode(), "f")
    arms = arms_of(root, problems)
    assert not problems, problems
    return Suite(
        "s", Path("/none"), (), (), arms, Clusters({"cluster:x": ("x_0",), "pool-9": ("x_1",)}, {}, "runners")
    )


def plan(found: Suite, **wishes: object) -> Plan:
    """A plan with these wishes."""
    return plan_suite(found, Wishes(**wishes))  # type: ignore[arg-type]


def test_exact_duplicates_run_once_and_are_reported() -> None:
    """Two arms that state the same work: the second's point is left out, with both places."""
    made = plan(
        suite(
            arm("a", FIXED % "{tp: 8, conc-list: [16, 32]}"), arm("b", FIXED % "{tp: 8, conc-list: [32, 64]}")
        ),
        canary=False,
    )
    assert [row.selector for row in made.rows] == ["a/agg1xtp8@16", "a/agg1xtp8@32", "b/agg1xtp8@64"]
    (removed,) = made.removed
    assert (removed.row.selector, removed.kept.selector) == ("b/agg1xtp8@32", "a/agg1xtp8@32")
    assert [(str(p.at), p.key, p.severity) for p in made.problems] == [
        ("f:22:45", "plan.duplicate", "warning")
    ]


def test_names_and_ids_are_distinct() -> None:
    """Two arms that differ in image only share the reference's name (m_8k1k); the plan's names do not collide."""
    made = plan(
        suite(
            arm("a", FIXED % "{tp: 8, conc-list: [16]}"),
            arm("b", FIXED % "{tp: 8, conc-list: [16]}").replace("img", "img2"),
        ),
        canary=False,
    )
    names = [row.name for row in made.rows]
    assert names == ["a_agg1xtp8_c16", "b_agg1xtp8_c16"]
    assert len(set(names)) == len({row.identity.point_id for row in made.rows}) == 2


def test_series_ids_do_not_follow_the_image_and_point_ids_do() -> None:
    """History goes on over an image bump; what exactly ran does not."""
    old = plan(suite(arm("a", FIXED % "{tp: 8, conc-list: [16]}"))).rows[0]
    new = plan(suite(arm("a", FIXED % "{tp: 8, conc-list: [16]}").replace("img", "img2"))).rows[0]
    assert old.identity.series_id == new.identity.series_id
    assert old.identity.point_id != new.identity.point_id


def test_ids_are_hashes_of_what_they_say() -> None:
    """The fast path over several concurrencies gives the hash of each canonical value."""
    for row in plan(suite(arm("a", FIXED % "{tp: 8, conc-list: [16, 32, 0x40]}"))).rows:
        assert row.identity.point_id == content_hash(row.identity.canonical, 16)
        assert row.identity.canonical["concurrency"] == row.concurrency


def test_an_unknown_cluster_is_an_error_with_the_nearest_label() -> None:
    """Its arms have no rows; `x` is most likely `cluster:x`, `pool-8` is like `pool-9`."""
    made = plan(
        suite(
            arm("a", FIXED % "{tp: 8, conc-list: [1]}", runner="x"),
            arm("b", FIXED % "{tp: 8, conc-list: [1]}", runner="pool-8"),
            arm("c", FIXED % "{tp: 8, conc-list: [1]}", runner="nothing-like-it"),
        )
    )
    assert not made.rows
    assert [(str(p.at), p.key, p.values["near"]) for p in made.problems] == [
        ("f:7:11", "plan.unknown_cluster_near", "cluster:x"),
        ("f:18:11", "plan.unknown_cluster_near", "pool-9"),
        ("f:29:11", "plan.unknown_cluster", None),
    ]


KINDS = (
    arm("fs", FIXED % "{tp: 8, conc-list: [32, 16]}, {tp: 2, conc-list: [64, 32]}"),
    arm("fm", FIXED % f"{{conc-list: [16, 128], {BLOCKS}}}", multi="true"),
    arm("as", AGENTIC % "{tp: 8, kv-offloading: none, conc-list: [4, 2]}", precision="fp4"),
    arm("am", AGENTIC % f"{{conc-list: [48, 8], {BLOCKS}}}", multi="true", prefix="k"),
)


def test_every_kind_of_arm_has_a_canary() -> None:
    """The cheapest point of each kind goes first: fewest GPUs, then lowest concurrency."""
    made = plan(suite(*KINDS))
    assert [row.selector for row in made.rows[:4]] == [
        "fs/agg1xtp2@32",
        "fm/1p2d-tp4-tp8@16",
        "as/agg1xtp8@2",
        "am/1p2d-tp4-tp8@8",
    ]
    assert [row.canary for row in made.rows] == [True] * 4 + [False] * 6
    assert (
        made.rows[0].why[-1].said("en")
        == "canary: the cheapest point of its kind (fixed-sequence on one node)"
    )
    assert len(made.rows) == 10 and not any(row.canary for row in plan(suite(*KINDS), canary=False).rows)


def test_evals_by_the_reference_policy() -> None:
    """Highest and median for single-node, highest for multi-node fixed; agentic only when asked for."""

    def chosen(mode: str) -> list[str]:
        return [row.selector for row in plan(suite(*KINDS), evals=mode, canary=False).rows if row.eval]

    # fixed single: 16, 32, 64 in one group: highest 64, median 32 at both topologies
    fixed = ["fs/agg1xtp8@32", "fs/agg1xtp2@64", "fs/agg1xtp2@32", "fm/1p2d-tp4-tp8@128"]
    assert chosen("none") == []
    assert chosen("marked") == fixed
    assert chosen("only") == [*fixed, "as/agg1xtp8@4", "am/1p2d-tp4-tp8@48"]
    assert len(chosen("all")) == 4 + 2 + 2 + 1
    assert all(row.eval_only for row in plan(suite(*KINDS), evals="only").rows)


def test_priorities_order_the_work() -> None:
    """1 + 1.25 multi-node + 1 agentic + 0.75 fp4 + 1.5 for prefix k."""
    root, problems = parse_yaml(
        b"version: 1\nbase-score: 1\nadjustments: {multi-node: 1.25, agentic: 1, precision: {fp4: 0.75},"
        b" model-prefix: {k: 1.5}, framework-prefix: {vl: 0.5, v: 9}}\n",
        "p",
    )
    scores = priorities_of(root, problems)
    made = plan(suite(*KINDS), priorities=scores, canary=False)
    assert not problems
    assert [(row.arm.key, row.priority) for row in made.rows][::2] == [
        ("am", 5.25), ("as", 3.25), ("fm", 2.75), ("fs", 1.5), ("fs", 1.5),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("selection", "arms"),
    [
        (Selection(keys=("fs",)), {"fs"}),
        (Selection(keys=("a?", "fm")), {"as", "am", "fm"}),
        (Selection(models=("k",)), {"am"}),
        (Selection(precisions=("fp4",)), {"as"}),
        (Selection(scenarios=("agentic-coding",)), {"as", "am"}),
        (Selection(scenarios=("8k1k",)), {"fs", "fm"}),
        (Selection(topologies=("multi",)), {"fm", "am"}),
        (Selection(topologies=("disagg",)), {"fm", "am"}),
        (Selection(topologies=("agg1xtp2",)), {"fs"}),
        (Selection(concurrencies=parse_concurrencies("2,100-")), {"as", "fm"}),
        (Selection(concurrencies=parse_concurrencies("3")), set()),
        (Selection(clusters=("cluster:*",), frameworks=("vllm",)), {"fs", "fm", "as", "am"}),
    ],
)
def test_filters_leave_out_and_invent_nothing(selection: Selection, arms: set[str]) -> None:
    """Each filter by itself; every concurrency is one that its arm lists."""
    made = plan(suite(*KINDS), selection=selection)
    assert {row.arm.key for row in made.rows} == arms
    assert all(row.concurrency in row.entry.concurrencies for row in made.rows)


@pytest.mark.parametrize(
    "field", ["keys", "models", "precisions", "frameworks", "clusters", "scenarios", "topologies"]
)
def test_a_filter_value_that_nothing_has_is_an_error(field: str) -> None:
    """A mistyped name must not look like an empty plan."""
    with pytest.raises(ServemarkError) as caught:
        plan(suite(*KINDS), selection=Selection(**{field: ("zzz*",)}))  # type: ignore[arg-type]
    assert caught.value.key == "plan.no_match" and caught.value.exit_code == 2
    with pytest.raises(ServemarkError):
        parse_concurrencies("8-4")


def test_summary_by_hand() -> None:
    """GPU-hours: points x GPUs x (1 h agentic, 1/4 h fixed), and 1/4 h for each start."""
    summary = summarize(plan(suite(*KINDS)))
    total = summary.total
    # starts: fs 4 points (8, 8, 2, 2 GPUs), fm once (20 GPUs for both points), as 2 x 8, am 2 x 20
    run = (8 + 8 + 2 + 2) * 0.25 + 2 * 20 * 0.25 + 2 * 8 * 1 + 2 * 20 * 1
    start = 0.25 * ((8 + 8 + 2 + 2) + 20 + 2 * 8 + 2 * 20)
    assert (total.points, total.arms, total.deployments, total.largest_gpus) == (10, 4, 9, 20)
    assert total.gpu_hours == pytest.approx(run + start)
    assert total.largest_nodes == 1  # single-node arms; the others' nodes are not stated anywhere
    assert summary.kinds == {"fixed-single": 4, "fixed-multi": 2, "agentic-single": 2, "agentic-multi": 2}
    assert summary.recipes == {"none": 10} and json.dumps(summary.plain())


def test_rows_are_validated_at_the_very_end() -> None:
    """A concurrency that nobody lists, an id given twice, an eval without a reason: left out and named."""
    found = suite(*KINDS)
    good = list(plan(found, canary=False).rows)
    bad = [
        replace(good[0], concurrency=3),
        good[1],
        replace(good[2], eval_only=True, eval=()),
        replace(good[3], why=(), gpus=-1),
    ]
    problems: list[Problem] = []
    assert validated([*good, *bad], found.clusters, problems) == good
    assert [str(problem.values["faults"]) for problem in problems] == [
        "concurrency, point_id, point_id, series_id, name",
        "point_id, series_id, selector, name",
        "eval_only, point_id, series_id, selector, name",
        "gpus, why, point_id, series_id, selector, name",
    ]


def test_run_and_plan_agree_on_a_point() -> None:
    """The same scenario gives the same ids through `choose` and through a plan."""
    scenario: dict[str, object] = {"type": "agentic-coding", "dataset": "d"}
    found = load_suite("quickstart")
    made = plan(found, scenario_of=lambda entry, deployment: scenario, canary=False)
    chosen = points(choose(parse_selector("quickstart@1,4")), scenario)
    ids = {row.concurrency: row.identity for row in made.rows}
    assert [point.identity for point in chosen] == [ids[1], ids[4]]


def test_a_selector_finds_every_topology() -> None:
    """What a plan prints can be given to `run`; a wrong topology names the nearest."""
    found = load_suite("quickstart")
    row = plan(found).rows[0]
    assert choose(parse_selector(f"quickstart:{row.selector}")).entry == row.entry
    with pytest.raises(ServemarkError) as caught:
        choose(parse_selector("quickstart:quickstart/agg1xtp2"))
    assert caught.value.key == "catalog.no_topology_near"


@pytest.mark.corpus
def test_the_real_suite_strictly(reference_suite: Path) -> None:
    """What the strict plan says differently from the reference's 1,820 rows, counted."""
    found = load_suite(reference_suite)
    made = plan(found)
    assert len(made.rows) == 2002 and len(made.removed) == 6
    keys = Counter((problem.key, problem.severity) for problem in made.problems)
    assert keys == {
        ("plan.unknown_cluster_near", "error"): 8,
        ("plan.duplicate", "warning"): 6,
        ("catalog.duplicate_key", "error"): 2,
    }
    for values in (
        [row.name for row in made.rows],
        [row.selector for row in made.rows],
        [row.identity.point_id for row in made.rows],
        [row.identity.series_id for row in made.rows],
    ):
        assert len(set(values)) == 2002
    assert all(row.concurrency in row.entry.concurrencies and row.gpus > 0 for row in made.rows)
    assert all(row.arm.runner in found.clusters.labels for row in made.rows)
    assert {row.counted_kind for row in made.rows if row.canary} == {row.counted_kind for row in made.rows}
    # GPUs come from the recipe where it is read; at 25 points of 4 arms the master's own numbers differ.
    read = [row for row in made.rows if row.recipe.deployment is not None]
    stated = [sum(b.num_worker * b.gpus for b in (r.entry.prefill, r.entry.decode)) for r in read]
    apart = [row.arm.key for row, gpus in zip(read, stated, strict=True) if row.gpus != gpus]
    assert (len(read), len(apart), len(set(apart))) == (438, 25, 4)
    json.dumps([row.plain() for row in made.rows], allow_nan=False)
