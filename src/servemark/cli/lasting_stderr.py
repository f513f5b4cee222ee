"""A stderr that may go away: what is told there is for somebody who looks on, and no work ends with its reader."""

from __future__ import annotations

import io
import sys


class LastingStderr(io.TextIOWrapper):
    """Takes everything; once the terminal is closed, the reader has ended or the disk is full, it keeps nothing."""

    _gone = False

    def write(self, said: str, /) -> int:
        """All of it, as far as anybody can know."""
        if not self._gone:
            try:
                return super().write(said)
            except OSError:
                self._gone = True
        return len(said)

    def flush(self) -> None:
        """No error either."""
        if not self._gone:
            try:
                super().flush()
            except OSError:
                self._gone = True


def let_stderr_go() -> None:
    """Make the process's stderr one that may go away. Progress bars, plain lines and a library's own words write there
    from many places and threads; each would else end a run whose terminal was closed."""
    plain = sys.stderr
    if isinstance(plain, io.TextIOWrapper) and not isinstance(plain, LastingStderr):
        encoding, errors, by_line = plain.encoding, plain.errors, plain.line_buffering
        lasting = LastingStderr(plain.detach(), encoding, errors, line_buffering=by_line)
        sys.stderr = sys.__stderr__ = lasting  # type: ignore[misc]  # the old one has no stream any more
