"""A review in words: one page of blocks in one language."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from servemark.analysis.compare_types import CompareView
from servemark.authoring.arm_changes import ArmChange, FieldChange, topology_of
from servemark.authoring.blocks import Block, Bullets, Heading, Paragraph, Table
from servemark.authoring.checklist import Answer, Checklist
from servemark.authoring.request_text import HalfFault
from servemark.authoring.results import ArmResults, Results
from servemark.authoring.review import FitLine, Review
from servemark.base.messages import text
from servemark.catalog.arms import Arm
from servemark.plan.summary import Share
from servemark.sizing.words import verdict_text

MAX_ARMS = 60
MAX_LINES = 40
"""Arms, and lines of one list, that a page shows; the rest is counted."""
MAX_TOPOLOGIES = 8


@dataclass(frozen=True, slots=True)
class Page:
    """All that is shown. `halves` is None where no request's text was given."""

    review: Review
    results: Results
    checklist: Checklist
    answers: tuple[Answer, ...]
    halves: tuple[HalfFault, ...] | None = field(default=None)


def page_blocks(page: Page, lang: str) -> list[Block]:
    """The whole page."""
    review = page.review
    base, head = review.base, review.head
    values = {"base": base.ref, "base_commit": base.commit, "head": head.ref, "head_commit": head.commit}
    suite = head.suite.name if head.suite is not None else ""
    blocks: list[Block] = [
        Heading(1, text("authoring.page.title", lang, suite=suite)),
        Paragraph(text("authoring.page.range" if base.commit else "authoring.page.preview", lang, **values)),
        Paragraph(_headline(page, lang)),
    ]
    for part in (_arms, _plan, _findings, _fits, _recipes, _results, _evals, _files, _halves, _checks):
        blocks += part(page, lang)
    return blocks


def _head(name: str, lang: str) -> Heading:
    return Heading(2, text(f"authoring.page.{name}", lang))


def _headline(page: Page, lang: str) -> str:
    review = page.review
    states = [answer.state for answer in page.answers]
    return text(
        "authoring.page.headline", lang,
        added=len(review.of_kind("added")), changed=len(review.of_kind("changed")), removed=len(review.of_kind("removed")),
        points=review.plan.anew.total.points, hours=_hours(review.plan.anew.total.gpu_hours),
        errors=review.findings.count("error"), warnings=review.findings.count("warning"),
        failed=states.count("failed"), passed=states.count("passed"), open=states.count("unknown") + states.count("human"),
    )  # fmt: skip


def _hours(value: float) -> str:
    return f"{value:,.2f}"


def limited(lines: Sequence[str], lang: str, most: int = MAX_LINES) -> tuple[str, ...]:
    """The first lines, and how many more there are."""
    if len(lines) <= most:
        return tuple(lines)
    return (*lines[:most], text("authoring.page.more", lang, count=len(lines) - most))


def arm_words(arm: Arm, lang: str) -> str:
    """One arm in a sentence: what, on which cluster, with what, at which topologies and concurrencies."""
    shown = [
        f"{topology_of(entry)} @ {', '.join(str(value) for value in entry.concurrencies)}"
        for entry in arm.entries[:MAX_TOPOLOGIES]
    ]
    more = len(arm.entries) - len(shown)
    if more > 0:
        shown.append(text("authoring.page.more", lang, count=more))
    return text(
        "authoring.page.arm", lang, key=arm.key, model=arm.model, precision=arm.precision, framework=arm.framework,
        cluster=arm.runner, image=arm.image, topologies="; ".join(shown),
    )  # fmt: skip


def _arms(page: Page, lang: str) -> Iterator[Block]:
    yield _head("arms", lang)
    if not page.review.arms:
        yield Paragraph(text("authoring.page.no_arms", lang))
        return
    left = MAX_ARMS
    for kind in ("added", "changed", "removed"):
        changes = page.review.of_kind(kind)
        if not changes:
            continue
        yield Heading(3, text(f"authoring.page.{kind}", lang, count=len(changes)))
        shown = changes[: max(left, 0)]
        left -= len(shown)
        if kind != "changed":
            yield Bullets(tuple(arm_words(change.arm, lang) for change in shown))
        else:
            for change in shown:
                yield Paragraph(change.key)
                yield Bullets(limited(list(_changed_words(change, lang)), lang))
        if len(changes) > len(shown):
            yield Paragraph(text("authoring.page.more", lang, count=len(changes) - len(shown)))


def _changed_words(change: ArmChange, lang: str) -> Iterator[str]:
    for name in change.topologies_added:
        yield text("authoring.page.topology_added", lang, topology=name)
    for name in change.topologies_removed:
        yield text("authoring.page.topology_removed", lang, topology=name)
    for one in change.fields:
        yield _field_words(one, lang)
    for recipe in change.recipes:
        if recipe.state is not None:
            yield text("authoring.page.recipe_unread", lang, recipe=recipe.setting)
            continue
        major = sum(setting.major for setting in recipe.settings)
        values = {"recipe": recipe.setting, "major": major, "tuning": len(recipe.settings) - major}
        yield text("authoring.page.recipe_changed", lang, **values)


