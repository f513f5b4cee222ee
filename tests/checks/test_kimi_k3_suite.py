"""The shipped Kimi-K3 suite: its figures worked out by hand, every mishap of its kind put back and found, its twin held
to the listed differences."""

from __future__ import annotations

import fnmatch
import shutil
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.catalog.layout import shipped_suites
from servemark.catalog.nodes import Node
from servemark.catalog.suite import load_suite
from servemark.catalog.yaml_nodes import read_yaml
from servemark.checks.check import check_suite
from servemark.checks.host_memory import recorded_gb, taken_by
from servemark.plan.strict import Wishes, plan_suite
from servemark.preflight.needs import needs_of
from servemark.runs.request import RunOptions, prepare
from servemark.runs.scenario import planned_scenario

ROOT = shipped_suites()["kimi-k3-b300"]
BIG, TWIN = "recipes/kimi-k3/vllm/b300/disagg-1p1d-c48.yaml", "twin.yaml"
GROUPS = ("changed", "big only", "twin only")


def test_figures_of_host_memory() -> None:
    """Budget, allocation, capacity and pages of every arm. By hand: floor(2,861,022 x 2^20 x 0.56 / 10^9) = 1,679;
    8 x 194 x 2^30 = 1,666,447,310,848; 8 x 190 x 2^30; 8 x (97,280 + 2,048) = 794,624 and 7 % more, rounded up."""
    suite = load_suite("kimi-k3-b300")
    big = [arm for arm in suite.arms.values() if arm.runner == "cluster:b300-dsxe"]
    assert len(big) == 3
    for arm in big:
        (entry,) = arm.entries
        hardware, deployment = suite.clusters.hardware[arm.runner], suite.deployment(arm, entry)
        assert hardware.available_cpu_dram_mib == 3_977_095
        assert recorded_gb(arm, entry, hardware) == 1_679
        for role in deployment.roles:
            taken = taken_by(deployment, role)
            assert taken is not None and taken.allocated(8) == 1_666_447_310_848
            assert taken.capacity(8) == 1_520 * 2**30
        store = needs_of(deployment, arm=arm.key).store
        assert store is not None and (store.huge, store.pages, store.reserve_pages) == (
            "hugetlb",
            794_624,
            850_248,
        )
    counts = [
        {role.role: role.workers for role in suite.deployment(arm, arm.entries[0]).roles} for arm in big
    ]
    assert counts == [{"aggregated": 1}, {"prefill": 1, "decode": 1}, {"prefill": 1, "decode": 3}]


