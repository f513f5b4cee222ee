"""Uploads: what they show, where they are not, and what is refused of them."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from servemark.analysis.measured import Measured
from servemark.store.database import Store
from servemark.web.app import App
from servemark.web.overlays import MAX_OVERLAYS, Overlays
from servemark.web.problems import Problem
from servemark.web.unofficial import Unofficial

Made = dict[str, Any]


def send(
    made: Made, app: App, data: bytes | AsyncIterator[bytes], query: str = "", **headers: str
) -> httpx.Response:
    """POST an upload."""
    url, sent = f"/api/v1/overlays{query}", made["OWN"] | headers
    found: httpx.Response = made["ask"](app, url, "POST", content=data, headers=sent)
    return found


def points_in(home: Path) -> int:
    """Points in the store."""
    with Store.open(home / "store.sqlite", read_only=True) as store:
        return int(store.query("SELECT count(*) FROM result_point")[0][0])


def test_an_overlay_is_shown_and_kept_nowhere(home: Path, made: Made) -> None:
    """Its points come beside the official ones, flagged; the front stays theirs; the store does not change; gone is gone."""
    app = made["app_of"](home)
    better = made["rows"](run_url="https://example.org/actions/runs/7", date="2026-06-01")
    sent = send(made, app, better, "?name=mine.json")
    assert sent.status_code == 201
    body = sent.json()
    assert (body["points"], body["stored"], body["problems"]) == (5, False, [])
    assert body["files"] == [{"name": "mine.json", "format": "inferencex", "points": 5}]
    shown = made["ask"](app, f"/api/v1/front?overlay={body['id']}").json()["columns"]
    assert sorted(shown["official"]) == [False] * 5 + [True] * 5
    on = [
        official for official, state in zip(shown["official"], shown["state"], strict=True) if state == "on"
    ]
    assert on == [True] * 5
    rows = made["ask"](app, f"/api/v1/front.json?overlay={body['id']}").json()
    assert sum(not row["official"] for row in rows) == 5
    assert points_in(home) == 5
    gone = made["ask"](app, f"/api/v1/overlays/{body['id']}", "DELETE", headers=made["OWN"])
    assert gone.status_code == 204
    assert made["ask"](app, f"/api/v1/front?overlay={body['id']}").status_code == 404


def test_a_file_of_the_unofficial_folder(home: Path, made: Made, tmp_path: Path) -> None:
    """A link's `overlay=ID` shows FOLDER/ID.*; a replaced file is read anew, a path leads nowhere, a lie is no result."""
    folder = tmp_path / "unofficial"
    folder.mkdir()
    app = made["app_of"](home)
    app.pages.site.unofficial = Unofficial(folder)
    url = "/api/v1/front?overlay=16123456789"
    assert made["ask"](app, url).status_code == 404
    (folder / "16123456789.json").write_bytes(
        made["rows"](run_url="https://example.org/actions/runs/7", date="2026-06-01")
    )
    shown = made["ask"](app, url).json()["columns"]
    assert sorted(shown["official"]) == [False] * 5 + [True] * 5
    assert made["ask"](app, "/api/v1/compare?a=hardware=b200&b=overlay:16123456789").status_code == 200
    assert points_in(home) == 5
    (folder / "16123456789.json").write_bytes(b"[")
    assert sorted(made["ask"](app, url).json()["columns"]["official"]) == [True] * 5
    outside = tmp_path / "outside.json"
    outside.write_bytes(b"[]")
    (folder / "aaaaaaaa.json").symlink_to(outside)
    assert made["ask"](app, "/api/v1/front?overlay=aaaaaaaa").status_code == 404


def test_two_files_in_one_overlay(home: Path, made: Made) -> None:
    """`into` adds to one that is here."""
    app = made["app_of"](home)
    first = send(made, app, made["rows"](run_url="https://example.org/actions/runs/7")).json()["id"]
    second = send(made, app, made["rows"](run_url="https://example.org/actions/runs/8"), f"?into={first}")
    assert second.json()["id"] == first
    shown = made["ask"](app, f"/api/v1/front?overlay={first}").json()["columns"]
    assert shown["official"].count(False) == 10
    assert send(made, app, made["rows"](), "?into=abcdefgh").status_code == 404


def test_kept_only_when_asked_and_allowed(home: Path, made: Made) -> None:
    """`keep=yes` wants `--allow-writes`; then the points are in the store."""
    data = made["rows"](run_url="https://example.org/actions/runs/9", date="2026-06-02")
    assert send(made, made["app_of"](home), data, "?keep=yes").status_code == 403
    assert points_in(home) == 5
    kept = send(made, made["app_of"](home, allow_writes=True), data, "?keep=yes&name=new.json")
    assert (kept.status_code, kept.json()["stored"]) == (201, True)
    assert points_in(home) == 10


