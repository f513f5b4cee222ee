"""Engine arguments of a recipe: what is taken, what is refused, and by which name it is called then."""

from __future__ import annotations

import pytest

from servemark.base.errors import ServemarkError
from servemark.launch.engines.embedded_args import ARGS, parse_args


def test_known_arguments() -> None:
    """llama-server's names, to the parameters of the wheel."""
    recipe = {"ctx-size": 16384, "parallel": 4, "threads": 2, "temp": 0, "cache-ram": -1, "kv-unified": True}
    assert parse_args(recipe) == {
        "n_ctx": 16384,
        "n_parallel": 4,
        "cpuparams.n_threads": 2,
        "sampling.temp": 0,
        "cache_ram_mib": -1,
        "kv_unified": True,
    }
    assert parse_args({"cache-type-k": "q8_0"}) == {
        "cache_type_k": {"enum": "ggml_type", "member": "GGML_TYPE_Q8_0"}
    }


def test_on_and_off_as_yaml_reads_them() -> None:
    """`flash-attn: on` reaches us as True."""
    by_word, by_bool = parse_args({"flash-attn": "on"}), parse_args({"flash-attn": True})
    assert by_word == by_bool
    assert parse_args({"flash-attn": False}) == parse_args({"flash-attn": "off"}) != by_bool


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("ctx_size", "ctx-size"),
        ("--ctx-size", "ctx-size"),
        ("ctxsize", "ctx-size"),
        ("cache-promt", "cache-prompt"),
        ("paralel", "parallel"),
        ("temperature", "temp"),
    ],
)
def test_misspelt_argument_names_the_nearest(name: str, nearest: str) -> None:
    """A typing error must not become a silent default."""
    with pytest.raises(ServemarkError) as caught:
        parse_args({name: 1})
    assert caught.value.key == "launch.arg_unknown_near"
    assert caught.value.values["nearest"] == nearest
    assert caught.value.exit_code == 2
    assert nearest in (caught.value.next_step() or "")


@pytest.mark.parametrize("name", ["zzzz", "", 5, None, "x" * 10_000])
def test_unknown_argument_lists_the_known(name: object) -> None:
    """Nothing is near: all names, and what was written in short."""
    with pytest.raises(ServemarkError) as caught:
        parse_args({name: 1})  # type: ignore[dict-item]
    assert caught.value.key == "launch.arg_unknown"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("name", ["port", "host", "alias", "model", "metrics", "api-key"])
def test_reserved_arguments(name: str) -> None:
    """What the launcher sets cannot be set twice."""
    with pytest.raises(ServemarkError) as caught:
        parse_args({name: "x"})
    assert caught.value.key == "launch.arg_reserved"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ctx-size", "16384"),
        ("ctx-size", True),
        ("ctx-size", 1.5),
        ("ctx-size", -1),
        ("ctx-size", None),
        ("ctx-size", 2**40),
        ("parallel", 0),
        ("temp", float("nan")),
        ("temp", float("inf")),
        ("slot-prompt-similarity", 1.5),
        ("cache-prompt", 1),
        ("cache-prompt", "true"),
        ("cache-type-k", "q3"),
        ("cache-type-k", True),
        ("flash-attn", 1),
        ("flash-attn", ["on"]),
        ("slot-save-path", "/etc"),
        ("slot-save-path", "a/../../b"),
        ("slot-save-path", ""),
        ("slot-save-path", "a\0b"),
    ],
)
def test_wrong_values(name: str, value: object) -> None:
    """The message names the argument, the value and what is expected."""
    with pytest.raises(ServemarkError) as caught:
        parse_args({name: value})
    assert caught.value.key == "launch.arg_value"
    assert name in str(caught.value)
    assert ARGS[name].expected in (caught.value.next_step() or "")


def test_drafts_from_the_context() -> None:
    """The wheel takes a list of kinds; those that need a second model are not offered."""
    assert parse_args({"spec-type": "ngram-simple", "spec-ngram-simple-size-m": 4}) == {
        "speculative.types": {
            "enum": "common_speculative_type",
            "members": ["COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE"],
        },
        "speculative.ngram_simple.size_m": 4,
    }
    with pytest.raises(ServemarkError) as caught:
        parse_args({"spec-type": "draft-simple"})
    assert "ngram-simple" in (caught.value.next_step() or "")
