"""Whether a sign-off comment counts, and everything that keeps it from counting.

It counts when it names the template's version, says the phrase word for word, ticks every item, gives the evidence that
items need, contradicts nothing that was found, means this commit, and its author owns every changed file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from servemark.authoring.checklist import Answer, Checklist
from servemark.authoring.codeowners import Owners, owners_of
from servemark.base.messages import text

MAX_COMMENT = 262_144
"""Bytes; GitHub allows 65,536 letters."""
MAX_FILES_NAMED = 5
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,}).*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE)
_REMARK = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_BOX = re.compile(
    r"^[ \t]*[-*+][ \t]+\[([ xX])\][ \t]+(?:\*\*|`)?([a-z0-9][a-z0-9-]{0,39})(?:\*\*|`)?[ \t]*[:\uff1a](.*)$"
)
_VERSION = re.compile(
    r"checklist version[ \t]+[\"'`]?([A-Za-z0-9._-]{1,40}?)[\"'`]?(?=[\s,;:)]|\.?(?:\s|$))", re.IGNORECASE
)
_COMMIT = re.compile(r"\bcommit[ \t]+`?([0-9a-f]{7,64})\b", re.IGNORECASE)
_LINK = re.compile(r"https://[^\s/<>()]+/[^\s<>()]+|\brun:[A-Za-z0-9._-]+|\bfile:[^\s<>()]+")


@dataclass(frozen=True, slots=True)
class Known:
    """What a comment is held against. `runs` are those of the home and its store; `files` those of the head commit."""

    checklist: Checklist
    answers: Sequence[Answer]
    commit: str
    changed: Sequence[str]
    owners: tuple[Owners, ...] | None
    """None where the base has no CODEOWNERS file."""
    runs: Collection[str] = ()
    files: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Objection:
    """One reason why a comment does not count; `name` is a message `authoring.sign.<name>`."""

    name: str
    values: Mapping[str, object] = field(default_factory=dict)

    def said(self, lang: str | None = None) -> str:
        """In words."""
        return text(f"authoring.sign.{self.name}", lang, **dict(self.values))


def objections(comment: str, author: str, teams: Sequence[str], known: Known) -> tuple[Objection, ...]:
    """Everything that keeps a comment from counting; () when it counts. Quotes, code and hidden remarks say nothing."""
    body = _spoken(comment)
    found: list[Objection] = []
    versions = set(_VERSION.findall(body))
    if versions != {known.checklist.version}:
        told = ", ".join(sorted(versions)) or "—"
        found.append(Objection("version", {"wanted": known.checklist.version, "found": told}))
    if " ".join(known.checklist.phrase.split()) not in " ".join(body.split()):
        found.append(Objection("phrase", {"phrase": known.checklist.phrase}))
    commits = {one.lower() for one in _COMMIT.findall(body)}
    stale = sorted(one for one in commits if known.commit and not known.commit.startswith(one))
    if stale:
        found.append(Objection("commit", {"found": stale[0], "wanted": known.commit[:12]}))
    boxes = _boxes(body)
    for answer in known.answers:
        found += _item(answer, boxes.get(answer.item.id, []), known)
    names = {answer.item.id for answer in known.answers}
    found += [Objection("unknown", {"id": name}) for name in boxes if name not in names]
    return (*found, *_ownership(author, teams, known))


def _spoken(comment: str) -> str:
    """The comment without what nobody says with it: fenced code, hidden remarks, quoted lines."""
    body = _REMARK.sub("", _FENCE.sub("", comment.replace("\r\n", "\n")))
    return "\n".join(line for line in body.split("\n") if not line.lstrip().startswith(">"))


def _boxes(body: str) -> dict[str, list[tuple[bool, str]]]:
    """Item -> its (ticked, text up to the next box), in order."""
    found: dict[str, list[tuple[bool, str]]] = {}
    current: list[tuple[bool, str]] | None = None
    for line in body.split("\n"):
        box = _BOX.match(line)
        if box is not None:
            current = found.setdefault(box.group(2), [])
            current.append((box.group(1) != " ", box.group(3)))
        elif current and line[:1] in {" ", "\t"}:
            ticked, said = current[-1]
            current[-1] = (ticked, f"{said}\n{line}")
    return found


def _item(answer: Answer, boxes: Sequence[tuple[bool, str]], known: Known) -> list[Objection]:
    name = answer.item.id
    if len(boxes) != 1:
        return [Objection("twice" if boxes else "missing", {"id": name})]
    ticked, said = boxes[0]
    if not ticked:
        return [Objection("open", {"id": name})]
    if answer.state == "failed":
        return [Objection("contradicted", {"id": name})]
    if answer.item.needs != "link":
        return []
    links = [one.rstrip(".,;") for one in _LINK.findall(said)]
    if not links:
        return [Objection("no_link", {"id": name})]
    gone = [one for one in links if not _exists(one, known)]
    return [Objection("no_evidence", {"id": name, "link": gone[0]})] if gone else []


def _exists(link: str, known: Known) -> bool:
    kind, _, rest = link.partition(":")
    if kind == "run":
        return rest in known.runs
    return rest in known.files if kind == "file" else True  # an address is not fetched


def _ownership(author: str, teams: Sequence[str], known: Known) -> list[Objection]:
    if known.owners is None:
        return [Objection("no_codeowners")]
    mine = {name.removeprefix("@").lower() for name in (author, *teams)}
    foreign = [path for path in known.changed if not mine & set(owners_of(known.owners, path))]
    if not foreign:
        return []
    shown = ", ".join(foreign[:MAX_FILES_NAMED]) + (", …" if len(foreign) > MAX_FILES_NAMED else "")
    return [Objection("not_owner", {"author": author, "count": len(foreign), "names": shown})]
