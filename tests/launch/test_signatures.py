"""Known causes of an end, from lines as Mooncake, NCCL, libfabric, pyxis, argparse and gflags print them."""

from __future__ import annotations

import pytest

from servemark.base.messages import LANGUAGES, find_text
from servemark.launch.failure import SIGNATURES, known_signature, relevant_lines

LINES = [
    # Mooncake without reserved huge pages: the local buffer fails first, then bad_alloc hides the cause
    (
        "huge_pages",
        "E1129 mmap failed, size=268435456, errno=12 (Cannot allocate memory)\nMemoryError: std::bad_alloc",
    ),
    ("registration", "E1129 fid.cpp:88] fi_mr_reg failed: Cannot allocate memory"),
    (
        "nccl",
        "h1:12:90 [3] NCCL WARN Cuda failure 'out of resource'\ntorch.distributed.DistBackendError: ncclSystemError",
    ),
    ("memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    ("memory", "MemoryError: std::bad_alloc"),
    ("port_in_use", "OSError: [Errno 98] error while attempting to bind on address: address already in use"),
    ("registry", "pyxis: failed to import docker image\npyxis: curl: (6) Could not resolve host: registry"),
    ("bad_argument", "vllm: error: unrecognized arguments: --tensor-paralel-size 8"),
    ("bad_argument", "ERROR: unknown command line flag 'default_kv_lease_tll'"),
    ("missing_file", "FileNotFoundError: [Errno 2] No such file or directory: '/models/m/config.json'"),
    ("disk_full", "OSError: [Errno 28] No space left on device: 'slots/1'"),
    ("no_package", "ModuleNotFoundError: No module named 'dynamo'"),
]


@pytest.mark.parametrize(("kind", "log"), LINES)
def test_kind_and_line(kind: str, log: str) -> None:
    """The kind that says what to do, and the first line that says why."""
    assert known_signature("loading\n" + log + "\nbye\n") == kind
    assert relevant_lines("loading\n" + log)[0] == log.splitlines()[0]


@pytest.mark.parametrize(
    "log",
    [
        "E1130 transfer_metadata.cpp:1098] Local segment descriptor not found",  # printed by every set-up that succeeds
        "INFO: Started server process [1]\nINFO: Application startup complete.",
        "WARNING: max_num_seqs reduced to 8",
    ],
)
def test_a_healthy_log_shows_no_cause(log: str) -> None:
    """A harmless line must not become somebody's afternoon."""
    assert known_signature(log) is None


@pytest.mark.parametrize("kind", [kind for kind, _ in SIGNATURES])
@pytest.mark.parametrize("base", ["launch.engine_exited", "launch.step_exited"])
def test_every_kind_has_a_message_and_a_next_step(kind: str, base: str) -> None:
    """In each language, for one engine alone and for an instance among many."""
    values = {"step": "s", "node": "n", "status": "exit 1", "seconds": "1", "log": "/l", "lines": "x"}
    for lang in LANGUAGES:
        for key in (f"{base}.{kind}", f"{base}.{kind}.next"):
            assert find_text(key, lang, **values), (lang, key)
