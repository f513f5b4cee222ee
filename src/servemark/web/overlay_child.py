"""A process that reads one upload: importers and gates over bytes that a stranger chose, with its memory, time and files
bounded by the kernel. What it made of them goes to its parent; when it fails, the server goes on.

Usage: python -m servemark.web.overlay_child FILE NAME LANG [HOME]. With HOME the file is kept in the store there too.
"""

from __future__ import annotations

import ctypes
import io
import pickle
import resource
import signal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

from servemark.analysis.measured import FILE_PREFIX, of_point
from servemark.base.errors import ServemarkError
from servemark.base.home import Home
from servemark.base.printable import one_line
from servemark.results.gates.base import Severity
from servemark.results.gates.registry import gates_version, judge_all
from servemark.results.importers.registry import importers
from servemark.results.point import Mapped, Point
from servemark.store.database import Store
from servemark.store.found_files import Found, Refused, damaged, find
from servemark.store.intake import Intake, Used, given_of, hash_of, rows_of, take_in
from servemark.store.raw_files import RawFiles
from servemark.store.reasons import reason_text
from servemark.web.overlays import CPU_S, MAX_POINTS, Read

MAX_FILES = 2_000
MEMORY_BYTES = 3 * 2**30
_PR_SET_PDEATHSIG = 1
_DAMAGE = (OSError, EOFError, zlib.error)


class TooManyPointsError(Exception):
    """More points than an overlay may have."""


def bound() -> None:
    """Limits of this process, which end with it; and an end with its parent's."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def read_upload(path: Path, name: str, lang: str, keep: Home | None = None) -> Read:
    """Every file of an upload. `name` is the reader's word for it; where it lies is told to nobody."""
    read = Read()
    intake = Intake(
        RawFiles(keep.raw if keep is not None else path.parent), importers(), judge_all, gates_version()
    )
    for number, found in enumerate(_found(path, name)):
        if number >= MAX_FILES:
            read.problem(reason_text("serve.overlay.files", {"limit": MAX_FILES}, lang))
            break
        if isinstance(found, Refused):
            read.problem(_said(found.error, lang, path, name))
            continue
        _read_file(read, intake, found, lang)
        if keep is not None:
            with Store.open(keep.store) as store:
                take_in(store, intake, found)
            read.stored = True
    return read


def _found(path: Path, name: str) -> Iterator[Found | Refused]:
    for each in find(str(path), path.parent, io.BytesIO()):
        if isinstance(each, Refused):
            yield Refused(each.name.replace(str(path), name, 1), each.error)
        else:
            yield Found(each.name.replace(str(path), name, 1), each.size, each.open, each.beside)


def _said(error: ServemarkError, lang: str, path: Path, name: str) -> str:
    return error.what(lang).replace(str(path), name).replace(str(path.parent), "")


def _read_file(read: Read, intake: Intake, found: Found, lang: str) -> None:
    points: list[tuple[int, Point]] = []
    reasons: dict[str, int] = {}
    importer = ""
    try:
        sha256, _ = hash_of(found)
        chosen, rows = rows_of(intake.importers, given_of(found, found.open, {}, Used(found.beside)))
        importer = chosen.id if chosen is not None else ""
        for row in rows:
            if row.point is not None:
                points.append((row.ordinal, row.point))
                if len(points) + len(read.points) > MAX_POINTS:
                    raise TooManyPointsError
            else:
                said = _reason(row, lang)
                reasons[said] = reasons.get(said, 0) + 1
    except ServemarkError as error:
        read.problem(f"{found.name}: {error.what(lang)}")
        return
    except _DAMAGE as error:
        read.problem(damaged(found.name, error).what(lang))
        return
    except TooManyPointsError:
        raise
    except Exception as error:  # an importer that fails is a fault of the file's, as in an import
        read.problem(f"{found.name}: {type(error).__name__}: {error}"[:300])
        return
    for said, count in sorted(reasons.items(), key=lambda each: -each[1]):
        read.problem(f"{found.name}: {said} ({count})")
    judged = judge_all([point for _, point in points])
    for (ordinal, point), (findings, verdict) in zip(points, judged, strict=True):
        bad = tuple(each for each in findings if each.severity in {Severity.WARNING, Severity.QUARANTINE})
        read.points.append(of_point(point, f"{sha256[:FILE_PREFIX]}:{ordinal}", str(verdict), bad))
    read.files.append({"name": one_line(found.name), "format": importer or None, "points": len(points)})


def _reason(row: Mapped, lang: str) -> str:
    return reason_text(row.reason, row.reason_values, lang)


def main(arguments: list[str]) -> int:
    """Read the upload; its points go to stdout as a pickle. 3: too many points; 1: a fault."""
    bound()
    path, name, lang, *home = arguments
    try:
        read = read_upload(Path(path), name, lang, Home(Path(home[0])) if home else None)
    except TooManyPointsError:
        return 3
    except ServemarkError as error:
        read = Read(problems=[_said(error, lang, Path(path), name)])
    except MemoryError:
        return 4
    sys.stdout.buffer.write(pickle.dumps(read, pickle.HIGHEST_PROTOCOL))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
