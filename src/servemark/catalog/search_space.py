"""One entry of a search space: a topology and its concurrencies, with the rules that hold inside it."""

from __future__ import annotations

import re

from servemark.catalog.arms import Component, Scenario, SearchEntry, WorkerBlock, expand_range
from servemark.catalog.fields import Fields

SPEC_DECODING = ("mtp", "draft_model", "none")
KV_OFFLOADING = ("none", "dram")
_SIZES = ("pp", "dcp-size", "pcp-size")
_IMAGE_LIKE = re.compile(r"[\w.-]+/[\w./-]+:[\w.-]+\Z")
_SETTING_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z", re.ASCII)
MAX_CONCURRENCY = 1_000_000


def read_component(fields: Fields, name: str, *, version_required: bool) -> Component | None:
    """`{name, version}`. A version is a version: an image reference in its place is an error or a warning."""
    inner = fields.mapping(name, name)
    if inner is None:
        return None
    found = inner.text("name", required=True)
    version = inner.text("version", required=version_required)
    inner.no_others()
    if version is not None and version.startswith("image:"):
        inner.problem(inner.at("version"), "catalog.version_is_image", field=name, value=version)
    elif version is not None and _IMAGE_LIKE.match(version):
        inner.warning(inner.at("version"), "catalog.version_is_image", field=name, value=version)
    return None if found is None else Component(found, version, inner.node.at)


def read_entry(fields: Fields, scenario: Scenario, multinode: bool) -> SearchEntry | None:
    """One search-space entry; None when errors (collected) make it unusable."""
    if fields.node.entries is None:
        return None
    agentic = scenario.kind == "agentic-coding"
    blocks = _multi(fields) if multinode else _single(fields)
    spec = fields.choice("spec-decoding", SPEC_DECODING)
    router = read_component(fields, "router", version_required=True)
    transfer = fields.text("kv-p2p-transfer") if multinode else None
    offload, backend = _offload(fields, scenario, multinode) if agentic else (None, None)
    span, concurrencies = _concurrencies(fields)
    if multinode:
        _reject(fields, ("tp", "pp", "dcp-size", "pcp-size", "ep", "dp-attn"), "catalog.size_beside_blocks")
    else:
        _reject(fields, ("prefill", "decode"), "catalog.block_in_single_node")
        _reject(fields, ("kv-p2p-transfer",), "catalog.multinode_only")
    if not agentic:
        _reject(fields, ("kv-offloading", "kv-offload-backend"), "catalog.agentic_only")
    fields.no_others()
    if blocks is None or not concurrencies:
        return None
    return SearchEntry(
        prefill=blocks[0],
        decode=blocks[1],
        spec_decoding=spec or "none",
        kv_offloading=offload or "none",
        concurrencies=concurrencies,
        at=fields.node.at,
        single_node=not multinode,
        conc_range=span,
        router=router,
        kv_p2p_transfer=transfer,
        kv_offload_backend=backend,
        scenario=scenario,
        node=fields.node,
    )


def _reject(fields: Fields, names: tuple[str, ...], key: str) -> None:
    for name in names:
        if fields.stated(name):
            fields.asked |= {name, name.replace("-", "_")}
            fields.problem(fields.at(name), key, field=name)


def _sizes(fields: Fields, *, minimum_workers: int | None, required: bool) -> WorkerBlock | None:
    tp = fields.integer("tp", minimum=1, required=True)
    ep = fields.integer("ep", minimum=1, required=required)
    pp, dcp, pcp = (fields.integer(name, minimum=1) for name in _SIZES)
    dp_attn = fields.boolean("dp-attn", required=required)
    if tp is not None and dcp is not None and tp % dcp:
        fields.problem(fields.at("dcp-size"), "catalog.dcp_divides_tp", dcp=dcp, tp=tp)
    workers: int | None = 1
    if minimum_workers is not None:
        workers = fields.integer("num-worker", minimum=minimum_workers, required=True)
    if tp is None or workers is None or (required and (ep is None or dp_attn is None)):
        return None
    return WorkerBlock(
        num_worker=workers,
        tp=tp,
        pp=pp or 1,
        dcp_size=dcp or 1,
        pcp_size=pcp or 1,
        ep=ep or 1,
        dp_attn=bool(dp_attn),
        settings=(),
        at=fields.node.at,
        node=fields.node,
    )


