"""Prefill and decode on two real engines with a real store between them, against one engine alone."""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from servemark.base.errors import ServemarkError
from servemark.catalog.deployment import Deployment
from servemark.catalog.nodes import Problem
from servemark.catalog.recipe import read_recipe
from servemark.launch.allocation import AllocationRequest, NodeGroup
from servemark.launch.http_probe import fetch
from servemark.launch.job import JobPlace, build_job
from servemark.launch.live_job import LiveJob
from servemark.launch.local_allocation import HostLauncher, LocalStep

pytestmark = pytest.mark.engine
pytest.importorskip("mooncake.store", reason="the extra `store` is not installed")
SUITE = Path(__file__).resolve().parents[2] / "suites"
RECIPE = SUITE / "disaggregated-cpu" / "recipes" / "smollm2" / "llamacpp" / "disagg-1p1d-mooncake-cpu.yaml"
NUMBERS = itertools.count()
PROMPT = "You answer briefly. " + "The cat sat on the mat and the dog lay in the sun. " * 12


def deployment(path: Path) -> Deployment:
    """A recipe of the shipped suites."""
    problems: list[Problem] = []
    found = read_recipe(path, path.name, problems)
    assert found is not None, problems
    return found


def aggregated() -> Deployment:
    """The same engine with the same arguments, alone."""
    pair = deployment(RECIPE)
    return replace(
        pair, roles=(replace(pair.roles[0], role="aggregated", env={}),), services=(), frontend=None
    )


def start(recipe: Deployment, folder: Path, work: Path | None = None, budget_s: float = 60.0) -> LiveJob:
    """A started job on this host."""
    run_id = f"pd-test-{os.getpid()}-{next(NUMBERS)}"
    allocation = HostLauncher(gpus=0).allocate(AllocationRequest(run_id, (NodeGroup("all", 1),), 600, 1.0))
    where = JobPlace(allocation.nodes, allocation.free_ports, work or folder / "work", folder / "logs")
    live = LiveJob(
        build_job(recipe, where, run_id=run_id, served_name=run_id), allocation, recipe.engine, budget_s
    )
    try:
        live.start()
    except ServemarkError:
        live.stop()
        raise
    return live


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveJob]:
    """The shipped 1P1D."""
    live = start(deployment(RECIPE), tmp_path_factory.mktemp("pd"))
    run_id = live.allocation.run_id  # type: ignore[attr-defined]
    yield live
    live.stop()
    assert HostLauncher(gpus=0).leftovers(run_id) == []


def ask(live: LiveJob, question: str, **more: object) -> dict[str, object]:
    """One greedy chat request at the front."""
    body = {
        "model": live.job.served_name,
        "messages": [{"role": "system", "content": PROMPT}, {"role": "user", "content": question}],
        "temperature": 0,
        "max_tokens": 24,
        **more,
    }
    reply = fetch(live.job.front.base_url, "/v1/chat/completions", body=body, timeout_s=60.0)
    assert reply.status == 200, reply.body
    value = reply.json()
    assert isinstance(value, dict)
    return value


def content(reply: dict[str, object]) -> str:
    """The answer's text."""
    return str(reply["choices"][0]["message"]["content"])  # type: ignore[index]


def counter(live: LiveJob, name: str) -> float:
    """One raw counter of the deployment now."""
    found = live.counters()
    assert found is not None
    return found.raw[name]


def test_decode_computes_one_token_and_says_what_one_engine_says(pair: LiveJob, tmp_path: Path) -> None:
    """Asked of the decode worker's own counters, not of the router; the text is that of one engine alone."""
    computed = "decode-0 llamacpp:prompt_tokens_total"
    before, put = counter(pair, computed), counter(pair, "store_put_count")
    reply = ask(pair, "Name three colours.")
    usage: dict[str, object] = reply["usage"]  # type: ignore[assignment]
    details: dict[str, int] = usage["prompt_tokens_details"]  # type: ignore[assignment]
    assert counter(pair, computed) - before <= 1
    assert details["transferred_tokens"] == usage["prompt_tokens"] - 1  # type: ignore[operator]
    assert counter(pair, "store_put_count") - put == 1
    assert counter(pair, "store_get_count") == counter(pair, "store_put_count")
    assert counter(pair, "store_put_bytes") == counter(pair, "store_get_bytes") > 1_000_000
    assert counter(pair, "store_put_seconds") > 0
    again = ask(pair, "Name three animals.")
    shared: int = again["usage"]["prompt_tokens_details"]["cached_tokens"]  # type: ignore[index]
    assert 100 < shared < again["usage"]["prompt_tokens"]  # type: ignore[index]
    alone = start(aggregated(), tmp_path)
    try:
        for question, said in (("Name three colours.", reply), ("Name three animals.", again)):
            ask(alone, question)
            # Asked again, its prefix is cached and its last token computed alone, as the decode worker does it: the
            # same arithmetic. Computed in one batch, the last bits differ, and may turn a near tie of a small model.
            assert content(ask(alone, question)) == content(said)
    finally:
        alone.stop()


