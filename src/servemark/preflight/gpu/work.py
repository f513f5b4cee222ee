"""What a probe is given, and how it says that it does not apply here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Work:
    """A job as a probe gets it. `gpus`: indices as they are shown, in the order of the visible devices."""

    gpus: tuple[int, ...]
    rank: int
    ranks: int
    folder: Path
    limit_s: float
    options: dict[str, object]


class UnmeasuredError(Exception):
    """The probe does not apply here; `reason` is one of `lines.REASONS`."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
