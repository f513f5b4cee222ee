"""The page of a change, read from a real git repository; expected figures are worked out in each test."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.authoring.conftest import commit, edit, git

from servemark.authoring.blocks import Block, Bullets, Heading, Paragraph, Table, html_page, markdown_lines
from servemark.authoring.review import Review, reviewed
from servemark.authoring.settings import group_of
from servemark.authoring.snapshot import range_of, snapshots
from servemark.base.errors import ServemarkError
from servemark.cli.main import run_cli

NEW_ARM = """\
new:
  image: img:2
  model: Qwen/Qwen3-8B
  model-prefix: qwen3
  precision: bf16
  framework: vllm
  runner: cluster:x
  multinode: true
  disagg: false
  scenarios:
    agentic-coding:
    - search-space:
      - kv-offloading: none
        conc-list: [8]
        prefill: {num-worker: 1, tp: 2, ep: 1, dp-attn: false, additional-settings: ["CONFIG_FILE=recipes/new.yaml"]}
        decode: {num-worker: 0, tp: 1, ep: 1, dp-attn: false}
"""


def read(root: Path, commits: str = "main...topic") -> Review:
    with snapshots(root, range_of(commits)) as (base, head):
        return reviewed(base, head)


def page(root: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, str, str]:
    code = run_cli(["review", "main...topic", "--suite", str(root), "--home", str(root / "home"), *more])
    out = capsys.readouterr()
    return code, out.out, out.err


@pytest.fixture
def edited(suite: Path) -> Path:
    """One arm changed in its master and its recipe, one removed, one added."""
    master = suite / "configs" / "x-master.yaml"
    said = master.read_text()
    master.write_text(said[: said.index("gone:")] + NEW_ARM)
    edit(master, "conc-list: [1, 2]", "conc-list: [1, 2, 4]")
    recipe = suite / "recipes" / "one.yaml"
    (suite / "recipes" / "new.yaml").write_text(
        recipe.read_text().replace("name: one", "name: new").replace("gpus: 1", "gpus: 2")
        .replace("tensor-parallel-size: 1", "tensor-parallel-size: 2").replace("img:1", "img:2")
    )  # fmt: skip
    edit(recipe, "kv-cache-dtype: auto, max-num-seqs: 64", "kv-cache-dtype: fp8, max-num-seqs: 128")
    commit(suite, "two")
    return suite


def test_arms_by_kind_with_their_fields_and_settings(edited: Path) -> None:
    review = read(edited)
    assert [(one.kind, one.key) for one in review.arms] == [
        ("added", "new"),
        ("changed", "one"),
        ("removed", "gone"),
    ]
    (changed,) = review.of_kind("changed")
    assert [(one.name, one.before, one.after) for one in changed.fields] == [
        ("concurrencies", "1, 2", "1, 2, 4")
    ]
    (recipe,) = changed.recipes
    assert [(one.name, one.group, one.before, one.after) for one in recipe.settings] == [
        ("aggregated.args.kv-cache-dtype", "kv_dtype", "auto", "fp8"),
        ("aggregated.args.max-num-seqs", "tuning", "64", "128"),
    ]


def test_points_and_gpu_hours_by_hand(edited: Path) -> None:
    """Base: two agentic points on 1 GPU, 1 h each and a start of 0.25 h: 2 x 1.25 = 2.5; one fixed point on 4 GPUs,
    (0.25 + 0.25) x 4 = 2. Head: three on 1 GPU, 3.75; one on 2 GPUs, 2.5. The recipe changed: all four run anew."""
    delta = read(edited).plan
    assert delta.before is not None
    assert (delta.before.total.points, delta.before.total.gpu_hours) == (3, 4.5)
    assert (delta.after.total.points, delta.after.total.gpu_hours) == (4, 6.25)
    assert (delta.anew.total.points, delta.anew.total.gpu_hours, delta.dropped) == (4, 6.25, 3)
    assert delta.clusters == ("cluster:x", "cluster:y")


def test_nothing_changed_but_a_comment(suite: Path) -> None:
    edit(suite / "configs" / "x-master.yaml", "# two arms", "# some arms")
    commit(suite, "comment")
    review = read(suite)
    assert review.arms == () and review.plan.anew.total.points == 0 and review.plan.dropped == 0
    assert review.files.changed == ("configs/x-master.yaml",)
    assert review.findings.new == () and review.findings.fixed == ()


def test_findings_new_and_fixed_though_lines_moved(suite: Path) -> None:
    """A recipe that is not there is one error; comment lines above it move it, and do not make it new."""
    edit(suite / "configs" / "x-master.yaml", "runner: cluster:y", "runner: cluster:z")
    commit(suite, "wrong cluster")
    first = read(suite)
    wrong = [one for one in first.findings.new if one.severity == "error"]
    assert wrong
    git(suite, "checkout", "-qb", "more")
    edit(suite / "configs" / "x-master.yaml", "# two arms", "# some\n# arms")
    commit(suite, "comment")
    second = read(suite, "topic..more")
    assert second.findings.new == () and second.findings.fixed == () and second.findings.kept >= len(wrong)
    back = read(suite, "topic..main")
    assert {one.code for one in wrong} <= {one.code for one in back.findings.fixed}


def test_three_dots_leave_out_what_main_did_since(edited: Path) -> None:
    git(edited, "checkout", "-q", "main")
    edit(edited / "configs" / "x-master.yaml", "conc-list: [4]", "conc-list: [4, 8]")
    commit(edited, "main goes on")
    assert {one.key for one in read(edited, "main...topic").arms} == {"one", "new", "gone"}
    assert read(edited, "main...main").arms == ()


def test_a_link_is_a_changed_file_and_is_not_followed(suite: Path) -> None:
    (suite / "recipes" / "link.yaml").symlink_to("/etc/passwd")
    (suite / "perf-changelog.yaml").chmod(0o755)
    commit(suite, "link")
    review = read(suite)
    assert review.files.changed == ("perf-changelog.yaml", "recipes/link.yaml") and review.arms == ()


def test_the_working_tree_is_not_read(edited: Path) -> None:
    (edited / "configs" / "x-master.yaml").write_text("broken: [")
    assert len(read(edited).arms) == 3


@pytest.mark.parametrize(
    "commits", ["main", "..", "main..", "a..b..c", "--output=x..HEAD", "main..nothing", "main..-x"]
)
def test_a_bad_range_is_one_line(suite: Path, capsys: pytest.CaptureFixture[str], commits: str) -> None:
    """Nothing of it reaches git as an option."""
    assert run_cli(["review", "page", "--suite", str(suite), "--", commits]) == 2
    out = capsys.readouterr()
    assert "Traceback" not in out.err and not (suite / "x..HEAD").exists() and not (suite / "x").exists()


def test_no_common_commit(suite: Path) -> None:
    git(suite, "checkout", "-q", "--orphan", "other")
    commit(suite, "alone")
    with pytest.raises(ServemarkError) as caught:
        read(suite, "main...other")
    assert caught.value.key == "plan.git_no_base"
    assert read(suite, "main..other").arms == ()


def test_a_suite_that_is_new(suite: Path) -> None:
    """At a base without it every arm is added, and there is no figure from before."""
    git(suite, "checkout", "-q", "--orphan", "empty")
    git(suite, "rm", "-rqf", "--cached", ":/")
    git(suite, "commit", "-qm", "empty", "--allow-empty")
    review = read(suite, "empty..main")
    assert [one.kind for one in review.arms] == ["added", "added"] and review.plan.before is None


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_the_page_and_its_exit_code(edited: Path, capsys: pytest.CaptureFixture[str], lang: str) -> None:
    """The changelog names neither arm: an item fails, and so does the command."""
    code, out, err = page(edited, capsys, "--lang", lang)
    assert code == 1 and err == ""
    assert "3 → 4" in out and "4.50 → 6.25" in out and "kv-cache-dtype" in out and "auto" in out
    assert ("## Arms" in out) == (lang == "en") and "authoring." not in out
    lines = out.splitlines()
    assert any(line.startswith("- [ ] entries:") for line in lines)
    assert any(line.startswith("- [x] history-kept:") for line in lines)


def test_both_languages_and_machines(edited: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = page(edited, capsys, "--lang", "both")
    assert "## Arms" in out and "## 计划" in out
    _, out, _ = page(edited, capsys, "--json")
    body = json.loads(out)
    assert body["plan"]["anew"]["total"]["gpu_hours_estimate"] == 6.25
    assert {one["id"]: one["state"] for one in body["checklist"]["items"]}["entries"] == "failed"
    assert body["results"] is None


class Tags(HTMLParser):
    """Tags and attributes of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append(tag)


