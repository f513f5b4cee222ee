"""What may go: raw bytes that nothing names, and attempts that a later one superseded. Never a run folder, never a point
that counts."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from servemark.base.files import disk_error
from servemark.store.database import Store
from servemark.store.imports import drop_points, touch
from servemark.store.lines import settle
from servemark.store.overview import orphans
from servemark.store.raw_files import RawFiles

SETTLE_S = 3600.0
"""A blob or a temporary file younger than this may belong to an importer at work and stays."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """What went, or in a dry run would go."""

    blobs: int
    blob_bytes: int
    temporary: int
    points: int


def prune(store: Store, raw: RawFiles, *, keep: int | None, older_than: str | None, dry_run: bool) -> Pruned:
    """Take away raw blobs and temporary files that nothing names, and superseded points.

    Superseded points go only when asked for: of each point the `keep` newest superseded attempts stay (None: no limit of
    their number), and with `older_than` (a date, ISO 8601) only older ones go.
    Their rows stay as `superseded` in the list of what each file held, and come back when it is mapped again.
    Raises ServemarkError for the store and the disk.
    """
    now = time.time()
    blobs = [raw.path(sha256) for sha256 in orphans(store, raw)]
    old = [path for path in blobs if now - path.stat().st_mtime > SETTLE_S]
    left = [path for path in raw.leftovers() if now - path.stat().st_mtime > SETTLE_S]
    size = sum(path.stat().st_size for path in old)
    asked = keep is not None or older_than is not None
    ids = _superseded(store, keep or 0, older_than) if asked else []
    if not dry_run:
        with store.writing():
            touch(store.connection)
            drop_points(store.connection, ids)
            settle(store.connection)
        for path in (*old, *left):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise disk_error(error, path) from error
        for path in old:
            with contextlib.suppress(OSError):  # not empty: others are in it
                path.parent.rmdir()
    return Pruned(len(old), size, len(left), len(ids))


def _superseded(store: Store, keep: int | None, older_than: str | None) -> list[int]:
    ask = """
        SELECT id FROM (
            SELECT id, at_utc, row_number() OVER (
                PARTITION BY line_id, point_key ORDER BY attempt DESC, at_utc DESC, id DESC) AS place
            FROM result_point WHERE current = 0)
        WHERE place > ? AND (? IS NULL OR at_utc < ?)
    """
    return [int(number) for (number,) in store.query(ask, (keep, older_than, older_than))]
