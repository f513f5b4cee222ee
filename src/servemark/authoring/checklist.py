"""The review's checklist as data: `review.yaml` of a suite, at the base of the change, else the shipped one.

```yaml
review: 1                # format of the file
version: "1"             # of the template; a sign-off names it
phrase: "…"              # what a sign-off comment must say, word for word
items:
- id: check-clean
  evidence: no-new-errors     # decided here; one of EVIDENCE
  en: …
  zh: …
- id: evals-link
  needs: link                       # a person ticks it and gives a link; without `needs` a tick is enough
  en: …
  zh: …
```
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from servemark.authoring.results import Results
from servemark.authoring.review import Review, new_plan_errors
from servemark.base.errors import input_error
from servemark.base.messages import LANGUAGES
from servemark.catalog.fields import Fields
from servemark.catalog.nodes import errors_of, problems_error
from servemark.catalog.yaml_nodes import parse_yaml

FILE = "review.yaml"
FORMAT = 1
MAX_ITEMS = 100
_ID = re.compile(r"[a-z0-9][a-z0-9-]{0,39}\Z")
State = Literal["passed", "failed", "unknown", "human"]


@dataclass(frozen=True, slots=True)
class Item:
    """One item. `evidence` names what decides it, None for a person's; `needs` is `link` where a link must be given."""

    id: str
    evidence: str | None
    needs: str | None
    texts: Mapping[str, str]

    def said(self, lang: str) -> str:
        """Its text."""
        return self.texts[lang]


@dataclass(frozen=True, slots=True)
class Checklist:
    """A template. `source` says which file it came from."""

    version: str
    phrase: str
    items: tuple[Item, ...]
    source: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found of one item. `key` and `values` name the message with the evidence; None for a person's item."""

    item: Item
    state: State
    key: str | None = None
    values: Mapping[str, object] | None = None


def checklist_of(review: Review) -> Checklist:
    """The base's own template, so that a branch cannot relax the list it is judged by; where the base has none, the
    shipped one. ServemarkError (exit 2) for a file that is none."""
    data = review.base.tree.read(FILE)
    if data is not None:
        return read_checklist(data, f"{review.base.ref}:{FILE}")
    return shipped_checklist()


def shipped_checklist() -> Checklist:
    """The template that comes with servemark."""
    return read_checklist((Path(__file__).parent / FILE).read_bytes(), f"servemark/{FILE}")


def read_checklist(data: bytes, shown: str) -> Checklist:
    """A template. ServemarkError (exit 2) naming everything that is wrong with it."""
    root, problems = parse_yaml(data, shown)
    fields = Fields(root, problems, FILE)
    form = fields.integer("review", minimum=0, required=True)
    version = fields.text("version", required=True)
    phrase = fields.text("phrase", required=True)
    items = [_item(Fields(node, problems, "items")) for node in fields.items("items")]
    fields.no_others()
    if form is not None and form != FORMAT:
        fields.problem(fields.at("review"), "authoring.review_format", found=form, known=FORMAT)
    if phrase is not None and len(phrase.split()) < 3:
        fields.problem(fields.at("phrase"), "authoring.review_phrase", phrase=phrase)
    names = [item.id for item in items if item is not None]
    for name in {name for name in names if names.count(name) > 1}:
        fields.problem(fields.at("items"), "authoring.review_twice", id=name)
    if not items or len(items) > MAX_ITEMS:
        fields.problem(fields.at("items"), "authoring.review_items", count=len(items), most=MAX_ITEMS)
    wrong = errors_of(problems)
    if wrong:
        raise problems_error(wrong)
    if version is None or phrase is None:
        raise input_error("authoring.review_unreadable", path=shown)
    return Checklist(version, phrase, tuple(item for item in items if item is not None), shown)


def _item(fields: Fields) -> Item | None:
    name = fields.text("id", required=True)
    evidence, needs = fields.text("evidence"), fields.text("needs")
    texts = {lang: fields.text(lang, required=True) for lang in LANGUAGES}
    fields.no_others()
    if name is not None and not _ID.match(name):
        fields.problem(fields.at("id"), "authoring.review_id", id=name)
    if evidence is not None and evidence not in EVIDENCE:
        known = ", ".join(EVIDENCE)
        fields.problem(fields.at("evidence"), "authoring.review_evidence", evidence=evidence, known=known)
    if needs is not None and (needs != "link" or evidence is not None):
        fields.problem(fields.at("needs"), "authoring.review_needs", needs=needs)
    said = {lang: value for lang, value in texts.items() if value is not None}
    return Item(name, evidence, needs, said) if name is not None and len(said) == len(texts) else None


