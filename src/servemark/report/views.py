"""What the templates see: finished words and finished drawings, one small class for each part of the page."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

LONG = 40
"""Characters from which a name counts as long."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A label, a value and a smaller line below; `pill` is a tone (good, warn, bad) or empty."""

    label: str
    value: str
    small: str = ""
    pill: str = ""

    @property
    def is_long(self) -> bool:
        """True for a value that needs smaller type and more room."""
        return len(self.value) > LONG


@dataclass(frozen=True, slots=True)
class Head:
    """Title line (arm, and the suite it belongs to), facts, and the words beside the brand."""

    title: str
    suite: str
    line: str
    facts: tuple[Fact, ...]
    badge: str = ""
    """What nobody may overlook, at the title."""

    @property
    def is_long(self) -> bool:
        """True for a title that needs smaller type."""
        return len(self.title) > LONG


@dataclass(frozen=True, slots=True)
class AxisWords:
    """An axis in words: name, unit, which way is better, and where the metric is defined."""

    label: str
    unit: str
    good: str
    anchor: str


@dataclass(frozen=True, slots=True)
class Choice:
    """One pair of axes: the picker's words, the drawing, and why points are not on it."""

    name: str
    chart: Markup
    x: AxisWords
    y: AxisWords
    excluded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FrontPart:
    """All pairs of axes, the default first; `empty` says why there is nothing to draw."""

    choices: tuple[Choice, ...]
    empty: str
    has_dominated: bool


@dataclass(frozen=True, slots=True)
class Group:
    """A head cell over `span` columns: a metric, its unit, and where it is defined."""

    label: str
    unit: str
    anchor: str
    span: int


@dataclass(frozen=True, slots=True)
class SortHead:
    """A sortable column below its group: `label` is its statistic (empty when the group has one column)."""

    label: str
    aria: str
    leads: bool


@dataclass(frozen=True, slots=True)
class TableCell:
    """One figure; `sort` is the raw value for sorting (empty when absent), `title` why it is absent."""

    text: str
    sort: str
    best: bool
    title: str | None


@dataclass(frozen=True, slots=True)
class TableRow:
    """One point; `href` leads to its details."""

    id: str
    href: str
    label: str
    tag: str
    sort: str
    cells: tuple[TableCell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """The table of points, and the same as a CSV in a data: address."""

    groups: tuple[Group, ...]
    columns: tuple[SortHead, ...]
    rows: tuple[TableRow, ...]
    csv: str
    csv_name: str


@dataclass(frozen=True, slots=True)
class BarLine:
    """A label, a small level chart and its value in words."""

    label: str
    anchor: str
    chart: Markup
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Card:
    """A titled group of bars with sentences below."""

    title: str
    small: str
    bars: tuple[BarLine, ...]
    notes: tuple[str, ...]
    tone: str = ""


@dataclass(frozen=True, slots=True)
class HistogramPart:
    """A histogram under its title and percentiles."""

    title: str
    anchor: str
    n: str
    figures: tuple[tuple[str, str], ...]
    chart: Markup
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SampleItem:
    """One judged answer. Untrusted text, clipped."""

    right: bool
    word: str
    prompt: str
    reply: str | None
    expected: str


@dataclass(frozen=True, slots=True)
class SampleList:
    """Answers of one task with how many there are in all."""

    title: str
    note: str
    items: tuple[SampleItem, ...]


@dataclass(frozen=True, slots=True)
class PointPart:
    """Everything inside one point's fold."""

    id: str
    title: str
    figures: tuple[tuple[str, str], ...]
    histograms: tuple[HistogramPart, ...]
    timeline: Markup | None
    timeline_notes: tuple[str, ...]
    samples: tuple[SampleList, ...]


@dataclass(frozen=True, slots=True)
class Trouble:
    """One kind of thing to know before trusting the figures; `lines` are (where, what was seen)."""

    level: str
    word: str
    title: str
    lines: tuple[tuple[str, str], ...]
    next_steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FailedLine:
    """One request that did not end well."""

    point: str
    request: str
    at: str
    outcome: str
    status: str
    detail: str
    source: str


@dataclass(frozen=True, slots=True)
class TroublePart:
    """Problems gravest first and failed requests; `calm` when there is nothing to tell."""

    items: tuple[Trouble, ...]
    failed: tuple[FailedLine, ...]
    failed_note: str
    calm: bool


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One point's phases as a bar and as cells that follow `PhasePart.names`."""

    label: str
    chart: Markup
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PhasePart:
    """Where the time went. `names` are (words, slot of the legend)."""

    names: tuple[tuple[str, int], ...]
    rows: tuple[PhaseRow, ...]


@dataclass(frozen=True, slots=True)
class OriginTable:
    """For the points named in `title`: rows of (field, declared, observed, mark, word)."""

    title: str
    rows: tuple[tuple[str, str, str, str, str], ...]
    more: tuple[tuple[str, str], ...]
    """(field, observed) of facts that nobody declared."""


@dataclass(frozen=True, slots=True)
class OriginPart:
    """Where the figures come from: declared and observed, identifiers, files."""

    tables: tuple[OriginTable, ...]
    ids: tuple[tuple[str, ...], ...]
    files: tuple[tuple[str, str, str, str], ...]


@dataclass(frozen=True, slots=True)
class Definition:
    """A metric's words for the glossary."""

    id: str
    label: str
    unit: str
    better: str
    text: str
    formula: str


@dataclass(frozen=True, slots=True)
class Page:
    """The whole page."""

    title: str
    head: Head
    findings: tuple[str, ...]
    front: FrontPart
    table: Table
    cache: tuple[Card, ...]
    cache_notes: tuple[str, ...]
    cache_meanings: tuple[tuple[str, str], ...]
    accuracy: tuple[Card, ...]
    points: tuple[PointPart, ...]
    trouble: TroublePart
    phases: PhasePart
    origin: OriginPart
    definitions: tuple[Definition, ...]
    places: tuple[tuple[str, str], ...]
