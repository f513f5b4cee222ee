"""The JSON interface over a real store: what it answers, when it answers anew, and how it refuses."""

from __future__ import annotations

import csv
import io
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from servemark.web.api.registry import ROUTES

Made = dict[str, Any]


def test_front_holds_every_point(shared_home: Path, made: Made) -> None:
    """Five points of which none dominates another: all stand on the front. At concurrency 4: 1000 / 14 = 71.429 tok/s/user;
    E2EL 0.2 + 0.014 * 920.6 = 13.0884 s, so 2 * 4 * 921.6 / 13.0884 / 4 = 140.83 tok/s/GPU."""
    columns = made["ask"](made["app_of"](shared_home), "/api/v1/front?model=deepseek-r1").json()["columns"]
    first = columns["concurrency"].index(4)
    assert (columns["x"][first], columns["y"][first]) == (71.429, 140.83)
    assert sorted(columns["concurrency"]) == [4, 8, 16, 32, 64]
    assert columns["state"] == ["on"] * 5
    assert columns["official"] == [True] * 5


def test_the_same_answer_is_not_sent_twice(shared_home: Path, made: Made) -> None:
    """304 for who has it, in either coding; another query, another tag."""
    app = made["app_of"](shared_home)
    first = made["ask"](app, "/api/v1/front")
    again = made["ask"](app, "/api/v1/front", headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    listed = made["ask"](app, "/api/v1/front", headers={"if-none-match": f'"x", {first.headers["etag"]}'})
    assert listed.status_code == 304
    other = made["ask"](app, "/api/v1/front?lang=zh")
    assert other.headers["etag"] != first.headers["etag"]
    plain = made["ask"](app, "/api/v1/front", headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert first.headers["content-encoding"] == "gzip"
    assert plain.json() == first.json()
    head = made["ask"](app, "/api/v1/front", method="HEAD")
    assert (head.status_code, head.headers["etag"]) == (200, first.headers["etag"])


def test_an_import_is_seen_at_once(home: Path, made: Made) -> None:
    """The tag of an answer hangs on the store's content: another process writes, the next reader sees it."""
    app = made["app_of"](home)
    before = made["ask"](app, "/api/v1/front?all=yes")
    made["fill"](
        home, made["rows"](date="2026-05-09", run_url="https://example.org/actions/runs/1002"), "more.json"
    )
    after = made["ask"](app, "/api/v1/front?all=yes", headers={"if-none-match": before.headers["etag"]})
    assert after.status_code == 200
    assert len(before.json()["columns"]["ref"]) == 5
    assert len(after.json()["columns"]["ref"]) == 10


def test_a_store_that_goes_and_comes(home: Path, made: Made, tmp_path: Path) -> None:
    """Deleted, replaced by rubbish, put back: 503 with a reason and no path of this machine, then answers again."""
    app = made["app_of"](home)
    asked = "/api/v1/facets"
    assert made["ask"](app, asked).status_code == 200
    kept = tmp_path / "kept.sqlite"
    shutil.move(home / "store.sqlite", kept)
    for name in ("store.sqlite-wal", "store.sqlite-shm"):
        (home / name).unlink(missing_ok=True)
    gone = made["ask"](app, asked)
    assert (gone.status_code, gone.headers["retry-after"]) == (503, "2")
    assert gone.headers["content-type"] == "application/problem+json"
    assert str(tmp_path) not in gone.text
    (home / "store.sqlite").write_bytes(b"not a database, but long enough to be read as one" * 40)
    assert made["ask"](app, asked).status_code == 503
    shutil.move(kept, home / "store.sqlite")
    assert made["ask"](app, asked).status_code == 200


def test_no_store_yet(tmp_path: Path, made: Made) -> None:
    """A home where nothing was imported: the page comes, the data say what to do."""
    app = made["app_of"](tmp_path / "empty")
    assert made["ask"](app, "/").status_code == 200
    found = made["ask"](app, "/api/v1/facets")
    assert found.status_code == 503
    assert found.json()["next"]
    assert not (tmp_path / "empty").exists()


REFUSED = [
    "/api/v1/front?colour=red",
    "/api/v1/front?x=speed",
    "/api/v1/front?x=num_requests_total",
    "/api/v1/front?target=nan",
    "/api/v1/front?target=1_0",
    "/api/v1/front?target=1e400",
    "/api/v1/front?x=ttft_s.p50&x=ttft_s.p90",
    "/api/v1/front?date=yesterday",
    "/api/v1/front?lang=de",
    "/api/v1/front?model=%ff%fe",
    "/api/v1/front?card=../../etc/passwd.yaml",
    "/api/v1/front?overlay=../x",
    "/api/v1/front?model=" + "a" * 401,
    "/api/v1/front?" + "&".join(["model=a"] * 101),
    "/api/v1/front?cols=" + ",".join(f"ttft_s.p{n}" for n in range(40)),
    "/api/v1/points/%2e%2e",
    "/api/v1/points/abcd/why/%3Cb%3E",
]


@pytest.mark.parametrize("url", REFUSED)
def test_what_is_not_understood_is_said(shared_home: Path, made: Made, url: str) -> None:
    """400 and problem JSON, in the language asked for."""
    found = made["ask"](made["app_of"](shared_home), url, headers={"accept-language": "zh-CN,en;q=0.5"})
    assert found.status_code == 400, found.text
    body = found.json()
    assert body["status"] == 400
    assert body["title"] == "请求无法理解"
    assert body["detail"]


@pytest.mark.parametrize(
    "url", ["/api/v1/points/abcdef", "/api/v1/overlays/x", "/static/../app.py", "/static/%2e%2e/app.py", "/etc/passwd",
            "/api/v1/front?overlay=0123456789abcdef", "/api/v1/sweeps/none", "/api/v1/front?card=none"]
)  # fmt: skip
def test_what_is_not_there(shared_home: Path, made: Made, url: str) -> None:
    """404 as problem JSON, or 405 where only something else may be done."""
    found = made["ask"](made["app_of"](shared_home), url)
    assert found.status_code in {404, 405}
    assert found.headers["content-type"] == "application/problem+json"


HOSTILE = "<img src=x onerror=alert(1)>\u202e\x1b[31m\"';--{0.__class__}"


def test_hostile_names_stay_text(tmp_path: Path, made: Made) -> None:
    """Names out of an imported file come back as JSON text under a type that no browser runs."""
    home = tmp_path / "home"
    made["fill_points"](home, model=HOSTILE, hardware=HOSTILE, engine=HOSTILE, image=HOSTILE, run=HOSTILE)
    app = made["app_of"](home)
    for url in ("/api/v1/facets", "/api/v1/front", "/api/v1/overview", "/api/v1/front.json"):
        found = made["ask"](app, url)
        assert found.status_code == 200, found.text
        assert found.headers["content-type"] == "application/json"
        assert found.headers["x-content-type-options"] == "nosniff"
        assert "script-src 'self'" in found.headers["content-security-policy"]
    hardware = made["ask"](app, "/api/v1/facets").json()["facets"]["hardware"]
    picked = made["ask"](app, "/api/v1/front", params={"hardware": hardware[0]["id"]}).json()
    assert len(picked["columns"]["ref"]) == 2
    asked = made["ask"](app, "/api/v1/front", params={HOSTILE[:30]: "1"})
    assert asked.status_code == 400
    assert asked.headers["content-type"] == "application/problem+json"


def test_csv_runs_nothing(tmp_path: Path, made: Made) -> None:
    """A hardware that a spreadsheet would run as a formula begins with an apostrophe; numbers stay numbers."""
    home = tmp_path / "home"
    made["fill_points"](home, hardware="=cmd|' /C calc'!A0", run="@SUM(1)", engine="-2+3")
    found = made["ask"](made["app_of"](home), "/api/v1/front.csv")
    assert found.headers["content-type"] == "text/csv; charset=utf-8"
    assert found.headers["content-disposition"].startswith("attachment")
    lines = list(csv.DictReader(io.StringIO(found.text)))
    assert len(lines) == 2
    assert not any(value.startswith(("=", "+", "-", "@")) for line in lines for value in line.values())
    assert {line["concurrency"] for line in lines} == {"4", "8"}


def test_a_point_and_its_figures(shared_home: Path, made: Made) -> None:
    """The point that a front names is found, with the making of a figure; it has no raw records."""
    app = made["app_of"](shared_home)
    columns = made["ask"](app, "/api/v1/front").json()["columns"]
    ref = columns["ref"][columns["concurrency"].index(16)]
    assert made["ask"](app, f"/api/v1/points/{ref}").json()["ref"] == ref
    why = made["ask"](app, f"/api/v1/points/{ref}/why/interactivity.p50").json()
    assert why["value"] == pytest.approx(1000 / 26)
    for rest in ("requests", "samples", "logs?name=logs/x", "logs.txt?name=../../store.sqlite"):
        assert made["ask"](app, f"/api/v1/points/{ref}/{rest}").status_code == 404


def test_every_endpoint_without_words_answers(shared_home: Path, made: Made) -> None:
    """Those that need nothing give an object in both languages; no answer names this machine's folders."""
    app = made["app_of"](shared_home)
    for route in ROUTES:
        if route.path_params or any(each.required for each in route.params):
            continue
        for lang in ("en", "zh"):
            found = made["ask"](app, f"/api/v1{route.path}?lang={lang}")
            assert found.status_code == 200, (route.path, found.text)
            assert str(shared_home) not in found.text
            if route.media == "application/json":
                json.loads(found.text)


def test_a_fault_of_the_program_tells_nothing(
    shared_home: Path, made: Made, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """500 without a trace; the trace is for the one who runs the server."""

    def broken(*_: object, **__: object) -> object:
        raise RuntimeError(f"secret {shared_home}")

    monkeypatch.setattr("servemark.web.api.facets.facets", broken)
    found = made["ask"](made["app_of"](shared_home), "/api/v1/facets")
    assert found.status_code == 500
    assert "secret" not in found.text
    assert "Traceback" not in found.text
    assert "secret" in capsys.readouterr().err


def test_pages_and_files(shared_home: Path, made: Made) -> None:
    """Every page is the shell; what it names comes compressed, for ever under its versioned address."""
    app = made["app_of"](shared_home)
    pages = (
        "/",
        "/front",
        "/point/abc:1",
        "/compare",
        "/history",
        "/cost",
        "/sweeps",
        "/health",
        "/changelog",
        "/metrics",
    )
    bodies = {made["ask"](app, page).text for page in pages}
    assert len(bodies) == 1
    html = bodies.pop()
    for address in {part.split('"')[0] for part in html.split('="')[1:] if part.startswith("/static/")}:
        found = made["ask"](app, address)
        assert found.status_code == 200, address
        assert "immutable" in found.headers["cache-control"]
        assert made["ask"](app, address, headers={"if-none-match": found.headers["etag"]}).status_code == 304
    assert "no-cache" in made["ask"](app, "/").headers["cache-control"]
    moved = made["ask"](app, "/overview?lang=zh")  # the first page by its name
    assert moved.status_code == 308 and moved.headers["location"] == "/?lang=zh"


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip", True),
        ("br, GZIP;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0", False),
        ("br", False),
        ("", False),
    ],
)
def test_codings(shared_home: Path, made: Made, accepted: str, packed: bool) -> None:
    """gzip where it is taken, and the thing itself where it is refused."""
    app = made["app_of"](shared_home)
    for url in ("/api/v1/metrics", "/"):
        found = made["ask"](app, url, headers={"accept-encoding": accepted})
        assert (found.headers.get("content-encoding") == "gzip") is packed
        assert found.text.strip()


def test_a_reader_of_pages_gets_a_page(shared_home: Path, made: Made) -> None:
    """An address that is none is 404 as a page for a browser and as a problem for a program; below the interface always as
    a problem."""
    app = made["app_of"](shared_home)
    html = {"accept": "text/html,*/*;q=0.8"}
    page = made["ask"](app, "/no-such-page", headers=html)
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert made["ask"](app, "/no-such-page").headers["content-type"] == "application/problem+json"
    data = made["ask"](app, "/api/v1/nothing", headers=html)
    assert (data.status_code, data.headers["content-type"]) == (404, "application/problem+json")


def test_too_many_points_are_not_decoded(
    shared_home: Path, made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted first, and refused with what to do."""
    monkeypatch.setattr("servemark.web.site.KEPT_POINTS", 4)
    app = made["app_of"](shared_home)
    for url in (
        "/api/v1/front",
        "/api/v1/history?series=abcdef",
        "/api/v1/compare?a=hardware%3Db200&b=hardware%3Db200",
    ):
        found = made["ask"](app, url)
        assert (found.status_code, found.json()["next"][:6]) == (400, "Choose")
