"""Open a report in a real Chromium and fail when it asks the network for anything or logs an error.

Usage: python tests/browser_check.py REPORT.html [...]
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Request, sync_playwright

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def open_page(browser: Browser, path: Path, width: int, scheme: Literal["dark", "light"]) -> list[str]:
    """What went wrong when the page was opened at one width and colour scheme."""
    wrong: list[str] = []

    def note_request(request: Request) -> None:
        if not request.url.startswith(("file:", "data:")):
            wrong.append(f"request: {request.url}")

    def note_console(message: ConsoleMessage) -> None:
        if message.type == "error":
            wrong.append(f"console: {message.text}")

    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page.on("request", note_request)
    page.on("console", note_console)
    page.on("pageerror", lambda error: wrong.append(f"page error: {error}"))
    page.goto(path.resolve().as_uri())
    page.wait_for_timeout(200)
    if page.evaluate("document.documentElement.scrollWidth > window.innerWidth + 1"):
        wrong.append(f"the page is wider than {width} px")
    if not page.evaluate("document.querySelectorAll('svg').length"):
        wrong.append("no chart on the page")
    page.close()
    return wrong


def open_report(path: Path) -> list[str]:
    """What went wrong on a desktop and on a phone; [] when nothing did."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser")
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=executable, args=list(FLAGS))
        wrong = open_page(browser, path, 1280, "light") + open_page(browser, path, 390, "dark")
        browser.close()
    return wrong


def main() -> int:
    """0 when every page is sound."""
    failed = False
    for name in sys.argv[1:]:
        wrong = open_report(Path(name))
        failed |= bool(wrong)
        print(f"{name}: {'; '.join(wrong) if wrong else 'ok'}")
    return 1 if failed or len(sys.argv) < 2 else 0


if __name__ == "__main__":
    sys.exit(main())