def _field_words(one: FieldChange, lang: str) -> str:
    none = text("authoring.page.absent", lang)
    where = f"{one.topology}: " if one.topology is not None else ""
    before, after = (value if value is not None else none for value in (one.before, one.after))
    return f"{where}{one.name}: {before} → {after}"


def _plan(page: Page, lang: str) -> Iterator[Block]:
    delta = page.review.plan
    yield _head("plan", lang)
    if not delta.anew.total.points and not delta.dropped:
        yield Paragraph(text("authoring.page.plan_same", lang, points=delta.after.total.points))
        return
    head = tuple(
        text(f"authoring.column.{name}", lang)
        for name in ("cluster", "points", "hours", "anew", "anew_hours")
    )
    rows = []
    for cluster in (*delta.clusters, None):
        sides = (
            (delta.before.total if delta.before else None, delta.after.total, delta.anew.total)
            if cluster is None
            else tuple(delta.share(side, cluster) for side in (delta.before, delta.after, delta.anew))
        )
        before, after, anew = sides
        if cluster is not None and anew is None and _same(before, after):
            continue
        name = text("authoring.page.all", lang) if cluster is None else cluster
        rows.append((
            name, _pair(before, after, "points"), _pair(before, after, "gpu_hours"),
            str(anew.points if anew else 0), _hours(anew.gpu_hours if anew else 0.0),
        ))  # fmt: skip
    yield Table(head, tuple(rows))
    yield Paragraph(text("authoring.page.plan_note", lang, dropped=delta.dropped))


def _same(one: Share | None, other: Share | None) -> bool:
    return (
        one is not None
        and other is not None
        and (one.points, one.gpu_hours) == (other.points, other.gpu_hours)
    )


def _pair(before: Share | None, after: Share | None, name: str) -> str:
    """`12 → 14`; one figure where nothing changed."""
    values = [getattr(side, name) if side is not None else 0 for side in (before, after)]
    told = [
        _hours(value) if isinstance(value, float) else str(value)
        for value in map(float if name == "gpu_hours" else int, values)
    ]
    return told[0] if told[0] == told[1] else f"{told[0]} → {told[1]}"


def _findings(page: Page, lang: str) -> Iterator[Block]:
    found = page.review.findings
    yield _head("findings", lang)
    values = {"new": len(found.new), "fixed": len(found.fixed), "kept": found.kept, "notes": len(found.notes)}
    yield Paragraph(text("authoring.page.findings_sum", lang, **values))
    for name, listed in (("new", found.new), ("fixed", found.fixed), ("notes", found.notes)):
        if listed:
            yield Heading(3, text(f"authoring.page.findings_{name}", lang))
            lines = [
                f"{text(f'authoring.severity.{one.severity}', lang)} {one.code} {one.at}: {one.message(lang)}"
                for one in listed
            ]
            yield Bullets(limited(lines, lang))


def _fits(page: Page, lang: str) -> Iterator[Block]:
    review = page.review
    if not review.fits:
        return
    yield _head("fits", lang)
    rows: dict[tuple[str, str], list[FitLine]] = {}
    for line in review.fits:
        rows.setdefault((line.arm, _fit_words(line, lang)), []).append(line)
    head = tuple(
        text(f"authoring.column.{name}", lang) for name in ("arm", "topologies", "cluster", "verdict")
    )
    told = [
        (
            arm,
            "; ".join(limited([one.topology for one in lines], lang, MAX_TOPOLOGIES)),
            lines[0].cluster,
            said,
        )
        for (arm, said), lines in rows.items()
    ]
    yield Table(head, tuple(told[:MAX_LINES]))
    left = review.fits_left + max(len(told) - MAX_LINES, 0)
    if left:
        yield Paragraph(text("authoring.page.more", lang, count=left))


def _fit_words(line: FitLine, lang: str) -> str:
    if line.verdict is None:
        if line.error is not None and line.error.key == "catalog.recipe_elsewhere":
            return text("authoring.page.fit_elsewhere", lang)
        reason = line.error.what(lang) if line.error is not None else ""
        return text("authoring.page.fit_error", lang, reason=reason)
    said = verdict_text(line.verdict, lang)
    if line.before is not None and line.before != line.verdict:
        return text("authoring.page.fit_before", lang, now=said, before=verdict_text(line.before, lang))
    return said


