"""Who may ask for what: names of the server, tokens, sessions, foreign pages, rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from servemark.web.guard import COOKIE, SESSION_S, Rules, Sessions, host_allowed
from servemark.web.login import own_path
from servemark.web.rate_limit import MAX_CLIENTS, RateLimit, client_name

Made = dict[str, Any]
TOKEN = "t" * 24
REMOTE = "203.0.113.7"
LOCKED = Rules(token=TOKEN, open_writes=False)


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "a b", "[::1", "x:y"]
)
def test_another_name_is_refused(shared_home: Path, made: Made, host: str) -> None:
    """DNS rebinding: a name that somebody points at this address is not answered, for pages and data alike."""
    for url in ("/", "/api/v1/front", "/static/app.js"):
        found = made["ask"](made["app_of"](shared_home), url, headers={"host": host})
        assert found.status_code == 421
        assert found.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("header", "allowed"),
    [
        ("localhost", True), ("LOCALHOST:8765", True), ("127.0.0.1:1", True), ("[::1]:80", True), ("10.1.2.3", True),
        ("bench.example", True), ("bench.example.:80", True), ("a.localhost", True), ("other.example", False),
        ("bench.example.evil", False), ("127.1", False), ("[::1]x", False), ("h:80:80", False), ("h:\u0661", False),
    ],
)  # fmt: skip
def test_names_of_a_server(header: str, allowed: bool) -> None:
    """Numbers always; names when they are known."""
    assert host_allowed(header, frozenset({"localhost", "bench.example"})) is allowed


def test_two_hosts_are_none(shared_home: Path, made: Made) -> None:
    """A request that names two servers is meant for a proxy that reads the other one."""
    headers = [("host", "127.0.0.1"), ("host", "evil.example")]
    assert made["ask"](made["app_of"](shared_home), "/", headers=headers).status_code in {400, 421}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-servemark": "0"},
        {"x-servemark": "1", "origin": "http://evil.example"},
        {"x-servemark": "1", "origin": "null"},
        {"x-servemark": "1", "origin": "http://127.0.0.1:9"},
        {"x-servemark": "1", "sec-fetch-site": "cross-site"},
    ],
)
def test_a_foreign_page_changes_nothing(shared_home: Path, made: Made, headers: dict[str, str]) -> None:
    """CSRF: without the page's own header, or from another origin."""
    app = made["app_of"](shared_home)
    for method, url in (
        ("POST", "/api/v1/overlays"),
        ("DELETE", "/api/v1/overlays/abcdefgh"),
        ("POST", "/api/v1/session"),
    ):
        assert made["ask"](app, url, method, headers=headers, content=b"x").status_code == 403


def test_get_changes_nothing(shared_home: Path, made: Made) -> None:
    """No endpoint that is read takes another method, whatever headers say."""
    app = made["app_of"](shared_home)
    for method in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"):
        found = made["ask"](app, "/api/v1/front", method, headers={"x-servemark": "1"})
        assert (found.status_code, found.headers.get("allow")) == (405, "GET, HEAD")


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Bearer wrong", f"Basic {TOKEN}", f"Bearer {TOKEN}x", "Bearer \xe9".encode("latin-1")],
)
def test_a_locked_server_shows_nothing(shared_home: Path, made: Made, given: str | bytes) -> None:
    """No data and no page without the token; files of the page hold no data."""
    app = made["app_of"](shared_home, LOCKED)
    headers = {"authorization": given} if given else {}
    data = made["ask"](app, "/api/v1/front", headers=headers, client=REMOTE)
    assert data.status_code == 401
    assert data.headers["www-authenticate"].startswith("Bearer")
    page = made["ask"](app, "/front?model=a", headers=headers, client=REMOTE)
    assert page.status_code == 401
    assert 'name="next" value="/front?model=a"' in page.text
    assert made["ask"](app, "/static/style.css", client=REMOTE).status_code in {200, 404}


def test_the_token_opens(shared_home: Path, made: Made) -> None:
    """As a header, and as the session that a form or a call gets for it."""
    app = made["app_of"](shared_home, LOCKED)
    bearer = {"authorization": f"Bearer {TOKEN}"}
    assert made["ask"](app, "/api/v1/facets", headers=bearer, client=REMOTE).status_code == 200
    form = {"token": TOKEN, "next": "/front?model=a"}
    entered = made["ask"](app, "/session", "POST", data=form, client=REMOTE)
    assert (entered.status_code, entered.headers["location"]) == (303, "/front?model=a")
    said = entered.headers["set-cookie"].lower()
    assert "httponly" in said and "samesite=strict" in said
    cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
    assert made["ask"](app, "/api/v1/facets", headers=cookie, client=REMOTE).status_code == 200
    assert made["ask"](app, "/", headers=cookie, client=REMOTE).status_code == 200
    called = made["ask"](app, "/api/v1/session", "POST", headers=bearer | made["OWN"], client=REMOTE)
    assert called.status_code == 204 and called.headers["set-cookie"].startswith(COOKIE)


