"""The front of runs that gates quarantined whole, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def serve(made: SimpleNamespace, serving: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:  # noqa: ANN401
    """One row whose median TTFT is far above its median E2EL."""
    bad = made.row("h200", "vllm", 40.0, 700.0)
    bad["metrics"]["median_ttft"] = 100 * bad["metrics"]["median_e2el"]
    bad["metrics"]["mean_ttft"] = bad["metrics"]["median_ttft"]
    home: Path = made.fill(tmp_path_factory.mktemp("bad"), bad=[bad])
    with serving(home) as address:
        yield address


def test_why_is_told_in_place_of_an_empty_chart(visit: Any) -> None:  # noqa: ANN401
    """No chart of nothing and no advice to switch something on: the gate's words and the way to the point."""
    query = {"model": "deepseek-r1", "scenario": "fixed-seq-len:1024/1024", "all": "yes"}
    page = visit("/front", query, wait=".notice.warn li a")
    assert page.locator("svg.chart").is_hidden()
    assert page.locator(".empty").count() == 0
    said = page.locator(".notice.warn").text_content()
    assert "can stand on a front" in said and "quarantined: " in said and "E2EL" in said
    page.wait_for_selector(".rows tbody tr")
    assert page.locator(".rows tbody tr").count() == 1
    page.locator(".notice.warn li a").click()
    page.wait_for_url("**/point/**")
