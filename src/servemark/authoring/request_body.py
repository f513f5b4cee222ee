"""The text of a request that adds an arm, in both languages, made from the figures of its review."""

from __future__ import annotations

from collections.abc import Sequence

from servemark.authoring.blocks import Block, Bullets, Heading, Paragraph, markdown_lines
from servemark.authoring.insertion import Setting
from servemark.authoring.request_text import MARK
from servemark.authoring.review_view import Page, arm_words
from servemark.base.messages import text
from servemark.sizing.words import verdict_text


def request_body(
    page: Page, source: str, name: str, assistance: str, *, settings: Sequence[Setting] = ()
) -> str:
    """The text of a request that adds an arm, in both languages: summary, test plan, disclosure of assistance.

    `settings` are what was set otherwise than in the model arm."""
    said = ", ".join(f"{one.key}={one.value}" for one in settings)
    return "\n".join(
        f"{MARK.format(lang=lang)}\n\n{_half(page, source, name, assistance, lang, said)}"
        for lang in ("en", "zh")
    )


def _half(page: Page, source: str, name: str, assistance: str, lang: str, differs: str) -> str:  # noqa: PLR0917
    review = page.review
    total = review.plan.anew.total
    values = {"name": name, "source": source, "points": total.points, "hours": f"{total.gpu_hours:,.2f}"}
    suite = review.head.suite
    fits = dict.fromkeys(
        text("authoring.request.fits", lang, topology=line.topology, verdict=verdict_text(line.verdict, lang))
        for line in review.fits
        if line.verdict is not None
    )
    blocks: list[Block] = [
        Heading(2, text("authoring.request.summary", lang)),
        Paragraph(text("authoring.request.added", lang, **values)),
    ]
    if suite is not None and name in suite.arms:
        blocks.append(Bullets((arm_words(suite.arms[name], lang), *fits)))
    if differs:
        blocks.append(Paragraph(text("authoring.request.differs", lang, settings=differs)))
    blocks += [
        Paragraph(text("authoring.request.cost", lang, **values)),
        Heading(2, text("authoring.request.tests", lang)),
        Bullets(
            tuple(
                text(f"authoring.request.test_{step}", lang, **values)
                for step in ("check", "fit", "run", "review")
            ),
            (not review.findings.count("error"), _all_fit(page), False, False),
        ),
        Heading(2, text("authoring.request.assistance", lang)),
        Paragraph(text("authoring.request.made", lang, **values)),
        Paragraph(
            text("authoring.request.other", lang, said=assistance or text("authoring.request.none", lang))
        ),
    ]
    return "\n".join(markdown_lines(blocks)) + "\n"


def _all_fit(page: Page) -> bool:
    fits = page.review.fits
    return bool(fits) and all(one.verdict is not None and one.verdict.kind == "fits" for one in fits)
