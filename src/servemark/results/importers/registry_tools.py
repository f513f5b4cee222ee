"""Importers of single tools, by module: the registry loads one only when it is asked for its format."""

from __future__ import annotations

TOOLS: tuple[tuple[str, str], ...] = (
    ("servemark.results.importers.vllm_bench", "IMPORTER"),
    ("servemark.results.importers.sglang_bench", "IMPORTER"),
    ("servemark.results.importers.aiperf", "IMPORTER"),
    ("servemark.results.importers.aiperf", "RAW_IMPORTER"),
    ("servemark.results.importers.guidellm", "IMPORTER"),
    ("servemark.results.importers.llmd_report", "IMPORTER"),
    ("servemark.results.importers.lm_eval", "IMPORTER"),
    ("servemark.results.importers.lm_eval", "SAMPLES_IMPORTER"),
    ("servemark.results.importers.gpu_csv", "IMPORTER"),
)
"""(module, attribute)"""