def _single(fields: Fields) -> tuple[WorkerBlock, WorkerBlock] | None:
    worker = _sizes(fields, minimum_workers=None, required=False)
    if worker is None:
        return None
    none = WorkerBlock(0, worker.tp, 1, 1, 1, 1, False, (), fields.node.at)
    return worker, none


def _multi(fields: Fields) -> tuple[WorkerBlock, WorkerBlock] | None:
    prefill = _worker(fields, "prefill", 1)
    decode = _worker(fields, "decode", 0)
    if prefill is None or decode is None:
        return None
    if (prefill.hardware is None) != (decode.hardware is None):
        missing = prefill if prefill.hardware is None else decode
        fields.problem(missing.at, "catalog.hardware_pair")
    return prefill, decode


def _worker(fields: Fields, name: str, minimum: int) -> WorkerBlock | None:
    inner = fields.mapping(name, f"{name} block")
    if inner is None:
        if not fields.stated(name):
            other = "decode" if name == "prefill" else "prefill"
            key = "catalog.half_blocks" if fields.stated(other) else "catalog.missing_field"
            fields.problem(fields.node.at, key, field=name, other=other, what=fields.what)
        return None
    block = _sizes(inner, minimum_workers=minimum, required=True)
    hardware = inner.text("hardware")
    settings: list[tuple[str, str]] = []
    for item in inner.items("additional-settings"):
        setting, equals, value = str(item.scalar).partition("=")
        if not isinstance(item.scalar, str) or not equals or not _SETTING_NAME.match(setting):
            inner.problem(item.at, "catalog.bad_setting", value=str(item.plain())[:200])
        else:
            settings.append((setting, value))
    inner.no_others()
    if block is None:
        return None
    return WorkerBlock(
        block.num_worker,
        block.tp,
        block.pp,
        block.dcp_size,
        block.pcp_size,
        block.ep,
        block.dp_attn,
        tuple(settings),
        block.at,
        hardware,
        inner.node,
    )


def _offload(fields: Fields, scenario: Scenario, multinode: bool) -> tuple[str | None, Component | None]:
    offload = fields.choice("kv-offloading", KV_OFFLOADING, required=not multinode)
    backend = read_component(fields, "kv-offload-backend", version_required=False)
    stated = fields.stated("kv-offloading")
    if backend is not None and not stated:
        fields.problem(backend.at, "catalog.backend_without_offload")
    elif backend is not None and offload == "none":
        fields.problem(backend.at, "catalog.backend_with_none")
    elif backend is None and offload == "dram" and not fields.stated("kv-offload-backend"):
        fields.problem(fields.at("kv-offloading"), "catalog.offload_without_backend")
    if offload == "dram" and scenario.dram_utilization is None:
        fields.problem(fields.at("kv-offloading"), "catalog.offload_without_budget")
    return offload, backend


def _concurrencies(fields: Fields) -> tuple[tuple[int, int] | None, tuple[int, ...]]:
    listed = fields.stated("conc-list")
    halves = [name for name in ("conc-start", "conc-end") if fields.stated(name)]
    start = fields.integer("conc-start", minimum=1)
    end = fields.integer("conc-end", minimum=1)
    values: list[int] = []
    nodes = fields.items("conc-list")
    for item in nodes:
        value = item.scalar
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_CONCURRENCY:
            if item.kind == "integer" and isinstance(value, int):
                fields.out_of_bounds(item, "conc-list", value, minimum=1)
                continue
            said = f"integer from 1 to {MAX_CONCURRENCY}"
            fields.problem(item.at, "catalog.wrong_type", field="conc-list", expected=said, kind=item.kind)
        elif value in values:
            fields.problem(item.at, "catalog.repeated_concurrency", value=value)
        else:
            values.append(value)
    if listed and halves:
        fields.problem(fields.at(halves[0]), "catalog.list_and_range")
        return None, ()
    if listed:
        if not nodes and fields.node.entries is not None:
            fields.problem(fields.at("conc-list"), "catalog.empty_list", field="conc-list")
        return None, tuple(values)
    if len(halves) == 1:
        other = "conc-end" if halves[0] == "conc-start" else "conc-start"
        fields.problem(fields.at(halves[0]), "catalog.half_range", field=halves[0], other=other)
        return None, ()
    if not halves:
        fields.problem(fields.node.at, "catalog.no_concurrencies")
    if start is None or end is None:
        return None, ()
    if start > end or end > MAX_CONCURRENCY:
        fields.problem(fields.at("conc-start"), "catalog.range_order", start=start, end=end)
        return None, ()
    return (start, end), expand_range(start, end)
