"""From what was typed, or an arm that was read, to a size report's input: model, precision, hardware, host, log."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, replace
from pathlib import Path

from servemark.base.errors import input_error
from servemark.catalog.architecture import Architecture, Precision
from servemark.catalog.architectures import architecture
from servemark.catalog.arms import Arm, SearchEntry
from servemark.catalog.clusters import Clusters
from servemark.catalog.deployment import COLOCATION, Deployment
from servemark.catalog.fields import nearest
from servemark.catalog.hardware import Gpu, gpu, gpu_of_label
from servemark.catalog.nodes import Problem, errors_of, problems_error
from servemark.catalog.selector import parse_selector
from servemark.sizing.from_recipe import roles_of, roles_of_blocks
from servemark.sizing.host import POLICY_MIB, dram_budget_gb
from servemark.sizing.inputs import FitInput, RoleInput, Stated
from servemark.sizing.lines import Remark
from servemark.sizing.model_names import known_spelling, model_slip
from servemark.sizing.size_strings import GIB, MIB
from servemark.sizing.startup_log import StartupLog, read_log


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the command line changes; None leaves the files' word."""

    cluster: str | None = None
    gpu: str | None = None
    model: str | None = None
    config: Path | None = None
    precision: str | None = None
    context: int | None = None
    reserve: str | None = None
    role: str | None = None
    log: Path | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """What was named: a deployment, and the arm and suite around it when there are any."""

    title: str
    deployment: Deployment | None
    """None for an arm that a script launches."""
    arm: Arm | None = None
    entry: SearchEntry | None = None
    clusters: Clusters | None = None


def asked_of(target: str, wishes: Wishes) -> FitInput:
    """Resolve everything. ServemarkError (exit 2) for whatever the user has to mend first."""
    if wishes.context is not None and wishes.context < 1:
        raise input_error("sizing.not_positive", name="--context", value=wishes.context)
    return asked_of_target(_target(target), wishes)


def asked_of_target(found: Target, wishes: Wishes) -> FitInput:
    """The same of what was already read. ServemarkError (exit 2) where the model, precision or a size is not known."""
    deployment = found.deployment
    remarks: list[Remark] = []
    model = _model(found, wishes, remarks)
    stated_form = deployment.precision if deployment is not None else found.arm.precision if found.arm else ""
    precision = _precision(model, wishes.precision or stated_form, wishes, remarks)
    label = wishes.cluster or (found.arm.runner if found.arm is not None else None)
    roles = _roles(found, model, label, wishes.role)
    card = _gpu(deployment, label, wishes.gpu)
    log = _log(roles, wishes)
    roles = _longest_of_log(roles, log)
    context, stated = _context(found, roles, wishes.context)
    dram, dram_source = _node_dram(found, label, card, wishes.cluster is not None)
    budget, budget_formula = _budget(found, label, card, roles, dram)
    return FitInput(
        title=found.title,
        model=model,
        precision=precision,
        roles=roles,
        gpu=card,
        gpus_per_node=deployment.gpus_per_node if deployment is not None else None,
        context=context,
        context_stated=stated,
        node_dram_bytes=dram,
        node_dram_source=dram_source,
        budget_bytes=budget,
        budget_formula=budget_formula,
        transfer=deployment.kv_transfer[0] if deployment is not None and deployment.kv_transfer else None,
        transfer_efa=deployment is not None and _over_efa(deployment),
        colocated=deployment is not None and deployment.extras.get(COLOCATION) is True,
        reserve_bytes=_reserve(wishes.reserve),
        log=log,
        remarks=tuple(remarks),
    )


def _target(text: str) -> Target:
    if text.endswith((".yaml", ".yml")) or (
        ":" in text and text.partition(":")[0].endswith((".yaml", ".yml"))
    ):
        return _recipe(text)
    from servemark.catalog.layout import suite_here  # noqa: PLC0415
    from servemark.catalog.suite import read_suite, shipped_suites  # noqa: PLC0415

    selector = parse_selector(text)
    where = selector.suite or (selector.arm if selector.arm in shipped_suites() else suite_here())
    suite, problems = read_suite(where if where is not None else selector.arm)
    arm = suite.arms.get(selector.arm)
    if arm is None:
        wrong = errors_of(problems)
        if wrong and not suite.arms:
            raise problems_error(wrong)
        arm = suite.arm(selector.arm)
    entry = _entry(arm, selector.topology)
    deployment = None if entry.config_file is None else suite.deployment(arm, entry)
    return Target(f"{arm.key}/{entry.topology}", deployment, arm, entry, suite.clusters)


