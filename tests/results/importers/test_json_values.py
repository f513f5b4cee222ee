"""The streaming reader against `json.loads`, whatever the chunks."""

from __future__ import annotations

import json
from io import BytesIO

import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from servemark.base.errors import ServemarkError
from servemark.results.importers import json_values as module
from servemark.results.importers.json_values import json_values

TEXTS = st.text(alphabet='ab"\\{}[],: \n\u4e2d', max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS | st.just("drop"), inner, max_size=4),
    max_leaves=20,
)
ROWS = st.lists(st.dictionaries(TEXTS | st.just("drop"), VALUES, max_size=5), min_size=1, max_size=4)


def without(value: object) -> object:
    """Lists and objects under `drop` as null, written the plain way."""
    if isinstance(value, dict):
        return {
            k: None if k == "drop" and isinstance(v, list | dict) else without(v) for k, v in value.items()
        }
    return [without(one) for one in value] if isinstance(value, list) else value


@drawn(
    ROWS, st.sampled_from([1, 3, 64, 10_000]), st.booleans(), st.sampled_from(["array", "lines", "indented"])
)
def test_equals_json_loads(rows: list[object], chunk: int, dropping: bool, shape: str) -> None:
    """Any rows, any chunk size: the same values as a plain parser, with the named detail left out."""
    if shape == "array":
        data = json.dumps(rows).encode()
    else:
        data = "\n".join(json.dumps(row, indent=2 if shape == "indented" else None) for row in rows).encode()
    drop = frozenset((b"drop",)) if dropping else frozenset[bytes]()
    before, module.CHUNK = module.CHUNK, chunk
    try:
        found = [json.loads(value) for value in json_values(BytesIO(data), "x", drop)]
    finally:
        module.CHUNK = before
    assert found == [without(row) if dropping else row for row in rows]


@pytest.mark.parametrize(
    ("data", "key"),
    [
        (b"", "empty"), (b" \n ", "empty"), (b"\xef\xbb\xbf", "empty"), (b"1", "not_json"), (b'"a"', "not_json"),
        (b"[1]", "not_json"),
        (b'{"a": 1', "cut"), (b'{"a": "b', "cut"), (b'[{"a": 1}', "cut"), (b"}", "not_json"), (b"[}", "not_json"),
        (b'{"a": 1} x {"b": 2}', "not_json"), (b"[" * 65, "too_deep"), (b'{"a": "' + b"x" * 6_000_000, "value_too_large"),
    ],
)  # fmt: skip
def test_damage(data: bytes, key: str) -> None:
    """Each kind has its own message."""
    with pytest.raises(ServemarkError) as caught:
        list(json_values(BytesIO(data), "x"))
    assert caught.value.key == f"results.import_{key}"
    assert caught.value.what("zh")
