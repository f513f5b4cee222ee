"""TLS with a real certificate authority, several endpoints, routers' headers, and retries."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.replay.conftest import RawServer, Serve, ask, delta, reply, stream

from servemark.base.errors import ServemarkError
from servemark.metrics.request import ttft_s
from servemark.replay.client import ChatRequest, Client, Target, run
from servemark.replay.record import RequestRecord
from servemark.replay.records_io import encode_record

OK = stream(delta(content="hi"))


def sent(target: Target, *requests: ChatRequest) -> list[RequestRecord]:
    """These requests, one after the other, through one client."""

    async def main() -> list[RequestRecord]:
        async with Client(target) as client:
            return [await client.send(request) for request in requests]

    return run(main())


# -- TLS


def openssl(folder: Path, *arguments: str) -> None:
    """Run openssl quietly in a folder."""
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A throwaway authority (`ca.pem`) and a server's key and certificate for 127.0.0.1 (`server.pem`)."""
    folder = tmp_path_factory.mktemp("tls")
    key = ("-newkey", "rsa:2048", "-nodes")
    openssl(
        folder, "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=test", "-days", "2"
    )
    openssl(folder, "req", *key, "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    (folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    signing = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", "names")
    openssl(folder, "x509", "-req", "-in", "server.csr", *signing, "-out", "server.crt")
    (folder / "server.pem").write_text(
        (folder / "server.key").read_text() + (folder / "server.crt").read_text()
    )
    return folder


@pytest.fixture
def tls_server(authority: Path) -> Iterator[tuple[str, list[bytes]]]:
    """An HTTPS server that answers every request with OK: its URL, and what it read."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority / "server.pem")
    seen: list[bytes] = []
    started, url, ends = threading.Event(), "", []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                seen.append(head + await reader.readexactly(length))
                writer.write(OK)
        writer.close()

    async def serve() -> None:
        nonlocal url
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=context)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        over = asyncio.Event()
        loop = asyncio.get_running_loop()
        ends.append(lambda: loop.call_soon_threadsafe(over.set))
        started.set()
        await over.wait()
        server.close()
        await asyncio.sleep(0.05)  # connections that the clients closed are let go of

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(5)
    yield url, seen
    ends[0]()
    thread.join(5)


def test_tls(tls_server: tuple[str, list[bytes]], authority: Path) -> None:
    """A trusted certificate: answered, the handshake counts as connecting, the second request uses the connection."""
    url, seen = tls_server
    big = ask("r2", messages=[{"role": "user", "content": "x" * 3_000_000}])
    first, second = sent(Target(url, "m", ca_file=authority / "ca.pem"), ask(), big)
    assert (first.outcome, second.outcome) == ("ok", "ok"), (first, second)
    assert first.connect_s is not None and second.connect_s is None
    assert ttft_s(first) is not None
    assert len(seen) == 2 and len(seen[1]) > 3_000_000


def test_certificates_are_checked(tls_server: tuple[str, list[bytes]], authority: Path) -> None:
    """An unknown authority, and a name that the certificate does not have, end the request before it is sent."""
    url, seen = tls_server
    (unknown,) = sent(Target(url, "m"), ask())
    (wrong_name,) = sent(
        Target(url.replace("127.0.0.1", "localhost"), "m", ca_file=authority / "ca.pem"), ask()
    )
    for record in (unknown, wrong_name):
        assert (record.outcome, record.error_kind) == ("error", "tls_failed")
        assert record.error_detail
    assert not seen


def test_tls_on_a_plain_port(serve: Serve) -> None:
    """A server that speaks no TLS."""
    server = serve([reply("200 OK")])
    (record,) = sent(Target(server.url.replace("http", "https"), "m", connect_timeout_s=2), ask())
    assert record.outcome in {"error", "timeout"}
    assert record.error_kind in {"tls_failed", "connect_timeout", "connect_failed"}


def test_certificate_file_that_is_none(tmp_path: Path) -> None:
    """Said when the client is made."""
    for content in (None, "not a certificate"):
        path = tmp_path / "ca.pem"
        if content is not None:
            path.write_text(content)
        with pytest.raises(ServemarkError) as caught:
            Client(Target("https://127.0.0.1:1", "m", ca_file=path))
        assert caught.value.key == "replay.bad_ca"


# -- several endpoints


def both(serve: Serve) -> tuple[RawServer, RawServer, tuple[str, ...]]:
    """Two servers that answer everything."""
    one, two = serve([OK]), serve([OK])
    return one, two, (two.url,)


def test_endpoints_take_turns(serve: Serve) -> None:
    """Round-robin by request; each record says where it went."""
    one, two, more = both(serve)
    records = sent(Target(one.url, "m", more_urls=more), *(ask(f"r{n}") for n in range(5)))
    assert [record.endpoint for record in records] == [0, 1, 0, 1, 0]
    assert (len(one.exchanges), len(two.exchanges)) == (3, 2)


def test_sticky_sessions(serve: Serve) -> None:
    """All turns of a session go where its first one went; sessions are dealt out in turn."""
    one, two, more = both(serve)
    requests = [ChatRequest(f"r{n}", session, n, "measured", [], 1) for n, session in enumerate("abcabc")]
    records = sent(Target(one.url, "m", more_urls=more, sticky=True), *requests)
    assert [record.endpoint for record in records] == [0, 1, 0, 0, 1, 0]
    assert (len(one.exchanges), len(two.exchanges)) == (4, 2)


def test_one_endpoint_needs_no_number(serve: Serve) -> None:
    """Absent is absent."""
    (record,) = sent(Target(serve([OK]).url, "m"), ask())
    assert record.endpoint is None


def test_an_endpoint_that_is_down_fails_its_own_share(serve: Serve) -> None:
    """Nothing is moved over to the other one behind the reader's back."""
    one = serve([OK])
    records = sent(Target(one.url, "m", more_urls=("http://127.0.0.1:1",)), *(ask(f"r{n}") for n in range(4)))
    assert [record.outcome for record in records] == ["ok", "error", "ok", "error"]


