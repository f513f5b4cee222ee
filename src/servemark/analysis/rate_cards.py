"""Rate cards: dated YAML files that say what a GPU-hour costs and which power a GPU must be given.

A cost is only as good as its price, and prices move: so a card has a name, a date, and a source with the day on which it
was read for each figure. Cards come with servemark (`rates/`, examples of public list prices), from `<home>/rates/*.yaml`
(they win over shipped ones of the same name), or from any file. Editions of one card differ in their date; the newest is
meant unless `NAME@DATE` asks for another. A GPU that a card does not name has no cost by it, never a cost of 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

from servemark.base.errors import ServemarkError, input_error
from servemark.catalog.data_files import checked, data_folder
from servemark.catalog.fields import Fields, nearest
from servemark.catalog.nodes import Node, Problem
from servemark.catalog.yaml_nodes import parse_yaml, read_bytes

SCHEMA = 1
DEFAULT_CARD = "example-coreweave-on-demand"
"""The shipped card that is meant where the user has none and asks for none."""
MAX_GPUS = 256
MAX_FILES = 200
MAX_TEXT = 1000
MAX_USD_PER_GPU_HOUR = 1000.0
MAX_KW_PER_GPU = 20.0
"""Above these a unit was mistaken (cents, a whole node, watts): a rack of 72 GPUs stays below 2.5 kW for each."""
POWER_SCOPES = ("it-load", "facility")
"""`it-load`: what servers and switches draw. `facility`: with cooling and losses of the building (PUE) on top."""
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}\Z")
_EDITION = "@"


@dataclass(frozen=True, slots=True)
class Stated:
    """One figure of a card: its value, where it was read (a URL or words), and when (ISO date)."""

    value: float
    source: str
    read: str


@dataclass(frozen=True, slots=True)
class GpuRate:
    """What a card says of one GPU type: dollars a GPU-hour, provisioned kW a GPU with its scope. Either may be absent."""

    gpu: str
    usd_per_gpu_hour: Stated | None = None
    kw_per_gpu: Stated | None = None
    power_scope: str | None = None
    note: str | None = None


@dataclass(frozen=True, slots=True)
class RateCard:
    """One edition of a card. `origin` is `shipped`, `user` or `file`, `file` the path that it was read from."""

    name: str
    date: str
    currency: str
    gpus: Mapping[str, GpuRate]
    note: str | None = None
    origin: str = "file"
    file: str = ""

    @property
    def edition(self) -> str:
        """`NAME@DATE`: what every figure made by it carries."""
        return f"{self.name}{_EDITION}{self.date}"

    def rate(self, gpu: str) -> GpuRate | None:
        """What it says of a GPU type, by its name in any case; None when it does not name it."""
        return self.gpus.get(gpu.strip().lower())


@dataclass(frozen=True, slots=True)
class CardShelf:
    """All cards at hand, users' first, newest edition first within a name, and what is wrong with files that hold none."""

    cards: tuple[RateCard, ...]
    faults: tuple[ServemarkError, ...] = field(default=(), compare=False)


def load_card(path: Path, origin: str = "file") -> RateCard:
    """One card. Raises ServemarkError (exit code 2) with file, line and column of everything wrong with it."""
    shown = path.name if origin == "shipped" else str(path)
    problems: list[Problem] = []
    root, found = parse_yaml(read_bytes(path, shown), shown)
    problems += found
    card = card_of(root, problems, origin, str(path))
    checked(problems)
    return card


def card_of(root: Node, problems: list[Problem], origin: str, file: str) -> RateCard:
    """The tree of a card's file; what is wrong is collected."""
    top = Fields(root, problems, "rate card")
    schema = top.integer("schema", minimum=1, required=True)
    if schema is not None and schema != SCHEMA:
        top.problem(top.at("schema"), "catalog.data_schema", schema=schema, known=SCHEMA)
    name = top.text("name", required=True) or ""
    if name and not _NAME.match(name):
        top.problem(top.at("name"), "analysis.card.name", name=name)
    day = _day(top, "date", required=True) or ""
    currency = top.text("currency", required=True) or ""
    if currency and currency != "USD":
        top.problem(top.at("currency"), "analysis.card.currency", currency=currency)
    note = _text(top, "note")
    gpus = _gpus(top, day)
    top.no_others()
    return RateCard(name, day, currency, gpus, note, origin, file)


def _gpus(top: Fields, day: str) -> dict[str, GpuRate]:
    listed = top.mapping("gpus", "gpus", required=True)
    entries = (listed.node.entries or {}) if listed is not None else {}
    if listed is not None and not entries:
        top.problem(top.at("gpus"), "analysis.card.empty")
    if len(entries) > MAX_GPUS:
        top.problem(top.at("gpus"), "analysis.card.many", limit=MAX_GPUS)
        return {}
    found: dict[str, GpuRate] = {}
    for name, node in entries.items():
        key = name.strip().lower()
        if key in found:
            top.problem(node.at, "analysis.card.twice", gpu=name)
        found[key] = _gpu(key, Fields(node, top.problems, f"gpus.{name[:40]}"), day)
    return found


