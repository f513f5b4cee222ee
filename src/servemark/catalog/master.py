"""Master files: one entry an arm. Read here: agentic entries that are launched from a recipe.

Field names and rules are those of the reference master format; an aggregated deployment is written with the
`prefill` block holding the workers and `decode: {num-worker: 0}`.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servemark.catalog.fields import Fields
from servemark.catalog.yaml_nodes import Node, Position, Problem, read_yaml

SPEC_DECODING = ("mtp", "draft_model", "none")
KV_OFFLOADING = ("none", "dram")


@dataclass(frozen=True, slots=True)
class WorkerBlock:
    """One role's workers as a master entry declares them."""

    num_worker: int
    tp: int
    pp: int
    dcp_size: int
    pcp_size: int
    ep: int
    dp_attn: bool
    settings: tuple[tuple[str, str], ...]
    at: Position

    def setting(self, name: str) -> str | None:
        """The value of one additional setting, the last one when it is repeated."""
        found = [value for key, value in self.settings if key == name]
        return found[-1] if found else None


@dataclass(frozen=True, slots=True)
class SearchEntry:
    """One topology of an arm with the concurrencies to measure on it."""

    prefill: WorkerBlock
    decode: WorkerBlock
    spec_decoding: str
    kv_offloading: str
    concurrencies: tuple[int, ...]
    at: Position

    @property
    def topology(self) -> str:
        """`agg1xtp1` or `1p1d-tp8-tp8`: how a selector and a page name this topology."""
        if self.decode.num_worker == 0:
            return f"agg{self.prefill.num_worker}xtp{self.prefill.tp}"
        return f"{self.prefill.num_worker}p{self.decode.num_worker}d-tp{self.prefill.tp}-tp{self.decode.tp}"


@dataclass(frozen=True, slots=True)
class Arm:
    """One master entry."""

    key: str
    image: str
    model: str
    model_prefix: str
    precision: str
    framework: str
    runner: str
    disagg: bool
    entries: tuple[SearchEntry, ...]
    at: Position


def read_master(path: Path, shown: str, problems: list[Problem]) -> dict[str, Arm]:
    """Read all arms of one master file; entries with problems (collected) are left out."""
    root, found = read_yaml(path, shown)
    problems.extend(found)
    if root.entries is None:
        problems.append(Problem(root.at, "catalog.not_mapping", {"what": "master file", "kind": root.kind}))
        return {}
    arms: dict[str, Arm] = {}
    for key, node in root.entries.items():
        before = len(problems)
        if "*" in key:
            problems.append(Problem(root.key_at[key], "catalog.star_in_key", {"key": key}))
        arm = _arm(key, node, root.key_at[key], problems)
        if arm is not None and len(problems) == before:
            arms[key] = arm
    return arms


def _arm(key: str, node: Node, at: Position, problems: list[Problem]) -> Arm | None:
    fields = Fields(node, problems, f"arm {key}")
    if node.entries is None:
        return None
    texts = {
        name: fields.text(name, required=True)
        for name in ("image", "model", "model-prefix", "precision", "framework", "runner")
    }
    multinode = fields.boolean("multinode", required=True)
    disagg = fields.boolean("disagg")
    scenarios = fields.mapping("scenarios", "scenarios", required=True)
    fields.no_others()
    if multinode is False:
        fields.problem(fields.at("multinode"), "catalog.single_node_arm", key=key)
    entries: list[SearchEntry] = []
    if scenarios is not None:
        for item in scenarios.items("agentic-coding", required=True):
            scenario = Fields(item, problems, "agentic-coding item")
            for space in scenario.items("search-space", required=True):
                entry = _search_entry(Fields(space, problems, "search-space entry"))
                if entry is not None:
                    entries.append(entry)
            scenario.no_others()
        scenarios.no_others()
    if not entries or any(value is None for value in texts.values()):
        return None
    return Arm(
        key=key,
        image=str(texts["image"]),
        model=str(texts["model"]),
        model_prefix=str(texts["model-prefix"]),
        precision=str(texts["precision"]),
        framework=str(texts["framework"]),
        runner=str(texts["runner"]),
        disagg=bool(disagg),
        entries=tuple(entries),
        at=at,
    )


def _search_entry(fields: Fields) -> SearchEntry | None:
    prefill = _worker(fields, "prefill")
    decode = _worker(fields, "decode")
    spec = fields.choice("spec-decoding", SPEC_DECODING)
    offload = fields.choice("kv-offloading", KV_OFFLOADING)
    concurrencies = _concurrencies(fields)
    fields.no_others()
    if prefill is None or decode is None or not concurrencies:
        return None
    return SearchEntry(prefill, decode, spec or "none", offload or "none", concurrencies, fields.node.at)


def _worker(fields: Fields, name: str) -> WorkerBlock | None:
    inner = fields.mapping(name, f"{name} block", required=True)
    if inner is None:
        return None
    sizes = {
        "num-worker": inner.integer("num-worker", minimum=0, required=True),
        "tp": inner.integer("tp", minimum=1, required=True),
        "ep": inner.integer("ep", minimum=1, required=True),
        "pp": inner.integer("pp", minimum=1),
        "dcp-size": inner.integer("dcp-size", minimum=1),
        "pcp-size": inner.integer("pcp-size", minimum=1),
    }
    dp_attn = inner.boolean("dp-attn", required=True)
    settings: list[tuple[str, str]] = []
    for item in inner.items("additional-settings"):
        setting, equals, value = str(item.scalar).partition("=")
        if not isinstance(item.scalar, str) or not equals or not setting:
            inner.problem(item.at, "catalog.bad_setting", value=str(item.plain()))
        else:
            settings.append((setting, value))
    inner.no_others()
    number, tp, ep = sizes["num-worker"], sizes["tp"], sizes["ep"]
    if number is None or tp is None or ep is None or dp_attn is None:
        return None
    return WorkerBlock(
        num_worker=number,
        tp=tp,
        pp=sizes["pp"] or 1,
        dcp_size=sizes["dcp-size"] or 1,
        pcp_size=sizes["pcp-size"] or 1,
        ep=ep,
        dp_attn=dp_attn,
        settings=tuple(settings),
        at=inner.node.at,
    )


def _concurrencies(fields: Fields) -> tuple[int, ...]:
    values: list[int] = []
    for item in fields.items("conc-list", required=True):
        value = item.scalar
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            said = "integer of at least 1"
            fields.problem(item.at, "catalog.wrong_type", field="conc-list", expected=said, kind=item.kind)
        elif value in values:
            fields.problem(item.at, "catalog.repeated_concurrency", value=value)
        else:
            values.append(value)
    return tuple(values)