@pytest.mark.parametrize(
    ("affinity", "agent", "parent", "expected"),
    [
        ("none", None, None, {}),
        ("session", None, None, {"x-session-id": "s"}),
        ("session", "a", None, {"x-session-id": "s"}),
        ("smg", None, None, {"x-smg-routing-key": "s"}),
        ("correlation", None, None, {"x-correlation-id": "s"}),
        ("dynamo", None, None, {"x-dynamo-session-id": "s"}),
        ("dynamo", "a", None, {"x-dynamo-session-id": "s/a", "x-dynamo-parent-session-id": "s"}),
        ("dynamo", "b", "a", {"x-dynamo-session-id": "s/b", "x-dynamo-parent-session-id": "s/a"}),
    ],
)
def test_affinity(
    serve: Serve, affinity: str, agent: str | None, parent: str | None, expected: dict[str, str]
) -> None:
    """Only the header of the chosen router; a sub-agent names its parent where the router knows parents."""
    server = serve([OK])
    request = ChatRequest("r", "s", 0, "measured", [], 1, agent=agent, parent=parent)
    (record,) = sent(Target(server.url, "m", affinity=affinity), request)  # type: ignore[arg-type]
    names = ("x-session-id", "x-smg-routing-key", "x-correlation-id", "x-dynamo-session-id")
    headers = server.exchanges[0].headers
    assert {n: headers[n] for n in (*names, "x-dynamo-parent-session-id") if n in headers} == expected
    assert (record.agent, record.parent) == (agent, parent)


# -- retries

BUSY = reply("503 Service Unavailable", b"busy", "Retry-After: 0.2")


def test_refusals_are_results_by_default(serve: Serve) -> None:
    """One attempt, and no word of retries in the record."""
    server = serve([BUSY], [OK])
    (record,) = sent(Target(server.url, "m"), ask())
    assert (record.outcome, record.http_status, record.retries) == ("error", 503, None)
    assert len(server.exchanges) == 1


def test_retries_are_counted_and_their_wait_is_latency(serve: Serve) -> None:
    """Two refusals of 0.2 s each: TTFT is over 0.4 s, since the user waited; start is the first attempt's."""
    server = serve([BUSY], [reply("429 Too Many Requests", b"", "Retry-After: 0.2")], [OK])
    (record,) = sent(Target(server.url, "m", retries=3), ask())
    assert (record.outcome, record.retries, record.http_status) == ("ok", 2, 200)
    first = ttft_s(record)
    assert first is not None and 0.4 <= first < 5
    assert record.error_kind is None and record.error_detail is None


def test_retries_end(serve: Serve) -> None:
    """The last refusal is the result."""
    server = serve([BUSY])
    (record,) = sent(Target(server.url, "m", retries=1), ask())
    assert (record.outcome, record.http_status, record.retries) == ("error", 503, 1)
    assert len(server.exchanges) == 2


def test_other_failures_are_not_retried(serve: Serve) -> None:
    """A 400 will not get better."""
    server = serve([reply("400 Bad Request", b"no")], [OK])
    (record,) = sent(Target(server.url, "m", retries=3), ask())
    assert (record.http_status, record.retries, len(server.exchanges)) == (400, 0, 1)


def test_key_goes_where_the_protocol_wants_it(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anthropic's header too; a model name that repeats the key is struck out of the record."""
    monkeypatch.setenv("SERVEMARK_TEST_KEY", "sk-secret-0123456789")
    said = b'{"type":"message","model":"sk-secret-0123456789","content":[{"type":"text","text":"a"}],"stop_reason":"x"}'
    server = serve([reply("200 OK", said)])
    target = Target(server.url, "m", protocol="messages", api_key_env="SERVEMARK_TEST_KEY")
    (record,) = sent(target, ask(stream=False))
    headers = server.exchanges[0].headers
    assert headers["x-api-key"] == "sk-secret-0123456789"
    assert (record.outcome, record.served_model) == ("ok", "***")
    assert b"sk-secret" not in encode_record(record)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"protocol": "soap"}, "replay.bad_choice"),
        ({"affinity": "luck"}, "replay.bad_choice"),
        ({"retries": -1}, "replay.bad_retries"),
        ({"more_urls": ("ftp://x",)}, "replay.bad_url"),
    ],
)
def test_targets_that_cannot_be(fields: dict[str, object], key: str) -> None:
    """Refused when made."""
    make: Callable[..., Target] = Target
    with pytest.raises(ServemarkError) as caught:
        make("http://127.0.0.1:1", "m", **fields)
    assert caught.value.key == key
