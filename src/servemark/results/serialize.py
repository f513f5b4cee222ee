"""The row as JSON: written canonically with its own hash, read back with its schema, hash and files checked.

The published schema (docs/result.schema.json) is generated from the dataclasses by `json_schema`.
"""

from __future__ import annotations

import hashlib
import stat
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from servemark.base.canonical import canonical_json, content_hash
from servemark.base.files import sha256_file, write_atomic
from servemark.results.errors import bad_file
from servemark.results.row import ROW_SCHEMA, ResultRow

RESULT_NAME = "result.json"
MANIFEST_NAME = "manifest.json"
REQUESTS_NAME = "requests.jsonl"
EVALS_NAME = "evals.json"
MAX_RESULT_BYTES = 32 * 2**20
"""A row is a few kB; a file far above that is not one, and is not read into memory."""

SHA_KEY = "row_sha256"
MAX_CONCURRENCY = 10**6
MAX_COUNT = 2**53 - 1
"""Above it a count is no longer exact once it has been through a double, and nothing real comes near."""
MAX_TOKENS = 2**63

MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
"""Schema number n -> function that turns the JSON of a row of schema n into that of n + 1."""


def row_to_json(row: ResultRow) -> dict[str, Any]:
    """Plain JSON values, without the hash.

    Goes through the types once, so that a whole number in a float field is written as it will be read again
    (1200.0, not 1200) and the hash survives any number of round trips.
    """
    plain: dict[str, Any] = _lists(msgspec.to_builtins(msgspec.convert(msgspec.to_builtins(row), ResultRow)))
    return plain


def _lists(value: object) -> Any:  # noqa: ANN401 - any JSON value
    """JSON knows no tuples: whoever reads the row from a file sees lists, so it is lists here too."""
    if isinstance(value, dict):
        return {name: _lists(inner) for name, inner in value.items()}
    return [_lists(inner) for inner in value] if isinstance(value, list | tuple) else value


def row_sha256(plain: Mapping[str, Any]) -> str:
    """SHA-256 over the canonical JSON of a row, its own hash left out.

    Raises ValueError for NaN or infinity: a figure that is not a number is not a result.
    """
    return content_hash({key: value for key, value in plain.items() if key != SHA_KEY})


def signed_json(row: ResultRow) -> dict[str, Any]:
    """The row's JSON with `row_sha256`, as `result.json` and the store hold it."""
    plain = row_to_json(row)
    return {**plain, SHA_KEY: row_sha256(plain)}


def encode_result(row: ResultRow) -> bytes:
    """The bytes of `result.json`."""
    return (canonical_json(signed_json(row)) + "\n").encode("utf-8")


def write_result(path: Path, row: ResultRow) -> None:
    """Write `result.json` atomically; raises ServemarkError (layer home) when the disk refuses."""
    write_atomic(path, encode_result(row))


def _upgrade(plain: dict[str, Any], where: Path | str) -> dict[str, Any]:
    """Bring an older row to the present schema one step at a time; a newer one needs a newer servemark."""
    schema = plain.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise bad_file("not_a_row", where, reason="schema")
    if schema > ROW_SCHEMA:
        raise bad_file("newer_schema", where, found=schema, known=ROW_SCHEMA)
    while schema < ROW_SCHEMA:
        step = MIGRATIONS.get(schema)
        if step is None:
            raise bad_file("too_old_schema", where, found=schema, known=ROW_SCHEMA)
        plain = step(plain)
        schema += 1
    return plain


def row_from_json(plain: Mapping[str, Any], where: Path | str = RESULT_NAME) -> ResultRow:
    """A typed row from JSON values of any schema up to the present one; unknown extra fields are ignored.

    The hash is not checked here; that counts are within what can be is. `where` names the source in errors.
    Raises ServemarkError (layer results).
    """
    upgraded = _upgrade(dict(plain), where)
    try:
        row = msgspec.convert(upgraded, ResultRow)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise bad_file("not_a_row", where, reason=str(error)) from error
    reason = _impossible(row)
    if reason is not None:
        raise bad_file("not_a_row", where, reason=reason)
    return row


def _impossible(row: ResultRow) -> str | None:
    """The first count of a well-typed row that cannot be, as field and value; None when all can."""
    if row.concurrency is not None and not 1 <= row.concurrency <= MAX_CONCURRENCY:
        return f"concurrency={row.concurrency}"
    counts: list[tuple[str, int]] = [
        ("gpus_deployed", row.gpus_deployed or 0),
        ("stalls", row.stalls),
        ("client.chunks", row.client.chunks),
    ]
    counts += [(f"counts.{each.name}", getattr(row.counts, each.name)) for each in fields(row.counts)]
    counts += [(f"distributions.{name}.n", each.n) for name, each in row.distributions.items()]
    for place, score in enumerate(row.evals):
        for name in ("n", "expected_n", "correct", "unanswered", "truncated"):
            counts.append((f"evals.{place}.{name}", getattr(score, name)))
        if score.correct > score.n:
            return f"evals.{place}.correct={score.correct} > n={score.n}"
    for name, count in counts:
        if not 0 <= count <= MAX_COUNT:
            return f"{name}={count}"
    for name, total in row.tokens.items():
        if total is not None and not 0 <= total <= MAX_TOKENS:
            return f"tokens.{name}={total}"
    return None


