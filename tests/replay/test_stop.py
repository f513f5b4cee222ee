"""The stop signal only gets stricter, and tells those who watch."""

from __future__ import annotations

import asyncio
import signal
import threading

from servemark.replay.stop import StopSignal


def test_modes() -> None:
    """None, drain, now; never back; the reason is that of the mode that holds."""
    stop = StopSignal()
    assert (stop.mode, stop.reason) == (None, None)
    stop.request("drain", "a")
    stop.request("drain", "b")
    assert (stop.mode, stop.reason) == ("drain", "a")
    stop.request("now", "c")
    stop.request("drain", "d")
    assert (stop.mode, stop.reason) == ("now", "c")


def test_watchers_hear_each_change_once() -> None:
    """From this thread and from another; also of what was asked before they watched; not after they left."""
    stop = StopSignal()
    heard: list[str | None] = []

    async def main() -> None:
        stop.request("drain", "early")
        with stop.watched(lambda: heard.append(stop.mode)):
            thread = threading.Thread(target=stop.request, args=("now", "thread"))
            thread.start()
            thread.join()
            stop.request("now", "again")
            await asyncio.sleep(0.01)

    asyncio.run(main())
    assert heard == ["drain", "now"]
    stop.request("now", "late")
    assert heard == ["drain", "now"]


def test_from_a_signal_handler() -> None:
    """A handler that interrupts a request in the same thread does not lock up."""
    stop = StopSignal()
    before = signal.signal(signal.SIGALRM, lambda *_: stop.request("now", "signal"))
    try:
        with stop._lock:
            signal.raise_signal(signal.SIGALRM)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert stop.mode == "now"


def test_loop_that_is_gone() -> None:
    """A watcher whose loop was closed without leaving is passed over."""
    stop = StopSignal()
    loop = asyncio.new_event_loop()

    async def watch() -> None:
        stop.watched(lambda: None).__enter__()

    loop.run_until_complete(watch())
    loop.close()
    stop.request("now", "x")
    assert stop.mode == "now"
