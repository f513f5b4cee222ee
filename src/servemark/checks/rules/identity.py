"""Identity: images, versions, model, precision and framework that are stated in more than one place."""

from __future__ import annotations

import re
from collections.abc import Iterator

from servemark.catalog.deployment import Software
from servemark.catalog.fields import nearest
from servemark.checks.images import official_version, parse_image, portable, same_image
from servemark.checks.model import Fix, Hit, Related
from servemark.checks.registry import rule
from servemark.checks.view import ArmView, EntryView, RecipeView, at, node_in
from servemark.sizing.model_names import model_slip

LAUNCHER_ALIASES = ("dynamo-sglang", "dynamo-trtllm", "dynamo-vllm")
"""Aliases that launchers of the reference suite define beside the images of the masters."""
_COMMIT = re.compile(r"[0-9a-f]{7,64}\Z")
_ENGINES = {"vllm": "vllm", "sglang": "sglang", "trt": "trtllm", "trtllm": "trtllm"}
_DISAGG = "recipes/owl/disagg.yaml"
_IMAGE = 'container: "vllm/vllm-openai:v0.25.1", precision'


def is_commit(value: str) -> bool:
    """Whether a version is written as a commit: 7 to 64 hexadecimal digits, not all of them decimal."""
    return bool(_COMMIT.match(value)) and not value.isdigit()


def comparable(one: str, other: str) -> bool:
    """Whether two revisions are of one kind, so that they must be equal."""
    return is_commit(one) == is_commit(other)


def equal_revisions(one: str, other: str) -> bool:
    """Equal, or one commit is the other's abbreviation; a leading `v` does not count."""
    if is_commit(one) and is_commit(other):
        return one.startswith(other) or other.startswith(one)
    return one.removeprefix("v") == other.removeprefix("v")


def installed(software: tuple[Software, ...], name: str) -> Software | None:
    """The revision that the recipe installs of a program."""
    return next((s for s in software if s.name == name and s.kind != "identity"), None)


def stated(software: tuple[Software, ...], name: str) -> Software | None:
    """The revision that the recipe's identity block states of a program."""
    return next((s for s in software if s.name == name and s.kind == "identity"), None)


_TRT_MODEL = "model: acme/Owl-2\n  model-prefix: owl2\n  precision: fp8\n  framework: dynamo-trt"


@rule("IDN101", "error", wrong=(("recipes/owl/disagg.yaml", _IMAGE, _IMAGE.replace("25.1", "24.0")),))
def container_is_image(view: EntryView) -> Iterator[Hit]:
    """The recipe's container against the master's image: another image, or an alias of another image."""
    recipe = view.deployment
    if recipe is None or recipe.container == view.arm.image:
        return
    container = recipe.container
    meant = view.world.aliases.get(container, container)
    if meant == view.arm.image or same_image(view.arm.image, meant) is not False:
        return
    place = at(recipe.node, "model", "container", other=recipe.at)
    related = (Related(view.at("image"), "checks.rel.image", {"value": view.arm.image}),)
    values: dict[str, object] = {"image": view.arm.image, "container": container}
    yield Hit(place, values, related)


@rule(
    "IDN102",
    "error",
    wrong=(
        (
            "recipes/owl/trt.yaml",
            'container: "nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc24", pre',
            'container: "nvcr.io#nvidia/tensorrt-llm/release:1.3.0rc24", pre',
        ),
    ),
)
def container_spelling(view: EntryView) -> Iterator[Hit]:
    """One image, two spellings: the launcher's map of imported images is keyed by the exact text."""
    recipe = view.deployment
    image = view.arm.image
    if recipe is None or recipe.container == image or recipe.container in view.world.aliases:
        return
    if same_image(image, recipe.container) is not True:
        return
    # Launchers of these clusters key the map by the `#` spelling of the master's image.
    rewritten = view.arm.runner.removeprefix("cluster:").startswith(("h100", "h200"))
    if rewritten and recipe.container == image.replace("nvcr.io/", "nvcr.io#", 1):
        return
    place = at(recipe.node, "model", "container", other=recipe.at)
    related = (Related(view.at("image"), "checks.rel.image", {"value": image}),)
    fix = Fix(place, recipe.container, image)
    yield Hit(place, {"image": image, "container": recipe.container}, related, fix)


