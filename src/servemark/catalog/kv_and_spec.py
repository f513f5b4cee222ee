"""What engine arguments say of parallel sizes, KV connectors, KV transfer and speculative decoding."""

from __future__ import annotations

from collections.abc import Iterable

from servemark.catalog.deployment import Connector, Parallel, RoleSpec, Speculative
from servemark.catalog.engine_args import Argument

MAX_CONNECTORS = 32
_TRANSFER = {
    "NixlConnector": "nixl",
    "MooncakeConnector": "mooncake",
    "MoRIIOConnector": "mori",
    "MooncakeLayerwiseConnector": "mooncake",
    "P2pNcclConnector": "nccl",
    "NIXL": "nixl",
    "UCX": "ucx",
}


def _size(flags: dict[str, Argument], name: str) -> int | None:
    found = flags.get(name)
    if found is None or isinstance(found.value, bool):
        return None
    if isinstance(found.value, int) and 0 < found.value < 1 << 31:
        return found.value
    text = found.value
    return (
        int(text)
        if isinstance(text, str) and text.isascii() and text.isdigit() and 0 < len(text) < 9
        else None
    )


def _true(flags: dict[str, Argument], name: str) -> bool | None:
    found = flags.get(name)
    return found.value if found is not None and isinstance(found.value, bool) else None


def parallel_of(engine: str, flags: dict[str, Argument]) -> Parallel:
    """Parallel sizes as stated. vLLM's expert parallelism is a switch: its size is tp x dp x pcp then."""
    tp = _size(flags, "tensor-parallel-size")
    dp = _size(flags, "data-parallel-size")
    pcp = _size(flags, "prefill-context-parallel-size")
    ep = _size(flags, "expert-parallel-size")
    attention: bool | None = _true(flags, "enable-dp-attention")
    if engine == "vllm":
        switched = _true(flags, "enable-expert-parallel")
        if switched and tp is not None:
            ep = tp * (dp or 1) * (pcp or 1)
        elif switched is False:
            ep = 1
        attention = None if dp is None else dp > 1
    elif engine == "trtllm":
        attention = _true(flags, "enable-attention-dp")
    return Parallel(
        tp=tp,
        pp=_size(flags, "pipeline-parallel-size"),
        dp=dp,
        ep=ep,
        dcp=_size(flags, "decode-context-parallel-size"),
        pcp=pcp,
        dp_attention=attention,
    )


def connectors_of(flags: dict[str, Argument]) -> tuple[Connector, ...]:
    """KV connectors of `kv-transfer-config`, those nested in a multi-connector's configuration included."""
    found: list[Connector] = []
    argument = flags.get("kv-transfer-config")
    if argument is None:
        return ()
    waiting: list[tuple[object, tuple[str, ...]]] = [(argument.value, ())]
    while waiting and len(found) < MAX_CONNECTORS:
        value, inside = waiting.pop(0)
        if not isinstance(value, dict):
            continue
        name = value.get("kv_connector")
        extra = value.get("kv_connector_extra_config")
        extra = extra if isinstance(extra, dict) else {}
        here = inside
        if isinstance(name, str):
            role = value.get("kv_role")
            config = {key: inner for key, inner in extra.items() if key != "connectors"}
            found.append(
                Connector(name, role if isinstance(role, str) else None, inside, config, argument.at)
            )
            here = (*inside, name)
        nested = extra.get("connectors")
        waiting += [(inner, here) for inner in nested] if isinstance(nested, list) else []
    return tuple(found)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def speculative_of(flags: dict[str, Argument]) -> Speculative | None:
    """Speculative decoding in the words of vLLM (one JSON), TensorRT-LLM (a mapping), SGLang or llama.cpp (several
    flags)."""
    argument = flags.get("speculative-config")
    if argument is not None and isinstance(argument.value, dict):
        config = {str(key).replace("-", "_"): value for key, value in argument.value.items()}
        method = _text(config.get("method")) or _text(config.get("decoding_type"))
        tokens = [_count(config.get(name)) for name in _DRAFT_TOKENS]
        return Speculative(
            method=(method or "unnamed").lower(),
            draft_tokens=next((value for value in tokens if value is not None), None),
            draft_model=_text(config.get("model")) or _text(config.get("speculative_model")),
            draft_sampling=_text(config.get("draft_sample_method")),
            rejection_sampling=_text(config.get("rejection_sample_method")),
            at=argument.at,
        )
    argument = flags.get("speculative-algorithm")
    method = _text(argument.value) if argument is not None else None
    if argument is None or method is None:
        return _llamacpp_speculative(flags)
    model = flags.get("speculative-draft-model-path")
    # Of an SGLang chain with top-k 1, one of the draft tokens is the root: steps = tokens - 1 are drafted.
    return Speculative(
        method=method.lower(),
        draft_tokens=_size(flags, "speculative-num-steps"),
        draft_model=_text(model.value) if model is not None else None,
        draft_sampling=None,
        rejection_sampling=None,
        at=argument.at,
    )


def _llamacpp_speculative(flags: dict[str, Argument]) -> Speculative | None:
    """`spec-type`, or a draft model without it: asked for all the same, though the server drafts nothing then."""
    kind, model = flags.get("spec-type"), flags.get("spec-draft-model")
    kinds = (
        kind.value if kind is not None and isinstance(kind.value, list) else [kind.value if kind else None]
    )
    named = [str(one) for one in kinds if one not in (None, "none")]
    argument = model if not named else kind
    if argument is None:
        return None
    ngram = bool(named) and all(one.startswith("ngram") for one in named)
    most = _size(flags, "spec-ngram-simple-size-m" if named == ["ngram-simple"] else "spec-draft-n-max")
    return Speculative(
        method=",".join(named) or "draft",
        draft_tokens=most,
        draft_model=_text(model.value) if model is not None and not ngram else None,
        draft_sampling=None,
        rejection_sampling=None,
        at=argument.at,
    )


_DRAFT_TOKENS = ("num_speculative_tokens", "num_nextn_predict_layers", "max_draft_len")


def transfer_engines(roles: Iterable[RoleSpec]) -> tuple[str, ...]:
    """What carries KV between roles, in order of appearance, each once."""
    found: list[str] = []
    for role in roles:
        found += [_TRANSFER[c.name] for c in role.connectors if c.name in _TRANSFER]
        backend = _text(role.flag("disaggregation-transfer-backend"))
        found += [backend.lower()] if backend else []
        transceiver = role.flag("cache-transceiver-config")
        if isinstance(transceiver, dict) and isinstance(transceiver.get("backend"), str):
            found.append(_TRANSFER.get(transceiver["backend"], transceiver["backend"].lower()))
    return tuple(dict.fromkeys(found))
