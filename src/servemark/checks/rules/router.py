"""Routers: name and version in the master against framework, front end, identity and image of what is run."""

from __future__ import annotations

import re
from collections.abc import Iterator

from servemark.catalog.deployment import Deployment, Software
from servemark.catalog.fields import nearest
from servemark.checks.images import parse_image
from servemark.checks.model import Fix, Hit, Related
from servemark.checks.registry import rule
from servemark.checks.rules.identity import comparable, equal_revisions, installed, is_commit
from servemark.checks.view import EntryView, RecipeView, World, at

ROUTERS = {
    "dynamo-router": ("dynamo",),
    "sglang-router": ("sglang-router", "sglang_router", "sgl-model-gateway"),
    "vllm-router": ("vllm-router", "vllm_router"),
    "llm-d-router": ("llm-d-router", "llm-d-inference-scheduler"),
    "tilert-pd-router": ("tilert-pd-router", "tilert_pd_router"),
    "atomesh": ("atomesh",),
}
"""Routers of the reference suite, and the names under which packages or identity blocks state them."""
_FRONTENDS = {"sglang": "sglang-router", "vllm": "vllm-router"}
"""Front ends of the recipe launcher that start a router of their own engine."""
_FRAMEWORKS = {
    "dynamo": ("dynamo-router",),
    "llmd": ("llm-d-router",),
    "tilert": ("tilert-pd-router",),
    "atom": ("atomesh",),
}
"""A word of the framework -> the routers that can stand before it; other frameworks choose freely among the rest."""
_IMAGE = re.compile(
    r"[\w.\-]+(?:[/#][\w.\-]+)+(?::[\w.\-]+)?(?:@sha256:[0-9a-f]+)?\Z|.*@sha256:[0-9a-f]+\Z", re.ASCII
)
_AGG = "recipes/owl/agg.yaml"
_AGG_ROUTER = 'router: {name: dynamo-router, version: "1.3.1"}\n  multinode: true\n  scenarios:'
_PLAIN = (
    ("masters.yaml", "framework: dynamo-sglang", "framework: sglang"),
    ("masters.yaml", "acme-fp8-h9-dynamo-sglang-agg:", "acme-fp8-h9-sglang-agg:"),
    ("changelog.yaml", "acme-fp8-h9-dynamo-sglang-agg", "acme-fp8-h9-sglang-agg"),
    (_AGG, '{dynamo: "1.3.1", sglang: "0.5.17"}', '{sglang: "0.5.17", sglang-router: "0.3.2"}'),
    (_AGG, 'dynamo: {install: true, version: "1.3.1"}\n', ""),
    (_AGG, "type: dynamo\n  args: {router-mode: kv, router-session-affinity-ttl-secs: 900}", "type: sglang"),
)
"""The aggregated arm behind SGLang's own router."""


def _stated(recipe: Deployment, router: str) -> Software | None:
    """What a recipe says of a router: what it installs before what it says of itself."""
    names = ROUTERS.get(router, (router,))
    found = [software for software in recipe.software if software.name.lower() in names]
    return next((s for s in found if s.kind != "identity"), found[0] if found else None)


@rule(
    "RTR151",
    "error",
    wrong=(*_PLAIN, ("masters.yaml", _AGG_ROUTER, _AGG_ROUTER.replace("dynamo-router", "sglang-router"))),
    right=(
        *_PLAIN,
        (
            "masters.yaml",
            _AGG_ROUTER,
            _AGG_ROUTER.replace("dynamo-router", "sglang-router").replace("1.3.1", "0.3.2"),
        ),
    ),
)
def other_router_version(view: EntryView) -> Iterator[Hit]:
    """The version of a router other than dynamo's against what the recipe installs or states of it."""
    recipe, router = view.deployment, view.arm.router_of(view.entry)
    if recipe is None or router is None or router.version is None or router.name == "dynamo-router":
        return  # IDN111 compares dynamo's
    real = _stated(recipe, router.name)
    if real is None or equal_revisions(router.version, real.value):
        return
    place = view.at("router", "version")
    related = (Related(real.at, "checks.rel.installs", {"name": real.name, "value": real.value}),)
    values: dict[str, object] = {"name": router.name, "stated": router.version, "real": real.value}
    if comparable(router.version, real.value):
        certain = real.kind != "identity" and len(view.arm.entries) == 1
        yield Hit(place, values, related, Fix(place, router.version, real.value) if certain else None)
    else:
        yield Hit(place, values, related, None, "kinds", "warning")