@rule("IDN103", "note", wrong=(("recipes/owl/disagg.yaml", _IMAGE, "container: nightly-owl, precision"),))
def container_alias(view: EntryView) -> Iterator[Hit]:
    """An alias whose image is stated nowhere in the suite."""
    recipe = view.deployment
    if recipe is None or recipe.container == view.arm.image or recipe.container in view.world.aliases:
        return
    if same_image(view.arm.image, recipe.container) is not None:
        return
    place = at(recipe.node, "model", "container", other=recipe.at)
    related = (Related(view.at("image"), "checks.rel.image", {"value": view.arm.image}),)
    alias = f"dynamo-{recipe.engine}"
    near = nearest(recipe.container, LAUNCHER_ALIASES)
    if near is not None and recipe.container != alias:
        values: dict[str, object] = {"container": recipe.container, "near": alias}
        yield Hit(place, values, related, None, "near", "warning")
    else:
        yield Hit(place, {"container": recipe.container}, related)


@rule(
    "IDN104",
    "error",
    wrong=(
        ("recipes/owl/disagg.yaml", 'image: "vllm/vllm-openai:v0.25.1"', 'image: "vllm/vllm-openai:v0.24.0"'),
    ),
)
def identity_image(view: EntryView) -> Iterator[Hit]:
    """The image that the recipe says of itself against the one that it runs; where that is an alias, against the
    master's (which of those two is right is not known then, so that there is no fix)."""
    recipe = view.deployment
    said = node_in(recipe.node, "identity", "container", "image") if recipe is not None else None
    if recipe is None or said is None or not isinstance(said.scalar, str):
        return
    other = view.world.aliases.get(recipe.container, recipe.container)
    where, key, certain = at(recipe.node, "model", "container", other=recipe.at), "checks.rel.container", True
    if parse_image(other) is None:
        other, where, key, certain = view.arm.image, view.at("image"), "checks.rel.image", False
    same = same_image(said.scalar, other)
    if said.scalar == other or same is None:
        return
    related = (Related(where, key, {"value": other}),)
    values: dict[str, object] = {"said": said.scalar, "other": other}
    fix = Fix(said.at, said.scalar, other) if certain else None
    if same is False:
        yield Hit(said.at, values, related, fix)
    else:
        yield Hit(said.at, values, related, fix, "spelling", "warning")


@rule(
    "IDN111",
    "error",
    wrong=(("recipes/owl/agg.yaml", 'install: true, version: "1.3.1"', 'install: true, version: "1.3.0"'),),
)
def router_version(view: EntryView) -> Iterator[Hit]:
    """The router's version in the master against what the recipe installs."""
    recipe, router = view.deployment, view.arm.router_of(view.entry)
    if recipe is None or router is None or router.version is None or router.name != "dynamo-router":
        return
    real = installed(recipe.software, "dynamo")
    if real is None or equal_revisions(router.version, real.value):
        return
    place = view.at("router", "version")
    related = (Related(real.at, "checks.rel.installs", {"name": "dynamo", "value": real.value}),)
    values: dict[str, object] = {"stated": router.version, "real": real.value, "kind": real.kind}
    if comparable(router.version, real.value):
        certain = all(
            other is not None and equal_revisions(other.value, real.value)
            for other in _installed_by_all(view)
        )
        yield Hit(place, values, related, Fix(place, router.version, real.value) if certain else None)
        return
    said = stated(recipe.software, "dynamo")
    agrees = said is not None and equal_revisions(said.value, router.version)
    yield Hit(place, values, related, None, "kinds", "note" if agrees else "warning")


def _installed_by_all(view: EntryView) -> list[Software | None]:
    """What every recipe under the same router installs; None for one that cannot be read."""
    found = []
    for entry in view.arm.entries:
        if view.arm.router_of(entry) is view.arm.router_of(view.entry):
            recipe = view.world.deployed(view.world.suite.recipe(entry))
            found.append(installed(recipe.software, "dynamo") if recipe is not None else None)
    return found


@rule(
    "IDN112",
    "warning",
    wrong=(
        (
            "masters.yaml",
            '  router: {name: dynamo-router, version: "1.3.1"}\n  multinode: true\n  scenarios:',
            "  multinode: true\n  scenarios:",
        ),
    ),
)
def router_missing(view: EntryView) -> Iterator[Hit]:
    """A recipe that runs dynamo's router, and a master that states none."""
    recipe = view.deployment
    if recipe is None or view.arm.router_of(view.entry) is not None:
        return
    real = installed(recipe.software, "dynamo")
    if real is None or recipe.frontend is None or recipe.frontend.type != "dynamo":
        return
    related = (Related(real.at, "checks.rel.installs", {"name": "dynamo", "value": real.value}),)
    yield Hit(view.arm.at, {"real": real.value}, related)