EVIL = "<img src=x onerror=alert(1)> [x](http://evil.example) @maintainer `a` | b\n# c"


def test_nothing_of_a_branch_becomes_markup() -> None:
    blocks: list[Block] = [
        Heading(1, EVIL),
        Paragraph(EVIL),
        Bullets((EVIL,), (False,)),
        Table((EVIL,), ((EVIL,),)),
    ]
    tags = Tags()
    tags.feed(html_page([("en", blocks)]))
    assert "img" not in tags.found and "a" not in tags.found and "script" not in tags.found
    for line in markdown_lines(blocks):
        assert (
            "<img" not in line.replace("\\<", "")
            and "@maintainer" not in line
            and "](" not in line.replace("\\]", "")
        )
        assert "http://" not in line and line.count("|") - line.count("\\|") in {0, 2}


def test_an_evil_arm_in_html(edited: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(edited / "configs" / "x-master.yaml", "image: img:2", "image: '<script>alert(1)</script>'")
    commit(edited, "evil")
    _, out, _ = page(edited, capsys, "--format", "html")
    assert "<script" not in out and "&lt;script&gt;" in out


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("tensor-parallel-size", "parallelism"), ("enable-expert-parallel", "parallelism"), ("kv_cache_dtype", "kv_dtype"),
        ("quantization", "quantisation"), ("attention-backend", "kernels"), ("VLLM_USE_FLASHINFER_MOE_FP4", "kernels"),
        ("moe-a2a-backend", "kernels"), ("speculative-config", "speculation"), ("max-num-seqs", "tuning"),
        ("gpu-memory-utilization", "tuning"), ("mamba-ssm-dtype", "kv_dtype"), ("NCCL_DEBUG", "tuning"),
    ],
)  # fmt: skip
def test_groups_of_settings(name: str, group: str) -> None:
    assert group_of(name) == group


def test_what_is_not_committed_is_told_beside_the_page(
    edited: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page is of the commits alone; who forgot to commit sees it. Another head than the one checked out says nothing."""
    (edited / "recipes" / "more.yaml").write_text("schema: 2\n")
    edit(edited / "suite.yaml", "name: small", "name: small # mine")
    _, out, err = page(edited, capsys, "--lang", "en")
    assert err.startswith("Not in this page: 2 changes in ") and "more.yaml" not in out
    assert run_cli(["review", "main~0..main", "--suite", str(edited), "--lang", "en"]) == 0
    assert capsys.readouterr().err == ""


def test_a_folder_that_is_no_suite_at_that_commit(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The folder as its user knows it, not the copy that is read."""
    other = suite.parent / "other"
    other.mkdir()
    (other / "suite.yaml").write_text("name: other\n")
    assert run_cli(["review", "main..topic", "--suite", str(other), "--lang", "en"]) == 2
    err = capsys.readouterr().err
    assert f"the commit topic has no suite in {other}" in err and "servemark-review-" not in err