def zipped(**members: bytes) -> bytes:
    """A zip in memory."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(name.replace("__", "/"), data)
    return held.getvalue()


def test_a_zip_and_what_is_wrong_in_it(home: Path, made: Made, tmp_path: Path) -> None:
    """Good members are shown; bombs and members outside are told, by the reader's own name for the file."""
    good = made["rows"](run_url="https://example.org/actions/runs/7")
    held = io.BytesIO(zipped(a=good))
    with zipfile.ZipFile(held, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("../../outside.json", good)
        archive.writestr("bomb.json", b"0" * (20 * 2**20))
    body = send(made, made["app_of"](home), held.getvalue(), "?name=night.zip").json()
    assert body["points"] == 5
    assert any("outside.json" in each for each in body["problems"])
    assert any("bomb.json" in each for each in body["problems"])
    assert str(tmp_path.parents[2]) not in json.dumps(body) and "servemark-" not in json.dumps(body)
    assert not (tmp_path.parent / "outside.json").exists()


@pytest.mark.parametrize(
    "data",
    [
        b"not json",
        b'{"a": ',
        b"\x00" * 100,
        b"PK\x03\x04broken",
        b"[" * 100_000,
        b'[{"hardware": 1e999}]',
        b"[1, 2]",
    ],
)
def test_rubbish_is_told(home: Path, made: Made, data: bytes) -> None:
    """No points and a reason, or a refusal; never a fault of the server."""
    sent = send(made, made["app_of"](home), data, "?name=x.json")
    assert sent.status_code in {201, 400, 413}
    if sent.status_code == 201:
        assert sent.json()["points"] == 0
        assert sent.json()["problems"]


def test_hostile_names_are_harmless(home: Path, made: Made, tmp_path: Path) -> None:
    """A file's name is shown and never opened: neither as a path, nor as an option, nor as markup."""
    victim = tmp_path / "victim.json"
    victim.write_bytes(made["rows"]())
    for name in (
        "--help",
        str(victim),
        "../../../etc/passwd",
        "%3Cscript%3E",
        "a%00b",
        "%E2%80%AE.json",
        "%0d%0aSet-Cookie:x",
    ):
        sent = send(made, made["app_of"](home), b"{}", **{"x-servemark-name": name})
        assert sent.status_code == 201, sent.text
        assert sent.json()["points"] == 0
        assert sent.headers["content-type"] == "application/json"
        assert "set-cookie" not in sent.headers


def test_an_empty_or_large_upload(home: Path, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing, more than said, and more than allowed without saying so."""
    app = made["app_of"](home)
    assert send(made, app, b"").status_code == 400
    monkeypatch.setattr("servemark.web.uploads.MAX_BYTES", 1000)
    assert send(made, app, b"a" * 1001).status_code == 413

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(5):
            yield b"a" * 400

    assert send(made, app, pieces()).status_code == 413
    assert send(made, app, b"{}", "?colour=red").status_code == 400


def test_a_child_that_takes_too_much(home: Path, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    """More points than an overlay may have, and a child that is too slow: refused, and nothing is left running."""
    app = made["app_of"](home)
    app.pages.uploads.overlays.max_points = 3
    assert send(made, app, made["rows"]()).status_code == 413
    monkeypatch.setattr("servemark.web.uploads.READ_S", 0.01)
    assert send(made, app, made["rows"]()).status_code == 413
    assert not app.pages.uploads._children


def test_overlays_are_bounded_and_end() -> None:
    """The oldest goes for a new one, by number and by points; each ends in its time; ids are not to be guessed."""
    now = [0.0]
    held = Overlays(lambda: now[0], ttl_s=10.0, max_points=6)
    point: Any = object()
    some: list[Measured] = [point, point]
    ids = [held.add(str(number), some).id for number in range(4)]
    with pytest.raises(Problem):
        held.points(ids[0])
    assert [len(held.points(each)) for each in ids[1:]] == [2, 2, 2]
    with pytest.raises(Problem):
        held.add("large", [point] * 7)
    now[0] = 10.0
    with pytest.raises(Problem):
        held.points(ids[3])
    for number in range(MAX_OVERLAYS + 5):
        held.add(str(number), [])
    assert len(held._held) == MAX_OVERLAYS
    assert len(set(held._held)) == MAX_OVERLAYS and all(len(each) == 24 for each in held._held)