@rule(
    "IDN113",
    "error",
    "recipe",
    wrong=(
        (
            "recipes/owl/agg.yaml",
            'frameworks: {dynamo: "1.3.1", sglang',
            'frameworks: {dynamo: "1.3.0", sglang',
        ),
    ),
)
def identity_version(view: RecipeView) -> Iterator[Hit]:
    """What the identity block states of dynamo against what the recipe installs."""
    recipe = view.deployment
    real, said = installed(recipe.software, "dynamo"), stated(recipe.software, "dynamo")
    if real is None or said is None or equal_revisions(real.value, said.value):
        return
    related = (Related(real.at, "checks.rel.installs", {"name": "dynamo", "value": real.value}),)
    values: dict[str, object] = {"stated": said.value, "real": real.value}
    if comparable(real.value, said.value):
        yield Hit(said.at, values, related, Fix(said.at, said.value, real.value))
    else:
        yield Hit(said.at, values, related, None, "kinds", "note")


@rule(
    "IDN114",
    "note",
    "recipe",
    wrong=(
        (
            "recipes/owl/agg.yaml",
            'frameworks: {dynamo: "1.3.1", sglang',
            'frameworks: {dynamo: "cfada2fd9d17bfa6bb68dbee9d2f455e12577b8b", sglang',
        ),
    ),
)
def identity_commit(view: RecipeView) -> Iterator[Hit]:
    """A commit in the identity block: the launcher compares it with a package version."""
    said = stated(view.deployment.software, "dynamo")
    if said is not None and is_commit(said.value) and view.used:
        yield Hit(said.at, {"value": said.value})


@rule(
    "IDN115",
    "error",
    "recipe",
    wrong=(("recipes/owl/agg.yaml", 'sglang: "0.5.17"', 'sglang: "0.5.16"'),),
)
def engine_version(view: RecipeView) -> Iterator[Hit]:
    """The engine's version in the identity block against the tag of the engine's own released image."""
    recipe = view.deployment
    known = official_version(recipe.container)
    image = node_in(recipe.node, "identity", "container", "image")
    if known is None and image is not None:
        known = official_version(str(image.scalar))
    if known is None:
        own = image if image is not None else node_in(recipe.node, "model", "container")
        yield from _nightly(view, str(own.scalar) if own is not None else "")
        return
    said = stated(recipe.software, known[0])
    if said is None or is_commit(said.value) or equal_revisions(said.value, known[1]):
        return
    place = at(recipe.node, "model", "container", other=recipe.at)
    related = (Related(place, "checks.rel.container", {"value": recipe.container}),)
    values: dict[str, object] = {"engine": known[0], "stated": said.value, "tag": known[1]}
    yield Hit(said.at, values, related, Fix(said.at, said.value, known[1]))


def _nightly(view: RecipeView, image: str) -> Iterator[Hit]:
    """An identity that repeats a nightly image's tag repeats all of it."""
    parsed = parse_image(image)
    tag = parsed.tag if parsed is not None else None
    said = stated(view.deployment.software, view.deployment.engine)
    if tag is not None and said is not None and said.value.startswith("nightly") and said.value != tag:
        place = at(view.deployment.node, "model", "container", other=view.deployment.at)
        related = (Related(place, "checks.rel.container", {"value": image}),)
        values: dict[str, object] = {"engine": said.name, "stated": said.value, "tag": tag}
        yield Hit(said.at, values, related, Fix(said.at, said.value, tag))


@rule("IDN121", "error", wrong=(("recipes/owl/agg.yaml", "repo: acme/Owl-2", "repo: acme/Owl-3"),))
def model_repository(view: EntryView) -> Iterator[Hit]:
    """The model in the master against the repository that the recipe states or loads."""
    recipe = view.deployment
    if recipe is None:
        return
    repository = node_in(recipe.node, "identity", "model", "repo")
    path = node_in(recipe.node, "model", "path")
    for node in (repository, path):
        value = node.scalar if node is not None else None
        if node is None or not isinstance(value, str):
            continue
        name = value.removeprefix("hf:")
        if name.count("/") != 1 or name.startswith(("/", ".")) or name == view.arm.model:
            continue
        if "/" not in view.arm.model:
            continue
        related = (Related(view.at("model"), "checks.rel.model", {"value": view.arm.model}),)
        yield Hit(node.at, {"model": view.arm.model, "other": value}, related)


