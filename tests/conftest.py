"""What all tests share."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator

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
