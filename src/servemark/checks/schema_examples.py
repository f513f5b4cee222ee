"""A wrong example for every code of the reading itself: edits of the example suite, or shell lines run in its folder
where no text can show it. Loaded by `explain`, the reference pages and the tests only.
"""

from __future__ import annotations

from dataclasses import dataclass

from servemark.checks.model import Edit

_M, _C, _A, _D = "masters.yaml", "clusters.yaml", "recipes/owl/agg.yaml", "recipes/owl/disagg.yaml"
_SUITE, _THRESHOLDS, _ALIASES = "suite.yaml", "thresholds.yaml", "aliases.yaml"
_SIZES = "recipes/owl/sizes.yaml"
_FIXED = "          - spec-decoding: mtp\n            conc-list: [64, 128]"
_AGG_SETTING = '"CONFIG_FILE=recipes/owl/agg.yaml"'
_ROUTER = "args: {router-mode: kv, router-session-affinity-ttl-secs: 900}"
_ENVIRONMENT = 'aggregated_environment: {NCCL_CUMEM_ENABLE: "1"}'


@dataclass(frozen=True, slots=True)
class SchemaExample:
    """What to change in the example suite: texts first, then shell lines."""

    edits: tuple[Edit, ...] = ()
    commands: tuple[str, ...] = ()
    right: tuple[Edit, ...] = ()
    """What makes it right, where that is not the example suite as it is."""


def _one(file: str, old: str, new: str) -> SchemaExample:
    return SchemaExample(((file, old, new),))


def _variant(setting: str, block: str) -> SchemaExample:
    """The aggregated arm runs a recipe with variants, named by `setting`."""
    return SchemaExample(
        (
            (_M, _AGG_SETTING, f'"CONFIG_FILE={_SIZES}{setting}"'),
            (_SIZES, "", f"base: {{name: owl-sizes}}\n{block}\n"),
        )
    )


def _suppression(code: str, until: str) -> SchemaExample:
    """A recipe that installs another version, which the right suppression hides."""
    other = (_A, 'install: true, version: "1.3.1"', 'install: true, version: "1.3.0"')
    right, wrong = (
        f"suppress:\n  - code: {name}\n    reason: the image follows in May\n    until: {day}\n"
        for name, day in (("IDN", "2999-01-31"), (code, until))
    )
    return SchemaExample((other, ("checks.yaml", "", wrong)), right=(other, ("checks.yaml", "", right)))