@rule(
    "IDN122",
    "error",
    wrong=(("recipes/owl/agg.yaml", "served-model-name: acme/Owl-2", "served-model-name: acme/Owl-3"),),
)
def served_name(view: EntryView) -> Iterator[Hit]:
    """The name under which the engine serves against the master's model: requests name the master's."""
    for _, _, role in view.pairs:
        served = role.flags.get("served-model-name")
        if served is None or not isinstance(served.value, str) or served.value == view.arm.model:
            continue
        related = (Related(view.at("model"), "checks.rel.model", {"value": view.arm.model}),)
        values: dict[str, object] = {"served": served.value, "model": view.arm.model}
        if "/" in view.arm.model:
            yield Hit(served.at, values, related)
        else:
            where = (
                Related(served.at, "checks.rel.flag", {"name": "served-model-name", "value": served.value}),
            )
            yield Hit(view.at("model"), values, where, None, "alias", "note")


@rule("IDN123", "error", wrong=(("recipes/owl/agg.yaml", "precision: fp8}", "precision: fp4}"),))
def precision(view: EntryView) -> Iterator[Hit]:
    """The precision in the master against the recipe's: other bits, or another spelling of the same bits."""
    recipe = view.deployment
    if recipe is None or recipe.precision == view.arm.precision:
        return
    place = at(recipe.node, "model", "precision", other=recipe.at)
    related = (Related(view.at("precision"), "checks.rel.precision", {"value": view.arm.precision}),)
    values: dict[str, object] = {"master": view.arm.precision, "recipe": recipe.precision}
    mine, other = _bits(view.arm.precision), _bits(recipe.precision)
    if mine is not None and mine == other:
        yield Hit(place, values, related, None, "spelling", "warning")
    else:
        yield Hit(place, values, related)


def _bits(name: str) -> str | None:
    found = re.search(r"(4|8|16|32)\Z", name.lower())
    return found.group(1) if found else None


@rule("IDN124", "error", wrong=(("masters.yaml", "framework: dynamo-trt", "framework: dynamo-vllm"),))
def framework(view: EntryView) -> Iterator[Hit]:
    """The framework in the master against the engine and front end of the recipe."""
    recipe = view.deployment
    if recipe is None:
        return
    parts = view.arm.framework.split("-")
    engine = next((_ENGINES[part] for part in parts if part in _ENGINES), None)
    where = at(recipe.node, "backend", "type", other=at(recipe.node, "engine", "type", other=recipe.at))
    related = (Related(view.at("framework"), "checks.rel.framework", {"value": view.arm.framework}),)
    if engine is not None and engine != recipe.engine:
        yield Hit(where, {"framework": view.arm.framework, "engine": recipe.engine}, related)
    front = recipe.frontend
    if front is None or (front.type == "dynamo") == ("dynamo" in parts):
        return
    where = at(recipe.node, "frontend", "type", other=front.at)
    related = (Related(where, "checks.rel.frontend", {"value": front.type}),)
    router = view.arm.router_of(view.entry)
    claimed = router is not None and router.name == "dynamo-router" and front.type != "dynamo"
    values: dict[str, object] = {"framework": view.arm.framework, "frontend": front.type}
    if claimed:
        yield Hit(view.at("router", "name"), values, related, None, "router")
    else:
        yield Hit(view.at("framework"), values, related, None, "frontend", "warning")


@rule(
    "IDN125",
    "error",
    "arm",
    wrong=(
        (
            "masters.yaml",
            "precision: fp8\n  framework: dynamo-trt",
            "precision: fp4\n  framework: dynamo-trt",
        ),
    ),
)
def key_names(view: ArmView) -> Iterator[Hit]:
    """The facts that an arm's key spells out against its fields."""
    arm = view.arm
    words = arm.key.split("-")
    for name, value in (("precision", arm.precision), ("framework", arm.framework)):
        known = {"precision": r"(?:nv|mx)?fp\d+|bf16|int\d", "framework": r"vllm|sglang|trt|atom|tilert"}[
            name
        ]
        found = [word for word in words if re.fullmatch(known, word)]
        parts = value.split("-")
        if found and not any(word in parts or word == value for word in found):
            values: dict[str, object] = {"key": arm.key, "word": found[0], "field": name, "value": value}
            yield Hit(view.at(name), values, (Related(arm.at, "checks.rel.key", {"value": arm.key}),))


@rule("IDN126", "error", wrong=(("recipes/owl/agg.yaml", "gpu_type: h9,", "gpu_type: h8,"),))
def gpu_type(view: EntryView) -> Iterator[Hit]:
    """The GPU type that the recipe books against the cluster's name."""
    recipe = view.deployment
    if recipe is None or recipe.gpu_type is None:
        return
    label = view.arm.runner.removeprefix("cluster:").lower()
    named = re.split(r"[-_]", label)[0]
    if named == recipe.gpu_type.lower() or not re.fullmatch(r"[a-z]+\d+[a-z]*", named):
        return  # a label such as `local` names no GPU
    place = at(recipe.node, "resources", "gpu_type", other=recipe.at)
    related = (Related(view.at("runner"), "checks.rel.runner", {"value": view.arm.runner}),)
    yield Hit(place, {"gpu": recipe.gpu_type, "runner": view.arm.runner}, related)


