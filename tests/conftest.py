"""What all tests share."""

from __future__ import annotations

import signal

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # a shell's background job; processes started here would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)
