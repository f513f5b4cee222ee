"""Reading run folders into the store: how a deleted store comes back, and how a portable folder gets in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError
from servemark.base.files import disk_error
from servemark.results.serialize import RESULT_NAME, check_files, read_bounded, row_from_json, verified_json
from servemark.store.database import Ingested, Store


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What came of a folder of runs. `refused` are results that were not taken, each with its error."""

    added: int
    same: int
    superseded: int
    without_result: int
    refused: tuple[tuple[Path, ServemarkError], ...]


def ingest_run(store: Store, folder: Path) -> Ingested:
    """Keep the result of one run folder, after checking its hash and every file that it lists.

    Raises ServemarkError: layer results for a damaged folder, layer store for the store.
    """
    path = folder / RESULT_NAME
    data = read_bounded(path)
    check_files(folder, row_from_json(verified_json(data, path), path))
    return store.ingest(data, path)


def ingest_runs(store: Store, runs: Path) -> IngestReport:
    """Keep the results of all run folders below `runs`; a damaged one is listed and does not stop the others.

    Raises ServemarkError (layer store) when the store itself fails, (layer home) when `runs` cannot be read.
    """
    tally = {"added": 0, "same": 0, "superseded": 0}
    without, refused = 0, []
    try:
        folders = sorted(each for each in runs.iterdir() if each.is_dir()) if runs.is_dir() else []
    except OSError as error:
        raise disk_error(error, runs) from error
    for folder in folders:
        if not (folder / RESULT_NAME).exists():
            without += 1
            continue
        try:
            tally[ingest_run(store, folder)] += 1
        except ServemarkError as error:
            if error.layer is Layer.STORE:
                raise
            refused.append((folder, error))
    return IngestReport(tally["added"], tally["same"], tally["superseded"], without, tuple(refused))
