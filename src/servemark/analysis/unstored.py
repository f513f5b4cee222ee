"""Results in files that nobody imports: read in memory by the importers, judged by the gates, kept nowhere."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from servemark.analysis.measured import FILE_PREFIX, Measured, of_point
from servemark.base.errors import ServemarkError, input_error
from servemark.results.point import Point
from servemark.results.serialize import check_files, read_result
from servemark.store.found_files import Found, Refused, damaged
from servemark.store.intake import Intake, Used, given_of, hash_of, rows_of
from servemark.store.reasons import reason_text

MAX_POINTS = 200_000
MAX_PROBLEMS = 20


@dataclass(slots=True)
class Unstored:
    """What files held. `problems` are sentences about files and rows that gave no point, at most MAX_PROBLEMS; `faults`
    counts all of them."""

    points: list[Measured] = field(default_factory=list)
    files: int = 0
    faults: int = 0
    problems: list[str] = field(default_factory=list)

    def fault(self, name: str, what: str) -> None:
        """Count something that gave no point."""
        self.faults += 1
        if len(self.problems) < MAX_PROBLEMS:
            self.problems.append(what if name in what else f"{name}: {what}")


def read_unstored(found: Iterable[Found | Refused], intake: Intake, lang: str | None = None) -> Unstored:
    """Every point of some files, judged among each other. The points are unofficial; their `ref` is that of the file's
    SHA-256, as in a store, so that the same measurement is known again.

    Raises ServemarkError (exit code 2) for more than MAX_POINTS; faults of single files are told in the answer."""
    kept: list[tuple[str, Point]] = []
    told = Unstored()
    for each in found:
        told.files += 1
        if isinstance(each, Refused):
            told.fault(each.name, each.error.what())
            continue
        try:
            kept += _points(each, intake, told, MAX_POINTS - len(kept), lang)
        except ServemarkError as error:
            if error.key == "compare.too_many_points":
                raise
            told.fault(each.name, error.what())
        except (OSError, EOFError, zlib.error) as error:
            told.fault(each.name, damaged(each.name, error).what())
        except Exception as error:  # an importer that fails is a fault of the file's, as in an import
            told.fault(each.name, f"{type(error).__name__}: {error}"[:300])
    judged = intake.judge([point for _, point in kept])
    told.points = [
        of_point(point, ref, str(verdict), findings)
        for (ref, point), (findings, verdict) in zip(kept, judged, strict=True)
    ]
    return told


def _points(
    found: Found, intake: Intake, told: Unstored, room: int, lang: str | None
) -> list[tuple[str, Point]]:
    """(ref, point) of one file's rows; nothing where it is damaged half-way."""
    sha256, _ = hash_of(found)
    if found.folder is not None:
        check_files(found.folder, read_result(found.folder, verify_files=False))
    kept = []
    given = given_of(found, found.open, intake.hints, Used(found.beside))
    for row in rows_of(intake.importers, given, intake.format)[1]:
        if row.point is None:
            told.fault(found.name, reason_text(row.reason, row.reason_values, lang))
            continue
        kept.append((f"{sha256[:FILE_PREFIX]}:{row.ordinal}", row.point))
        if len(kept) > room:
            raise input_error("compare.too_many_points", limit=MAX_POINTS)
    return kept
