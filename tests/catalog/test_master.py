"""Master entries: every field, both spellings, and each mistake with the place where a person would point.

The entries below are made up; positions are counted by hand.
"""

# ruff: noqa: E501 - made-up files and their expected values stand on one line each

from __future__ import annotations

import pytest

from servemark.catalog.arms import Arm, expand_range
from servemark.catalog.master import arms_of
from servemark.catalog.nodes import Problem, errors_of, limited
from servemark.catalog.yaml_nodes import parse_yaml

HEAD = """\
a:
  image: org/img:1
  model: org/m
  model-prefix: m
  precision: fp8
  framework: vllm
  runner: cluster:x
  multinode: {multinode}
"""
SINGLE = HEAD.replace("{multinode}", "false")
MULTI = HEAD.replace("{multinode}", "true")
BLOCK = "{num-worker: 1, tp: 8, ep: 8, dp-attn: true}"
NONE = "{num-worker: 0, tp: 8, ep: 1, dp-attn: false}"


def read(text: str) -> tuple[dict[str, Arm], list[Problem]]:
    """Arms and problems of a master text."""
    root, problems = parse_yaml(text.encode(), "m")
    return arms_of(root, problems), problems


def single(entry: str, item: str = "isl: 8192\n      osl: 1024") -> str:
    """A single-node fixed-sequence arm with one search entry, which stands in line 14."""
    return f"{SINGLE}  scenarios:\n    fixed-seq-len:\n    - {item}\n      search-space:\n      - {entry}\n"


def agentic(entry: str, head: str = SINGLE, item: str = "dram-utilization: 0.5") -> str:
    """An agentic arm with one search entry, which stands in line 13."""
    return f"{head}  scenarios:\n    agentic-coding:\n    - {item}\n      search-space:\n      - {entry}\n"


def test_every_field_in_both_spellings() -> None:
    """kebab-case and snake_case give equal values; every scalar has its position."""
    kebab = f"""{MULTI}  disagg: true
  router: {{name: r, version: "1"}}
  kv-p2p-transfer: nixl
  scenarios:
    agentic-coding:
    - dram-utilization: 0.5
      search-space:
      - spec-decoding: mtp
        kv-offloading: dram
        kv-offload-backend: {{name: mooncake, version: "0.3"}}
        conc-start: 4
        conc-end: 100
        prefill: {{num-worker: 2, tp: 8, pp: 2, dcp-size: 4, pcp-size: 3, ep: 8, dp-attn: true, hardware: b300,
                   additional-settings: ["CONFIG_FILE=recipes/a.yaml:override_x", "N=a=b"]}}
        decode: {{num-worker: 1, tp: 4, ep: 1, dp-attn: false, hardware: h200}}
"""
    names = "model-prefix kv-p2p-transfer dram-utilization search-space spec-decoding kv-offloading kv-offload-backend"
    names += " conc-start conc-end num-worker dcp-size pcp-size dp-attn additional-settings"
    snake = kebab
    for name in names.split():
        snake = snake.replace(f"{name}:", f"{name.replace('-', '_')}:")
    first, problems = read(kebab)
    second, others = read(snake)
    assert not problems and not others and first == second
    arm = first["a"]
    entry = arm.entries[0]
    assert (arm.multinode, arm.disagg, arm.kv_p2p_transfer) == (True, True, "nixl")
    assert arm.router is not None and (arm.router.name, arm.router.version) == ("r", "1")
    assert entry.concurrencies == (4, 8, 16, 32, 64, 100) and entry.conc_range == (4, 100)
    assert entry.scenario is not None and entry.scenario.dram_utilization == 0.5
    block = entry.prefill
    assert (block.num_worker, block.tp, block.pp, block.dcp_size, block.pcp_size, block.ep) == (
        2,
        8,
        2,
        4,
        3,
        8,
    )
    assert block.gpus == 48 and block.dp_attn and block.hardware == "b300"
    assert block.settings == (("CONFIG_FILE", "recipes/a.yaml:override_x"), ("N", "a=b"))
    assert entry.config_file == "recipes/a.yaml:override_x"
    assert str(block.at) == "m:21:18" and block.node is not None and block.node.entries is not None
    assert str(block.node.entries["tp"].at) == "m:21:38"


def test_ranges_always_end_at_their_end() -> None:
    """4..100 doubles and then takes 100; a step of 10 as well."""
    assert expand_range(4, 100) == (4, 8, 16, 32, 64, 100)
    assert expand_range(1, 1) == (1,)
    assert expand_range(1, 1000, 10) == (1, 10, 100, 1000)