@rule(
    "RTR152",
    "error",
    wrong=(
        *_PLAIN,
        (
            "masters.yaml",
            _AGG_ROUTER,
            _AGG_ROUTER.replace("dynamo-router", "vllm-router").replace("1.3.1", "0.3.2"),
        ),
    ),
)
def router_of_frontend(view: EntryView) -> Iterator[Hit]:
    """The router that the master names against the engine's own router that the recipe's front end starts."""
    recipe, router = view.deployment, view.arm.router_of(view.entry)
    if recipe is None or router is None or recipe.frontend is None:
        return
    real = _FRONTENDS.get(recipe.frontend.type)
    if real is None or router.name in (real, "dynamo-router"):
        return  # IDN124 tells of dynamo's router before another front end
    if router.name not in ROUTERS:
        return
    where = at(recipe.node, "frontend", "type", other=recipe.frontend.at)
    related = (Related(where, "checks.rel.frontend", {"value": recipe.frontend.type}),)
    yield Hit(view.at("router", "name"), {"name": router.name, "real": real}, related)


@rule(
    "RTR153",
    "warning",
    wrong=(*_PLAIN, ("masters.yaml", _AGG_ROUTER, _AGG_ROUTER.replace("dynamo-", "sgalng-"))),
)
def router_is_known(view: EntryView) -> Iterator[Hit]:
    """A router's name that is a slip away from a known one."""
    router = view.arm.router_of(view.entry)
    if router is None or router.name in ROUTERS:
        return
    near = nearest(router.name, ROUTERS)
    if near is not None:
        yield Hit(view.at("router", "name"), {"name": router.name, "near": near})


@rule(
    "RTR154",
    "error",
    wrong=(("masters.yaml", _AGG_ROUTER, _AGG_ROUTER.replace("1.3.1", "vllm/vllm-openai:v0.25.1")),),
)
def versions_are_versions(view: EntryView) -> Iterator[Hit]:
    """The version of a router or of an offload backend: a version or commit, never a container image."""
    router, backend = view.arm.router_of(view.entry), view.entry.kv_offload_backend
    for field, component in (("router", router), ("kv-offload-backend", backend)):
        version = component.version if component is not None else None
        if component is not None and version is not None and _IMAGE.match(version):
            yield Hit(view.at(field, "version"), {"field": field, "name": component.name, "value": version})


@rule(
    "RTR155",
    "error",
    wrong=(("masters.yaml", "framework: dynamo-sglang", "framework: llmd-sglang"),),
)
def router_of_framework(view: EntryView) -> Iterator[Hit]:
    """The router against the framework, where the framework has one of its own: dynamo, llm-d, TileRT, ATOM."""
    router = view.arm.router_of(view.entry)
    if router is None or router.name not in ROUTERS:
        return
    words = view.arm.framework.split("-")
    own = next((names for word, names in _FRAMEWORKS.items() if word in words), None)
    taken = {name for names in _FRAMEWORKS.values() for name in names}
    if router.name in own if own is not None else router.name not in taken:
        return
    related = (Related(view.at("framework"), "checks.rel.framework", {"value": view.arm.framework}),)
    values: dict[str, object] = {"name": router.name, "framework": view.arm.framework}
    values["own"] = ", ".join(own if own is not None else sorted(set(ROUTERS) - taken))
    yield Hit(view.at("router", "name"), values, related)


_SECOND = _AGG_ROUTER.replace("dynamo-router", "sglang-router").replace("1.3.1", "0.3.2")