def _gpu(name: str, fields: Fields, day: str) -> GpuRate:
    price = _stated(fields, "usd-per-gpu-hour", "price", MAX_USD_PER_GPU_HOUR, day)
    power = _stated(fields, "kw-per-gpu", "power", MAX_KW_PER_GPU, day)
    scope = fields.choice("power-scope", POWER_SCOPES, required=power is not None)
    note = _text(fields, "note")
    if fields.node.entries is not None and not (
        fields.stated("usd-per-gpu-hour") or fields.stated("kw-per-gpu")
    ):
        fields.problem(fields.node.at, "analysis.card.says_nothing", gpu=name)
    fields.no_others()
    return GpuRate(name, price, power, scope if power is not None else None, note)


def _stated(fields: Fields, name: str, prefix: str, limit: float, day: str) -> Stated | None:
    """A figure above 0 with its source; `PREFIX-source` is required beside it, `PREFIX-read` is the card's date unless
    it says another."""
    value = fields.number(name)
    source = _text(fields, f"{prefix}-source", required=fields.stated(name))
    read = _day(fields, f"{prefix}-read")
    if value is None:
        return None
    if not 0 < value <= limit:
        key = "analysis.card.not_positive" if value <= 0 else "analysis.card.too_high"
        fields.problem(fields.at(name), key, field=name, value=value, limit=limit)
        return None
    return Stated(value, source or "", read or day)


def _text(fields: Fields, name: str, *, required: bool = False) -> str | None:
    found = fields.text(name, required=required)
    if found is not None and len(found) > MAX_TEXT:
        fields.problem(fields.at(name), "analysis.card.long", field=name, limit=MAX_TEXT)
        return None
    return found


def _day(fields: Fields, name: str, *, required: bool = False) -> str | None:
    """An ISO date; the YAML reader leaves dates as the text that stands there."""
    found = fields.text(name, required=required)
    if found is None:
        return None
    try:
        date.fromisoformat(found)
        good = len(found) == len("2026-01-01")
    except ValueError:
        good = False
    if not good:
        fields.problem(fields.at(name), "analysis.card.date", field=name, value=found)
        return None
    return found


def rates_folder() -> Path:
    """Where the shipped cards lie."""
    return data_folder("rates")


def user_rates(home: Path) -> Path:
    """Where a user's cards lie."""
    return home / "rates"


def shelf(home: Path | None) -> CardShelf:
    """Shipped cards and those of a home folder. A faulty file makes no other card unusable: it is listed in `faults`."""
    faults: list[ServemarkError] = []
    shipped = _read_folder(rates_folder(), "shipped", faults)
    own = _read_folder(user_rates(home), "user", faults) if home is not None else []
    names = {card.name for card in own}
    kept = [*_ordered(own), *_ordered(card for card in shipped if card.name not in names)]
    return CardShelf(tuple(kept), tuple(faults))


def cards(home: Path | None) -> list[RateCard]:
    """The usable cards at hand, in the order of `shelf`."""
    return list(shelf(home).cards)


def _read_folder(folder: Path, origin: str, faults: list[ServemarkError]) -> list[RateCard]:
    found: dict[str, RateCard] = {}
    try:
        paths = sorted(path for path in folder.glob("*.yaml") if not path.name.startswith("."))
    except OSError:
        return []
    if len(paths) > MAX_FILES:
        faults.append(input_error("analysis.card.many_files", path=str(folder), limit=MAX_FILES))
    for path in paths[:MAX_FILES]:
        try:
            card = load_card(path, origin)
        except ServemarkError as error:
            faults.append(error)
            continue
        other = found.get(card.edition)
        if other is not None:
            faults.append(
                input_error(
                    "analysis.card.same_edition", where=str(path), edition=card.edition, other=other.file
                )
            )
            continue
        found[card.edition] = card
    return list(found.values())


def _ordered(found: Iterable[RateCard]) -> list[RateCard]:
    """By name, the newest edition first."""
    newest_first = sorted(found, key=lambda card: card.date, reverse=True)
    return sorted(newest_first, key=lambda card: card.name)


def choose(known: CardShelf, wanted: str | None) -> RateCard:
    """The card that `wanted` means: a file's path (it has a `/` or ends in .yaml), `NAME`, or `NAME@DATE`. Without a wish:
    the user's newest card, else the shipped default. Raises ServemarkError (exit code 2)."""
    if wanted is None:
        own = [card for card in known.cards if card.origin == "user"]
        if own:
            return max(own, key=lambda card: (card.date, card.name))
        wanted = DEFAULT_CARD
    if "/" in wanted or wanted.endswith((".yaml", ".yml")):
        return load_card(Path(wanted).expanduser())
    name, _, day = wanted.partition(_EDITION)
    for card in known.cards:
        if card.name == name and day in ("", card.date):
            return card
    listed = [card.edition for card in known.cards]
    near = nearest(wanted, [*listed, *(card.name for card in known.cards)])
    key = "analysis.card.unknown_near" if near else "analysis.card.unknown"
    raise input_error(key, name=wanted[:80], near=near, known=", ".join(listed) or "—")
