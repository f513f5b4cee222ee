"""Container image references: spelling -> (registry, repository, tag, digest), so that spellings can be
compared."""

from __future__ import annotations

import re
from dataclasses import dataclass

_DEFAULT = "docker.io"


@dataclass(frozen=True, slots=True)
class ImageName:
    """An image whatever its spelling."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None


def parse_image(written: str) -> ImageName | None:
    """`[docker://][REGISTRY(/|#)]REPOSITORY[:TAG][@DIGEST]`; None for a path or a bare alias.

    A `#` always parts the registry; with `/` the first part is one when it has a dot, a colon or is
    `localhost` (the rule of docker and of enroot since 4.0).
    """
    text = written.removeprefix("docker://").strip()
    if not text or text.startswith(("/", ".")) or text.endswith(".sqsh"):
        return None
    registry = _DEFAULT
    if "#" in text:
        registry, _, text = text.partition("#")
    else:
        first, slash, rest = text.partition("/")
        if slash and ("." in first or ":" in first or first == "localhost"):
            registry, text = first, rest
    text, _, digest = text.partition("@")
    head, colon, tag = text.rpartition(":")
    repository = head if colon else text
    if "/" not in repository and not colon and not digest and registry == _DEFAULT:
        return None
    return ImageName(registry, repository, tag if colon else None, digest or None)


def same_image(one: str, other: str) -> bool | None:
    """Whether two spellings are one image; None where one of them is an alias or a file."""
    first, second = parse_image(one), parse_image(other)
    if first is None or second is None:
        return None
    if (first.registry, first.repository) != (second.registry, second.repository):
        return False
    if first.digest and second.digest:
        return first.digest == second.digest
    # A tag with and without its digest is compared by tag; different tags may still share a digest.
    return first.tag == second.tag


def portable(written: str) -> str:
    """The spelling with `#` between registry and repository."""
    if "#" in written:
        return written
    first, slash, rest = written.partition("/")
    return f"{first}#{rest}" if slash and "." in first else written


_VERSION = re.compile(r"v?(\d+\.\d+\.\d+(?:[.-]?(?:rc|post|dev|a|b)\.?\d+)*)(?:[-_].*)?\Z")
OFFICIAL = {
    "vllm/vllm-openai": "vllm",
    "lmsysorg/sglang": "sglang",
    "nvidia/tensorrt-llm/release": "tensorrt_llm",
}


def official_version(written: str) -> tuple[str, str] | None:
    """(engine, version) of an engine project's own released image, from its tag; None for anything else
    (nightlies, forks)."""
    image = parse_image(written)
    engine = OFFICIAL.get(image.repository) if image is not None else None
    if image is None or engine is None or image.tag is None:
        return None
    found = _VERSION.match(image.tag)
    return (engine, found.group(1)) if found else None