@rule(
    "IDN127",
    "warning",
    wrong=(
        (
            "masters.yaml",
            "kv-offload-backend: {name: hicache}",
            'kv-offload-backend: {name: native, version: "0.5.16"}',
        ),
    ),
)
def backend_version(view: EntryView) -> Iterator[Hit]:
    """A version of the engine's own offload against the engine's version."""
    recipe, backend = view.deployment, view.entry.kv_offload_backend
    if recipe is None or backend is None or backend.version is None:
        return
    known = official_version(recipe.container) or official_version(view.arm.image)
    if known is None or backend.name not in {"native", "hicache"} or is_commit(backend.version):
        return
    if not equal_revisions(backend.version, known[1]):
        place = view.at("kv-offload-backend", "version")
        where = at(recipe.node, "model", "container", other=recipe.at)
        related = (Related(where, "checks.rel.container", {"value": recipe.container}),)
        values: dict[str, object] = {"backend": backend.name, "stated": backend.version, "tag": known[1]}
        yield Hit(place, values, related, Fix(place, backend.version, known[1]))


@rule("IDN128", "note", wrong=(("recipes/owl/trt.yaml", 'dynamo: {install: true, version: "1.3.1"}\n', ""),))
def router_unknown(view: EntryView) -> Iterator[Hit]:
    """A router version with nothing in the recipe that it could be compared with."""
    recipe, router = view.deployment, view.arm.router_of(view.entry)
    if recipe is None or router is None or router.version is None:
        return
    own = recipe.frontend is not None and recipe.frontend.type == router.name == "servemark-pd"
    if own:
        return  # it comes with this program, whose version stands in every result
    if installed(recipe.software, "dynamo") is None or router.name != "dynamo-router":
        yield Hit(
            view.at("router", "version"),
            {"name": router.name, "version": router.version, "image": portable(view.arm.image)},
        )


@rule(
    "IDN129",
    "error",
    wrong=(
        (
            "masters.yaml",
            'router: {name: dynamo-router, version: "1.3.1"}\n  multinode: true\n  scenarios:',
            'router: {name: dynamo-route, version: "1.3.1"}\n  multinode: true\n  scenarios:',
        ),
    ),
)
def router_name(view: EntryView) -> Iterator[Hit]:
    """The router that the master names against the front end that the recipe runs."""
    recipe, router = view.deployment, view.arm.router_of(view.entry)
    if recipe is None or router is None or recipe.frontend is None or recipe.frontend.type != "dynamo":
        return
    if router.name != "dynamo-router":
        where = at(recipe.node, "frontend", "type", other=recipe.frontend.at)
        related = (Related(where, "checks.rel.frontend", {"value": recipe.frontend.type}),)
        yield Hit(view.at("router", "name"), {"name": router.name}, related)


@rule(
    "IDN130",
    "error",
    "recipe",
    wrong=(
        (_DISAGG, "acme/Owl-2\n      tensor-parallel-size: 4", "acme/Owl-3\n      tensor-parallel-size: 4"),
    ),
)
def one_served_name(view: RecipeView) -> Iterator[Hit]:
    """The roles of a recipe serve one model name."""
    served = [
        (role, role.flags["served-model-name"])
        for role in view.deployment.roles
        if "served-model-name" in role.flags
    ]
    for role, flag in served[1:]:
        first = served[0][1]
        if flag.value != first.value:
            related = (
                Related(first.at, "checks.rel.flag", {"name": "served-model-name", "value": first.value}),
            )
            values: dict[str, object] = {"role": role.role, "value": flag.value, "first": first.value}
            yield Hit(flag.at, values, related)


@rule(
    "IDN131",
    "warning",
    "arm",
    wrong=(("masters.yaml", _TRT_MODEL, _TRT_MODEL.replace("acme/Owl-2", "moonshotai/Kmii-K3")),),
)
def model_name(view: ArmView) -> Iterator[Hit]:
    """A model that is not among the known ones and looks like a slip of one: an arm and a recipe that agree may agree on
    a name that nobody publishes."""
    near = model_slip(view.arm.model)
    if near is not None:
        yield Hit(view.at("model"), {"model": view.arm.model, "near": near})
