"""Which known name was meant by one that looks like a slip of the keyboard."""

from __future__ import annotations

from collections.abc import Collection


def typo_of(name: str, names: Collection[str]) -> str | None:
    """The known name that is at most two slips away (letters left out, added, changed or swapped); digits must
    agree, because `fp4-…` and `fp8-…`, `8b` and `32b` are two things."""
    digits = [letter for letter in name if letter.isdigit()]
    best: tuple[int, str] | None = None
    for other in sorted(names):
        if abs(len(other) - len(name)) > 2 or len(name) < 6:
            continue
        if digits != [letter for letter in other if letter.isdigit()]:
            continue
        distance = _distance(name, other)
        if distance == 2 and _another_word(name, other):
            continue
        if distance <= 2 and (best is None or distance < best[0]):
            best = distance, other
    return best[1] if best is not None else None


def _another_word(one: str, other: str) -> bool:
    """Whether a short word was put in another's place (`kda-…`, `gdn-…`): two arguments, not a slip."""
    first, second = one.split("-"), other.split("-")
    if len(first) != len(second):
        return False
    return any(a != b and min(len(a), len(b)) < 4 for a, b in zip(first, second, strict=True))


def _distance(one: str, other: str) -> int:
    """Optimal string alignment distance."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        last, row_new = row, [i]
        for j, target in enumerate(other, 1):
            cost = min(last[j] + 1, row_new[j - 1] + 1, last[j - 1] + (letter != target))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == target:
                cost = min(cost, before[j - 2] + 1)
            row_new.append(cost)
        before, row = last, row_new
    return row[-1]