def answered(checklist: Checklist, review: Review, results: Results) -> tuple[Answer, ...]:
    """Every item with what was found of it, in the template's order."""
    found = []
    for item in checklist.items:
        if item.evidence is None:
            found.append(Answer(item, "human"))
        else:
            state, key, values = EVIDENCE[item.evidence](review, results)
            found.append(Answer(item, state, f"authoring.evidence.{key}", values))
    return tuple(found)


Evidence = tuple[State, str, dict[str, object]]


def _no_new(severity: str) -> Callable[[Review, Results], Evidence]:
    def judged(review: Review, results: Results) -> Evidence:
        del results
        count = review.findings.count(severity)
        values: dict[str, object] = {"count": count, "fixed": len(review.findings.fixed)}
        return ("failed" if count else "passed"), f"{severity}s", values

    return judged


def _history(review: Review, results: Results) -> Evidence:
    del results
    change = review.changelog
    if change is None:
        return "unknown", "no_changelog", {}
    return ("passed" if change.appended else "failed"), "history", {"entries": len(change.new_entries)}


def _entries(review: Review, results: Results) -> Evidence:
    """Every added or changed arm is named by a new entry, by its key or a pattern that means it."""
    del results
    import fnmatch  # noqa: PLC0415 - only here

    change = review.changelog
    if change is None:
        return "unknown", "no_changelog", {}
    patterns = [key for entry in change.new_entries for key in entry.config_keys]
    wanted = [one.key for one in review.arms if one.kind != "removed"]
    missing = [key for key in wanted if not any(fnmatch.fnmatchcase(key, p) for p in patterns)]
    values: dict[str, object] = {
        "arms": len(wanted),
        "missing": len(missing),
        "first": missing[0] if missing else "—",
    }
    return ("failed" if missing else "passed"), "entries", values


def _fits(review: Review, results: Results) -> Evidence:
    del results
    kinds = [one.verdict.kind if one.verdict is not None else "cannot_say" for one in review.fits]
    values: dict[str, object] = {
        "fits": kinds.count("fits"),
        "short": kinds.count("does_not_fit"),
        "unknown": kinds.count("cannot_say") + review.fits_left,
    }
    if values["short"]:
        return "failed", "fits", values
    return ("unknown" if values["unknown"] else "passed"), "fits", values


def _planned(review: Review, results: Results) -> Evidence:
    del results
    errors = len(new_plan_errors(review))
    total = review.plan.anew
    values: dict[str, object] = {
        "points": total.total.points,
        "hours": f"{total.total.gpu_hours:,.2f}",
        "errors": errors,
    }
    return ("failed" if errors else "passed"), "plan", values


def _measured(review: Review, results: Results) -> Evidence:
    del review
    planned, measured = (sum(getattr(one, name) for one in results.arms) for name in ("planned", "measured"))
    values: dict[str, object] = {"planned": planned, "measured": measured}
    if not results.asked:
        return "unknown", "no_store", {}
    return ("passed" if measured >= planned else "failed"), "measured", values


def _not_worse(review: Review, results: Results) -> Evidence:
    del review
    if not results.asked:
        return "unknown", "no_store", {}
    views = [view for one in results.arms if (view := results.compared(one, ("A", "B"), "en")) is not None]
    counts = {
        name: sum(view.verdict == name for view in views)
        for name in ("worse", "better", "same", "cannot_tell")
    }
    values: dict[str, object] = {"arms": len(views), **counts}
    if not views:
        return "unknown", "not_compared", {}
    return ("failed" if counts["worse"] else "passed"), "not_worse", values


def _evals(review: Review, results: Results) -> Evidence:
    del review
    if not results.asked:
        return "unknown", "no_store", {}
    scored = [one for arm in results.arms for _, one in arm.evals]
    failed = sum(one.passed is False for one in scored)
    values: dict[str, object] = {"count": len(scored), "failed": failed}
    if failed:
        return "failed", "evals", values
    decided = bool(scored) and all(one.passed is not None for one in scored)
    return ("passed" if decided else "unknown"), "evals", values


EVIDENCE: dict[str, Callable[[Review, Results], Evidence]] = {
    "no-new-errors": _no_new("error"),
    "no-new-warnings": _no_new("warning"),
    "changelog-history": _history,
    "changelog-entries": _entries,
    "plan-sound": _planned,
    "fits": _fits,
    "measured": _measured,
    "not-worse": _not_worse,
    "evals-passed": _evals,
}
"""Name of a machine's item -> what decides it."""
