"""How long a reader waits for the fronts page in a headless Chromium on loopback, beside an empty page of the same server.

    python benchmarks/web/page_speed.py [--rounds 7] [--home DIR] [--query 'model=…&scenario=…']

Without a home a made one is used. Milliseconds, medians. `chart`: from navigation to the frame after the points are in the
page; `peer_empty_page`: the same for a file of one line, which says how fast the machine is; `warm`: with the browser's
cache; `axis`, `filter`, `series`: from the event to the frame after the drawing; `draw_2000`: the drawing of all points of
the big model alone.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
MADE = ROOT / "tests" / "web" / "browser" / "made_store.py"
QUERY = "model=deepseek-r1&scenario=fixed-seq-len:1024/1024&precision=fp8&x=interactivity.p50&y=total_tokens_per_s_per_gpu"
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-sync",
    "--no-first-run",
]
WATCH = """
new MutationObserver((_, watch) => {
    if (!document.querySelector('.dots a')) return;
    watch.disconnect();
    requestAnimationFrame(() => setTimeout(() => { window.drawnAt = performance.now(); }));
}).observe(document, { childList: true, subtree: true });
"""
ACT = """([selector, change]) => new Promise((done) => {
    const node = document.querySelector(selector);
    const before = document.querySelector('.dots');
    const begun = performance.now();
    const watch = new MutationObserver(() => {
        if (document.querySelector('.dots') === before) return;
        watch.disconnect();
        requestAnimationFrame(() => setTimeout(() => done(performance.now() - begun)));
    });
    watch.observe(document.querySelector('.chart'), { childList: true });
    if (change === null) node.click();
    else { node.selectedIndex = change; node.dispatchEvent(new Event('change')); }
})"""
Times = dict[str, list[float]]


def open_page(browser: Any, base: str, query: str, times: Times) -> None:  # noqa: ANN401 - playwright may be absent
    """One visit in a fresh profile: the peer, the chart cold and warm, the interactions."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.goto(f"{base}/static/theme.js")
    times.setdefault("peer_empty_page", []).append(
        page.evaluate("performance.getEntriesByType('navigation')[0].loadEventEnd")
    )
    page.add_init_script(WATCH)
    for name in ("chart", "warm"):
        page.goto(f"{base}/front?{query}")
        page.wait_for_function("() => window.drawnAt")
        times.setdefault(name, []).append(page.evaluate("window.drawnAt"))
    for name, selector, change in (
        ("axis", ".axis-pick.y select", 1),
        ("filter", ".facet input[type=checkbox]", None),
        ("series", ".legend .key", None),
        ("log_scale", ".view-options input:nth-of-type(1)", None),
    ):
        page.wait_for_function("() => !document.querySelector('[aria-busy=true]')")
        if name == "filter":
            page.evaluate("document.querySelector('.facet').open = true")
            page.wait_for_selector(selector)
        times.setdefault(name, []).append(page.evaluate(ACT, [selector, change]))
    context.close()


def draw_many(browser: Any, base: str, rounds: int, times: Times) -> None:  # noqa: ANN401
    """All points of the big model, drawn again and again by a change of scale, which asks the server for nothing."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{base}/front?model=kimi-k2.5&log=x")
    page.wait_for_selector(".dots a")
    times["points_drawn"] = [page.locator(".dots a").count()]
    for _ in range(rounds):
        times.setdefault("draw_2000", []).append(
            page.evaluate(ACT, [".view-options .tick-box:nth-child(2) input", None])
        )
    page.close()


def main() -> int:
    """Print one line of JSON."""
    from playwright.sync_api import sync_playwright  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--query", default=QUERY)
    asked = parser.parse_args()
    times: Times = {}
    with tempfile.TemporaryDirectory() as folder:
        home = asked.home
        if home is None:
            made = runpy.run_path(str(MADE))
            home = made["fill"](Path(folder), usual=made["usual"](), many=made["many"]())
        server = subprocess.Popen(
            [sys.executable, "-m", "servemark", "serve", "--json", "--port", "0", "--home", str(home)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        assert server.stdout is not None
        base = json.loads(server.stdout.readline())["url"].rstrip("/")
        try:
            with sync_playwright() as play:
                chromium = shutil.which("chromium") or shutil.which("google-chrome")
                browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
                for _ in range(asked.rounds):
                    open_page(browser, base, asked.query, times)
                if asked.home is None:
                    draw_many(browser, base, asked.rounds, times)
                browser.close()
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(10)
    print(json.dumps({name: round(statistics.median(each), 1) for name, each in times.items()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