def test_single_node_is_one_aggregated_worker() -> None:
    """Defaults are those of the reference: pp, dcp, pcp, ep 1, no attention data parallelism, no speculation."""
    arms, problems = read(single("{tp: 4, conc-list: [8, 4]}"))
    entry = arms["a"].entries[0]
    assert not problems and entry.single_node and entry.concurrencies == (8, 4)
    assert (entry.prefill.num_worker, entry.decode.num_worker, entry.prefill.ep) == (1, 0, 1)
    assert entry.topology == "agg1xtp4" and entry.scenario is not None and entry.scenario.name == "8k1k"


def test_topology_names_are_distinct_and_stable() -> None:
    """The first of two alike keeps its name when another is added behind it."""
    space = "\n      - ".join(
        ["{tp: 4, conc-list: [8]}", "{tp: 4, conc-list: [16]}", "{tp: 4, ep: 4, conc-list: [8]}"]
    )
    arms, problems = read(single(space))
    assert not problems
    assert [entry.topology for entry in arms["a"].entries] == ["agg1xtp4", "agg1xtp4+2", "agg1xtp4ep4"]


BAD = {
    "tp negative": (single("{tp: -8, conc-list: [1]}"), "m:14:14", "catalog.too_small"),
    "tp float": (single("{tp: 8.0, conc-list: [1]}"), "m:14:14", "catalog.wrong_type"),
    "tp text": (single("{tp: '8', conc-list: [1]}"), "m:14:14", "catalog.wrong_type"),
    "tp bool": (single("{tp: yes, conc-list: [1]}"), "m:14:14", "catalog.wrong_type"),
    "conc twice": (single("{tp: 8, conc-list: [64, 64]}"), "m:14:33", "catalog.repeated_concurrency"),
    "conc zero": (single("{tp: 8, conc-list: [0]}"), "m:14:29", "catalog.too_small"),
    "conc too many": (single("{tp: 8, conc-list: [1000001]}"), "m:14:29", "catalog.out_of_range"),
    "conc text": (single("{tp: 8, conc-list: [a]}"), "m:14:29", "catalog.wrong_type"),
    "conc empty": (single("{tp: 8, conc-list: []}"), "m:14:28", "catalog.empty_list"),
    "half a range": (single("{tp: 8, conc-start: 4}"), "m:14:29", "catalog.half_range"),
    "other half": (single("{tp: 8, conc-end: 4}"), "m:14:27", "catalog.half_range"),
    "list and range": (single("{tp: 8, conc-list: [1], conc-end: 4}"), "m:14:43", "catalog.list_and_range"),
    "range backwards": (single("{tp: 8, conc-start: 8, conc-end: 4}"), "m:14:29", "catalog.range_order"),
    "no concurrency": (single("{tp: 8}"), "m:14:9", "catalog.no_concurrencies"),
    "unknown field": (single("{tp: 8, conc_lits: [1], conc-list: [1]}"), "m:14:17", "catalog.unknown_field_near"),
    "two spellings": (single("{tp: 8, dcp-size: 1, dcp_size: 2, conc-list: [1]}"), "m:14:30", "catalog.two_spellings"),
    "dcp against tp": (single("{tp: 8, dcp-size: 3, conc-list: [1]}"), "m:14:27", "catalog.dcp_divides_tp"),
    "prefill in single": (single(f"{{tp: 8, conc-list: [1], prefill: {BLOCK}}}"), "m:14:42", "catalog.block_in_single_node"),
    "offload in fixed": (single("{tp: 8, conc-list: [1], kv-offloading: none}"), "m:14:48", "catalog.agentic_only"),
    "spec unknown": (single("{tp: 8, conc-list: [1], spec-decoding: eagle}"), "m:14:48", "catalog.not_one_of"),
    "huge": (single("{tp: 99999999999999999999, conc-list: [1]}"), "m:14:14", "catalog.out_of_range"),
    "offload unstated": (agentic("{tp: 8, conc-list: [1]}"), "m:13:9", "catalog.missing_field"),
    "backend missing": (agentic("{tp: 8, kv-offloading: dram, conc-list: [1]}"), "m:13:32", "catalog.offload_without_backend"),
    "backend with none": (
        agentic("{tp: 8, kv-offloading: none, kv-offload-backend: {name: x}, conc-list: [1]}"),
        "m:13:58",
        "catalog.backend_with_none",
    ),
    "no budget": (
        agentic("{tp: 8, kv-offloading: dram, kv-offload-backend: {name: x}, conc-list: [1]}", item="dram-utilization: null"),
        "m:13:32",
        "catalog.offload_without_budget",
    ),
    "budget over one": (agentic("{tp: 8, kv-offloading: none, conc-list: [1]}", item="dram-utilization: 1.5"), "m:11:25", "catalog.out_of_range"),
    "budget nan": (agentic("{tp: 8, kv-offloading: none, conc-list: [1]}", item="dram-utilization: .nan"), "m:11:25", "catalog.out_of_range"),
    "prefill without decode": (agentic(f"{{kv-offloading: none, conc-list: [1], prefill: {BLOCK}}}", MULTI), "m:13:9", "catalog.half_blocks"),
    "tp beside blocks": (
        agentic(f"{{tp: 8, conc-list: [1], prefill: {BLOCK}, decode: {NONE}}}", MULTI),
        "m:13:14",
        "catalog.size_beside_blocks",
    ),
    "hardware of one": (
        agentic(f"{{conc-list: [1], prefill: {BLOCK[:-1]}, hardware: x}}, decode: {BLOCK}}}", MULTI),
        "m:13:102",
        "catalog.hardware_pair",
    ),
    "bad setting": (
        agentic(f"{{conc-list: [1], prefill: {BLOCK[:-1]}, additional-settings: [X]}}, decode: {NONE}}}", MULTI),
        "m:13:102",
        "catalog.bad_setting",
    ),
    "agentic runner": (agentic("{tp: 8, kv-offloading: none, conc-list: [1]}").replace("cluster:x", "h100"), "m:7:11", "catalog.agentic_runner"),
    "transfer in single": (single("{tp: 8, conc-list: [1]}") + "  kv-p2p-transfer: nixl\n", "m:15:20", "catalog.multinode_only"),
    "disagg without transfer": (
        agentic(f"{{conc-list: [1], prefill: {BLOCK}, decode: {BLOCK}}}", MULTI + "  disagg: true\n"),
        "m:14:9",
        "catalog.no_transfer",
    ),
    "router twice": (
        agentic("{tp: 8, kv-offloading: none, conc-list: [1], router: {name: r, version: v}}") + "  router: {name: r, version: v}\n",
        "m:13:62",
        "catalog.both_scopes",
    ),
    "image as version": (single("{tp: 8, conc-list: [1], router: {name: r, version: 'image:x'}}"), "m:14:60", "catalog.version_is_image"),
    "no scenario": (SINGLE + "  scenarios: {}\n", "m:9:14", "catalog.no_scenario"),
    "star in key": (single("{tp: 8, conc-list: [1]}").replace("a:", "'a*':", 1), "m:1:1", "catalog.star_in_key"),
    "arm is a list": ("a: [1]\n", "m:1:4", "catalog.not_mapping"),
    "file is a list": ("- a\n", "m:1:1", "catalog.not_mapping"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_has_its_place(name: str) -> None:
    """Exactly one error, at that place, with a message in both languages; the arm is left out."""
    text, where, key = BAD[name]
    arms, problems = read(text)
    errors = errors_of(problems)
    assert [(str(problem.at), problem.key) for problem in errors] == [(where, key)]
    assert errors[0].error().what("en") != errors[0].error().what("zh")
    assert "*" in name or not arms or name == "star in key"


def test_an_image_in_place_of_a_version_is_a_warning() -> None:
    """An ordinary image reference passes in the reference, against its own documentation."""
    arms, problems = read(
        single("{tp: 8, conc-list: [1], router: {name: r, version: 'vllm/vllm-openai:v0.25.1'}}")
    )
    assert arms and [(p.key, p.severity) for p in problems] == [("catalog.version_is_image", "warning")]


def test_a_file_of_mistakes_is_given_up_after_a_thousand() -> None:
    """Neither time nor output grows with a file that is wrong from end to end."""
    arms, problems = read("".join(f"k{i}: {{image: 1}}\n" for i in range(20_000)))
    assert not arms and 1000 < len(problems) < 1020 and problems[-1].key == "catalog.not_read_further"
    shown = limited(errors_of(problems))
    assert len(shown) == 1001 and shown[-1].key == "catalog.more_problems"
    _, problems = read("k: {}\n" * 50_000)
    assert len(problems) < 1020


def test_all_mistakes_of_a_file_at_once() -> None:
    """Three entries of two arms, five mistakes, one reading."""
    text = single("{tp: -1, conc-list: [2, 2]}\n      - {tp: x, conc-start: 1, frobnicate: 1}")
    text += single("{tp: 1, conc-list: [1]}").replace("a:", "b:", 1).replace("  image: org/img:1\n", "")
    arms, problems = read(text)
    assert not arms
    assert [problem.key for problem in errors_of(problems)] == [
        "catalog.too_small",
        "catalog.repeated_concurrency",
        "catalog.wrong_type",
        "catalog.half_range",
        "catalog.unknown_field",
        "catalog.missing_field",
    ]
