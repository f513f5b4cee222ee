"""YAML text -> a tree of nodes that keep file, line and column; YAML 1.1 scalars, merge keys, no surprises.

Text from a suite is untrusted: size, depth, number of values and what aliases expand to are bounded.
Everything that is wrong with a file is collected, also after a syntax error: the top-level block that holds
it is left out and the rest is read. A duplicate key is an error; the tree holds the later value, which is
what launchers run.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from servemark.base.errors import input_error
from servemark.catalog.nodes import Node, Position, Problem, errors_of, problems_error
from servemark.catalog.yaml_scalars import resolve_scalar

__all__ = [
    "Node",
    "Position",
    "Problem",
    "errors_of",
    "parse_yaml",
    "problems_error",
    "read_bytes",
    "read_yaml",
    "resolve_scalar",
]

MAX_BYTES = 8_000_000
"""Twenty times the largest file of a real suite of 208 arms."""


def read_bytes(path: Path, shown: str) -> bytes:
    """A regular file's bytes. ServemarkError (exit 2): missing, a folder, no regular file, too large,
    refused."""
    try:
        # Without O_NONBLOCK a named pipe would block here for ever.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as stream:
            found = os.fstat(handle)
            if not stat.S_ISREG(found.st_mode):
                raise input_error("catalog.not_regular", where=f"{shown}:1:1", path=shown)
            if found.st_size > MAX_BYTES:
                raise input_error(
                    "catalog.too_large", where=f"{shown}:1:1", path=shown, size=found.st_size, limit=MAX_BYTES
                )
            return stream.read(MAX_BYTES + 1)
    except IsADirectoryError:
        raise input_error("catalog.is_folder", where=f"{shown}:1:1", path=shown) from None
    except FileNotFoundError:
        raise input_error("catalog.missing_file", where=f"{shown}:1:1", path=shown) from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise input_error("catalog.unreadable", where=f"{shown}:1:1", path=shown, reason=reason) from error


def read_yaml(path: Path, shown: str) -> tuple[Node, list[Problem]]:
    """Read one document from a file. `shown` is the file's name in positions.

    Raises ServemarkError (exit 2) only when the file's bytes cannot be had; everything wrong with them is
    returned.
    """
    return parse_yaml(read_bytes(path, shown), shown)


def parse_yaml(data: bytes, shown: str) -> tuple[Node, list[Problem]]:
    """As `read_yaml`, from bytes. Never raises: a hopeless document is an empty node with problems."""
    from servemark.catalog.yaml_reader import parse  # noqa: PLC0415 - libyaml is loaded when YAML is read

    return parse(data, shown)