MASTER = "configs/b300-master.yaml"
MISHAPS = {
    "router of another revision": (
        MASTER, "version: cfada2fd9d17bfa6bb68dbee9d2f455e12577b8b",
        "version: ba83080ecd31c1ce918559e576d3c5bc9e092ff1", "IDN111",
    ),
    "budget that nobody allocates": (MASTER, "utilization: 0.56", "utilization: 0.75", "MEM301"),
    "one rank taken for the node": (MASTER, "utilization: 0.56", "utilization: 0.063", "MEM301"),
    "acceptance of the greedy draft": (MASTER, "LENGTH=3.36", "LENGTH=3.22", "SPC601"),
    "link that no check accepts": ("changelog.yaml", "pr-link: XXX", "pr-link: PRLINK_PLACEHOLDER", "CHG419"),
    "image spelled another way": (BIG, "container: ghcr.io#", "container: ghcr.io/", "IDN102"),
    "pages without headroom": (BIG, "nr_hugepages=850248", "nr_hugepages=800000", "MEM311"),
    "pages of decimal gigabytes": (BIG, "nr_hugepages=850248", "nr_hugepages=740052", "MEM311"),
    "pages left to the C library": (
        BIG, "MC_STORE_USE_HUGEPAGE: '1'", "GLIBC_TUNABLES: glibc.malloc.hugetlb=1", "MEM304",
    ),
    "no huge pages": (BIG, "MC_STORE_USE_HUGEPAGE: '1'", "MC_SLICES: '1'", "MEM310"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISHAPS)
def test_mishaps_are_found(name: str, tmp_path: Path) -> None:
    """Each is put into the clean suite alone."""
    file, right, wrong, code = MISHAPS[name]
    copy = tmp_path / "kimi"
    shutil.copytree(ROOT, copy)
    text = (copy / file).read_text(encoding="utf-8")
    assert right in text
    (copy / file).write_text(text.replace(right, wrong), encoding="utf-8")
    found = [finding.code for finding in check_suite(str(copy)).findings]
    assert code in found, found


def test_every_arm_runs_as_it_is_planned_and_is_scored_without_forced_acceptance() -> None:
    """What `check` passes and `plan` marks, `run` does, without any option: same ids, tasks on a second start whose drafts
    are verified as the recipe says (block), and every role of the points forced to the golden 3.36."""
    suite = load_suite("kimi-k3-b300")
    wishes = Wishes(scenario_of=lambda entry, deployment: planned_scenario(suite, entry, deployment))
    rows = [row for row in plan_suite(suite, wishes).rows if row.arm.runner == "cluster:b300-dsxe"]
    assert len(rows) == 3
    for row in rows:
        asked = prepare(f"kimi-k3-b300:{row.selector}", RunOptions())
        assert asked.points[0].identity.point_id == row.identity.point_id
        assert asked.scored is not None and asked.not_scored is None
        assert [task.id for task in asked.tasks] == ["basics"]
        assert row.plain()["eval_start"] is True
        for role, verified in zip(
            asked.choice.deployment.roles, asked.scored.choice.deployment.roles, strict=True
        ):
            config, real = role.flag("speculative-config"), verified.flag("speculative-config")
            assert isinstance(config, dict) and isinstance(real, dict)
            assert (config["rejection_sample_method"], config["synthetic_acceptance_length"]) == (
                "synthetic",
                3.36,
            )
            assert real == {
                **{key: value for key, value in config.items() if key != "synthetic_acceptance_length"},
                "rejection_sample_method": "block",
            }


def test_a_recipe_for_evals_that_is_not_there_is_found_before_the_run(tmp_path: Path) -> None:
    """`check` calls it an error where the run would refuse; without evals that run, it is a note."""
    copy = tmp_path / "kimi"
    shutil.copytree(ROOT, copy)
    text = (copy / MASTER).read_text(encoding="utf-8")
    more = "SYNTHETIC_ACCEPTANCE=true\n          - EVAL_CONFIG_FILE=recipes/none.yaml"
    (copy / MASTER).write_text(text.replace("SYNTHETIC_ACCEPTANCE=true", more), encoding="utf-8")
    found = [one.severity for one in check_suite(str(copy)).findings if one.code == "SPC608"]
    assert found == ["error"] * 3
    selector = f"{copy}:kimik3-fp4-b300-dynamo-vllm-agentic-dspark-mooncake-dcp8-agg"
    with pytest.raises(ServemarkError) as caught:
        prepare(selector, RunOptions())
    assert (caught.value.key, caught.value.exit_code) == ("plan.no_eval_recipe", 2)
    assert prepare(selector, RunOptions(evals=False)).scored is None


def test_a_length_that_the_engine_cannot_be_told_is_refused(tmp_path: Path) -> None:
    """No row says that a length was forced where none was; `check` has an error for it too."""
    copy = tmp_path / "kimi"
    shutil.copytree(ROOT, copy)
    text = (copy / MASTER).read_text(encoding="utf-8")
    (copy / MASTER).write_text(text.replace("_LENGTH=3.36", "_LENGTH=golden"), encoding="utf-8")
    with pytest.raises(ServemarkError) as caught:
        prepare(f"{copy}:kimik3-fp4-b300-dynamo-vllm-agentic-dspark-mooncake-dcp8-agg", RunOptions())
    assert (caught.value.key, caught.value.exit_code) == ("plan.forces_nothing", 2)
    assert "SPC607" in [one.code for one in check_suite(str(copy)).findings if one.severity == "error"]


def leaves(node: Node, path: str = "") -> dict[str, object]:
    """A tree's values by dotted path; items of a list that have names are told by them."""
    found: dict[str, object] = {}
    if node.entries is not None:
        for key, value in node.entries.items():
            found |= leaves(value, f"{path}.{key}" if path else key)
        return found
    if node.items and all(item.entries is not None and "name" in item.entries for item in node.items):
        for item in node.items:
            name = (item.entries or {})["name"].scalar
            found |= leaves(item, f"{path}.{name}")
        return found
    return {path: node.plain()}


def listed() -> dict[str, list[str]]:
    """The suite's own list: group -> paths, where `*` stands for both roles."""
    groups: dict[str, list[str]] = {}
    for line in (ROOT / "twin-differences.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            if line.endswith(":"):
                groups[line[:-1]] = []
            else:
                groups[list(groups)[-1]].append(line)
    return groups


def test_twin_differs_in_what_is_listed() -> None:
    """No line more, and no line of the list is stale."""
    big, twin = (leaves(read_yaml(ROOT / file, file)[0]) for file in (BIG, TWIN))
    differ = {
        "changed": [path for path in big if path in twin and big[path] != twin[path]],
        "big only": [path for path in big if path not in twin],
        "twin only": [path for path in twin if path not in big],
    }
    groups = listed()
    assert tuple(groups) == GROUPS
    for group, paths in differ.items():
        unlisted = [path for path in paths if not any(fnmatch.fnmatchcase(path, p) for p in groups[group])]
        stale = [p for p in groups[group] if not fnmatch.filter(paths, p)]
        assert not unlisted and not stale, (group, unlisted, stale)
    order = list(dict.fromkeys(path.partition(".")[0] for path in big))
    assert [top for top in order if top in {p.partition(".")[0] for p in twin}] == list(
        dict.fromkeys(path.partition(".")[0] for path in twin)
    )
