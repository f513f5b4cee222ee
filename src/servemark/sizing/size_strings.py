"""Size strings, each read by the rules of the program that will read it: one function a reader.

The same text means different bytes, or nothing at all, to different readers.
Sources: the parsers of vLLM (07d682b), Mooncake (3b5a594, Python and C++) and SGLang's HiCache back end.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from servemark.base.errors import ServemarkError, input_error

KIB, MIB, GIB, TIB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
MAX_BYTES = 1 << 60
_VLLM = re.compile(r"(\d+(?:\.\d+)?)\s*(GB|MB|KB|B)?\Z", re.IGNORECASE | re.ASCII)
_MOONCAKE = re.compile(r"(\d+(?:\.\d+)?)\s*(TB|GB|MB|KB|T|G|M|K|B)?\Z", re.IGNORECASE | re.ASCII)
_CPP = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)\Z", re.ASCII)
_FACTOR = {"": 1, "B": 1, "K": KIB, "M": MIB, "G": GIB, "T": TIB}


def _bytes(value: object, reader: str, pattern: re.Pattern[str]) -> int:
    text = _text(value, reader)
    found = pattern.match(text)
    if found is None:
        raise _unreadable(text, reader)
    number, unit = found.groups()
    return _bounded(float(number) if "." in number else int(number), (unit or "")[:1].upper(), text, reader)


def _text(value: object, reader: str) -> str:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise _unreadable(str(value)[:60], reader)
    text = str(value).strip()
    if len(text) > 60:
        raise _unreadable(text[:60], reader)
    return text


def _bounded(number: float, unit: str, text: str, reader: str) -> int:
    size = int(number * _FACTOR[unit])
    if size > MAX_BYTES:
        raise input_error("sizing.size_huge", value=text, reader=reader)
    return size


def _unreadable(text: str, reader: str) -> ServemarkError:
    return input_error("sizing.size_unreadable", value=text, reader=reader)


def vllm_size(value: object) -> int:
    """vLLM's store configuration (MOONCAKE_CONFIG_PATH): an integer of bytes, or GB, MB, KB, B in any case, as
    powers of 1024; decimals allowed. No TB, no bare G, no GiB: those are errors at start-up."""
    return _bytes(value, "vLLM", _VLLM)


def mooncake_python_size(value: object) -> int:
    """Mooncake's own Python configuration: as vLLM's, and TB and bare k, m, g, t; "190GiB" is an error."""
    return _bytes(value, "Mooncake (Python)", _MOONCAKE)


def mooncake_cpp_size(value: object) -> int:
    """Mooncake's C++ flags and environment: KB or K up to TB or T, powers of 1024, bare numbers are bytes.

    A unit that it does not know, or text that is no number, gives **0 bytes silently**; so does this function.
    `silently_zero` tells such a text from an intended 0.
    """
    text = str(value).strip() if not isinstance(value, bool) else ""
    found = _CPP.match(text[:60])
    if found is None:
        return 0
    number, unit = found.groups()
    if unit.upper() not in {"", "B", "K", "KB", "M", "MB", "G", "GB", "T", "TB"}:
        return 0
    return _bounded(float(number) if "." in number else int(number), unit[:1].upper(), text, "Mooncake (C++)")


def silently_zero(value: object) -> bool:
    """True where the C++ reader makes 0 bytes of a text that does not say 0."""
    return mooncake_cpp_size(value) == 0 and str(value).strip().rstrip("BbKkMmGgTt ").strip("0.") != ""


def raw_bytes(value: object) -> int:
    """MC_MAX_MR_SIZE, MC_STORE_LOCAL_HOT_CACHE_SIZE, MC_CXL_DEV_SIZE: a bare number of bytes, nothing else."""
    text = _text(value, "raw bytes")
    if not (text.isascii() and text.isdigit()):
        raise _unreadable(text, "raw bytes")
    return _bounded(int(text), "", text, "raw bytes")


def sglang_hicache_size(value: object, tp: int, pp: int = 1) -> int:
    """SGLang's HiCache store back end (0.5.23): the text is a **total** that it divides by TP x PP; gives bytes
    per rank. It takes an integer of bytes, or a whole number before "gb" (2^30); decimals and MB are errors."""
    for name, ranks in (("tp", tp), ("pp", pp)):
        if ranks < 1:
            raise input_error("sizing.not_positive", name=name, value=ranks)
    text = _text(value, "SGLang HiCache").lower()
    number = text.removesuffix("gb").strip()
    if not (number.isascii() and number.isdigit()):
        raise _unreadable(text, "SGLang HiCache")
    return _bounded(int(number), "G" if text.endswith("gb") else "", text, "SGLang HiCache") // (tp * pp)


def sglang_host_pool_size(value: object) -> int:
    """SGLang's --hicache-size (0.5.23): decimal gigabytes (10^9) **per rank**, the one reader here with 10^9."""
    text = _text(value, "SGLang --hicache-size")
    if not (text.isascii() and text.isdigit()):
        raise _unreadable(text, "SGLang --hicache-size")
    return min(int(text) * 10**9, MAX_BYTES)


READERS: dict[str, Callable[[object], int]] = {
    "vllm": vllm_size,
    "mooncake": mooncake_python_size,
    "mooncake-cpp": mooncake_cpp_size,
    "raw": raw_bytes,
}
"""Readers that need no more than the text."""
