"""A model read straight from its own files: config.json (Hugging Face), a GGUF header, safetensors headers.

All of them are untrusted. A family that is not known here is refused: a wrong geometry gives figures that look right.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.catalog.architecture import Architecture, Attention, Draft, FeedForward, Origin, Precision
from servemark.catalog.gguf import read_gguf

MAX_CONFIG_BYTES = 8 << 20
MAX_HEADER_BYTES = 100 << 20
MAX_COUNT = 1 << 40
MAX_SURPLUS_BYTES = 4096
"""What may follow a GGUF's last tensor as padding; more means that the header lists too few tensors."""
OTHER_PARTS = ("vision_config", "audio_config", "vision_tower", "mm_vision_tower")
"""Fields of a config.json that name parts beside the text model."""
BF16 = Precision("bf16", 16, 16)


class _Config:
    """A cursor over a parsed config.json; its errors name file and field."""

    def __init__(self, values: dict[str, object], shown: str) -> None:
        self.values = values
        self.shown = shown

    def integer(self, *names: str, default: int | None = None) -> int:
        """The first of several spellings; an error when it is absent, no whole number, negative or absurd."""
        for name in names:
            value = self.values.get(name)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MAX_COUNT:
                raise input_error("catalog.config_value", path=self.shown, field=name, value=str(value)[:60])
            return value
        if default is None:
            raise input_error("catalog.config_missing", path=self.shown, field=names[0])
        return default

    def positive(self, *names: str, default: int | None = None) -> int:
        """As `integer`, and at least 1."""
        found = self.integer(*names, default=default)
        if found < 1:
            raise input_error("catalog.config_value", path=self.shown, field=names[0], value=found)
        return found

    def flag(self, name: str) -> bool:
        """true only where the file says so."""
        return self.values.get(name) is True

    def items(self, name: str) -> list[object]:
        """A list; [] when absent."""
        found = self.values.get(name)
        return found if isinstance(found, list) else []

    def inner(self, name: str) -> _Config:
        """A nested mapping; an error when it is absent."""
        found = self.values.get(name)
        if not isinstance(found, dict):
            raise input_error("catalog.config_missing", path=self.shown, field=name)
        return _Config(found, self.shown)


Built = tuple[tuple[Attention, ...], tuple[FeedForward, ...]]


def _split(config: _Config, total: int, moe: FeedForward, dense_inner: int) -> tuple[FeedForward, ...]:
    """Dense layers first, as `first_k_dense_replace` counts them, then the experts'."""
    first = config.integer("first_k_dense_replace", default=0)
    if first > total:
        raise input_error(
            "catalog.config_value", path=config.shown, field="first_k_dense_replace", value=first
        )
    groups = [FeedForward(first, dense_inner)] if first else []
    if total > first:
        groups.append(
            FeedForward(total - first, moe.inner, moe.experts, moe.top_k, moe.shared, latent=moe.latent)
        )
    return tuple(groups)


