"""Topology: parallel sizes, workers, GPUs and nodes in the master, in the recipe's arguments and in what it
books."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from servemark.catalog.arms import WorkerBlock
from servemark.catalog.deployment import COLOCATION, RoleName, RoleSpec
from servemark.catalog.nodes import Position
from servemark.checks.example import TRT_SETTINGS
from servemark.checks.known_models import model_of
from servemark.checks.model import Hit, Related
from servemark.checks.registry import rule
from servemark.checks.view import ArmView, EntryView, RecipeView, at, count_at, flag_at, node_in

_DISAGG = "recipes/owl/disagg.yaml"
_PREFILL = "num-worker: 1\n              tp: 8\n              ep: 1"


def _worker_per_rank(block: WorkerBlock, role: RoleSpec) -> bool:
    """Whether the master counts each data-parallel rank group as a worker of its own."""
    dp = role.parallel.dp or 1
    return dp > 1 and block.num_worker == role.workers * dp and block.tp == role.parallel.tp


@rule("TOP201", "error", wrong=(("masters.yaml", "{num-worker: 2, tp: 4,", "{num-worker: 3, tp: 4,"),))
def workers(view: EntryView) -> Iterator[Hit]:
    """Workers in the master against the recipe's."""
    recipe = view.deployment
    if recipe is None:
        return
    for name, block, role in view.pairs:
        if block.num_worker == role.workers or _worker_per_rank(block, role):
            continue
        place = view.block_at(name, "num-worker")
        where = count_at(recipe, role, "workers")
        related = (Related(where, "checks.rel.workers", {"value": role.workers}),)
        yield Hit(place, {"role": role.role, "master": block.num_worker, "recipe": role.workers}, related)


@rule("TOP202", "error", wrong=(("masters.yaml", "{num-worker: 2, tp: 4,", "{num-worker: 2, tp: 2,"),))
def tensor_parallel(view: EntryView) -> Iterator[Hit]:
    """Tensor parallel size. Two conventions are known: the engine's argument, or all GPUs of a worker with
    data-parallel attention. Either is right; a third number is not."""
    for name, block, role in view.pairs:
        tp = role.parallel.tp
        if tp is None:
            continue
        dp, pcp = role.parallel.dp or 1, role.parallel.pcp or 1
        accepted = (
            {tp, tp * dp} if view.reading.deployment and view.reading.deployment.engine == "vllm" else {tp}
        )
        if pcp > 1 and block.pcp_size * block.tp == tp:
            continue
        if block.tp not in accepted:
            related = (
                Related(
                    flag_at(role, "tensor-parallel-size"),
                    "checks.rel.flag",
                    {"name": "tensor-parallel-size", "value": tp},
                ),
            )
            values: dict[str, object] = {"role": role.role, "master": block.tp, "recipe": tp, "dp": dp}
            yield Hit(view.block_at(name, "tp"), values, related)


def _size_rule(view: EntryView, field: str, flag: str, real: Mapping[RoleName, int | None]) -> Iterator[Hit]:
    """Compare one size of each block; an argument that is not given is 1."""
    for name, block, role in view.pairs:
        declared = getattr(block, field.replace("-", "_"))
        found = real[role.role]
        used = 1 if found is None else found
        if declared == used:
            continue
        related = (Related(flag_at(role, flag), "checks.rel.flag", {"name": flag, "value": used}),)
        values: dict[str, object] = {"role": role.role, "master": declared, "recipe": used, "field": field}
        place = view.block_at(name, field)
        block_node = view.entry.prefill.node if name == "prefill" else view.entry.decode.node
        unstated = node_in(block_node, field) is None
        yield Hit(place, values, related, None, "unstated" if unstated else None)


