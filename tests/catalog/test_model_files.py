"""Models read from their own files. Configurations hold the published values; what comes out must equal the model
files, which were written by hand from the same facts."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.catalog.architectures import architecture
from servemark.catalog.model_files import (
    FAMILIES,
    config_architecture,
    model_from_file,
    safetensors_totals,
)
from servemark.sizing.weights import parameters_of

K3 = {
    "model_type": "kimi_k3",
    "tie_word_embeddings": False,
    "text_config": {
        "model_type": "kimi_linear", "hidden_size": 7168, "vocab_size": 163_840, "num_hidden_layers": 93,
        "max_position_embeddings": 1_048_576, "num_attention_heads": 96, "num_key_value_heads": 96,
        "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "mla_use_output_gate": True, "first_k_dense_replace": 1, "intermediate_size": 33_792,
        "moe_intermediate_size": 3072, "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2,
        "routed_expert_hidden_size": 3584, "num_nextn_predict_layers": 0,
        "linear_attn_config": {
            "full_attn_layers": [*range(4, 93, 4), 93], "head_dim": 128, "num_heads": 96,
            "kda_layers": [n for n in range(1, 93) if n % 4], "short_conv_kernel_size": 4,
            "use_full_rank_gate": True,
        },
        "quantization_config": {"quant_method": "compressed-tensors", "format": "mxfp4-pack-quantized"},
    },
}  # fmt: skip
QWEN = {
    "model_type": "qwen3", "hidden_size": 4096, "vocab_size": 151_936, "num_hidden_layers": 36, "head_dim": 128,
    "max_position_embeddings": 40_960, "num_attention_heads": 32, "num_key_value_heads": 8,
    "intermediate_size": 12_288, "tie_word_embeddings": False,
}  # fmt: skip
R1 = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "vocab_size": 129_280, "num_hidden_layers": 61,
    "max_position_embeddings": 163_840, "num_attention_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512,
    "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "first_k_dense_replace": 3,
    "intermediate_size": 18_432, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "num_nextn_predict_layers": 1, "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip
OSS = {
    "model_type": "gpt_oss", "hidden_size": 2880, "vocab_size": 201_088, "num_hidden_layers": 36, "head_dim": 64,
    "max_position_embeddings": 131_072, "num_attention_heads": 64, "num_key_value_heads": 8,
    "intermediate_size": 2880, "num_local_experts": 128, "num_experts_per_tok": 4, "sliding_window": 128,
    "layer_types": ["sliding_attention", "full_attention"] * 18, "quantization_config": {"quant_method": "mxfp4"},
}  # fmt: skip

V4 = {
    "model_type": "deepseek_v4", "hidden_size": 7168, "vocab_size": 129_280, "num_hidden_layers": 61,
    "max_position_embeddings": 1_048_576, "num_attention_heads": 128, "num_key_value_heads": 1, "head_dim": 512,
    "q_lora_rank": 1536, "o_groups": 16, "o_lora_rank": 1024, "sliding_window": 128, "index_head_dim": 128,
    "index_n_heads": 64, "moe_intermediate_size": 3072, "n_routed_experts": 384, "n_shared_experts": 1,
    "num_experts_per_tok": 6, "num_nextn_predict_layers": 1, "expert_dtype": "fp4",
    "compress_ratios": [128, 128, *([4, 128] * 29), 4, 0], "quantization_config": {"quant_method": "fp8"},
}  # fmt: skip
M3 = {
    "model_type": "minimax_m3", "hidden_size": 6144, "vocab_size": 200_064, "num_hidden_layers": 60,
    "max_position_embeddings": 1_048_576, "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128,
    "use_qk_norm": True, "first_k_dense_replace": 3, "dense_intermediate_size": 12_288,
    "moe_intermediate_size": 3072, "num_local_experts": 128, "num_experts_per_tok": 4, "n_shared_experts": 1,
    "sparse_attention_config": {"sparse_attention_freq": [0, 0, 0] + [1] * 57, "sparse_index_dim": 128},
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "name"),
    [(V4, "dsv4"), (M3, "minimaxm3"), (K3, "kimik3"), (QWEN, "Qwen/Qwen3-8B"), (R1, "dsr1"), (OSS, "gptoss")],
)
def test_configurations(config: dict[str, object], name: str) -> None:
    """Same groups, same parameters, same precision as the model file."""
    found, known = config_architecture(config, "config.json"), architecture(name)
    assert found.attention == known.attention
    assert found.feed_forward == known.feed_forward
    assert parameters_of(found) == parameters_of(known)
    assert (found.hidden, found.vocabulary, found.max_context) == (
        known.hidden,
        known.vocabulary,
        known.max_context,
    )
    assert found.precisions[0] == known.precisions[0]


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"model_type": "t5"}, "config_family"),
        ({"model_type": None}, "config_family"),
        ({"hidden_size": None}, "config_missing"),
        ({"hidden_size": -4096}, "config_value"),
        ({"hidden_size": "4096"}, "config_value"),
        ({"hidden_size": 1 << 60}, "config_value"),
        ({"num_hidden_layers": 0}, "config_value"),
        ({"num_attention_heads": True}, "config_value"),
        ({"quantization_config": {"quant_method": "magic"}}, "config_quantisation"),
    ],
)
def test_wrong_configurations(change: dict[str, object], key: str) -> None:
    """Another family, missing, negative, absurd: refused, never a number that looks right."""
    with pytest.raises(ServemarkError) as caught:
        config_architecture({**QWEN, **change}, "config.json")
    assert caught.value.key == f"catalog.{key}" and caught.value.exit_code == 2


def test_layers_that_do_not_add_up() -> None:
    """23 + 69 layers listed of 93."""
    text = K3["text_config"]
    assert isinstance(text, dict)
    linear = {**text["linear_attn_config"], "full_attn_layers": [1] * 23}
    with pytest.raises(ServemarkError) as caught:
        config_architecture({**K3, "text_config": {**text, "linear_attn_config": linear}}, "config.json")
    assert caught.value.key == "catalog.config_layers"


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 1 << 70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=3),
)


@settings(max_examples=150, deadline=None)
@given(
    family=st.sampled_from(sorted(FAMILIES)),
    base=st.sampled_from([QWEN, R1, OSS]),
    changes=st.dictionaries(
        st.sampled_from(sorted({*QWEN, *R1, *OSS, "linear_attn_config"})), VALUES, max_size=4
    ),
)
def test_hostile_configurations(family: str, base: dict[str, object], changes: dict[str, object]) -> None:
    """Any values under known names: an architecture or an expected error, no traceback."""
    try:
        found = config_architecture({**base, **changes, "model_type": family}, "config.json")
    except ServemarkError as error:
        assert error.exit_code == 2
        return
    assert parameters_of(found).total > 0


def gguf(truncate: int | None = None) -> bytes:
    """A header of a llama of 2 layers with one F16 tensor of 8 x 4: 64 bytes."""

    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    numbers = {
        "block_count": 2, "embedding_length": 64, "context_length": 128, "feed_forward_length": 96,
        "attention.head_count": 4, "attention.head_count_kv": 2, "vocab_size": 32,
    }  # fmt: skip
    body = b"GGUF" + struct.pack("<IQQ", 3, 1, len(numbers) + 1)
    body += text("general.architecture") + struct.pack("<I", 8) + text("llama")
    for name, value in numbers.items():
        body += text(f"llama.{name}") + struct.pack("<II", 4, value)
    body += text("t") + struct.pack("<IQQIQ", 2, 8, 4, 1, 0)
    body += b"\0" * (-len(body) % 32) + b"\1" * 64
    return body[:truncate]


def test_gguf(tmp_path: Path) -> None:
    """Geometry from the keys, weights from the tensor table: 32 elements of 2 bytes."""
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf())
    found = model_from_file(path)
    assert (found.layers, found.hidden, found.max_context) == (2, 64, 128)
    assert (found.parameters, found.weight_bytes) == (32, 64)
    assert (found.attention[0].kv_heads, found.attention[0].head_dim) == (2, 16)


@pytest.mark.parametrize("length", [0, 3, 30, 200, len(gguf()) - 1])
def test_truncated_gguf(tmp_path: Path, length: int) -> None:
    """Cut anywhere: an expected error with exit code 2."""
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(length))
    with pytest.raises(ServemarkError) as caught:
        model_from_file(path)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(("count", "key"), [(0, "catalog.gguf_surplus"), (1 << 31, "launch.model_damaged")])
def test_a_gguf_that_lies_about_its_tensors(tmp_path: Path, count: int, key: str) -> None:
    """None listed before 8 KiB of data: a sum of listed tensors would be a size that looks right."""
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf()[:8] + struct.pack("<Q", count) + gguf()[16:] + b"\0" * 8192)
    with pytest.raises(ServemarkError) as caught:
        model_from_file(path)
    assert (caught.value.key, caught.value.exit_code) == (key, 2)


def test_a_text_part_is_told() -> None:
    """A multimodal configuration is read by its text part, and says that it is one."""
    text = {
        "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "intermediate_size": 128, "vocab_size": 100,
    }  # fmt: skip
    assert config_architecture({"model_type": "llava", "text_config": text}, "c/config.json").text_part
    assert config_architecture({**text, "vision_config": {"depth": 2}}, "c/config.json").text_part
    assert not config_architecture(dict(text), "c/config.json").text_part


def safetensors(tensors: dict[str, object], data: int) -> bytes:
    """A file with a header and `data` bytes."""
    header = json.dumps(tensors).encode()
    return struct.pack("<Q", len(header)) + header + b"\0" * data


def test_safetensors(tmp_path: Path) -> None:
    """2 x 3 + 4 elements in 20 bytes; beside a config.json they say the weights' bytes."""
    tensors = {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F16", "shape": [2, 3], "data_offsets": [0, 12]},
        "b": {"dtype": "F16", "shape": [4], "data_offsets": [12, 20]},
    }
    path = tmp_path / "model-00001-of-00001.safetensors"
    path.write_bytes(safetensors(tensors, 20))
    assert safetensors_totals(path) == (10, 20)
    (tmp_path / "config.json").write_text(json.dumps(QWEN), encoding="utf-8")
    found = model_from_file(tmp_path)
    assert (found.parameters, found.weight_bytes) == (10, 20)
    path.write_bytes(safetensors(tensors, 19))
    with pytest.raises(ServemarkError) as caught:
        model_from_file(tmp_path)
    assert caught.value.key == "catalog.safetensors_short"
    with pytest.raises(ServemarkError) as caught:
        model_from_file(path)
    assert caught.value.key == "catalog.safetensors_alone"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 8,
        struct.pack("<Q", 2) + b"[]",
        struct.pack("<Q", 4) + b"nope",
        safetensors({"a": 1}, 0),
        safetensors({"a": {"shape": [-1], "data_offsets": [0, 4]}}, 4),
        safetensors({"a": {"shape": [1], "data_offsets": [4, 0]}}, 4),
    ],
)
def test_damaged_safetensors(tmp_path: Path, content: bytes) -> None:
    """A header that no valid file has."""
    path = tmp_path / "x.safetensors"
    path.write_bytes(content)
    with pytest.raises(ServemarkError) as caught:
        safetensors_totals(path)
    assert caught.value.key == "catalog.safetensors_damaged"


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 100_000, b"\xff\xfe"])
def test_no_configuration(tmp_path: Path, content: bytes) -> None:
    """No JSON object."""
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ServemarkError) as caught:
        model_from_file(path)
    assert caught.value.key == "catalog.config_json"
    with pytest.raises(ServemarkError):
        model_from_file(tmp_path / "absent" / "config.json")
