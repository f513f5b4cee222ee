"""Names of models as suites write them -> the model file that they mean, or the known name that was misspelt."""

from __future__ import annotations

import re

from servemark.base.slips import typo_of
from servemark.catalog.architectures import models_folder
from servemark.catalog.data_files import find_file, names_in

_SUFFIX = re.compile(
    r"[-_](fp8|fp4|nvfp4|mxfp4|mxfp8|bf16|int4|awq|instruct|preview|base|chat|v\d+|\d{4})\Z", re.IGNORECASE
)
"""What names of repackaged weights end in, beside the model's own name."""
_LONGEST = 300
"""Letters of a name: endings are cut off one by one, which takes minutes of a text of thousands."""


def known_spelling(name: str) -> str | None:
    """The name itself, without its owner, or without endings of repackaged weights: what a model file goes by."""
    folder = models_folder()
    if find_file(folder, name) is not None:
        return name
    bare = name.rpartition("/")[2]
    if len(bare) > _LONGEST:
        return None
    stems = {path.rpartition("/")[2]: path for path in names_in(folder)}
    while bare:
        if bare.lower() in stems:
            return stems[bare.lower()]
        shorter = _SUFFIX.sub("", bare)
        if shorter == bare:
            return None
        bare = shorter
    return None


def model_slip(name: str) -> str | None:
    """The known name that `name` looks like a slip of; None where it is known, or like none.

    Digits must agree, and a part of up to three letters is another word unless its letters are swapped or one is missing:
    `-8B` and `-32B`, `V3` and `R3` are other models and not slips. A path, or a scheme other than a repository's, is no
    name.
    """
    if len(name) > _LONGEST or name.count("/") > 1 or name.startswith(("/", ".")) or ":" in name:
        return None
    if known_spelling(name) is not None:
        return None
    names = names_in(models_folder())
    stems = {path.rpartition("/")[2]: path for path in names}
    bare = name.rpartition("/")[2].lower()
    while len(bare) >= 6:
        near = typo_of(bare, stems)
        if near is not None and _same_words(bare, near):
            return stems[near]
        shorter = _SUFFIX.sub("", bare)
        if shorter == bare:
            break
        bare = shorter
    return None


def _same_words(one: str, other: str) -> bool:
    first, second = re.split("[-._]", one), re.split("[-._]", other)
    return len(first) != len(second) or not any(
        a != b and min(len(a), len(b)) < 4 and len(a) == len(b) and sorted(a) != sorted(b)
        for a, b in zip(first, second, strict=True)
    )
