"""Every importer against its own sample with any value replaced: a message or a sound point, never a traceback."""

from __future__ import annotations

import importlib
import json
import random
from collections.abc import Iterator

import pytest
from tests.results.importers.given_files import HINTS, SAMPLES, explained, given, sample

from servemark.base.errors import ServemarkError
from servemark.results.importers.base import Importer, surest
from servemark.results.importers.mapping import MAX_NUMBER
from servemark.results.importers.registry import importers
from servemark.results.importers.registry_tools import TOOLS
from servemark.results.point import point_json

IMPORTERS: list[Importer] = [getattr(importlib.import_module(module), name) for module, name in TOOLS]
JSON_SAMPLES = (
    "vllm_bench/result.json", "aiperf/profile_export_aiperf.json", "agentx/profile_export_aiperf.json",
    "guidellm/report.json.gz", f"lm_eval/{next((SAMPLES / 'lm_eval').glob('results_*.json')).name}",
)  # fmt: skip
HOSTILE: tuple[object, ...] = (
    None, True, -1, 0, 0.5, 1e300, 10**400, float("nan"), float("-inf"), "", "-5", "\ud800", "x" * 10_000,
    [], {}, [None], {"": []}, [[[1]]],
)  # fmt: skip


def places(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """The path of every value but the long lists of single requests."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in ("requests", "itls"):
                yield from places(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:3]):
            yield from places(inner, (*path, index))


def changed(data: bytes, path: tuple[object, ...], value: object) -> bytes:
    """The same JSON with one value replaced."""
    whole = json.loads(data)
    inner = whole
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return json.dumps(whole).replace("1" + "0" * 400, "1" + "0" * 5000).encode()


@pytest.mark.parametrize(
    "name", [*JSON_SAMPLES, "llmd_report/vllm-benchmark.yaml", "sglang_bench/sglang.jsonl"]
)
def test_any_value_replaced(name: str) -> None:
    """150 places drawn, each with a hostile value: points stay finite and can be written, reasons can be read."""
    one = sample(name)
    ((_, importer), *_) = surest(IMPORTERS, one)
    data = one.open().read()
    if name.endswith("jsonl"):
        data = data.splitlines()[0]
    if name.endswith("yaml"):
        from servemark.catalog.yaml_nodes import parse_yaml

        data = json.dumps(parse_yaml(data, "x")[0].plain(), default=str).encode()
    draw = random.Random(11)
    all_places = list(places(json.loads(data)))
    for _ in range(150):
        path, value = draw.choice(all_places), draw.choice(HOSTILE)
        try:
            for row in importer.read(given(changed(data, path, value), one.name, HINTS, one.siblings)):
                if row.point is None:
                    explained(row)
                    continue
                assert all(0 <= figure.value <= MAX_NUMBER for figure in row.point.figures.values()), path
                point_json(row.point).encode()
        except ServemarkError as error:
            assert error.what("en") and error.what("zh")


def test_every_sample_has_one_surest_importer() -> None:
    """No sample is taken by two at the same strength, none by nobody."""
    for file in sorted(SAMPLES.rglob("*")):
        if not file.is_file() or file.suffix in (".md", ".txt") or file.name.startswith("sums"):
            continue
        found = surest(importers(), sample(str(file.relative_to(SAMPLES))))
        assert found, file
        assert len(found) == 1 or found[0][0] > found[1][0], file
        assert found[0][1].id.split("-")[0] in file.parent.name.replace("agentx", "aiperf").replace(
            "_", "-"
        ), file
    for other in (b"", b"{}", b"[]", b'{"model_id": 1}', b"a,b\n1,2\n", b"\x00" * 100):
        assert surest(IMPORTERS, given(other)) == []
