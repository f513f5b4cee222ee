"""What a log says about an end: lines and signatures, from texts as the real programs print them."""

from __future__ import annotations

import pytest

from servemark.base.messages import LANGUAGES, catalogue
from servemark.launch.failure import (
    SIGNATURES,
    known_signature,
    oom_kill_count,
    printable,
    relevant_lines,
    signal_kind,
)
from servemark.launch.process import ExitStatus

BIND = """\
0.00.002.041 W srv          init: security: no API key is set and CORS allows all origins
0.00.002.120 E srv         start: couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 19102
0.00.002.139 I srv    operator(): operator(): cleaning up before exit...
0.00.002.276 E srv          init: exiting due to HTTP server error
error: Failed to init server, please check the input params.
"""
TRACEBACK = """\
loading
Traceback (most recent call last):
  File "/x/child.py", line 70, in <module>
    main()
  File "/x/child.py", line 51, in main
    import xllamacpp  # error here
ModuleNotFoundError: No module named 'xllamacpp'
"""


def test_lines_of_a_real_bind_failure() -> None:
    """The cause comes first; the harmless warning is not in it."""
    lines = relevant_lines(BIND)
    assert lines[0].endswith("couldn't bind HTTP server socket, hostname: 127.0.0.1, port: 19102")
    assert len(lines) == 3
    assert not any("security" in line for line in lines)


def test_a_traceback_counts_by_its_last_line() -> None:
    """Frames are for developers of the engine, not for its user."""
    assert relevant_lines(TRACEBACK) == ["ModuleNotFoundError: No module named 'xllamacpp'"]
    custom = "Traceback (most recent call last):\n  File\n    x\nmy.pkg.Oops: it failed\nafter: all fine\n"
    assert relevant_lines(custom) == ["my.pkg.Oops: it failed"]


def test_a_log_without_errors_gives_its_end() -> None:
    """Something is better than nothing, and the last lines are the likeliest."""
    assert relevant_lines("\n".join(f"step {n}" for n in range(50))) == [f"step {n}" for n in range(46, 50)]
    assert relevant_lines("") == []
    assert relevant_lines("\n \n") == []


def test_control_characters_and_length() -> None:
    """A log cannot write escape sequences to the user's terminal, nor fill it."""
    assert relevant_lines("error: \x1b[31mred\x1b[0m\x07 \u202e done\r\n") == ["error: [31mred[0m  done"]
    assert len(printable("x" * 1000)) == 240
    assert relevant_lines("error a\n" * 1000) == ["error a"]


@pytest.mark.parametrize(
    ("log", "kind"),
    [
        (BIND, "port_in_use"),
        ("OSError: [Errno 98] Address already in use", "port_in_use"),
        ("[Errno 98] error while attempting to bind on address: address already in use", "port_in_use"),
        (TRACEBACK, "no_package"),
        ("x.so: /lib/libc.so.6: version `GLIBC_2.38' not found (required by x.so)", "old_system"),
        ("terminate called after throwing an instance of 'std::bad_alloc'", "memory"),
        ("ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 9663676416", "memory"),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "memory"),
        ("0.00.006 E llama_model_load: error loading model: llama_model_loader: failed to load", "model"),
        ("gguf_init_from_reader: failed to read magic", "model"),
        ("everything is fine", None),
        ("", None),
    ],
)
def test_signatures(log: str, kind: str | None) -> None:
    """Lines as llama.cpp, uvicorn, the dynamic loader, libstdc++ and torch print them."""
    assert known_signature(log) == kind


def test_signals() -> None:
    """SIGKILL is called out-of-memory only when the kernel counted a kill; a plain exit has no kind."""
    assert signal_kind(ExitStatus(signal=9), oom_kills=1) == "oom_killed"
    assert signal_kind(ExitStatus(signal=9), oom_kills=0) == "killed"
    assert signal_kind(ExitStatus(signal=9), oom_kills=None) == "killed"
    assert signal_kind(ExitStatus(signal=4), oom_kills=3) == "illegal_instruction"
    assert signal_kind(ExitStatus(signal=11), oom_kills=0) == "crashed"
    assert signal_kind(ExitStatus(signal=15), oom_kills=0) is None
    assert signal_kind(ExitStatus(exit_code=9), oom_kills=1) is None


def test_the_kernels_counter_is_read() -> None:
    """Linux has counted OOM kills in /proc/vmstat since 4.13."""
    assert (oom_kill_count() or 0) >= 0


def test_every_kind_has_its_message() -> None:
    """Keys that are put together at run time exist, with a next step, in both languages."""
    kinds = [kind for kind, _ in SIGNATURES] + [
        "oom_killed",
        "killed",
        "illegal_instruction",
        "crashed",
        "unseen",
    ]
    keys = [f"launch.engine_exited.{kind}" for kind in kinds]
    keys += [f"launch.{step}_refused" for step in ("log", "cwd", "exec", "start")]
    for lang in LANGUAGES:
        known = catalogue(lang, "launch")
        assert not [key for key in keys if key not in known or f"{key}.next" not in known]
