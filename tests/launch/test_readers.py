"""What engines that do not run here tell of themselves, read from replies shaped as theirs over a real socket.

Names of counters are those that vLLM, SGLang, llama.cpp and Dynamo document; figures are small enough to add by hand.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from servemark.base.errors import Layer, ServemarkError
from servemark.launch.engines.protocol import EngineCommand
from servemark.launch.engines.readers import get_reader
from servemark.launch.engines.steps import Probe

Serve = Callable[[dict[str, tuple[int, str]]], str]
NONE = EngineCommand((), {})

VLLM = """\
vllm:prompt_tokens_total{model_name="m",engine="0"} 300.0
vllm:prompt_tokens_total{model_name="m",engine="1"} 204.0
vllm:prompt_tokens_by_source_total{source="local_compute",engine="0"} 90.0
vllm:prompt_tokens_by_source_total{source="local_compute",engine="1"} 10.0
vllm:prompt_tokens_by_source_total{source="external_kv_transfer",engine="0"} 376.0
vllm:prefix_cache_hits_total{engine="0"} 28.0
vllm:generation_tokens_total{engine="0"} 7.0
"""
SGLANG = """\
sglang:prompt_tokens_total{model_name="m"} 100.0
sglang:cached_tokens_total{model_name="m",cache_source="device"} 40.0
sglang:cached_tokens_total{model_name="m",cache_source="host"} 20.0
sglang:generation_tokens_total{model_name="m"} 9.0
"""
LLAMA = """\
llamacpp:prompt_tokens_total 550
llamacpp:prompt_tokens_cached_total 450
llamacpp:tokens_predicted_total 64
"""


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve fixed replies on a loopback port: path -> status and body."""
    servers: list[ThreadingHTTPServer] = []

    def begin(replies: dict[str, tuple[int, str]]) -> str:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, body = replies.get(self.path, (404, ""))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body.encode())))
                self.end_headers()
                self.wfile.write(body.encode())

            def log_message(self, *_: object) -> None:
                """Nothing."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}"

    yield begin
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("engine", "text", "expected"),
    [
        # cached = all prompt tokens (300 + 204) less those computed here (90 + 10): transferred ones were not computed
        ("vllm", VLLM, (504.0, 404.0, 7.0)),
        (
            "vllm",
            "\n".join(line for line in VLLM.splitlines() if "by_source" not in line) + "\n",
            (504.0, 28.0, 7.0),
        ),
        ("sglang", SGLANG, (100.0, 60.0, 9.0)),
        # llama.cpp counts computed and cached tokens apart: 550 + 450
        ("llama-server", LLAMA, (1000.0, 450.0, 64.0)),
        # an engine that says nothing of it: absent, never 0
        ("vllm", "", (None, None, None)),
        ("trtllm", VLLM, (None, None, None)),
    ],
)
def test_counters(
    serve: Serve, engine: str, text: str, expected: tuple[float | None, float | None, float | None]
) -> None:
    """Prompt, cached and generated tokens, added up over all label sets."""
    url = serve({get_reader(engine).words.metrics: (200, text)})  # type: ignore[attr-defined]
    found = get_reader(engine).counters(url)
    assert (found.prompt_tokens, found.cached_prompt_tokens, found.generated_tokens) == expected


@pytest.mark.parametrize("status", [404, 500])
def test_no_counters_is_an_error_and_not_a_zero(serve: Serve, status: int) -> None:
    """A server without a metrics page has counted nothing that we know of."""
    with pytest.raises(ServemarkError) as refused:
        get_reader("vllm").counters(serve({"/metrics": (status, VLLM)}))
    assert refused.value.layer is Layer.ENGINE


def models(name: str, **more: object) -> tuple[int, str]:
    """A /v1/models reply with one entry."""
    return 200, json.dumps({"data": [{"id": name, **more}]})


def test_identity(serve: Serve) -> None:
    """Version, served name, the model's place and its longest context, as vLLM says them; SGLang by its newer path."""
    url = serve(
        {
            "/v1/models": models("m", root="/models/m", max_model_len=4096),
            "/version": (200, '{"version": "0.32.0"}'),
        }
    )
    found = get_reader("vllm").identity(url, NONE)
    assert (found.version, found.served_model, found.model_file) == ("0.32.0", "m", "/models/m")
    assert found.details["ctx_tokens_per_slot"] == 4096
    url = serve({"/v1/models": models("m"), "/get_server_info": (200, '{"version": "0.5.17", "tp_size": 8}')})
    assert get_reader("sglang").identity(url, NONE).version == "0.5.17"
    silent = get_reader("sglang").identity(serve({"/v1/models": models("m")}), NONE)
    assert silent.version is None and "ctx_tokens_per_slot" not in silent.details


@pytest.mark.parametrize("version", ['{"version": 5}', "[]", "x", '{"version": "' + "9" * 500 + '"}'])
def test_a_version_from_a_lying_server(serve: Serve, version: str) -> None:
    """What is no version is none, and a long one is cut: the reply of a server is not trusted."""
    found = get_reader("vllm").identity(serve({"/v1/models": models("m"), "/version": (200, version)}), NONE)
    assert found.version is None or len(found.version) <= 200


def test_a_dynamo_front_end_is_ready_when_all_its_workers_are(serve: Serve) -> None:
    """/health lists instances; those that generate are counted, a front end that serves the model alone is not enough."""

    def health(generating: int) -> tuple[int, str]:
        instances = [{"endpoint": "generate", "component": "backend"}] * generating
        return 200, json.dumps(
            {"status": "healthy", "instances": [*instances, {"endpoint": "clear_kv_blocks"}]}
        )

    for generating, ready in ((0, False), (1, False), (2, True), (3, True)):
        url = serve({"/v1/models": models("m"), "/health": health(generating)})
        assert Probe(url, "/health", "m", workers=2).ready() is ready


def test_a_probe_of_a_stranger(serve: Serve) -> None:
    """Another server on our port is not ours, however healthy it is."""
    url = serve({"/v1/models": models("other"), "/health": (200, "ok")})
    with pytest.raises(ServemarkError) as refused:
        Probe(url, "/health", "m").ready()
    assert refused.value.key == "launch.other_server"
    assert Probe(url, "/health").ready() and not Probe(url, "/absent").ready()