def _grouped(config: _Config, layers: int, **more: object) -> Attention:
    heads = config.positive("num_attention_heads")
    window = more.get("window")
    return Attention(
        kind="gqa",
        layers=layers,
        heads=heads,
        kv_heads=config.positive("num_key_value_heads", default=heads),
        head_dim=config.positive("head_dim", default=config.positive("hidden_size") // heads or 1),
        window=window if isinstance(window, int) else None,
        output_gate=bool(more.get("gate")),
        qk_norm=bool(more.get("norm")),
        bias=bool(more.get("bias")),
    )


def _dense(config: _Config) -> Built:
    layers = config.positive("num_hidden_layers")
    norm = str(config.values.get("model_type")).startswith("qwen3")
    window = config.integer("sliding_window", default=0) if config.flag("use_sliding_window") else 0
    if str(config.values.get("model_type")) == "mistral":
        window = config.integer("sliding_window", default=0)
    bias = str(config.values.get("model_type")) == "qwen2"
    group = _grouped(config, layers, norm=norm, window=window or None, bias=bias)
    return (group,), (FeedForward(layers, config.positive("intermediate_size")),)


def _moe(config: _Config) -> Built:
    layers = config.positive("num_hidden_layers")
    inner = config.positive("moe_intermediate_size", "intermediate_size")
    experts = config.positive("num_experts", "num_local_experts")
    moe = FeedForward(layers, inner, experts, config.positive("num_experts_per_tok"))
    norm = str(config.values.get("model_type")).startswith("qwen3")
    return (_grouped(config, layers, norm=norm),), (moe,)


def _latent(config: _Config, layers: int, **more: object) -> Attention:
    index = config.integer("index_n_heads", default=0)
    return Attention(
        kind="mla",
        layers=layers,
        heads=config.positive("num_attention_heads"),
        value_dim=config.positive("v_head_dim"),
        rope_dim=config.positive("qk_rope_head_dim"),
        nope_dim=config.positive("qk_nope_head_dim"),
        q_rank=config.integer("q_lora_rank", default=0),
        kv_rank=config.positive("kv_lora_rank"),
        output_gate=bool(more.get("gate")),
        index_layers=layers if index else 0,
        index_bytes=config.integer("index_head_dim", default=0) + 4 if index else 0,
        index_dim=config.integer("index_head_dim", default=0),
        index_heads=index,
    )


def _deepseek(config: _Config) -> Built:
    layers = config.positive("num_hidden_layers")
    moe = FeedForward(
        layers,
        config.positive("moe_intermediate_size"),
        config.positive("n_routed_experts"),
        config.positive("num_experts_per_tok"),
        config.integer("n_shared_experts", default=0),
    )
    return (_latent(config, layers),), _split(config, layers, moe, config.positive("intermediate_size"))


def _kimi_linear(config: _Config) -> Built:
    layers = config.positive("num_hidden_layers")
    linear = config.inner("linear_attn_config")
    full, kda = len(linear.items("full_attn_layers")), len(linear.items("kda_layers"))
    if full + kda != layers:
        raise input_error("catalog.config_layers", path=config.shown, counted=full + kda, layers=layers)
    head = linear.positive("head_dim")
    state = Attention(
        kind="kda",
        layers=kda,
        heads=linear.positive("num_heads"),
        head_dim=head,
        value_dim=head,
        conv_kernel=linear.positive("short_conv_kernel_size"),
        output_gate=linear.flag("use_full_rank_gate"),
    )
    moe = FeedForward(
        layers,
        config.positive("moe_intermediate_size"),
        config.positive("num_experts"),
        config.positive("num_experts_per_token"),
        config.integer("num_shared_experts", default=0),
        latent=config.integer("routed_expert_hidden_size", default=0),
    )
    groups = (_latent(config, full, gate=config.flag("mla_use_output_gate")), state)
    return groups, _split(config, layers, moe, config.positive("intermediate_size"))


def _hybrid_qwen(config: _Config) -> Built:
    layers = config.positive("num_hidden_layers")
    kinds = config.items("layer_types")
    full = sum(kind == "full_attention" for kind in kinds)
    if kinds and len(kinds) != layers:
        raise input_error("catalog.config_layers", path=config.shown, counted=len(kinds), layers=layers)
    if not kinds:
        full = layers // config.positive("full_attention_interval")
    state = Attention(
        kind="gated-delta",
        layers=layers - full,
        heads=config.positive("linear_num_value_heads"),
        kv_heads=config.positive("linear_num_key_heads"),
        head_dim=config.positive("linear_key_head_dim"),
        value_dim=config.positive("linear_value_head_dim"),
        conv_kernel=config.positive("linear_conv_kernel_dim"),
        output_gate=True,
    )
    experts = config.integer("num_experts", default=0)
    feed = FeedForward(layers, config.positive("intermediate_size", default=1))
    if experts:
        shared = config.integer("shared_expert_intermediate_size", default=0)
        feed = FeedForward(
            layers,
            config.positive("moe_intermediate_size"),
            experts,
            config.positive("num_experts_per_tok"),
            shared=1 if shared else 0,
            shared_inner=shared if shared != config.integer("moe_intermediate_size") else 0,
            shared_gate=bool(shared),
        )
    return (_grouped(config, full, gate=config.flag("attn_output_gate"), norm=True), state), (feed,)


def _gpt_oss(config: _Config) -> Built:
    layers = config.positive("num_hidden_layers")
    kinds = config.items("layer_types")
    sliding = sum(kind == "sliding_attention" for kind in kinds)
    if len(kinds) != layers:
        raise input_error("catalog.config_layers", path=config.shown, counted=len(kinds), layers=layers)
    window = config.positive("sliding_window")
    groups = (
        _grouped(config, layers - sliding, bias=True),
        _grouped(config, sliding, bias=True, window=window),
    )
    feed = FeedForward(
        layers,
        config.positive("intermediate_size"),
        config.positive("num_local_experts"),
        config.positive("num_experts_per_tok"),
        bias=True,
    )
    return groups, (feed,)


def _compressed(config: _Config) -> Built:
    """Layers by the tokens that share an entry; those of 4 have a sparse index."""
    layers = config.positive("num_hidden_layers")
    ratios = [ratio for ratio in config.items("compress_ratios")[:layers] if isinstance(ratio, int)]
    if len(ratios) != layers:
        raise input_error("catalog.config_layers", path=config.shown, counted=len(ratios), layers=layers)
    groups = []
    for ratio in sorted(set(ratios)):
        indexed = ratio == 4
        groups.append(
            Attention(
                kind="compressed",
                layers=ratios.count(ratio),
                heads=config.positive("num_attention_heads"),
                kv_heads=config.positive("num_key_value_heads"),
                head_dim=config.positive("head_dim"),
                q_rank=config.positive("q_lora_rank"),
                compress=max(1, ratio),
                window=config.positive("sliding_window"),
                index_dim=config.positive("index_head_dim") if indexed else 0,
                index_heads=config.positive("index_n_heads") if indexed else 0,
                o_groups=config.positive("o_groups"),
                o_rank=config.positive("o_lora_rank"),
            )
        )
    moe = FeedForward(
        layers,
        config.positive("moe_intermediate_size"),
        config.positive("n_routed_experts"),
        config.positive("num_experts_per_tok"),
        config.integer("n_shared_experts", default=0),
    )
    return tuple(groups), _split(config, layers, moe, 1)


def _sparse_grouped(config: _Config) -> Built:
    """Grouped-query attention of which some layers keep an index; its bytes are an assumption (one bf16 key)."""
    layers = config.positive("num_hidden_layers")
    sparse = config.inner("sparse_attention_config")
    indexed = sum(one == 1 for one in sparse.items("sparse_attention_freq"))
    group = replace(
        _grouped(config, layers, norm=config.flag("use_qk_norm")),
        index_layers=min(indexed, layers),
        index_bytes=2 * sparse.positive("sparse_index_dim"),
    )
    moe = FeedForward(
        layers,
        config.positive("moe_intermediate_size"),
        config.positive("num_local_experts"),
        config.positive("num_experts_per_tok"),
        config.integer("n_shared_experts", default=0),
    )
    return (group,), _split(config, layers, moe, config.positive("dense_intermediate_size"))


FAMILIES: dict[str, Callable[[_Config], Built]] = {
    "llama": _dense,
    "mistral": _dense,
    "qwen2": _dense,
    "qwen3": _dense,
    "mixtral": _moe,
    "qwen3_moe": _moe,
    "deepseek_v3": _deepseek,
    "deepseek_v32": _deepseek,
    "kimi_k2": _deepseek,
    "glm_moe_dsa": _deepseek,
    "deepseek_v4": _compressed,
    "minimax_m3": _sparse_grouped,
    "kimi_linear": _kimi_linear,
    "qwen3_5_moe_text": _hybrid_qwen,
    "qwen3_next": _hybrid_qwen,
    "gpt_oss": _gpt_oss,
}
"""`model_type` -> how its geometry is read."""


def model_from_file(path: Path) -> Architecture:
    """A model from config.json, a .gguf, a .safetensors file, or a folder with a config.json.

    Raises ServemarkError (exit 2) for a file that is none of these, of an unknown family, cut short or contradictory.
    """
    shown = str(path)
    if path.is_dir():
        path = path / "config.json"
    name = path.name.lower()
    if name.endswith(".gguf"):
        return _from_gguf(path)
    if name.endswith(".safetensors"):
        raise input_error("catalog.safetensors_alone", path=shown)
    return _from_config(path, str(path))


def _from_config(path: Path, shown: str) -> Architecture:
    raw = _bytes(path, shown, MAX_CONFIG_BYTES)
    try:
        loaded = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise input_error("catalog.config_json", path=shown, reason=str(error)[:120]) from None
    if not isinstance(loaded, dict):
        raise input_error("catalog.config_json", path=shown, reason=type(loaded).__name__)
    found = config_architecture(loaded, shown)
    shards = sorted(path.parent.glob("*.safetensors"))
    if not shards:
        return found
    parameters, size = _sum(shards)

    return replace(found, parameters=parameters, weight_bytes=size)


def config_architecture(loaded: dict[str, object], shown: str) -> Architecture:
    """The architecture of a parsed config.json; a multimodal one is read by its text part."""
    outer = _Config(loaded, shown)
    config = outer.inner("text_config") if isinstance(loaded.get("text_config"), dict) else outer
    family = str(config.values.get("model_type", loaded.get("model_type", "")))
    build = FAMILIES.get(family)
    if build is None:
        raise input_error(
            "catalog.config_family", path=shown, family=family[:60] or "—", known=", ".join(sorted(FAMILIES))
        )
    attention, feed_forward = build(config)
    name = str(loaded.get("_name_or_path") or Path(shown).parent.name or shown)
    source = Path(shown).name
    tied = config.flag("tie_word_embeddings") or outer.flag("tie_word_embeddings")
    return Architecture(
        name=name[:120],
        repository=name[:120],
        aliases=(),
        hidden=config.positive("hidden_size"),
        vocabulary=config.positive("vocab_size"),
        max_context=config.positive("max_position_embeddings", default=2048),
        tied=tied,
        attention=attention,
        feed_forward=feed_forward,
        precisions=_precisions(config, outer),
        drafts=_built_in(config, attention, feed_forward),
        text_part=config is not outer or any(loaded.get(name) for name in OTHER_PARTS),
        replicated=("router", "latent", "q-down", "kv-down"),
        origins={"": Origin(source)},
        sources={source: shown},
        file=shown,
    )


def _built_in(
    config: _Config, attention: tuple[Attention, ...], feed: tuple[FeedForward, ...]
) -> tuple[Draft, ...]:
    """Next-token layers have the geometry of the last layer of entries."""

    layers = config.integer("num_nextn_predict_layers", "mtp_num_hidden_layers", default=0)
    full = [group for group in attention if not group.keeps_state]
    if not layers or not full or not feed:
        return ()
    group = replace(full[0], layers=layers, index_layers=0, index_bytes=0)
    if group.kind == "compressed":
        group = replace(group, compress=1, index_dim=0, index_heads=0)
    return (
        Draft(
            "mtp", (group,), (replace(feed[-1], layers=layers),), None, config.positive("hidden_size"), True
        ),
    )


def _precisions(config: _Config, outer: _Config) -> tuple[Precision, ...]:
    """The form that the configuration states first, then bf16."""
    stated = config.values.get("quantization_config") or outer.values.get("quantization_config")
    if not isinstance(stated, dict):
        return (BF16,)
    method = str(stated.get("quant_method", "")).lower()
    text = json.dumps(stated).lower()
    if method == "mxfp4" or "mxfp4" in text:
        return (Precision("fp4", 4.25, 16), BF16)
    if "nvfp4" in text:
        return (Precision("fp4", 4.5, 16), BF16)
    if method == "fp8" and config.values.get("expert_dtype") == "fp4":
        return (Precision("fp4", 4.25, 8.002), BF16)
    if method == "fp8":
        return (Precision("fp8", 8.002, 8.002), BF16)
    if '"num_bits": 4' in text:
        return (Precision("int4", 4.5, 16), BF16)
    raise input_error("catalog.config_quantisation", path=config.shown, method=method[:60] or "—")


def _from_gguf(path: Path) -> Architecture:
    """A dense model of a llama-like architecture; its weights are the header's own sum."""
    try:
        info = read_gguf(path)
    except ServemarkError as error:
        raise ServemarkError(error.key, Layer.INPUT, exit_code=2, where=None, **error.values) from None
    values = info.metadata
    family = str(values.get("general.architecture", ""))
    if family not in {"llama", "qwen2", "qwen3"}:
        raise input_error(
            "catalog.config_family", path=str(path), family=family[:60] or "—", known="llama, qwen2, qwen3"
        )
    config = _Config({key.removeprefix(f"{family}."): value for key, value in values.items()}, str(path))
    if info.tensor_bytes is None:
        raise input_error("catalog.gguf_types", path=str(path))
    if not info.tensors or info.file_bytes - info.required_bytes > MAX_SURPLUS_BYTES:
        surplus = info.file_bytes - info.required_bytes
        raise input_error("catalog.gguf_surplus", path=str(path), tensors=info.tensors, surplus=surplus)
    layers = config.positive("block_count")
    heads = config.positive("attention.head_count")
    hidden = config.positive("embedding_length")
    bits = info.tensor_bytes * 8 / max(1, info.parameters)
    return Architecture(
        name=str(values.get("general.name") or path.name)[:120],
        repository=str(path),
        aliases=(),
        hidden=hidden,
        vocabulary=config.positive("vocab_size", default=1),
        max_context=config.positive("context_length"),
        tied=False,
        attention=(
            Attention(
                kind="gqa",
                layers=layers,
                heads=heads,
                kv_heads=config.positive("attention.head_count_kv", default=heads),
                head_dim=config.positive("attention.key_length", default=max(1, hidden // heads)),
            ),
        ),
        feed_forward=(FeedForward(layers, config.positive("feed_forward_length")),),
        precisions=(Precision("gguf", bits, bits, bits),),
        replicated=(),
        weight_bytes=info.tensor_bytes,
        parameters=info.parameters,
        origins={"": Origin(path.name)},
        sources={path.name: str(path)},
        file=str(path),
    )


def _sum(paths: list[Path]) -> tuple[int, int]:
    counts = [safetensors_totals(path) for path in paths[:4096]]
    return sum(count for count, _ in counts), sum(size for _, size in counts)


def safetensors_totals(path: Path) -> tuple[int, int]:
    """(elements, bytes) of all tensors of one file, from its header: u64 length, then JSON with shape and offsets.

    Raises ServemarkError (exit 2) when the header is damaged or the file is shorter than its own table says.
    """
    shown = str(path)
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            head = stream.read(8)
            length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
            if not 2 <= length <= min(MAX_HEADER_BYTES, max(0, size - 8)):
                raise input_error("catalog.safetensors_damaged", path=shown)
            header = json.loads(stream.read(length))
    except (ValueError, RecursionError):
        raise input_error("catalog.safetensors_damaged", path=shown) from None
    except OSError as error:
        raise input_error("catalog.unreadable", path=shown, reason=error.strerror or str(error)) from error
    if not isinstance(header, dict):
        raise input_error("catalog.safetensors_damaged", path=shown)
    elements, end = 0, 0
    for name, tensor in header.items():
        if name == "__metadata__":
            continue
        found = _tensor(tensor)
        if found is None:
            raise input_error("catalog.safetensors_damaged", path=shown)
        elements += found[0]
        end = max(end, found[1])
    if 8 + length + end > size:
        raise input_error("catalog.safetensors_short", path=shown, size=size, required=8 + length + end)
    return elements, end


def _tensor(tensor: object) -> tuple[int, int] | None:
    """(elements, end offset) of one header entry; None for one that no valid file has."""
    if not isinstance(tensor, dict):
        return None
    shape, offsets = tensor.get("shape"), tensor.get("data_offsets")
    if not isinstance(shape, list) or not isinstance(offsets, list) or len(offsets) != 2:
        return None
    if not all(isinstance(one, int) and 0 <= one < MAX_COUNT for one in [*shape, *offsets]):
        return None
    count = 1
    for dimension in shape:
        count *= dimension
    return (count, int(offsets[1])) if offsets[0] <= offsets[1] else None


def _bytes(path: Path, shown: str, limit: int) -> bytes:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise input_error("catalog.not_regular", path=shown)
            if found.st_size > limit:
                raise input_error("catalog.too_large", path=shown, size=found.st_size, limit=limit)
            return stream.read(limit + 1)
    except FileNotFoundError:
        raise input_error("catalog.missing_file", path=shown) from None
    except OSError as error:
        raise input_error("catalog.unreadable", path=shown, reason=error.strerror or str(error)) from error