def decode_json(data: bytes | str, where: Path | str) -> dict[str, Any]:
    """A JSON object from untrusted bytes. Raises ServemarkError (layer results) for anything else."""
    try:
        return msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_file("not_json", where, reason=str(error)) from error


def read_bounded(path: Path, limit: int = MAX_RESULT_BYTES) -> bytes:
    """A regular file's bytes up to `limit`. Raises ServemarkError for a missing, odd, unreadable or huge
    file."""
    try:
        info = path.stat()
        if not stat.S_ISREG(info.st_mode):
            raise bad_file("not_a_file", path)
        if info.st_size > limit:
            raise bad_file("too_large", path, size=info.st_size, limit=limit)
        return path.read_bytes()
    except FileNotFoundError as error:
        raise bad_file("missing_file", path) from error
    except OSError as error:
        raise bad_file("unreadable", path, reason=error.strerror or str(error)) from error


def verified_json(data: bytes | str, where: Path | str) -> dict[str, Any]:
    """A signed row's JSON whose `row_sha256` was recomputed and agrees. Raises ServemarkError (layer
    results)."""
    plain = decode_json(data, where)
    stated = plain.get(SHA_KEY)
    try:
        found = row_sha256(plain)
    except (ValueError, RecursionError) as error:
        raise bad_file("not_json", where, reason=str(error)) from error
    if stated is None:
        raise bad_file("no_hash", where)
    if stated != found:
        raise bad_file("changed", where, stated=str(stated)[:16], found=found[:16])
    return plain


def check_files(folder: Path, row: ResultRow) -> None:
    """Compare every file that the row lists with its bytes on disk.

    An entry with `"prefix": true` covers the first `bytes` bytes: a log that several points share goes on
    growing after a point's result is written. Raises ServemarkError naming the first file that is missing,
    changed, or named outside the run folder, or that the row must list and does not.
    """
    for name, entry in row.files.items():
        path = _inside(folder, name)
        covered = entry.get("bytes") if entry.get("prefix") is True else None
        try:
            info = path.stat()
            if not stat.S_ISREG(info.st_mode):  # a pipe might never end
                raise bad_file("file_missing", folder, file=name)
            size = info.st_size
            found = _prefix_sha256(path, covered) if isinstance(covered, int) else sha256_file(path)
        except FileNotFoundError as error:
            raise bad_file("file_missing", folder, file=name) from error
        except OSError as error:
            raise bad_file("unreadable", path, reason=error.strerror or str(error)) from error
        if entry.get("sha256") != found:
            values = {"bytes": size, "stated_bytes": entry.get("bytes")}
            stated = str(entry.get("sha256"))[:16]
            raise bad_file("file_changed", folder, file=name, stated=stated, found=found[:16], **values)
    for name in _evidence(row):
        if name not in row.files or row.files[name].get("prefix") is True:
            raise bad_file("file_unlisted", folder / RESULT_NAME, file=name)


def _evidence(row: ResultRow) -> tuple[str, ...]:
    """Files without which the figures of a row rest on nothing; a partial run may lack some."""
    if row.status != "complete":
        return ()
    return (MANIFEST_NAME, REQUESTS_NAME, *((EVALS_NAME,) if row.evals else ()))


def _inside(folder: Path, name: str) -> Path:
    """The place of a listed file; refuses names and links that lead out of the run folder."""
    pure = PurePosixPath(name)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts or "\\" in name or "\0" in name:
        raise bad_file("file_outside", folder / RESULT_NAME, file=name)
    path = folder / pure
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # links in a ring are a RuntimeError up to Python 3.12
        raise bad_file("unreadable", path, reason=str(error)) from error
    if not inside:
        raise bad_file("file_outside", folder / RESULT_NAME, file=name)
    return path


def _prefix_sha256(path: Path, covered: int) -> str:
    """Hex SHA-256 of the first `covered` bytes; of all of them where the file is shorter, which then
    differs."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while covered > 0 and (block := stream.read(min(covered, 2**20))):
            digest.update(block)
            covered -= len(block)
    return digest.hexdigest()


def read_result(path: Path, *, verify_files: bool = True) -> ResultRow:
    """Read `result.json` (or a run folder that holds one), check its hash, schema and, unless told not to,
    every file that it lists.

    Raises ServemarkError (layer results, exit code 2) that names the file at fault.
    """
    try:
        if path.is_dir():
            path = path / RESULT_NAME
    except OSError as error:
        raise bad_file("unreadable", path, reason=error.strerror or str(error)) from error
    row = row_from_json(verified_json(read_bounded(path), path), path)
    if verify_files:
        check_files(path.parent, row)
    return row


def json_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of `result.json`, generated from the dataclasses; published as
    docs/result.schema.json."""

    def anything(kind: type) -> dict[str, Any]:
        if kind is object:
            return {"description": "any JSON value"}
        raise TypeError(f"no JSON Schema for {kind}")

    (root,), parts = msgspec.json.schema_components(
        (ResultRow,), schema_hook=anything, ref_template="#/$defs/{name}"
    )
    name = str(root["$ref"]).rsplit("/", 1)[-1]
    body = dict(parts.pop(name))
    sha = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
    body["properties"] = {**body["properties"], SHA_KEY: sha}
    body["required"] = [*body["required"], SHA_KEY]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"servemark result, schema {ROW_SCHEMA}",
        **{key: value for key, value in body.items() if key != "title"},
        "$defs": _lists(parts),
    }
