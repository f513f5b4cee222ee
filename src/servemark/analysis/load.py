"""The load that a point was measured under, in words: a concurrency, or an open loop's law of arrivals."""

from __future__ import annotations

from dataclasses import dataclass

from servemark.base.messages import text
from servemark.results.row import ResultRow


@dataclass(frozen=True, slots=True)
class Load:
    """Either `concurrency` live sessions, or `arrivals` such as `poisson:4`."""

    concurrency: int | None
    arrivals: str | None = None

    @classmethod
    def of(cls, row: ResultRow) -> Load:
        """The load of a row."""
        law = None if row.replayed is None else row.replayed.arrivals
        return cls(row.concurrency, None if law is None else law.law)

    @property
    def short(self) -> str:
        """As little as tells points apart: `8`, or `poisson:4`."""
        return str(self.concurrency) if self.concurrency is not None else self.arrivals or "open"

    def label(self, lang: str | None = None) -> str:
        """`concurrency 8`, or `open loop poisson:4`."""
        if self.concurrency is not None:
            return text("analysis.label.point", lang, concurrency=self.concurrency)
        return text("analysis.label.open", lang, arrivals=self.short)