@rule(
    "TOP203",
    "error",
    wrong=((_DISAGG, "tensor-parallel-size: 8", "tensor-parallel-size: 4\n      pipeline-parallel-size: 2"),),
)
def pipeline_parallel(view: EntryView) -> Iterator[Hit]:
    """Pipeline parallel size in the master against the argument."""
    sizes = {role.role: role.parallel.pp for _, _, role in view.pairs}
    yield from _size_rule(view, "pp", "pipeline-parallel-size", sizes)


@rule(
    "TOP204",
    "error",
    wrong=(
        (
            _DISAGG,
            "tensor-parallel-size: 8",
            "tensor-parallel-size: 8\n      decode-context-parallel-size: 8",
        ),
    ),
)
def decode_context_parallel(view: EntryView) -> Iterator[Hit]:
    """Decode context parallel size in the master against the argument."""
    sizes = {role.role: role.parallel.dcp for _, _, role in view.pairs}
    yield from _size_rule(view, "dcp-size", "decode-context-parallel-size", sizes)


@rule("TOP205", "error", wrong=(("masters.yaml", _PREFILL, f"{_PREFILL}\n              pcp-size: 2"),))
def prefill_context_parallel(view: EntryView) -> Iterator[Hit]:
    """Prefill context parallel size in the master against the argument."""
    sizes = {role.role: role.parallel.pcp for _, _, role in view.pairs}
    yield from _size_rule(view, "pcp-size", "prefill-context-parallel-size", sizes)


@rule("TOP206", "error", wrong=(("masters.yaml", _PREFILL, _PREFILL.replace("ep: 1", "ep: 8")),))
def expert_parallel(view: EntryView) -> Iterator[Hit]:
    """Expert parallel size in the master against the argument or switch."""
    recipe = view.deployment
    if recipe is None:
        return
    for name, block, role in view.pairs:
        real = role.parallel.ep
        if real is None:
            if role.flag("moe-a2a-backend") not in {None, "none"} or recipe.engine == "trtllm":
                continue  # the engine derives its size from other arguments
            if any(flag.startswith("enable-expert") for flag in role.flags):
                continue
        used = 1 if real is None else real
        if block.ep != used:
            flags = ("expert-parallel-size", "enable-expert-parallel")
            where = flag_at(role, *flags)
            related = (
                Related(where, "checks.rel.flag", {"name": flags[recipe.engine == "vllm"], "value": used}),
            )
            yield Hit(
                view.block_at(name, "ep"), {"role": role.role, "master": block.ep, "recipe": used}, related
            )


@rule(
    "TOP207",
    "error",
    wrong=(("recipes/owl/trt.yaml", "enable_attention_dp: true", "enable_attention_dp: false"),),
)
def attention_data_parallel(view: EntryView) -> Iterator[Hit]:
    """Data-parallel attention in the master against the argument."""
    recipe = view.deployment
    if recipe is None:
        return
    flags = {"vllm": "data-parallel-size", "sglang": "enable-dp-attention", "trtllm": "enable-attention-dp"}
    flag = flags.get(recipe.engine, "enable-dp-attention")
    for name, block, role in view.pairs:
        real = bool(role.parallel.dp_attention)
        if block.dp_attn != real:
            related = (
                Related(flag_at(role, flag), "checks.rel.flag", {"name": flag, "value": role.flag(flag)}),
            )
            values: dict[str, object] = {
                "role": role.role,
                "master": block.dp_attn,
                "recipe": real,
                "flag": flag,
            }
            yield Hit(view.block_at(name, "dp-attn"), values, related)


def _launcher_counts(view: EntryView) -> bool:
    """Whether results take their GPUs from the name that the launcher gives the result file: those of several
    nodes and fixed sequence lengths. Others are divided by the master's sizes."""
    scenario = view.entry.scenario
    return view.arm.multinode and scenario is not None and scenario.kind == "fixed-seq-len"


