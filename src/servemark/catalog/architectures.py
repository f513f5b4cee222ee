"""Architectures as data: `models/*.yaml` -> `Architecture`; every value has a source, every file a schema."""

from __future__ import annotations

from pathlib import Path

from servemark.catalog.architecture import (
    ATTENTION_KINDS,
    Architecture,
    Attention,
    AttentionKind,
    Draft,
    FeedForward,
    Origin,
    Precision,
)
from servemark.catalog.data_files import (
    Values,
    checked,
    data_folder,
    find_file,
    names_in,
    read_data,
    sources_of,
    unknown_name,
)
from servemark.catalog.fields import Fields
from servemark.catalog.nodes import Node, Problem

SCHEMA = 1
PARTS = ("router", "latent", "q-down", "kv-down")
"""What a tensor-parallel rank may hold whole."""
_NEEDS: dict[str, tuple[str, ...]] = {
    "gqa": ("kv-heads", "head-dim"),
    "mla": ("kv-rank", "rope-dim", "nope-dim", "value-dim"),
    "kda": ("head-dim", "value-dim", "conv-kernel"),
    "gated-delta": ("kv-heads", "head-dim", "value-dim", "conv-kernel"),
    "mamba": ("kv-heads", "head-dim", "value-dim", "conv-kernel"),
    "compressed": ("head-dim",),
}


def models_folder() -> Path:
    """Where the model files lie."""
    return data_folder("models")


def known_models() -> list[str]:
    """Names of the model files, sorted."""
    return sorted({path.stem for path in names_in(models_folder()).values()})


def architecture(name: str) -> Architecture:
    """The architecture of a repository, name or alias, without regard to case.

    Raises ServemarkError (exit 2): no file goes by that name (nearest name and how to add one), or the file has
    errors.
    """
    folder = models_folder()
    path = find_file(folder, name)
    if path is None:
        raise unknown_name("catalog.no_model", folder, name, known_models())
    return read_architecture(path)


def read_architecture(path: Path) -> Architecture:
    """One model file; ServemarkError (exit 2) listing everything wrong with it."""
    problems: list[Problem] = []
    found = architecture_of(read_data(path), problems)
    checked(problems)
    return found


def architecture_of(root: Node, problems: list[Problem]) -> Architecture:
    """The tree of a model file; what is wrong is collected."""
    top = Fields(root, problems, "model file")
    schema = top.integer("schema", minimum=1, required=True)
    if schema is not None and schema != SCHEMA:
        top.problem(top.at("schema"), "catalog.data_schema", schema=schema, known=SCHEMA)
    sources = sources_of(top)
    origins: dict[str, Origin] = {}
    values = Values(top, "", sources, origins)
    found = Architecture(
        name=top.text("name", required=True) or "",
        repository=top.text("repository", required=True) or "",
        aliases=top.texts("aliases"),
        hidden=values.required("hidden"),
        vocabulary=values.required("vocabulary"),
        max_context=values.required("max-context"),
        tied=bool(values.value("tied-embeddings", False)),
        attention=_attention(top, "", sources, origins),
        feed_forward=_feed_forward(top, "", sources, origins),
        precisions=_precisions(top, sources, origins),
        drafts=_drafts(top, sources, origins, values),
        replicated=_replicated(top),
        extra_parameters=values.integer("extra-parameters"),
        origins=origins,
        sources=sources,
        file=root.file,
    )
    top.no_others()
    counted = sum(group.layers for group in found.feed_forward)
    if found.attention and found.feed_forward and counted != found.layers:
        top.problem(root.at, "catalog.data_layers", attention=found.layers, other=counted)
    return found


def _replicated(top: Fields) -> tuple[str, ...]:
    names = top.texts("replicated")
    for name in names:
        if name not in PARTS:
            top.problem(
                top.at("replicated"),
                "catalog.not_one_of",
                field="replicated",
                value=name[:60],
                allowed=", ".join(PARTS),
            )
    return names


def _groups(top: Fields, name: str, what: str) -> list[Fields]:
    nodes = top.items(name, required=what == "model")
    return [Fields(node, top.problems, f"{name} group") for node in nodes]