@rule(
    "RTR156",
    "warning",
    "suite",
    wrong=(
        *_PLAIN,
        ("masters.yaml", _AGG_ROUTER, _SECOND),
        (
            "masters.yaml",
            "          - kv-offloading: dram\n            kv-offload-backend: {name: hicache}",
            "          - kv-offloading: none\n            conc-list: [4]\n"
            '            router: {name: sglang-router, version: "0.3.1"}\n'
            "            prefill: {num-worker: 1, tp: 8, ep: 1, dp-attn: false}\n"
            "            decode: {num-worker: 0, tp: 1, ep: 1, dp-attn: false}\n"
            "          - kv-offloading: dram\n"
            '            router: {name: sglang-router, version: "0.3.2"}\n'
            "            kv-offload-backend: {name: hicache}",
        ),
        ("masters.yaml", _SECOND, "multinode: true\n  scenarios:"),
    ),
)
def one_version_of_an_image(world: World) -> Iterator[Hit]:
    """A router that comes with the image has one version in it: two versions under one image contradict each
    other."""
    seen: dict[tuple[str, str], tuple[str, EntryView]] = {}
    for view in world.entries():
        router = view.arm.router_of(view.entry)
        if router is None or router.version is None or router.name not in set(_FRONTENDS.values()):
            continue
        first = seen.setdefault((router.name, view.arm.image), (router.version, view))
        if equal_revisions(first[0], router.version):
            continue
        related = (
            Related(
                first[1].at("router", "version"),
                "checks.rel.installs",
                {"name": router.name, "value": first[0]},
            ),
        )
        values: dict[str, object] = {"name": router.name, "version": router.version, "other": first[0]}
        yield Hit(view.at("router", "version"), {**values, "image": view.arm.image}, related)


_DYNAMO_IMAGE = re.compile(r"nvidia/ai-dynamo/[\w.\-]+-runtime\Z", re.ASCII)
_TAG = re.compile(r"v?\d+\.\d+", re.ASCII)
_TRT_IMAGE = "image: nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc24"
_RUNTIME = "image: nvcr.io/nvidia/ai-dynamo/tensorrtllm-runtime:1.3.0-cuda13"
_ELSEWHERE = ("masters.yaml", "CONFIG_FILE=recipes/owl/trt.yaml", "CONFIG_FILE=recipes/owl/elsewhere.yaml")


@rule(
    "RTR157",
    "error",
    wrong=(_ELSEWHERE, ("masters.yaml", _TRT_IMAGE, _RUNTIME)),
    right=(_ELSEWHERE, ("masters.yaml", _TRT_IMAGE, _RUNTIME.replace("1.3.0", "1.3.1"))),
)
def router_of_image(view: EntryView) -> Iterator[Hit]:
    """The version of dynamo's router against the tag of dynamo's own runtime image, where no recipe installs another
    one: the tag is the version, with or without the CUDA release behind it."""
    recipe, router = view.deployment, view.arm.router_of(view.entry)
    image = parse_image(view.arm.image)
    if router is None or router.version is None or router.name != "dynamo-router" or image is None:
        return
    if recipe is not None and installed(recipe.software, "dynamo") is not None:
        return  # IDN111 compares what is installed
    tag = (image.tag or "").removeprefix("v")
    if not _DYNAMO_IMAGE.search(image.repository) or not _TAG.match(tag) or is_commit(router.version):
        return
    version = router.version.removeprefix("v")
    if tag != version and not tag.startswith((f"{version}-cu", f"{version}-arm", f"{version}-amd")):
        related = (Related(view.at("image"), "checks.rel.image", {"value": view.arm.image}),)
        yield Hit(view.at("router", "version"), {"version": router.version, "tag": image.tag}, related)


@rule(
    "RTR158", "warning", "recipe", wrong=((_AGG, "frontend:\n  type: dynamo", "frontend:\n  type: dynamos"),)
)
def frontend_known(view: RecipeView) -> Iterator[Hit]:
    """Front ends that the recipe launcher starts; a newer launcher may know more, hence no error."""
    front, roles = view.deployment.frontend, view.deployment.roles
    known = ["dynamo", "trtllm_serve", "servemark-pd", "sglang-router", *_FRONTENDS]
    if len(roles) == 1 and roles[0].role == "aggregated" and roles[0].workers == 1:
        known += ["none", view.deployment.engine]  # a lone worker takes requests itself
    if front is not None and front.type not in known:
        where = at(view.deployment.node, "frontend", "type", other=front.at)
        yield Hit(where, {"frontend": front.type, "near": nearest(front.type, known) or "-"})
