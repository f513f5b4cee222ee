"""Gates on what ran against what was declared: versions and image digests, per worker where known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from servemark.results.gates.base import Context, Gate, GateFinding, Severity
from servemark.results.gates.read import passed, skips
from servemark.results.point import Point

MAX_SHOWN = 80
MAX_DEPTH = 4
_TAILS = ("version", "digest", "revision", "rev", "build", "commit")


def _leaves(value: object, path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    """(dotted key, text) of every text in nested mappings and lists that names a version; list places are left out."""
    if isinstance(value, Mapping) and depth < MAX_DEPTH:
        for key, inner in value.items():
            yield from _leaves(inner, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list | tuple) and depth < MAX_DEPTH:
        for inner in value:
            yield from _leaves(inner, path, depth + 1)
    elif isinstance(value, str) and value:
        yield path, value


def _is_version(path: str) -> bool:
    return any(part.endswith(_TAILS) for part in path.lower().split("."))


def _same(one: str, other: str) -> bool:
    """Equal versions: a leading v and what follows + (a build's local part) count only where both state it; a digest
    may be cut short on one side."""
    first, second = one.strip().lower(), other.strip().lower()
    first = first.rpartition("@")[2].removeprefix("sha256:").removeprefix("v")
    second = second.rpartition("@")[2].removeprefix("sha256:").removeprefix("v")
    if ("+" in first) != ("+" in second):
        first, second = first.partition("+")[0], second.partition("+")[0]
    if first == second:
        return True
    short, long = sorted((first, second), key=len)
    return len(short) >= 7 and all(c in "0123456789abcdef" for c in long) and long.startswith(short)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + "…"


_VERSION_SKIP = skips("version", "one_side_only")[0]
_VERSION_OK = passed("version")


def version(point: Point, _context: Context) -> GateFinding:
    """Each version, revision and digest that was declared and observed under one name is the same on both sides (router,
    engine, packages, image). Otherwise the row describes a deployment that did not run."""
    if not point.declared or not point.observed:
        return _VERSION_SKIP
    declared = {path: text for path, text in sorted(_leaves(point.declared)) if _is_version(path)}
    compared = False
    for path, found in sorted(_leaves(point.observed)):
        for name, said in declared.items():
            if path == name or path.startswith(f"{name}."):
                compared = True
                if not _same(said, found):
                    values: dict[str, object] = {
                        "what": path,
                        "declared": _cut(said),
                        "observed": _cut(found),
                    }
                    return GateFinding("version", Severity.WARNING, values)
    return _VERSION_OK if compared else _VERSION_SKIP


_IDENTITY_SKIP = skips("identity_version", "one_side_only")[0]
_IDENTITY_OK = passed("identity_version")
_IDENTITY = {
    "engine_version": ("engine_version", "engine.version"),
    "model_revision": ("model_revision", "model.revision"),
}
_DIGESTS = ("image_digest", "image.digest")


def identity_version(point: Point, _context: Context) -> GateFinding:
    """The engine version, model revision and image digest that the point is filed under are those that were observed.
    Otherwise it stands under a configuration that it is not."""
    observed = point.observed
    if not observed:
        return _IDENTITY_SKIP
    identity = point.identity
    wanted = {"engine_version": identity.engine_version, "model_revision": identity.model_revision}
    digest = (identity.image or "").rpartition("@sha256:")
    pairs = [(said, _IDENTITY[name]) for name, said in wanted.items() if said]
    if digest[1]:
        pairs.append((digest[2], _DIGESTS))
    if not pairs:
        return _IDENTITY_SKIP
    seen = sorted(set(_leaves(observed)))
    compared = False
    for said, names in pairs:
        for path, found in seen:
            if any(path == name or path.startswith(f"{name}.") for name in names):
                compared = True
                if not _same(said, found):
                    values: dict[str, object] = {"what": path, "filed": _cut(said), "observed": _cut(found)}
                    return GateFinding("identity_version", Severity.QUARANTINE, values)
    return _IDENTITY_OK if compared else _IDENTITY_SKIP


_WORKERS_SKIP = skips("mixed_workers", "no_workers_observed")[0]
_WORKERS_OK = passed("mixed_workers")


def mixed_workers(point: Point, _context: Context) -> GateFinding:
    """All workers run the same version of the same thing: `observed["workers"]` maps a worker's name to what it
    reports, or lists such reports."""
    workers = point.observed.get("workers")
    reports: list[object] = []
    if isinstance(workers, Mapping):
        reports = list(workers.values())
    elif isinstance(workers, list | tuple):
        reports = list(workers)
    if len(reports) < 2:
        return _WORKERS_SKIP
    first: dict[str, str] = {}
    for report in reports:
        for path, found in sorted(_leaves(report)):
            if _is_version(path) and not _same(first.setdefault(path, found), found):
                values: dict[str, object] = {
                    "what": path,
                    "one": _cut(first[path]),
                    "other": _cut(found),
                    "n": len(reports),
                }
                return GateFinding("mixed_workers", Severity.WARNING, values)
    return _WORKERS_OK if first else _WORKERS_SKIP


GATES = (
    Gate(
        "identity_version",
        1,
        identity_version,
        None,
        "equal text, a local build part aside",
        idle=("observed", _IDENTITY_SKIP),
    ),
    Gate(
        "version", 1, version, None, "equal text, a local build part aside", idle=("observed", _VERSION_SKIP)
    ),
    Gate(
        "mixed_workers",
        1,
        mixed_workers,
        None,
        "equal text, a local build part aside",
        idle=("observed", _WORKERS_SKIP),
    ),
)
"""The family in the order of its tables."""