def _entry(arm: Arm, topology: str | None) -> SearchEntry:
    known = {entry.topology: entry for entry in arm.entries}
    names = ", ".join(known)
    if topology is None:
        if len(known) > 1:
            raise input_error("catalog.many_topologies", arm=arm.key, topologies=names)
        return next(iter(known.values()))
    if topology not in known:
        near = nearest(topology, known)
        key = "catalog.no_topology_near" if near else "catalog.no_topology"
        raise input_error(key, arm=arm.key, topology=topology, topologies=names, near=near)
    return known[topology]


def _recipe(text: str) -> Target:
    from servemark.catalog.recipe import read_recipe  # noqa: PLC0415

    file, _, variant = text.partition(":")
    problems: list[Problem] = []
    found = read_recipe(Path(file), file, problems, variant or None)
    wrong = errors_of(problems)
    if found is None or wrong:
        raise problems_error(wrong)
    return Target(found.name, found)


def _model(found: Target, wishes: Wishes, remarks: list[Remark]) -> Architecture:
    """The file that was given, the name that was given, or the first of the recipe's and arm's names known here."""
    if wishes.config is not None:
        from servemark.catalog.model_files import model_from_file  # noqa: PLC0415

        model = model_from_file(wishes.config)
        if model.text_part and model.weight_bytes is None:
            remarks.append(Remark("text_part", "warning", {"model": model.name}))
        return model
    if wishes.model is not None:
        return architecture(wishes.model)
    names = []
    if found.deployment is not None:
        names = [found.deployment.model_path, *_identity_names(found.deployment)]
    if found.arm is not None:
        names += [found.arm.model, found.arm.model_prefix]
    for name in names:
        if not name:
            continue
        taken = known_spelling(name)
        if taken is None:
            near = model_slip(name)
            if near is not None:
                remarks.append(Remark("model_slip", "warning", {"name": name[:120], "near": near}))
        else:
            if taken.lower() != name.lower():
                remarks.append(Remark("model_taken", "note", {"name": name[:120], "taken": taken}))
            return architecture(taken)
    return architecture(names[0])


def _identity_names(deployment: Deployment) -> list[str]:
    said = deployment.identity.get("model")
    name = said.get("repo") if isinstance(said, dict) else None
    return [name] if isinstance(name, str) else []


def _precision(model: Architecture, wanted: str, wishes: Wishes, remarks: list[Remark]) -> Precision:
    found = model.precision(wanted)
    if found is not None:
        return found
    known = ", ".join(one.name for one in model.precisions)
    if wishes.config is not None and wishes.precision is None:
        taken = model.precisions[0]
        remarks.append(Remark("precision_taken", "note", {"wanted": wanted[:40], "taken": taken.name}))
        return taken
    raise input_error("sizing.no_precision", precision=wanted[:60], model=model.name, known=known)


def _roles(
    found: Target, model: Architecture, label: str | None, wanted: str | None
) -> tuple[RoleInput, ...]:
    known = found.deployment
    roles = _scripted(found, model, label) if known is None else roles_of(known, model)
    if wanted is None:
        return roles
    chosen = tuple(role for role in roles if role.name == wanted)
    if not chosen:
        raise input_error("sizing.no_role", role=wanted[:60], known=", ".join(role.name for role in roles))
    return chosen


def _scripted(found: Target, model: Architecture, label: str | None) -> tuple[RoleInput, ...]:
    entry, arm = found.entry, found.arm
    if entry is None or arm is None:
        return ()
    engine = next((name for name in ("vllm", "sglang", "trt") if name in arm.framework), arm.framework)
    both = (("prefill" if entry.decode.num_worker else "aggregated", entry.prefill), ("decode", entry.decode))
    blocks = tuple((name, block) for name, block in both if block.num_worker)
    known = found.clusters.hardware.get(label or "") if found.clusters is not None else None
    return roles_of_blocks(
        "trtllm" if engine == "trt" else engine, blocks, model, known.gpus_per_node if known else None
    )


def _gpu(deployment: Deployment | None, label: str | None, wanted: str | None) -> Gpu | None:
    if wanted is not None:
        return gpu(wanted)
    for name in (label, deployment.gpu_type if deployment is not None else None):
        found = gpu_of_label(name) if name else None
        if found is not None:
            return found
    return None


