"""Model and hardware files: every one keeps the schema, every value has a source, and mistakes are named."""

from __future__ import annotations

from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.catalog.architectures import architecture, known_models, models_folder, read_architecture
from servemark.catalog.data_files import names_in
from servemark.catalog.hardware import gpu, gpu_of_label, hardware_folder, known_gpus, read_gpu

WANTED = {
    "kimi-k3", "deepseek-r1", "deepseek-v3", "deepseek-v4-pro", "glm-5.2", "minimax-m3", "qwen3.5-397b-a17b",
    "gpt-oss-120b", "kimi-k2", "kimi-k2.5", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "qwen3-8b",
    "qwen3-32b", "smollm2-135m",
}  # fmt: skip


@pytest.mark.parametrize("name", known_models())
def test_every_model_file(name: str) -> None:
    """It is read without a problem; each value's source is listed or an assumption with a band."""
    found = architecture(name)
    assert len(found.origins) > 10
    for path, origin in found.origins.items():
        assert origin.source in found.sources or (origin.source == "assumed" and origin.band is not None), (
            path
        )
    assert found.precisions


def test_the_models_that_must_be_there() -> None:
    """The list that the tool promises."""
    assert set(known_models()) >= WANTED


def test_look_up_agrees_with_parsing() -> None:
    """Names found by reading first lines only are the names that parsing gives."""
    parsed: dict[str, Path] = {}
    for path in sorted(models_folder().glob("*.yaml")):
        model = read_architecture(path)
        for name in (model.name, model.repository, *model.aliases):
            parsed.setdefault(name.lower(), path)
    assert names_in(models_folder()) == parsed


def test_every_gpu_file() -> None:
    """Nine GPU types with a memory; conflicts stand side by side with their sources."""
    assert set(known_gpus()) == {
        "h100",
        "h200",
        "b200",
        "b300",
        "gb200",
        "gb300",
        "mi300x",
        "mi325x",
        "mi355x",
    }
    for name in known_gpus():
        found = gpu(name)
        assert found.memory_bytes and found.memory_bytes >= 80 * 10**9
        for figures in found.figures.values():
            assert all(figure.origin.source in found.sources for figure in figures)


def test_conflicts_are_kept() -> None:
    """B300: FP4 13,500 and 14,000; bandwidth 8.0 and 7.75 TB/s. B200: NIC 400 and 800. Nothing in between."""
    b300, b200 = gpu("b300").conflicts, gpu("b200").conflicts
    assert [figure.value for figure in b300["fp4-dense-tflops"]] == [13_500, 14_000]
    assert [figure.value for figure in b300["memory-bandwidth-bytes-per-s"]] == [8e12, 7.75e12]
    assert [figure.value for figure in b200["nic-gbit-per-s"]] == [400, 800]
    assert "node-dram-mib" not in b300, "two fleets are two places, no conflict"
    assert gpu("b300").memory_bytes == 275_040 << 20


def test_labels() -> None:
    """A cluster's label begins with the GPU type; GB300 is not B300."""
    for label, name in (
        ("cluster:b300-dsxe", "b300"),
        ("gb300-nv", "gb300"),
        ("b300", "b300"),
        ("mi355x_amd", "mi355x"),
    ):
        found = gpu_of_label(label)
        assert found is not None and found.name == name
    assert gpu_of_label("cpu") is None and gpu_of_label("cluster:local") is None


def test_unknown_names() -> None:
    """The nearest name and how to add one."""
    with pytest.raises(ServemarkError) as caught:
        architecture("moonshotai/Kimi-K33")
    assert caught.value.key == "catalog.no_model_near" and "kimi-k3" in caught.value.what()
    assert "models/" in (caught.value.next_step() or "")
    with pytest.raises(ServemarkError) as caught:
        architecture("zzz-unheard-of")
    assert caught.value.key == "catalog.no_model"
    with pytest.raises(ServemarkError) as caught:
        gpu("b3000")
    assert caught.value.key == "catalog.no_gpu_near"


GOOD = (models_folder() / "qwen3-8b.yaml").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("hidden: {value: 4096, source: config}", "hidden: {value: -4096, source: config}", "data_number"),
        ("hidden: {value: 4096, source: config}", "hidden: {value: many, source: config}", "data_number"),
        ("hidden: {value: 4096, source: config}", "hidden: {value: 4096, source: hearsay}", "data_source"),
        ("hidden: {value: 4096, source: config}", "hidden: {value: 4096, source: assumed}", "data_band"),
        ("hidden: {value: 4096, source: config}", "hidden: {value: 4096}", "missing_field"),
        ("hidden: {value: 4096, source: config}", "hiden: {value: 4096, source: config}", "problems"),
        ("schema: 1", "schema: 2", "data_schema"),
        ("kind: gqa", "kind: gqqa", "not_one_of"),
        ("- layers: {value: 36, source: config}", "- layers: {value: 35, source: config}", "data_layers"),
    ],
)
def test_mistakes_in_a_model_file(tmp_path: Path, old: str, new: str, key: str) -> None:
    """Each is refused with file, line and column."""
    path = tmp_path / "bad.yaml"
    assert old in GOOD
    path.write_text(GOOD.replace(old, new, 1), encoding="utf-8")
    with pytest.raises(ServemarkError) as caught:
        read_architecture(path)
    assert caught.value.key == f"catalog.{key}", caught.value.what()
    assert "bad.yaml:" in caught.value.what()


def test_mistakes_in_a_gpu_file(tmp_path: Path) -> None:
    """No memory, or a figure without a source."""
    text = (hardware_folder() / "h100.yaml").read_text(encoding="utf-8")
    path = tmp_path / "bad.yaml"
    path.write_text(text.replace("memory-bytes:", "memory-byte:"), encoding="utf-8")
    with pytest.raises(ServemarkError):
        read_gpu(path)
    path.write_text(text.replace("source: aic", "source: aci"), encoding="utf-8")
    with pytest.raises(ServemarkError) as caught:
        read_gpu(path)
    assert "aic" in caught.value.what()