@rule(
    "TOP208",
    "error",
    wrong=(
        (
            _DISAGG,
            "tensor-parallel-size: 8",
            "tensor-parallel-size: 1\n      data-parallel-size: 8\n      enable-expert-parallel: true",
        ),
        (
            "masters.yaml",
            "tp: 8\n              ep: 1\n              dp-attn: false",
            "tp: 1\n              ep: 8\n              dp-attn: true",
        ),
    ),
)
def gpus_counted(view: EntryView) -> Iterator[Hit]:
    """GPUs that per-GPU figures would be divided by against GPUs that the recipe books. The suite counts
    tp x pp x pcp for a worker and has no field for data parallel ranks."""
    recipe = view.deployment
    if recipe is None:
        return
    for name, block, role in view.pairs:
        if not role.gpus:
            continue  # a machine without GPUs
        counted, booked = block.num_worker * block.gpus, role.workers * role.gpus
        if counted == booked or (block.num_worker != role.workers and not _worker_per_rank(block, role)):
            continue
        where = count_at(recipe, role, "gpus")
        related = (
            Related(where, "checks.rel.gpus", {"workers": role.workers, "gpus": role.gpus}),
            Related(
                flag_at(role, "data-parallel-size", "tensor-parallel-size"),
                "checks.rel.parallel",
                {"tp": role.parallel.tp, "dp": role.parallel.dp or 1},
            ),
        )
        values: dict[str, object] = {
            "role": role.role,
            "counted": counted,
            "booked": booked,
            "factor": f"{booked / counted:g}",
        }
        if _launcher_counts(view):
            yield Hit(view.block_at(name, "tp"), values, related, None, "fixed", "warning")
        else:
            yield Hit(view.block_at(name, "tp"), values, related)


@rule("TOP211", "error", "recipe", wrong=((_DISAGG, "tensor-parallel-size: 8", "tensor-parallel-size: 16"),))
def ranks_fit(view: RecipeView) -> Iterator[Hit]:
    """Ranks of a worker by its arguments against the GPUs that it is given."""
    recipe = view.deployment
    for role in recipe.roles:
        ranks = role.parallel.ranks(recipe.engine)
        spread = recipe.engine == "sglang" and not role.parallel.dp_attention and (role.parallel.dp or 1) > 1
        if spread and ranks is not None:
            ranks *= role.parallel.dp or 1  # without data parallel attention SGLang runs whole copies
        if ranks is None or not role.gpus or ranks == role.gpus:
            continue
        sizes = role.parallel
        related = (
            Related(
                count_at(recipe, role, "gpus"),
                "checks.rel.gpus",
                {"workers": role.workers, "gpus": role.gpus},
            ),
        )
        values: dict[str, object] = {
            "role": role.role,
            "ranks": ranks,
            "gpus": role.gpus,
            "tp": sizes.tp,
            "pp": sizes.pp or 1,
            "dp": (sizes.dp or 1) if recipe.engine == "vllm" or spread else 1,
            "pcp": (sizes.pcp or 1) if recipe.engine == "vllm" else 1,
        }
        place = flag_at(role, "tensor-parallel-size")
        yield Hit(place, values, related)


