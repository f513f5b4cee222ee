"""The reference format: byte for byte what the reference generator printed for the real suite, and its rules.

Expected files were made by that generator; nothing of them is copied here.
"""

# ruff: noqa: E501 - made-up files and their expected values stand on one line each

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from servemark.catalog.arms import Arm
from servemark.catalog.changelog import additions
from servemark.catalog.clusters import Clusters, Hardware
from servemark.catalog.master import arms_of
from servemark.catalog.nodes import Position, Problem
from servemark.catalog.suite import Suite, load_suite
from servemark.catalog.yaml_nodes import parse_yaml
from servemark.plan.appended import recipe_fingerprint
from servemark.plan.reference_changelog import changelog_buckets
from servemark.plan.reference_evals import EvalMode, mark_evals
from servemark.plan.reference_rows import dram_budget_gb, reference_rows
from servemark.plan.reference_select import selected_rows
from servemark.plan.selection import Selection, parse_concurrencies

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
HERE = Position("f", 1, 1)


@pytest.mark.corpus
@pytest.mark.parametrize(
    ("name", "mode", "keys"),
    [
        ("full-sweep", "marked", ()),
        ("full-sweep-no-evals", "none", ()),
        ("full-sweep-evals-only", "only", ()),
        ("full-sweep-all-evals", "all", ()),
        ("test-config-all", "marked", ("*",)),
    ],
)
def test_rows_equal_the_reference_byte_for_byte(
    name: str, mode: EvalMode, keys: tuple[str, ...], reference_suite: Path
) -> None:
    """Rows, keys, values and order."""
    suite = load_suite(reference_suite)
    problems: list[Problem] = []
    rows = mark_evals(selected_rows(suite, Selection(keys=keys), problems), mode)
    expected = gzip.decompress((DATA / "plan-expected" / f"{name}.json.gz").read_bytes()).decode()
    assert not problems and json.dumps(rows) + "\n" == expected


@pytest.mark.corpus
def test_changelog_buckets_equal_the_reference_byte_for_byte(reference_suite: Path) -> None:
    """The change of pair 1: ten benchmark rows with fingerprints and one eval row."""
    suite = load_suite(reference_suite)
    pair = DATA / "changelog-pairs" / "1"
    base, head = (gzip.decompress((pair / f"{side}.yaml.gz").read_bytes()) for side in ("base", "head"))
    expected = (DATA / "plan-expected" / "changelog-one-entry.json").read_text(encoding="utf-8")
    metadata = json.loads(expected)["changelog_metadata"]
    entries, problems = additions(base, head, "perf-changelog.yaml")
    refs = (metadata["base_ref"], metadata["head_ref"])
    made = changelog_buckets(suite, entries, refs, problems)
    assert not problems and json.dumps(made, separators=(",", ":")) + "\n" == expected


@pytest.mark.corpus
@pytest.mark.parametrize(("number", "line"), [(2, 6247), (3, 6125), (4, 5975), (5, 5906)])
def test_one_entry_of_every_real_change_is_found(number: int, line: int, reference_suite: Path) -> None:
    """Also where it was put before the last entry (pair 4); its place is that of the first key in the head."""
    pair = DATA / "changelog-pairs" / str(number)
    base, head = (gzip.decompress((pair / f"{side}.yaml.gz").read_bytes()) for side in ("base", "head"))
    entries, problems = additions(base, head, "log")
    assert not problems and [str(entry.at) for entry in entries] == [f"log:{line}:3"]
    assert additions(head, base, "log")[1][0].key == "catalog.history_changed"
    assert additions(head, head, "log")[1][0].key == "catalog.no_additions"


ARM = """\
{key}:
  image: img
  model: org/m
  model-prefix: m
  precision: fp8
  framework: vllm
  runner: cluster:x
  multinode: {multi}
  scenarios:
"""


def arms(text: str) -> list[Arm]:
    """Arms of a made-up master without problems."""
    root, problems = parse_yaml(text.encode(), "f")
    found = arms_of(root, problems)
    assert not problems
    return list(found.values())


def cluster(mib: int, gpus: int) -> Clusters:
    """One label with hardware."""
    return Clusters({"cluster:x": ("x_0",)}, {"cluster:x": Hardware(mib, gpus, HERE)}, "runners")


def offloading(share: str, body: str, multi: str = "false") -> Arm:
    """An arm with one agentic entry that offloads."""
    text = ARM.format(key="a", multi=multi) + f"    agentic-coding:\n    - dram-utilization: {share}\n"
    text += f"      search-space:\n      - {{{body}, kv-offloading: dram, kv-offload-backend: {{name: b}}, conc-list: [1]}}\n"
    return arms(text)[0]


@pytest.mark.parametrize(
    ("mib", "gpus", "share", "body", "multi", "expected"),
    [
        # 2,964,436 MiB is cut to 2,861,022; x 0.75 x 8/8 = 2,249.999 GB
        (2_964_436, 8, "0.75", "tp: 8", "false", 2249),
        # 860,160 MiB x 2^20 x 0.1664 / 10^9 = 150.08
        (860_160, 4, "0.1664", "P", "true", 150),
        (860_160, 4, "0.1775", "P", "true", 160),
        (3_977_095, 8, "0.063", "tp: 8", "false", 188),
        (2_964_436, 8, "0.75", "tp: 2", "false", 562),
    ],
)
def test_dram_budget_by_hand(  # noqa: PLR0917 - one row of the table above
    mib: int, gpus: int, share: str, body: str, multi: str, expected: int
) -> None:
    """Decimal arithmetic, the cap before the share, only the prefill worker's GPUs of a node."""
    block = "{num-worker: 3, tp: 8, ep: 1, dp-attn: false}"
    body = body.replace("P", f"prefill: {block}, decode: {block}")
    arm = offloading(share, body, multi)
    problems: list[Problem] = []
    assert dram_budget_gb(arm, arm.entries[0], cluster(mib, gpus), problems) == expected and not problems