def test_a_wrong_token_enters_nowhere(shared_home: Path, made: Made) -> None:
    """The form comes again; a foreign page's form is not read; nothing leads away from this server."""
    app = made["app_of"](shared_home, LOCKED)
    wrong = made["ask"](
        app, "/session", "POST", data={"token": "no", "next": '//evil.example/"><script>'}, client=REMOTE
    )
    assert wrong.status_code == 401
    assert "set-cookie" not in wrong.headers
    assert "<script>" not in wrong.text and 'value="/"' in wrong.text
    foreign = {"origin": "http://evil.example"}
    assert made["ask"](app, "/session", "POST", data={"token": TOKEN}, headers=foreign).status_code == 403
    large = made["ask"](app, "/session", "POST", content=b"a" * 5000, client=REMOTE)
    assert large.status_code == 413


@pytest.mark.parametrize(
    "goal", ["//evil", "/\\evil", "http://evil", "", "javascript:x", "/a\r\nb", "/\u00e9"]
)
def test_a_goal_is_a_path_of_this_server(goal: str) -> None:
    """What a browser would read as another host, or a proxy as another header, is the first page."""
    assert own_path(goal) == "/"


def test_public_reading_and_no_token(shared_home: Path, made: Made) -> None:
    """`--public-read`: all may read, uploads want the token, and without one there are none."""
    readable = made["app_of"](shared_home, Rules(token=TOKEN, public_read=True, open_writes=False))
    assert made["ask"](readable, "/api/v1/facets", client=REMOTE).status_code == 200
    sent = {"content": b"{}", "headers": made["OWN"], "client": REMOTE}
    assert made["ask"](readable, "/api/v1/overlays", "POST", **sent).status_code == 401
    door = made["ask"](readable, "/session", client=REMOTE)
    assert door.status_code == 401 and "<form" in door.text
    entered = made["ask"](readable, "/session", "POST", data={"token": TOKEN, "next": "/"}, client=REMOTE)
    cookie = {"cookie": entered.headers["set-cookie"].partition(";")[0]}
    assert made["ask"](readable, "/session", headers=cookie, client=REMOTE).headers["location"] == "/"
    more = sent | {"headers": made["OWN"] | cookie}
    assert made["ask"](readable, "/api/v1/overlays", "POST", **more).status_code == 201
    without = made["app_of"](shared_home, Rules(public_read=True, open_writes=False))
    assert made["ask"](without, "/api/v1/overlays", "POST", **sent).status_code == 403


def test_sessions_end_and_cannot_be_made() -> None:
    """A cookie is good for its time, under its token, as it was made."""
    mine = Sessions(TOKEN)
    cookie = mine.make(now=1000.0)
    assert mine.good(cookie, now=1000.0 + SESSION_S - 1)
    assert not mine.good(cookie, now=1000.0 + SESSION_S)
    assert not Sessions("u" * 24).good(cookie, now=1000.0)
    end, _, mac = cookie.partition(".")
    for other in (
        f"{int(end) + 1}.{mac}",
        f"{end}.",
        end,
        "",
        f"{end}.{mac}0",
        f"\u0661{end}.{mac}",
        f"{end}.\xe9",
    ):
        assert not mine.good(other, now=1000.0)


def test_every_answer_is_guarded(shared_home: Path, made: Made) -> None:
    """Pages, data, refusals and files carry the same headers."""
    app = made["app_of"](shared_home)
    for url in ("/", "/api/v1/facets", "/api/v1/front?nope=1", "/nothing", "/static/app.js"):
        headers = made["ask"](app, url).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
        assert "unsafe" not in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        assert headers["x-frame-options"] == "DENY"


def test_a_long_address(shared_home: Path, made: Made) -> None:
    """414 before anything reads it."""
    assert made["ask"](made["app_of"](shared_home), "/" + "a" * 9000).status_code == 414


def test_one_client_cannot_have_all(shared_home: Path, made: Made) -> None:
    """The fourth request of a burst of three waits; another client and this machine do not."""
    app = made["app_of"](shared_home, Rules(per_s=0.5, burst=3))
    codes = [made["ask"](app, "/", client=REMOTE).status_code for _ in range(4)]
    assert codes == [200, 200, 200, 429]
    assert made["ask"](app, "/", client="198.51.100.1").status_code == 200
    assert made["ask"](app, "/").status_code == 200
    assert 1 <= int(made["ask"](app, "/", client=REMOTE).headers["retry-after"]) <= 2


def test_buckets_by_hand() -> None:
    """2 a second, 4 at once: 4 go, the fifth waits half a second; after 1 s two more; never more than 4 are saved."""
    now = [0.0]
    limit = RateLimit(2.0, 4.0, lambda: now[0])
    assert [limit.take("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    now[0] = 1.0
    assert [limit.take("a") for _ in range(3)] == [0, 0, 0.5]
    now[0] = 100.0
    assert [limit.take("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    for number in range(MAX_CLIENTS * 2):
        limit.take(str(number))
    assert len(limit._held) == MAX_CLIENTS


def test_a_machine_is_one_client() -> None:
    """All of an IPv6 /64 counts as one; each IPv4 address alone."""
    assert client_name("2001:db8::1") == client_name("2001:db8::ffff:1") != client_name("2001:db8:0:1::1")
    assert client_name("192.0.2.1") != client_name("192.0.2.2")
