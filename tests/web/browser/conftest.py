"""The real server over a made store, and pages of it in a real Chromium that note everything that goes wrong."""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Dialog, Page

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
DRAWN = ".chart .dots a"
Visit = Callable[..., "Page"]


@pytest.fixture(scope="session")
def made() -> SimpleNamespace:
    """The maker of stores and its names."""
    return SimpleNamespace(**runpy.run_path(str(Path(__file__).with_name("made_store.py"))))


@pytest.fixture(scope="session")
def home(made: SimpleNamespace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with usual, hostile and very many points."""
    folder: Path = made.fill(
        tmp_path_factory.mktemp("home"), usual=made.usual(), hostile=made.hostile(), many=made.many()
    )
    return folder


Serving = Callable[[Path], "contextlib.AbstractContextManager[str]"]


@contextlib.contextmanager
def _serving(home: Path) -> Iterator[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "servemark", "serve", "--json", "--port", "0", "--home", str(home)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    try:
        yield str(json.loads(process.stdout.readline())["url"]).rstrip("/")
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        finally:
            process.kill()
            process.stdout.close()


@pytest.fixture(scope="session")
def serving() -> Serving:
    """Starts `servemark serve` over a home; gives its address, and ends it."""
    return _serving


@pytest.fixture(scope="session")
def serve(home: Path, serving: Serving) -> Iterator[str]:
    """The address of a running `servemark serve`."""
    with serving(home) as address:
        yield address


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One Chromium for the tests of a file: while it runs, no other can be started in this thread, nor an event loop."""
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as play:
        found = play.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        yield found
        found.close()


@pytest.fixture
def visit(browser: Browser, serve: str) -> Iterator[Visit]:
    """Open a page in a fresh context; in the end nothing was asked of anybody else, no error was logged, and no name in the
    data had been obeyed. `expected` are texts of errors that a test provokes."""
    contexts: list[Any] = []
    seen: list[str] = []
    allowed: list[str] = []

    def refuse(dialog: Dialog) -> None:
        seen.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def watch(page: Page) -> None:
        page.on("dialog", refuse)
        page.on("pageerror", lambda error: seen.append(f"page error {error}"))
        page.on(
            "console", lambda m: seen.append(f"console {m.text}") if m.type in {"error", "warning"} else None
        )
        page.on(
            "request",
            lambda r: (
                None if r.url.startswith((serve, "blob:", "data:")) else seen.append(f"request {r.url}")
            ),
        )

    def run(
        path: str = "/",
        query: dict[str, str] | None = None,
        *,
        width: int = 1280,
        scheme: str = "light",
        expected: str | None = None,
        wait: str = DRAWN,
        language: str = "en-GB",
    ) -> Page:
        if expected is not None:
            allowed.append(expected)
        context = browser.new_context(
            viewport={"width": width, "height": 844 if width < 600 else 900},
            color_scheme=scheme,  # type: ignore[arg-type]
            locale=language,
            reduced_motion="reduce",
            permissions=["clipboard-read", "clipboard-write"],
            accept_downloads=True,
        )
        contexts.append(context)
        context.on("page", watch)
        page = context.new_page()
        page.set_default_timeout(15_000)
        address = path if path.startswith("http") else serve + path
        page.goto(address + (f"?{urlencode(query)}" if query else ""))
        page.wait_for_selector(wait)
        return page

    yield run
    for context in contexts:
        context.close()
    assert [each for each in seen if not any(word in each for word in allowed)] == []