EXAMPLES: dict[str, SchemaExample] = {
    "SCH001": _one(_C, "h9-lab_01]", "h9-lab_01"),
    "SCH002": _one(_A, "tensor-parallel-size: 8", "tensor-parallel-size: 8\n      tensor-parallel-size: 4"),
    "SCH003": _one(_ALIASES, "owl-image:", "? [owl, image]\n:"),
    "SCH004": _one(_C, "[h9-lab_00, h9-lab_01]", "*nodes"),
    "SCH005": _one(_C, "{available-cpu", "{<<: 8, available-cpu"),
    "SCH006": _one(_C, "gpus-per-node: 8", "gpus-per-node: !count 8"),
    "SCH007": _one(_THRESHOLDS, "{gsm8k: 0.93}\n", "{gsm8k: 0.93}\n---\ndefault: {gsm8k: 0.9}\n"),
    "SCH008": _one(_ALIASES, "owl-image:", "deep: " + "[" * 101 + "]" * 101 + "\nowl-image:"),
    "SCH009": _one(
        _ALIASES,
        "owl-image:",
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{name}: &{name} [{', '.join([f'*{of}'] * 10)}]\n"
            for of, name in zip("abcd", "bcde", strict=True)
        )
        + "f: [*e, *e, *e]\nowl-image:",
    ),
    "SCH010": SchemaExample(commands=(f"yes -- '- x' | head -n 200001 > {_ALIASES}",)),
    "SCH011": SchemaExample(commands=(f"head -c 8000001 /dev/zero > {_ALIASES}",)),
    "SCH012": _one(_THRESHOLDS, "  owl2:", "\towl2:"),
    "SCH013": _one(_ALIASES, "owl-image:", "\ufeffowl-image:"),
    "SCH014": _one(_THRESHOLDS, "0.85}\n", "0.85}\r\n"),
    "SCH015": _one(_SUITE, "clusters: clusters.yaml", "clusters: recipes"),
    "SCH016": SchemaExample(commands=("ln -s gone.yaml recipes/owl/other.yaml",)),
    "SCH017": SchemaExample(commands=("ln -s other.yaml recipes/owl/other.yaml",)),
    "SCH018": SchemaExample(commands=(f"rm {_ALIASES}", f"mkfifo {_ALIASES}")),
    "SCH019": _one(_SUITE, "container-aliases: aliases.yaml", "container-aliases: ../aliases.yaml"),
    "SCH020": _one(_SUITE, "container-aliases: aliases.yaml", "container-aliases: alias.yaml"),
    "SCH021": _one(
        _THRESHOLDS, "default: {gsm8k: 0.85}\nmodels:\n  owl2: {gsm8k: 0.93}\n", "- gsm8k: 0.85\n"
    ),
    "SCH023": _one(_A, "name: owl-agg\n", ""),
    "SCH024": _one(_A, "max_attempts: 720", 'max_attempts: "720"'),
    "SCH025": _one(_A, "command: bash /bench/agentic.sh", 'command: ""'),
    "SCH026": _one(_M, "conc-list: [8]", "conc-list: []"),
    "SCH027": _one(_M, "num-worker: 2, tp: 4", "num-worker: -1, tp: 4"),
    "SCH028": _one(_M, "dram-utilization: 0.4\n", "dram-utilization: 1.4\n"),
    "SCH029": _one(
        _M,
        "spec-decoding: mtp\n            kv-offloading",
        "spec-decoding: multi-token\n            kv-offloading",
    ),
    "SCH030": _one(_C, "gpus-per-node: 8", "gpus-per-node: 8, colour: red"),
    "SCH031": _one(_C, "gpus-per-node: 8", "gpu-per-node: 8"),
    "SCH032": _one(_C, "gpus-per-node: 8", "gpus-per-node: 8, gpus_per_node: 8"),
    "SCH033": _one(_ALIASES, "owl-image:", "# \udcff\nowl-image:"),
    "SCH034": _one(_SUITE, "name: example", "name: example suite/2"),
    "SCH041": _one(_SUITE, "masters: [masters.yaml]", "masters: [masters.yaml, masters.yaml]"),
    "SCH042": _one(_M, "acme-fp8-h9-dynamo-sglang-agg:", "acme-fp8-h9-*-agg:"),
    "SCH043": _one(_M, '"SYNTHETIC_ACCEPTANCE=true"', '"SYNTHETIC ACCEPTANCE"'),
    "SCH044": _one(_M, "[64, 128]", "[64, 64, 128]"),
    "SCH045": _one(_M, "            conc-list: [8]\n", ""),
    "SCH046": _one(
        _M, "conc-list: [8]", "conc-list: [8]\n            conc-start: 8\n            conc-end: 16"
    ),
    "SCH047": _one(_M, "conc-list: [8]", "conc-start: 8"),
    "SCH048": _one(_M, "conc-list: [8]", "conc-start: 16\n            conc-end: 8"),
    "SCH049": _one(_M, "            decode: {num-worker: 2, tp: 4, ep: 1, dp-attn: false}\n", ""),
    "SCH050": _one(_M, "{num-worker: 2, tp: 4", "{hardware: h9, num-worker: 2, tp: 4"),
    "SCH051": _one(_M, "multinode: true\n  scenarios:", "multinode: false\n  scenarios:"),
    "SCH052": _one(_M, "backend: {name: hicache}\n", "backend: {name: hicache}\n            tp: 8\n"),
    "SCH053": _one(
        _M, "multinode: true\n  scenarios:", "multinode: false\n  kv-p2p-transfer: nixl\n  scenarios:"
    ),
    "SCH054": _one(_M, _FIXED, f"{_FIXED}\n            kv-offloading: none"),
    "SCH055": _one(_M, "dynamo-sglang\n  runner: cluster:h9-lab", "dynamo-sglang\n  runner: h9-lab"),
    "SCH056": _one(_M, "    fixed-seq-len:\n", "    fixed-seq-len: []\n    later:\n"),
    "SCH057": _one(
        _M,
        "  kv-p2p-transfer: nixl\n  multinode: true\n  disagg: true\n  scenarios:\n    fixed",
        "  multinode: true\n  disagg: true\n  scenarios:\n    fixed",
    ),
    "SCH058": _one(_M, _FIXED, f"{_FIXED}\n            kv-p2p-transfer: nixl"),
    "SCH059": _one(_M, "- kv-offloading: dram", "- kv-offloading: none"),
    "SCH060": _one(_M, "- kv-offloading: dram\n            kv-offload", "- kv-offload"),
    "SCH061": _one(_M, "            kv-offload-backend: {name: hicache}\n", ""),
    "SCH062": _one(_M, "- dram-utilization: 0.4\n        search", "- search"),
    "SCH063": _one(_M, "{num-worker: 2, tp: 4", "{num-worker: 2, tp: 4, dcp-size: 3"),
    "SCH064": _one(_M, 'version: "0.3.13.post1"', 'version: "image:v0.25.1"'),
    "SCH071": _one(_D, "schema: 2", "schema: 3"),
    "SCH072": _one(_A, "backend:\n", "server:\n"),
    "SCH073": _one(_A, "agg_workers: 1", "agg_workers: 0"),
    "SCH074": SchemaExample(((_A, "  type: sglang\n", ""), (_A, "sglang_config:", "config:"))),
    "SCH075": _one(_A, "type: sglang\n", "type: vllm\n"),
    "SCH076": _one(_A, _ENVIRONMENT, 'aggregated_environment: {"NCCL CUMEM": "1"}'),
    "SCH077": _one(_A, _ENVIRONMENT, "aggregated_environment: {NCCL_CUMEM_ENABLE: 1}"),
    "SCH078": _one(_A, _ROUTER, 'args: "--router-mode \'kv"'),
    "SCH080": _one(_D, "global_segment_size: 150GB", "global_segment_size: 150XB"),
    "SCH081": _one(_A, _ROUTER, "args: {router-mode: kv, router_mode: kv}"),
    "SCH082": _one(_A, _ROUTER, 'args: "kv --router-mode"'),
    "SCH083": _one(_A, '"06:00:00"', '"6 hours"'),
    "SCH084": _one(_M, _AGG_SETTING, '"CONFIG_FILE=recipes/owl/agg.yaml:override_big"'),
    "SCH085": _variant("", "override_big: {name: owl-big}"),
    "SCH086": _variant(":zip_override_size", "zip_override_size: {name: [owl-1, owl-2]}"),
    "SCH087": _variant(":zip_override_size[0]", "zip_override_size: {name: [owl-1, owl-2], schema: [1]}"),
    "SCH088": _variant(":override_big[0]", "override_big: {name: owl-big}"),
    "SCH091": _one("golden/owl2_mtp.yaml", "4: 2.91", "four: 2.91"),
    "SCH095": SchemaExample(commands=(f"yes 'owl-image: a' | head -n 1200 > {_ALIASES}",)),
    "SUP001": _suppression("IDN", "2020-01-31"),
    "SUP002": _suppression("MEM301", "2999-01-31"),
    "SUP003": _suppression("IDN", "next week"),
}
"""Code -> its example."""