def _recipes(page: Page, lang: str) -> Iterator[Block]:
    told: dict[str, tuple[str, ...]] = {}
    rows: list[tuple[str, ...]] = []
    none = text("authoring.page.absent", lang)
    for change in page.review.of_kind("changed"):
        for recipe in change.recipes:
            if recipe.setting in told or recipe.state is not None:
                continue
            told[recipe.setting] = (change.key,)
            rows += [
                (recipe.setting.rpartition("/")[2], text(f"authoring.group.{one.group}", lang), one.name,
                 none if one.before is None else one.before, none if one.after is None else one.after)
                for one in recipe.settings
            ]  # fmt: skip
    if not rows:
        return
    yield _head("recipes", lang)
    tuning = text("authoring.group.tuning", lang)
    head = tuple(
        text(f"authoring.column.{name}", lang) for name in ("recipe", "group", "setting", "before", "after")
    )
    for name, some in (
        ("major", [row for row in rows if row[1] != tuning]),
        ("tuning", [row for row in rows if row[1] == tuning]),
    ):
        yield Heading(3, text(f"authoring.page.{name}", lang, count=len(some)))
        if some:
            yield Table(head, tuple(some[:MAX_LINES]))
        if len(some) > MAX_LINES:
            yield Paragraph(text("authoring.page.more", lang, count=len(some) - MAX_LINES))


def _results(page: Page, lang: str) -> Iterator[Block]:
    yield _head("results", lang)
    if not page.results.asked:
        yield Paragraph(text("authoring.page.no_store", lang))
        return
    if not page.results.arms:
        yield Paragraph(text("authoring.page.no_results", lang))
    for one in page.results.arms:
        names = (page.review.base.ref, page.review.head.ref)
        view = page.results.compared(one, names, lang)
        said = text("authoring.page.measured", lang, arm=one.arm, measured=one.measured, planned=one.planned)
        yield Paragraph(said if view is None else f"{said} {view.headline}")
        if view is not None and view.pairs:
            yield Table(*_compared(view, lang))


def _compared(view: CompareView, lang: str) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    head = tuple(
        text(f"authoring.column.{name}", lang)
        for name in ("point", "figure", "main", "branch", "effect", "verdict")
    )
    rows = [
        (pair.label, one.label, one.a_text, one.b_text,
         f"{one.effect_text} ({one.interval_text})" if one.effect_text else "—", one.verdict_text)
        for pair in view.pairs
        for one in pair.judged
        if one.verdict != "absent"
    ]  # fmt: skip
    return head, tuple(rows[:MAX_LINES])


def _evals(page: Page, lang: str) -> Iterator[Block]:
    rows = [row for one in page.results.arms for row in _eval_rows(one, lang)]
    if not rows:
        return
    yield _head("evals", lang)
    names = ("arm", "side", "concurrency", "task", "score", "items", "passed")
    yield Table(tuple(text(f"authoring.column.{name}", lang) for name in names), tuple(rows[:MAX_LINES]))


def _eval_rows(one: ArmResults, lang: str) -> Iterator[tuple[str, ...]]:
    for side, scored in (("branch", one.evals), ("main", one.main_evals)):
        for point, each in scored:
            spread = f" ± {each.stderr:.4f}" if each.stderr is not None else ""
            passed = (
                "—"
                if each.passed is None
                else text(f"authoring.passed.{'yes' if each.passed else 'no'}", lang)
            )
            yield (
                one.arm, text(f"authoring.column.{side}", lang), str(point.concurrency), f"{each.task} {each.metric}",
                f"{each.score:.4f}{spread}", "—" if each.n is None else str(each.n), passed,
            )  # fmt: skip


def _files(page: Page, lang: str) -> Iterator[Block]:
    files = page.review.files
    lines: list[str] = []
    for name in ("added", "changed", "removed"):
        listed: Iterable[str] = getattr(files, name)
        lines += [f"{text(f'authoring.file.{name}', lang)} {path}" for path in listed]
    if lines:
        yield _head("files", lang)
        yield Bullets(limited(lines, lang))
    if page.review.head.left_out:
        yield Paragraph(text("authoring.page.left_out", lang, names=", ".join(page.review.head.left_out[:8])))


def _halves(page: Page, lang: str) -> Iterator[Block]:
    if page.halves is None:
        return
    yield _head("halves", lang)
    if not page.halves:
        yield Paragraph(text("authoring.page.halves_agree", lang))
    else:
        yield Bullets(limited([fault.said(lang) for fault in page.halves], lang))


def _checks(page: Page, lang: str) -> Iterator[Block]:
    yield _head("checklist", lang)
    source = {"version": page.checklist.version, "source": page.checklist.source}
    yield Paragraph(text("authoring.page.template", lang, **source))
    said, boxes = [], []
    for answer in page.answers:
        words = answer.item.said(lang)
        if answer.key is not None:
            state = text(f"authoring.state.{answer.state}", lang)
            words = f"{words} {state}: {text(answer.key, lang, **dict(answer.values or {}))}"
        elif answer.item.needs == "link":
            words = f"{words} {text('authoring.page.needs_link', lang)}"
        said.append(f"{answer.item.id}: {words}")
        boxes.append(answer.state == "passed")
    yield Bullets(tuple(said), tuple(boxes))
    yield Paragraph(
        text("authoring.page.sign", lang, phrase=page.checklist.phrase, version=page.checklist.version)
    )
