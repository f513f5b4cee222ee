"""A reader of a locked server, in a real browser: the token once, then the page and its data."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.browser
CHROMIUM = Path("/usr/bin/chromium")
TOKEN = "a-token-of-many-letters"  # noqa: S105 - of this test alone


@pytest.fixture
def locked(tmp_path: Path, made: dict[str, Any]) -> Iterator[str]:
    """A server that wants a token, asked for by an address of this machine that browsers trust no more than others."""
    home = tmp_path / "home"
    made["fill"](home, made["rows"]())
    (tmp_path / "token").write_text(TOKEN + "\n")
    address = own_address()
    with made["served"](home, "--host", address, "--token-file", str(tmp_path / "token")) as (url, _):
        yield url


def own_address() -> str:
    """An IPv4 address of this machine other than loopback's; loopback's where there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def test_the_token_once(locked: str) -> None:
    """A wrong one comes back to the form; the right one leads to the address that was asked for, which then has its data."""
    if not CHROMIUM.exists():
        pytest.skip("no /usr/bin/chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        try:
            page = browser.new_page()
            assert page.goto(f"{locked}/metrics").status == 401
            page.fill("input[name=token]", "not-the-token-of-it")
            page.click("button")
            page.wait_for_selector("[role=alert]")
            page.fill("input[name=token]", TOKEN)
            page.click("button")
            page.wait_for_url(f"{locked}/metrics*")
            answer = page.evaluate("fetch('/api/v1/facets').then((found) => found.status)")
            assert answer == 200
        finally:
            browser.close()
