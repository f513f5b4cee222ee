"""What all tests share."""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from servemark.base import messages

settings.register_profile("ci", derandomize=True)  # the same examples each time; elsewhere new ones are tried
if os.environ.get("CI"):
    settings.load_profile("ci")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell's background job; processes started here would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def language_of_a_test() -> Iterator[None]:
    """A language that a test chooses, as `--lang zh` within this process does, ends with it."""
    before = list(messages._chosen)
    yield
    messages.set_language(before[0] if before else None)


@pytest.fixture
def alone_with_the_pool() -> Iterator[None]:
    """The host has one pool of huge pages: tests that reserve of it or count it wait for each other's workers."""
    with (Path(tempfile.gettempdir()) / "servemark-tests-hugepages.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