@pytest.mark.parametrize(
    ("clusters", "body", "key"),
    [
        (Clusters({}, {}, None), "tp: 8", "plan.no_hardware"),
        (cluster(10**6, 8), "tp: 16", "plan.gpus_do_not_fit"),
    ],
)
def test_a_budget_that_cannot_be_had_is_a_problem(clusters: Clusters, body: str, key: str) -> None:
    """And the entry has no row."""
    problems: list[Problem] = []
    assert reference_rows([offloading("0.5", body)], clusters, problems) == []
    assert [problem.key for problem in problems] == [key]


def test_filters_only_leave_out() -> None:
    """No concurrency appears that the arm does not list; a list keeps what passes."""
    text = (
        ARM.format(key="a", multi="true")
        + "    fixed-seq-len:\n    - isl: 1024\n      osl: 1024\n      search-space:\n"
    )
    block = "{num-worker: 1, tp: 1, ep: 1, dp-attn: false}"
    text += f"      - {{conc-list: [90, 6, 15], prefill: {block}, decode: {block}}}\n"
    suite = Suite("s", Path("/none"), (), (), {arm.key: arm for arm in arms(text)})
    rows = selected_rows(suite, Selection(concurrencies=parse_concurrencies("-16")), [])
    assert [row["conc"] for row in rows] == [[6, 15]]
    assert selected_rows(suite, Selection(concurrencies=parse_concurrencies("3")), []) == []


def test_fingerprint_ignores_concurrency_and_name() -> None:
    """SHA-256 of sorted compact JSON; the value was computed with sha256sum."""
    row = {"b": 1, "a": "é", "conc": 4, "exp-name": "x"}
    # printf '{"a":"\\u00e9","b":1}' | sha256sum
    assert recipe_fingerprint(row) == "6d9eb45284090145dc16661b06abe01185a16a7dabba07c992a131bffa6b8114"
    assert recipe_fingerprint(row) == recipe_fingerprint(row | {"conc": 8, "exp-name": "y"})


def write_log(*entries: str) -> bytes:
    """A changelog."""
    return "\n".join(f"- config-keys: [{entry}" for entry in entries).encode()


def test_entries_of_a_change_by_hand() -> None:
    """all-evals first, arms once, wildcard and unknown keys, evals-only, scenario filter."""
    space = (
        "    fixed-seq-len:\n    - {isl: 8192, osl: 1024, search-space: [{tp: 1, conc-list: [16, 32, 64]}]}\n"
    )
    master = "".join(ARM.format(key=key, multi="false") + space for key in ("a1", "a2", "b"))
    suite = Suite("s", Path("/none"), (), (), {arm.key: arm for arm in arms(master)})
    base = write_log("b]\n  description: [x]\n  pr-link: y\n")
    new = (
        "a1]\n  description: [x]\n  pr-link: y\n",
        "'a*']\n  description: [x]\n  pr-link: y\n  all-evals: true\n",
        "zz, b]\n  description: [x]\n  pr-link: y\n  evals-only: true\n",
    )
    entries, problems = additions(base, base + b"\n" + write_log(*new), "log")
    assert len(entries) == 3 and not problems
    made = changelog_buckets(suite, entries, ("x", "y"), problems)
    runs = made["single_node"]
    assert isinstance(runs, dict) and [row["conc"] for row in runs["8k1k"]] == [16, 32, 64]
    evals = made["evals"]
    # all-evals: 2 arms x 3 points; b: highest and median of 16, 32, 64
    assert isinstance(evals, list) and [row["conc"] for row in evals] == [16, 32, 64, 16, 32, 64, 32, 64]
    assert [problem.key for problem in problems] == ["plan.changelog_key"]


def test_append_only_by_hand() -> None:
    """Only new points run; a lost point, an image that changed and an unknown base are problems."""

    def suite(image: str, concurrencies: str) -> Suite:
        text = ARM.format(key="a", multi="false").replace("img", image)
        text += f"    fixed-seq-len:\n    - {{isl: 1024, osl: 1024, search-space: [{{tp: 1, conc-list: [{concurrencies}]}}]}}\n"
        return Suite("s", Path("/none"), (), (), {arm.key: arm for arm in arms(text)})

    log = write_log("a]\n  description: [x]\n  pr-link: y\n  append-only: true\n")
    entries, problems = additions(b"", log, "log")
    assert not problems
    made = changelog_buckets(suite("i", "1, 2, 4"), entries, ("x", "y"), problems, suite("i", "1, 2"))
    runs = made["single_node"]
    assert isinstance(runs, dict) and [row["conc"] for row in runs["1k1k"]] == [4] and not problems
    for head, base, keys in (
        (suite("i", "1, 4"), suite("i", "1, 2"), ["plan.append_lost"]),
        (suite("i", "1"), suite("i", "1"), ["plan.append_nothing"]),
        (suite("j", "1, 4"), suite("i", "1"), ["plan.append_lost", "plan.append_series"]),
        (suite("i", "1"), None, ["plan.append_needs_base"]),
    ):
        found: list[Problem] = []
        changelog_buckets(head, entries, ("x", "y"), found, base)
        assert sorted({problem.key for problem in found}) == keys
