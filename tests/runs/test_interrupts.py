"""Which signals end a run in its orderly way."""

from __future__ import annotations

import os
import signal

import pytest

from servemark.runs.interrupts import Interrupts


@pytest.mark.parametrize("before", [signal.SIG_IGN, signal.SIG_DFL])
def test_nohup_outlives_its_terminal(before: signal.Handlers) -> None:
    """A hang-up that is ignored, as `nohup` leaves it, stays so; else it is noted as Ctrl-C is."""
    kept = signal.signal(signal.SIGHUP, before)
    try:
        with Interrupts() as interrupts:
            os.kill(os.getpid(), signal.SIGHUP)
            assert interrupts.requested == (before is signal.SIG_DFL)
        assert signal.getsignal(signal.SIGHUP) is before
    finally:
        signal.signal(signal.SIGHUP, kept)
