"""Size strings, read by the rules of the program that will read them: here "GB" is 2^30 bytes, not 10^9.

Mooncake's segment sizes and vLLM's store settings both take KB, MB, GB and TB for powers of 1024.
"""

from __future__ import annotations

import re

_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([kmgt]?)(?:i?b)?\Z", re.IGNORECASE | re.ASCII)


def binary_size(value: object) -> int | None:
    """Bytes of `190GB`, `4 GiB`, `64m` or a plain number of bytes; None for anything else."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if value >= 0 else None
    if not isinstance(value, str):
        return None
    found = _SIZE.match(value.strip())
    if found is None:
        return None
    number, unit = found.groups()
    factor = _UNITS[unit.lower()]
    return int(number) * factor if number.isdigit() else int(float(number) * factor)