def _attention(
    top: Fields, path: str, sources: dict[str, str], origins: dict[str, Origin], what: str = "model"
) -> tuple[Attention, ...]:
    found = []
    for index, fields in enumerate(_groups(top, "attention", what)):
        kind = fields.choice("kind", ATTENTION_KINDS, required=True)
        values = Values(fields, f"{path}attention[{index}].", sources, origins)
        for needed in _NEEDS.get(kind or "", ()):
            values.required(needed)
        window = values.integer("window")
        found.append(
            Attention(
                kind=_kind(kind),
                layers=values.required("layers"),
                heads=values.required("heads"),
                kv_heads=values.integer("kv-heads"),
                head_dim=values.integer("head-dim"),
                value_dim=values.integer("value-dim"),
                rope_dim=values.integer("rope-dim"),
                nope_dim=values.integer("nope-dim"),
                q_rank=values.integer("q-rank"),
                kv_rank=values.integer("kv-rank"),
                output_gate=bool(values.value("output-gate", False)),
                window=window or None,
                compress=values.integer("compress", 1, least=1),
                conv_kernel=values.integer("conv-kernel"),
                index_dim=values.integer("index-dim"),
                index_layers=values.integer("index-layers"),
                index_bytes=values.integer("index-bytes"),
                index_heads=values.integer("index-heads"),
                o_groups=values.integer("o-groups"),
                o_rank=values.integer("o-rank"),
                qk_norm=bool(values.value("qk-norm", False)),
                bias=bool(values.value("bias", False)),
            )
        )
        fields.no_others()
    return tuple(found)


def _kind(name: str | None) -> AttentionKind:
    return next((kind for kind in ATTENTION_KINDS if kind == name), "gqa")


def _feed_forward(
    top: Fields, path: str, sources: dict[str, str], origins: dict[str, Origin], what: str = "model"
) -> tuple[FeedForward, ...]:
    found = []
    for index, fields in enumerate(_groups(top, "feed-forward", what)):
        values = Values(fields, f"{path}feed-forward[{index}].", sources, origins)
        group = FeedForward(
            layers=values.required("layers"),
            inner=values.required("inner"),
            experts=values.integer("experts"),
            top_k=values.integer("top-k"),
            shared=values.integer("shared"),
            shared_inner=values.integer("shared-inner"),
            latent=values.integer("latent"),
            bias=bool(values.value("bias", False)),
            shared_gate=bool(values.value("shared-gate", False)),
        )
        if group.top_k > group.experts:
            fields.problem(fields.at("top-k"), "catalog.data_top_k", top_k=group.top_k, experts=group.experts)
        fields.no_others()
        found.append(group)
    return tuple(found)


def _precisions(top: Fields, sources: dict[str, str], origins: dict[str, Origin]) -> tuple[Precision, ...]:
    found = []
    holder = top.mapping("precisions", "precisions", required=True)
    for name in (holder.node.entries or {}) if holder else ():
        fields = holder.mapping(name, f"precision {name}") if holder else None
        if fields is None:
            continue
        values = Values(fields, f"precisions.{name}.", sources, origins)
        bits = [values.value(part) for part in ("routed", "other", "embedding")]
        fields.no_others()
        for part, bit in zip(("routed", "other", "embedding"), bits, strict=True):
            if bit is None or not 0 < bit <= 64:
                fields.problem(fields.at(part), "catalog.data_number", field=part, value=bit)
        routed, other, embedding = (float(bit or 16) for bit in bits)
        found.append(Precision(name.lower(), routed, other, embedding))
    return tuple(found)


def _drafts(
    top: Fields, sources: dict[str, str], origins: dict[str, Origin], values: Values
) -> tuple[Draft, ...]:
    found = []
    for index, node in enumerate(top.items("drafts")):
        fields = Fields(node, top.problems, "draft")
        path = f"drafts[{index}]."
        inner = Values(fields, path, sources, origins)
        parameters = inner.integer("parameters")
        found.append(
            Draft(
                name=fields.text("name", required=True) or "",
                attention=_attention(fields, path, sources, origins),
                feed_forward=_feed_forward(fields, path, sources, origins, "draft"),
                parameters=parameters or None,
                hidden=values.integer("hidden"),
                builtin=bool(fields.boolean("builtin")),
            )
        )
        fields.no_others()
    return tuple(found)