@rule("TOP212", "error", "recipe", wrong=((_DISAGG, "nodes: 1\n    workers: 1", "nodes: 3\n    workers: 1"),))
def nodes_booked(view: RecipeView) -> Iterator[Hit]:
    """Nodes of a role against what its workers need: too few cannot start, too many stand idle."""
    recipe = view.deployment
    per_node = recipe.gpus_per_node
    if not per_node:
        return
    colocated = bool(recipe.extras.get(COLOCATION))
    for role in recipe.roles:
        if not role.gpus:
            continue
        each = -(-role.gpus // per_node)
        least = role.workers * each if role.gpus >= per_node else -(-role.workers * role.gpus // per_node)
        most = role.workers * each
        where = count_at(recipe, role, "nodes")
        related = (
            Related(
                count_at(recipe, role, "gpus"),
                "checks.rel.gpus",
                {"workers": role.workers, "gpus": role.gpus},
            ),
        )
        values: dict[str, object] = {
            "role": role.role,
            "nodes": role.nodes,
            "least": least,
            "most": most,
            "per_node": per_node,
        }
        if role.nodes > most:
            yield Hit(where, values, related, None, "many")
        elif role.nodes < least and not colocated:
            yield Hit(where, values, related)
    needed = sum(role.workers * role.gpus for role in recipe.roles)
    total = recipe.nodes_total * per_node
    if colocated and needed > total:
        yield Hit(
            recipe.roles[0].at,
            {"needed": needed, "total": total, "nodes": recipe.nodes_total},
            (),
            None,
            "shared",
        )


@rule(
    "TOP213",
    "error",
    "recipe",
    wrong=(
        (
            _DISAGG,
            "tensor-parallel-size: 8",
            "tensor-parallel-size: 8\n      decode-context-parallel-size: 3",
        ),
    ),
)
def divides(view: RecipeView) -> Iterator[Hit]:
    """Sizes that must divide one another: dcp divides tp; ep divides the ranks it spreads over; dp of SGLang
    divides tp."""
    recipe = view.deployment
    for role in recipe.roles:
        sizes = role.parallel
        if sizes.tp is None:
            continue
        wrong: list[tuple[str, int, int]] = []
        if sizes.dcp and sizes.tp % sizes.dcp:
            wrong.append(("decode-context-parallel-size", sizes.dcp, sizes.tp))
        if recipe.engine != "vllm" and sizes.ep and sizes.tp % sizes.ep:
            wrong.append(("expert-parallel-size", sizes.ep, sizes.tp))
        if recipe.engine == "sglang" and sizes.dp and sizes.tp % sizes.dp:
            wrong.append(("data-parallel-size", sizes.dp, sizes.tp))
        for name, value, tp in wrong:
            related = (
                Related(
                    flag_at(role, "tensor-parallel-size"),
                    "checks.rel.flag",
                    {"name": "tensor-parallel-size", "value": tp},
                ),
            )
            yield Hit(
                flag_at(role, name), {"role": role.role, "name": name, "value": value, "tp": tp}, related
            )


@rule(
    "TOP214",
    "error",
    wrong=(
        (
            "masters.yaml",
            "decode: {num-worker: 2, tp: 4, ep: 1, dp-attn: false}",
            "decode: {num-worker: 0, tp: 4, ep: 1, dp-attn: false}",
        ),
    ),
)
def roles_agree(view: EntryView) -> Iterator[Hit]:
    """Which roles there are: the master's `disagg` and workers against the recipe's roles."""
    recipe = view.deployment
    if recipe is None:
        return
    has_decode, wants_decode = recipe.role("decode") is not None, view.entry.decode.num_worker > 0
    names = ", ".join(role.role for role in recipe.roles)
    related = (
        Related(recipe.roles[0].at if recipe.roles else recipe.at, "checks.rel.roles", {"names": names}),
    )
    if has_decode != wants_decode:
        yield Hit(
            view.block_at("decode", "num-worker"),
            {"workers": view.entry.decode.num_worker, "names": names},
            related,
        )
    elif view.arm.disagg != has_decode:
        yield Hit(view.at("disagg"), {"disagg": view.arm.disagg, "names": names}, related, None, "disagg")


@rule(
    "TOP215",
    "warning",
    wrong=(
        (
            _DISAGG,
            "tensor-parallel-size: 8",
            "tensor-parallel-size: 8\n      decode-context-parallel-size: 8",
        ),
        ("masters.yaml", _PREFILL, f"{_PREFILL}\n              dcp-size: 8"),
    ),
)
def transfer_sizes(view: EntryView) -> Iterator[Hit]:
    """Decode context parallel sizes of prefill and decode: a transfer maps blocks of one layout to the other."""
    found = {name: role for name, _, role in view.pairs}
    if len(found) < 2 or not view.arm.disagg:
        return
    first, second = found["prefill"].parallel.dcp or 1, found["decode"].parallel.dcp or 1
    if first != second:
        flag = "decode-context-parallel-size"
        related = (
            Related(flag_at(found["decode"], flag), "checks.rel.flag", {"name": flag, "value": second}),
        )
        yield Hit(flag_at(found["prefill"], flag), {"prefill": first, "decode": second}, related)


_STATES = frozenset(("kda", "gated-delta", "mamba"))
"""Attention whose state is one piece a head: a transfer cannot cut it like blocks of tokens."""


@rule(
    "TOP220",
    "warning",
    wrong=(
        (
            "masters.yaml",
            "model: acme/Owl-2\n  model-prefix: owl2\n  precision: fp8\n  framework: dynamo-vllm",
            "model: moonshotai/Kimi-K3\n  model-prefix: owl2\n  precision: fp8\n  framework: dynamo-vllm",
        ),
    ),
)
def transfer_of_states(view: EntryView) -> Iterator[Hit]:
    """Tensor parallel sizes of prefill and decode, for models with recurrent states that vLLM's NIXL connector
    moves: it does not yet map states of one size to the other."""
    found = {name: role for name, _, role in view.pairs}
    recipe = view.deployment
    if recipe is None or recipe.engine != "vllm" or len(found) < 2:
        return
    first, second = found["prefill"], found["decode"]
    one, other = first.parallel.tp or 1, second.parallel.tp or 1
    if one == other or not any(c.name == "NixlConnector" for c in first.connectors):
        return
    model = model_of(view.arm.model)
    kinds = (
        sorted({group.kind for group in model.attention if group.kind in _STATES})
        if model is not None
        else []
    )
    if kinds:
        flag = "tensor-parallel-size"
        related = (Related(flag_at(second, flag), "checks.rel.flag", {"name": flag, "value": other}),)
        values: dict[str, object] = {"prefill": one, "decode": other, "kind": ", ".join(kinds)}
        yield Hit(flag_at(first, flag), {**values, "model": view.arm.model}, related)


@rule(
    "TOP216",
    "error",
    wrong=(
        ("masters.yaml", "ep: 8\n              dp-attn: true", "ep: 16\n              dp-attn: true"),
        ("masters.yaml", "CONFIG_FILE=recipes/owl/agg.yaml", "CONFIG_FILE=recipes/owl/elsewhere.yaml"),
    ),
)
def experts_fit(view: EntryView) -> Iterator[Hit]:
    """An expert parallel size larger than all GPUs that the entry counts for its role, where no recipe tells how
    many it really books (`gpus_counted` compares those)."""
    if view.deployment is not None:
        return
    for name, block in (("prefill", view.entry.prefill), ("decode", view.entry.decode)):
        counted = max(block.num_worker, 1) * block.gpus
        if block.num_worker and block.ep > counted:
            values: dict[str, object] = {"role": name, "ep": block.ep, "gpus": counted}
            if _launcher_counts(view):
                yield Hit(view.block_at(name, "ep"), values, (), None, "fixed", "warning")
            else:
                yield Hit(view.block_at(name, "ep"), values)


@rule(
    "TOP217",
    "warning",
    wrong=(
        ("recipes/owl/agg.yaml", "gpus_per_node: 8,", "gpus_per_node: 4,"),
        ("recipes/owl/agg.yaml", "agg_nodes: 1", "agg_nodes: 2"),
    ),
)
def node_size(view: EntryView) -> Iterator[Hit]:
    """GPUs of a node in the recipe against the cluster's node: more cannot be had, fewer leave some idle."""
    recipe, hardware = view.deployment, view.hardware
    if recipe is not None and hardware is None and recipe.gpu_type is not None:
        alike = view.world.nodes_with(recipe.gpu_type)
        hardware = alike[0] if len({one.gpus_per_node for one in alike}) == 1 else None
    if recipe is None or hardware is None or not recipe.gpus_per_node:
        return
    mine, real = recipe.gpus_per_node, hardware.gpus_per_node
    if mine == real:
        return
    place = at(recipe.node, "resources", "gpus_per_node", other=recipe.at)
    related = (Related(hardware.at, "checks.rel.node_gpus", {"value": real, "label": view.arm.runner}),)
    values: dict[str, object] = {"recipe": mine, "cluster": real}
    if mine > real:
        yield Hit(place, values, related, severity="error")
    else:
        yield Hit(place, values, related, None, "fewer")


@rule(
    "TOP221",
    "error",
    wrong=(("clusters.yaml", "gpus-per-node: 8}", "gpus-per-node: 8, nodes: 1}"),),
)
def enough_nodes(view: EntryView) -> Iterator[Hit]:
    """Nodes that a run takes against those that the cluster has, where the clusters file counts them."""
    recipe, hardware = view.deployment, view.hardware
    if recipe is None or hardware is None or hardware.nodes is None or recipe.nodes_taken <= hardware.nodes:
        return
    label = view.arm.runner
    related = (Related(hardware.at, "checks.rel.cluster_nodes", {"value": hardware.nodes, "label": label}),)
    values: dict[str, object] = {"recipe": recipe.nodes_taken, "cluster": hardware.nodes, "label": label}
    yield Hit(recipe.at, values, related)


@rule(
    "TOP218",
    "error",
    wrong=(
        (
            "masters.yaml",
            "model: acme/Owl-2\n  model-prefix: owl2\n  precision: fp8\n  framework: dynamo-trt",
            "model: moonshotai/Kimi-K3\n  model-prefix: owl2\n  precision: fp8\n  framework: dynamo-trt",
        ),
        ("recipes/owl/trt.yaml", "tensor_parallel_size: 8", "tensor_parallel_size: 7"),
    ),
)
def heads_divide(view: EntryView) -> Iterator[Hit]:
    """Attention heads over tensor parallel ranks, for models whose head count is known."""
    recipe = view.deployment
    model = model_of(view.arm.model) if recipe is not None else None
    if recipe is None or model is None:
        return
    counts = sorted({group.heads for group in model.attention if group.heads})
    for _, _, role in view.pairs:
        tp = role.parallel.tp
        if recipe.engine != "vllm" and role.parallel.dp_attention:
            continue  # every rank of attention holds all heads
        heads = next((count for count in counts if tp and count % tp), None)
        if heads is not None:
            yield Hit(
                flag_at(role, "tensor-parallel-size"),
                {"role": role.role, "tp": tp, "heads": heads, "model": view.arm.model},
            )


@rule(
    "TOP219",
    "error",
    "arm",
    wrong=(
        ("masters.yaml", TRT_SETTINGS, TRT_SETTINGS.replace("- ", '- "PREFILL_NODES=2"\n                - ')),
    ),
)
def settings_nodes(view: ArmView) -> Iterator[Hit]:
    """PREFILL_NODES and DECODE_NODES of the master against the nodes that its own workers need."""
    for one in view.entries:
        per_node = one.gpus_per_node
        for name, block, setting in (
            ("prefill", one.entry.prefill, "PREFILL_NODES"),
            ("decode", one.entry.decode, "DECODE_NODES"),
        ):
            value = one.entry.prefill.setting(setting) or one.entry.decode.setting(setting)
            if value is None or not value.isascii() or not value.isdigit() or len(value) > 6:
                continue
            place: Position = one.setting_at(setting)
            nodes = int(value)
            if block.num_worker and nodes == 0:
                yield Hit(
                    place,
                    {
                        "setting": setting,
                        "nodes": nodes,
                        "role": name,
                        "workers": block.num_worker,
                        "least": 1,
                    },
                )
            elif per_node and block.num_worker:
                least = -(-block.num_worker * block.gpus // per_node)
                if nodes < least or nodes > block.num_worker * -(-block.gpus // per_node):
                    yield Hit(
                        place,
                        {
                            "setting": setting,
                            "nodes": nodes,
                            "role": name,
                            "workers": block.num_worker,
                            "least": least,
                        },
                    )