def _context(found: Target, roles: tuple[RoleInput, ...], wanted: int | None) -> tuple[int, bool]:
    """(tokens of one request, whether somebody said so): --context, ISL + OSL, else the longest that all allow."""
    longest = min(int(role.max_context.value) for role in roles)
    if wanted is not None:
        if wanted > longest:
            raise input_error("sizing.context_long", context=wanted, longest=longest)
        return wanted, True
    scenario = found.entry.scenario if found.entry is not None else None
    lengths = (scenario.isl, scenario.osl) if scenario is not None else (None, None)
    bench = found.deployment.benchmark if found.deployment is not None else None
    isl = lengths[0] or (bench.isl if bench is not None else None)
    osl = lengths[1] or (bench.osl if bench is not None else None)
    if isl is not None and osl is not None:
        return min(isl + osl, longest), True
    return longest, False


def _node_dram(found: Target, label: str | None, card: Gpu | None, asked: bool) -> tuple[int | None, str]:
    """Bytes of host memory of a node and who says so."""
    clusters = found.clusters
    if clusters is not None and label is not None:
        known = clusters.hardware.get(label)
        if known is not None:
            return known.available_cpu_dram_mib * MIB, f"{known.at}"
        if asked and label not in clusters.labels and gpu_of_label(label) is None:
            near = nearest(label, clusters.labels)
            raise input_error("sizing.no_cluster", label=label[:80], near=near or "—")
    if card is not None:
        figures = card.figures.get("node-dram-mib", ())
        bare = (label or "").rpartition(":")[2]
        for figure in figures:
            if figure.where == "all" or (figure.where and figure.where in {bare, bare.partition("-")[2]}):
                return int(figure.value) * MIB, f"hardware/{card.name}.yaml"
        return None, ""
    if found.deployment is not None and found.deployment.engine == "llamacpp":
        return _this_machine()
    return None, ""


def _this_machine() -> tuple[int | None, str]:
    """Memory of the machine that this runs on, where the system says it (Linux and macOS do)."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "sysconf"
    except (ValueError, OSError, AttributeError):
        return None, ""


def _budget(
    found: Target, label: str | None, card: Gpu | None, roles: tuple[RoleInput, ...], dram: int | None
) -> tuple[int | None, dict[str, object]]:
    """The suite's budget per node, as its generator works it out: prefill's GPUs on one node, whole decimal GB."""
    share = (
        found.entry.scenario.dram_utilization if found.entry is not None and found.entry.scenario else None
    )
    known = found.clusters.hardware.get(label or "") if found.clusters is not None else None
    on_node = card.first("gpus-per-node") if card is not None else None
    per_node = known.gpus_per_node if known is not None else int(on_node or 0)
    if share is None or not dram or not per_node:
        return None, {}
    gpus = min(roles[0].ranks_per_worker, per_node)
    size = dram_budget_gb(dram // MIB, share, gpus, per_node)
    formula: dict[str, object] = {
        "mib": min(dram // MIB, POLICY_MIB), "share": share, "gpus": gpus, "per_node": per_node, "gb": size,
    }  # fmt: skip
    return size * 10**9, formula


def _over_efa(deployment: Deployment) -> bool:
    for role in deployment.roles:
        for connector in role.connectors:
            backends = connector.config.get("backends")
            if isinstance(backends, list) and "LIBFABRIC" in backends:
                return True
    return False


def _reserve(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or not 0 <= value < 1 << 20:
        raise input_error("sizing.bad_reserve", value=text[:40])
    return int(value * GIB)


def _longest_of_log(roles: tuple[RoleInput, ...], log: StartupLog | None) -> tuple[RoleInput, ...]:
    """The longest context that the engine printed, where the recipe says none."""
    longest = log.value("max_context") if log is not None else None
    if log is None or not longest or longest < 1:
        return roles
    said = Stated(longest, f"{log.file}:{log.facts['max_context'].line}")
    return tuple(
        replace(role, max_context=said) if role.max_context.source == "model" else role for role in roles
    )


def _log(roles: tuple[RoleInput, ...], wishes: Wishes) -> StartupLog | None:
    if wishes.log is None:
        return None
    bare = {replace(role, name="", where="", remarks=()) for role in roles}
    if len(bare) > 1:
        raise input_error("sizing.log_of_role", known=", ".join(role.name for role in roles))
    found = read_log(wishes.log)
    engine = roles[0].engine
    if engine in {"vllm", "sglang", "llamacpp"} and found.engine != engine:
        raise input_error("sizing.log_engine", path=str(wishes.log), found=found.engine, engine=engine)
    return found
