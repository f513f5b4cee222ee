"""Recipe validity: what a launcher's dry run accepts and a node refuses an hour later."""

from __future__ import annotations

import re
from collections.abc import Iterator

from servemark.base.slips import typo_of
from servemark.catalog.nodes import Node
from servemark.checks.engine_names import known_names
from servemark.checks.example import PREFILL_ENV
from servemark.checks.images import official_version, parse_image
from servemark.checks.model import Hit, Related
from servemark.checks.registry import rule
from servemark.checks.rules.identity import is_commit, stated
from servemark.checks.view import RecipeView, at, node_in

_AGG, _DISAGG = "recipes/owl/agg.yaml", "recipes/owl/disagg.yaml"
_NUMBER = ("cpus-per-task", "ntasks-per-node", "gpus-per-node", "nodes", "ntasks", "segment", "gpus-per-task")
_MEMORY = re.compile(r"\d+(?:\.\d+)?[kKmMgGtT]?[bB]?\Z")


@rule(
    "RCP901",
    "error",
    "recipe",
    wrong=((_AGG, "served-model-name: acme/Owl-2", "servd-model-name: acme/Owl-2"),),
)
def engine_flags(view: RecipeView) -> Iterator[Hit]:
    """Arguments that the engine's own parser does not know. Where the list of exactly that version is not known,
    only a name that is one slip away from a known one is reported, as a warning."""
    recipe = view.deployment
    version = official_version(recipe.container)
    said = stated(recipe.software, recipe.engine)
    number = version[1] if version is not None else said.value if said is not None else None
    names, exact = known_names(recipe.engine, number)
    if not names:
        return
    for role in recipe.roles:
        for flag in role.flags.values():
            name = flag.name
            if name.removeprefix("no-") in names or name in names or name.startswith(("dyn-", "dyn.")):
                continue
            if any(one.startswith(name) for one in names):
                continue  # an abbreviation that the engine's parser completes
            near = typo_of(name, names)
            values: dict[str, object] = {
                "name": flag.spelled,
                "near": near,
                "engine": recipe.engine,
                "version": number,
            }
            if exact:
                yield Hit(
                    flag.at, values, (), None, "near" if near else None, None if view.used else "warning"
                )
            elif near is not None and not view.world.flag_is_common(recipe.engine, name):
                yield Hit(flag.at, values, (), None, "guess", "warning")


@rule("RCP902", "error", "recipe", wrong=((_DISAGG, 'cpus-per-task: "72"', 'cpus-per-task: "nine"'),))
def batch_numbers(view: RecipeView) -> Iterator[Hit]:
    """Batch directives that must be numbers or sizes."""
    for block in ("sbatch_directives", "srun_options"):
        found = node_in(view.deployment.node, block)
        for name, node in ((found.entries if found is not None else None) or {}).items():
            value = "" if node.scalar is None else str(node.scalar).strip()
            number = name in _NUMBER and not (value.isascii() and value.isdigit())
            size = name in {"mem", "mem-per-cpu", "mem-per-gpu"} and not _MEMORY.match(value)
            if number or size:
                yield Hit(node.at, {"name": name, "value": value, "block": block})


@rule(
    "RCP903",
    "error",
    "recipe",
    wrong=((_AGG, 'dynamo: {install: true, version: "1.3.1"}', 'dynamo: {install: true, hash: "nonsense"}'),),
)
def revisions(view: RecipeView) -> Iterator[Hit]:
    """A revision to build from that is no commit; more than one way to install."""
    ways = [s for s in view.deployment.software if s.name == "dynamo" and s.kind != "identity"]
    for one in ways:
        if one.kind == "hash" and not (is_commit(one.value) or re.fullmatch(r"[0-9a-f]{7,64}", one.value)):
            yield Hit(one.at, {"value": one.value, "kind": one.kind})
        elif one.kind == "version" and not re.match(r"v?\d", one.value):
            yield Hit(one.at, {"value": one.value, "kind": one.kind}, (), None, "version")
    if len(ways) > 1:
        related = (Related(ways[0].at, "checks.rel.installs", {"name": "dynamo", "value": ways[0].value}),)
        yield Hit(ways[1].at, {"first": ways[0].kind, "second": ways[1].kind}, related, None, "two")


@rule(
    "RCP904",
    "error",
    "recipe",
    wrong=((_AGG, 'container: "lmsysorg/sglang:v0.5.17"', 'container: "lmsysorg/sglang"'),),
)
def image_has_tag(view: RecipeView) -> Iterator[Hit]:
    """An image without tag and digest is whatever was pushed last."""
    image = parse_image(view.deployment.container)
    if image is not None and image.tag is None and image.digest is None:
        place = at(view.deployment.node, "model", "container", other=view.deployment.at)
        yield Hit(place, {"image": view.deployment.container})


@rule(
    "RCP905",
    "warning",
    "recipe",
    wrong=(
        (
            _DISAGG,
            PREFILL_ENV,
            PREFILL_ENV.replace('NCCL_CUMEM_ENABLE: "1"', 'MC_STORE_HUGEPAGE_SIZE: "4MB"'),
        ),
    ),
)
def environment_values(view: RecipeView) -> Iterator[Hit]:
    """Environment variables whose readers take few values."""
    allowed = {"MC_STORE_HUGEPAGE_SIZE": ("2MB", "1GB"), "DYN_REQUEST_PLANE": ("tcp", "nats", "http")}
    for path, node in _environments(view):
        for name, values in allowed.items():
            found = (node.entries or {}).get(name)
            if found is not None and str(found.scalar) not in values:
                yield Hit(
                    found.at,
                    {"name": name, "value": str(found.scalar), "allowed": ", ".join(values), "path": path},
                )


def _environments(view: RecipeView) -> Iterator[tuple[str, Node]]:
    root = view.deployment.node
    for path in (
        ("environment",),
        *(("roles", r.role, "env") for r in view.deployment.roles),
        *(("backend", f"{r.role}_environment") for r in view.deployment.roles),
    ):
        found = node_in(root, *path)
        if found is not None and found.entries is not None:
            yield ".".join(path), found