def test_streams_pass_on_as_they_come(pair: LiveJob) -> None:
    """Events arrive one by one while the engine still writes, the last has the usage, `[DONE]` ends it."""
    host, _, port = pair.job.front.base_url.removeprefix("http://").partition(":")
    body = json.dumps(
        {
            "model": pair.job.served_name,
            "messages": [{"role": "user", "content": "Count to twenty."}],
            "max_tokens": 40,
            "ignore_eos": True,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    pieces = []
    with socket.create_connection((host, int(port)), timeout=30) as sock:
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
        sock.sendall(head.encode() + body)
        while piece := sock.recv(65536):
            pieces.append(piece)
    text = b"".join(pieces).decode()
    assert len(pieces) > 3  # not one block at the end
    assert text.count('"delta"') > 10 and "data: [DONE]" in text
    assert '"transferred_tokens"' in text and '"cached_tokens"' in text


def test_faults_of_a_client_are_its_own(pair: LiveJob) -> None:
    """Bad JSON, no messages, a prompt beyond the context: told with the engine's own status, and the next one works."""
    url = pair.job.front.base_url
    assert fetch(url, "/v1/chat/completions", body=[1], timeout_s=10).status == 400
    assert fetch(url, "/v1/chat/completions", body={"messages": "x"}, timeout_s=10).status == 400
    long = {"messages": [{"role": "user", "content": "word " * 6000}], "max_tokens": 4}
    reply = fetch(url, "/v1/chat/completions", body=long, timeout_s=60)
    assert reply.status == 400 and b"prefill-0: prefill" in reply.body
    assert content(ask(pair, "Say yes."))


def test_the_store_is_measured(pair: LiveJob) -> None:
    """Every rank says how long the store took, and which pages back its segment."""
    facts = pair.store_facts()
    assert set(facts) == {"prefill-0", "decode-0"}
    for rank in facts.values():
        assert isinstance(rank, dict) and rank["store_setup_s"] > 0
        assert rank["page_bytes"] == os.sysconf("SC_PAGE_SIZE") and rank["segment_bytes"] == 512 << 20
        assert set(rank["vmstat_before"]) == set(rank["vmstat_after"]) >= {"thp_fault_alloc", "compact_stall"}
    assert set(pair.identities()) == {"prefill-0", "decode-0"}


def test_agents_take_no_path(pair: LiveJob) -> None:
    """A file name that leaves the folder is refused, and so is a body without bounds."""
    agent = next(s.process.agent_url for s in pair.job.steps if s.process.agent_url)
    for name in ("../x", "/etc/passwd", ".hidden", "", 5, "a\0b"):
        reply = fetch(agent, "/put", body={"file": name, "key": "k"}, timeout_s=5)
        assert reply.status == 500 and b"bad file name" in reply.body
    assert fetch(agent, "/get", body={"file": "f", "key": "missing"}, timeout_s=5).status == 500
    assert fetch(agent, "/put", body={"file": "x" * 9000}, timeout_s=5).status == 413


def test_no_room_for_slot_files(tmp_path: Path) -> None:
    """A full disk under the slot files: the answer names the worker, the step and the disk; then it works again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs is not permitted here")
    try:
        live = start(deployment(RECIPE), tmp_path, work=disk / "work")
        try:
            body = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 2}
            reply = fetch(live.job.front.base_url, "/v1/chat/completions", body=body, timeout_s=60)
            assert reply.status == 502
            assert b"prefill-0: " in reply.body and b"disk" in reply.body, reply.body
        finally:
            live.stop()
        assert list((disk / "work").glob("*")) == []
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=False)


def test_decode_dies_within_an_answer(tmp_path: Path) -> None:
    """The stream ends with an error that names the instance, and without the mark of a whole answer."""
    live = start(deployment(RECIPE), tmp_path)
    try:
        host, _, port = live.job.front.base_url.removeprefix("http://").partition(":")
        body = json.dumps(
            {
                "messages": [{"role": "user", "content": PROMPT}],
                "max_tokens": 400,
                "stream": True,
                "ignore_eos": True,
            }
        ).encode()
        with socket.create_connection((host, int(port)), timeout=30) as sock:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            sock.sendall(head.encode() + body)
            text = b""
            while text.count(b'"delta"') < 3:
                text += sock.recv(65536)
            step = live.steps["decode-0"]
            assert isinstance(step, LocalStep)
            os.kill(step.pid, signal.SIGKILL)
            while piece := sock.recv(65536):
                text += piece
        assert b"decode-0: decode" in text and b"[DONE]" not in text and not text.endswith(b"0\r\n\r\n")
        assert step.wait(10.0) is not None
        died = live.exited()
        assert (
            died is not None and died.key == "launch.step_exited.killed" and died.values["step"] == "decode-0"
        )
    finally:
        live.stop()
