"""What all tests share."""

from __future__ import annotations

import os
import signal

from hypothesis import settings

settings.register_profile("ci", derandomize=True)  # the same examples each time; elsewhere new ones are tried
if os.environ.get("CI"):
    settings.load_profile("ci")

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell's background job; processes started here would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
