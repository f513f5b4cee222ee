"""Predictions on a terminal and for machines: figures with interval and class, and in words what cannot be said."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from servemark.analysis.figure_words import label_of, unit_of
from servemark.analysis.format import display
from servemark.base.joined import clauses, in_list, sentences, with_detail, with_head
from servemark.base.messages import find_text, text
from servemark.base.printable import one_line
from servemark.cli.text_table import columns_of, padded, table, wrapped
from servemark.metrics.registry import Unit
from servemark.predict.acceptance import AcceptanceView
from servemark.predict.arm import ArmForecast, TopologyForecast
from servemark.predict.forecast import Forecast, Forecaster, metrics_of
from servemark.predict.matching import Difference, Match
from servemark.predict.replay_sensitivity import HITS
from servemark.predict.sim_result import SimulatedRun
from servemark.predict.speed_types import Why
from servemark.predict.types import Predicted
from servemark.replay.profiles import RUN_PROFILE

if TYPE_CHECKING:
    from servemark.predict.agentic import JudgedRules

MAX_WIDTH = 120
MAX_DIFFERENCES = 8
MAX_USED = 12


def lines(found: ArmForecast, *, why: bool) -> list[str]:
    """The arm for a terminal."""
    width = min(shutil.get_terminal_size((100, 24)).columns, MAX_WIDTH)
    if found.points is None:
        said = text("predict.use.no_store")
    else:
        said = text("predict.use.points", None, count=f"{found.points:,}", model=one_line(found.arm.model))
    told = [*wrapped(said, width, "")]
    for topology in found.topologies:
        told += ["", f"{found.arm.key}/{topology.entry.topology}"]
        told += _topology(topology, found, width, why=why)
    return told


def _topology(topology: TopologyForecast, found: ArmForecast, width: int, *, why: bool) -> list[str]:
    told: list[str] = []
    first = topology.forecasts[0] if topology.forecasts else None
    if first is not None:
        told += wrapped(nearest_words(first.nearest), width, "  ")
        if others := found.forecaster.apart(first.planned):
            said = text("predict.use.other_weights", None, count=f"{others:,}")
            told += wrapped(said, width, "  ")
    if topology.unlisted:
        loads = in_list(map(str, topology.unlisted))
        told += wrapped(text("predict.use.unlisted", None, listed=loads), width, "  ")
    metrics = metrics_of(topology.forecasts)
    if metrics:
        told += ["", *_table(topology.forecasts, metrics, width)]
    for each in _cannot(topology.forecasts):
        told += ["", *wrapped(each, width, "  ")]
    for each in _notes(topology.forecasts):
        told += wrapped(f"! {each}", width, "  ")
    told += _simulated(topology, width)
    if topology.acceptance is not None:
        told += ["", *acceptance_lines(topology.acceptance, width)]
    if why:
        told += _why(topology, found, width)
    return told


SIMULATED = ("output_tokens_per_s", "ttft_s.p50", "tpot_s.p50", "e2el_s.p50")
"""What is told of a simulated run whose step times were fitted."""


def _simulated(topology: TopologyForecast, width: int) -> list[str]:
    """Simulated replays: hits by tier, speed where step times were fitted, and the same with the changes."""
    told: list[str] = []
    if topology.not_simulated is not None:
        why = topology.not_simulated.what()
        told += ["", *wrapped(text("predict.use.sim.none", None, why=why), width, "  ")]
    if not topology.simulated:
        return told
    rows = []
    for each in topology.simulated:
        changed = ", ".join(each.changes)
        for name, run in ((text("predict.use.sim.planned"), each.run), (changed, each.changed)):
            if run is not None:
                rows.append([str(each.concurrency), one_line(name), *_sim_cells(run, each.fitted)])
    names = ("load", "case", "hits", "gpu", "dram", "store")
    heads = [text(f"predict.use.column.{name}") for name in names]
    if any(each.fitted for each in topology.simulated):
        heads += [label_of(name) for name in SIMULATED]
    rows = [row[: len(heads)] for row in rows]
    told += ["", f"  {text('predict.use.sim.head')}"]
    told += [f"  {line}" for line in table(heads, rows, width - 2, flexible=1)]
    first = topology.simulated[0]
    if not first.fitted:
        told += wrapped(
            f"! {text('predict.use.sim.assumed', None, why=said(first.reason or ''))}", width, "  "
        )
    if first.sized.assumed:
        sizes = in_list(first.sized.assumed)
        told += wrapped(f"! {text('predict.use.sim.sizes', None, listed=sizes)}", width, "  ")
    for line in _replay_words(topology):
        told += wrapped(f"! {line}", width, "  ")
    return told


def _replay_words(topology: TopologyForecast) -> list[str]:
    """By whose rules it was replayed, what a store of another size would change, and what decides, by this arm's own
    figures."""
    first = topology.simulated[0]
    values: dict[str, object] = {"profile": first.profile}
    key = "predict.use.sim.replay"
    if first.profile == RUN_PROFILE:
        seconds = topology.forecasts[0].planned.stated_duration_s
        key += "_run" if seconds is None else "_timed"
        values |= {} if seconds is None else {"seconds": f"{seconds:g}"}
    told = [text(key, None, **values)]
    if all(each.store_unused for each in topology.simulated):
        told.append(text("predict.use.sim.unused"))
    for each in topology.simulated:
        if each.least_segment:
            size = f"{each.least_segment / 2**30:.1f}"
            told.append(text("predict.use.sim.least_segment", None, load=each.concurrency, size=size))
        if each.judged is not None:
            told.append(_judged_words(each.judged, each.concurrency))
    return told


def _judged_words(judged: JudgedRules, load: int) -> str:
    found = judged.found
    if found.said is None:
        return text("predict.use.sim.not_judged")
    metric = text("predict.use.column.hits") if found.metric == HITS else label_of(found.metric)
    said = text(
        found.said,
        None,
        metric=metric,
        rules=f"{100 * (found.rules_spread or 0):.1f}",
        engine=f"{100 * (found.engine_spread or 0):.1f}",
    ).rstrip("。.")
    most = {
        side: max(
            (v for v in found.variants if v.side == side and v.judged and v.change is not None),
            key=lambda v: abs(v.change or 0.0),
        )
        for side in ("rules", "engine")
    }
    rule, engine = (text(f"predict.replay.variant.{most[side].name}") for side in ("rules", "engine"))
    return text(
        "predict.use.sim.judged", None, said=said, load=load, sessions=judged.sessions, of=judged.of_sessions, rule=rule,
        engine=engine,
    )  # fmt: skip


def _sim_cells(run: SimulatedRun, fitted: bool) -> list[str]:
    """Hits by tier in % of prompt tokens, then speed, a dash where it was assumed."""
    hits = run.hits
    shares = [
        hits.share,
        *(
            tokens / hits.input_tokens if hits.input_tokens else None
            for tokens in (hits.gpu_tokens, hits.dram_tokens, hits.store_tokens)
        ),
    ]
    cells = ["—" if share is None else f"{100 * share:.1f} %" for share in shares]
    for name in SIMULATED:
        value = run.value(name) if fitted else None
        cells.append(display(unit_of(name), (value,)).text(value))
    return cells


def nearest_words(match: Match | None, lang: str | None = None) -> str:
    """What was measured nearest, and in what it differs."""
    if match is None:
        return text("predict.use.nearest.none", lang)
    loads = in_list((f"c{each}" for each in match.concurrencies), lang) or "—"
    said = text(
        f"predict.use.nearest.{match.level}",
        lang,
        points=len(match.points),
        loads=loads,
        newest=match.newest_utc[:10] or "?",
    )
    unlike = [difference_words(each, lang) for each in (*match.differs, *match.unstated)]
    if not unlike:
        return said
    more = len(unlike) - MAX_DIFFERENCES
    shown = clauses([*unlike[:MAX_DIFFERENCES], *([f"… (+{more})"] if more > 0 else [])], lang)
    return sentences([said, text("predict.use.differs", lang, parts=shown)], lang)


def difference_words(each: Difference, lang: str | None = None) -> str:
    """`image: a (planned), b (measured)`."""
    name, _, role = each.part.partition(":")
    said = find_text(f"predict.use.part.{name}", lang) or name
    unsaid = text("predict.use.unstated", lang)
    one, two = (unsaid if value is None else one_line(value)[:60] for value in (each.planned, each.measured))
    return text(
        "predict.use.difference",
        lang,
        part=with_detail(said, role, lang) if role else said,
        planned=one,
        measured=two,
    )


def class_words(figure: Predicted, lang: str | None = None) -> str:
    """A class in a few words."""
    return text(f"predict.use.class.{figure.klass}", lang)


def _table(forecasts: Sequence[Forecast], metrics: Sequence[str], width: int) -> list[str]:
    """A row a figure: load, metric with unit, value, interval, what was measured there; above it, once a load, the class and
    what its intervals rest on, since a terminal has 80 columns."""
    names = ("load", "metric", "value", "interval", "measured")
    rows: list[list[str]] = []
    loads: dict[str, list[str]] = {}
    for each in forecasts:
        some = [
            figure
            for metric in metrics
            if (figure := each.figure(metric)) is not None
            and (figure.value is not None or figure.low is not None)
        ]
        if some:
            rows += [[""] * len(names)] if rows else []
            rows += [_row(each, figure, forecasts) for figure in some]
            loads.setdefault(_rests(each, some), []).append(f"c{each.planned.concurrency}")
    if not rows:
        return []
    told = [
        line for words, at in loads.items() for line in wrapped(with_head(in_list(at), words), width, "  ")
    ]
    heads = [text(f"predict.use.column.{name}") for name in names]
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    return [*told, "", *table(heads, rows, width, flexible=1)]


def _rests(each: Forecast, figures: Sequence[Predicted]) -> str:
    """The class of a load's figures, and how many held-out figures their intervals rest on."""
    here = each.predictions is not None and each.predictions.measured
    words = text("predict.use.class.measured") if here else class_words(figures[0])
    counts = sorted({figure.residuals for figure in figures if figure.low is not None})
    if not counts:
        return words
    count = str(counts[0]) if len(counts) == 1 else f"{counts[0]}-{counts[-1]}"
    return text("predict.use.rests", None, klass=words, count=count)


def _row(each: Forecast, figure: Predicted, forecasts: Sequence[Forecast]) -> list[str]:
    measured = each.measured[-1].value(figure.metric) if each.measured else None
    shown = display(unit_of(figure.metric), (figure.value, figure.low, figure.high, measured))
    ends = figure.low is not None and figure.high is not None
    value = shown.number(figure.value)
    if figure.value is None:
        rank, among = rank_of(figure.metric, figure, forecasts)
        value = text("predict.use.rank", None, rank=rank, among=among)
    name = label_of(figure.metric)
    return [
        str(each.planned.concurrency),
        f"{name} ({shown.unit})" if shown.unit else name,
        value,
        f"{shown.number(figure.low)} … {shown.number(figure.high)}" if ends else "—",
        "" if measured is None else shown.number(measured),
    ]


def rank_of(metric: str, figure: Predicted, forecasts: Sequence[Forecast]) -> tuple[int, int]:
    """(place, of how many) by the middle of the band among the points that are asked about: 1 has the largest figure."""
    middles = sorted(
        {
            one.low + one.high
            for each in forecasts
            if (one := each.figure(metric)) is not None and one.low is not None and one.high is not None
        },
        reverse=True,
    )
    mine = (figure.low or 0.0) + (figure.high or 0.0)
    return middles.index(mine) + 1 if mine in middles else 1, len(middles)


def _cannot(forecasts: Sequence[Forecast]) -> list[str]:
    """Why nothing, or no figure, is said; each reason once with its loads."""
    reasons: dict[str, list[int]] = {}
    for each in forecasts:
        if each.cannot is not None:
            reasons.setdefault(each.cannot, []).append(each.planned.concurrency)
            continue
        for figure in each.predictions.figures.values() if each.predictions is not None else ():
            if figure.value is None or figure.low is None:
                key = figure.reason or "predict.use.class_none"
                loads = reasons.setdefault(key, [])
                if each.planned.concurrency not in loads:
                    loads.append(each.planned.concurrency)
    return [with_head(in_list(f"c{load}" for load in loads), said(key)) for key, loads in reasons.items()]


def said(key: str, values: Mapping[str, object] | None = None, lang: str | None = None) -> str:
    """A message of the model's in words; the key itself where another version wrote it."""
    try:
        return find_text(key, lang, **(values or {})) or key
    except (KeyError, IndexError, ValueError):
        return key


def _notes(forecasts: Iterable[Forecast]) -> list[str]:
    """What is doubtful about the points underneath, each once."""
    found: dict[str, None] = {}
    if any(each.other_version and each.predictions is not None for each in forecasts):
        found[text("predict.use.other_version")] = None
    for each in forecasts:
        for key, values in each.predictions.notes if each.predictions is not None else ():
            found[said(key, values)] = None
    return list(found)


def acceptance_lines(view: AcceptanceView, width: int, lang: str | None = None) -> list[str]:
    """Golden, forced and expected real acceptance length, one below the other with where each is from."""
    head = text("predict.use.acceptance", lang, method=one_line(view.method), drafts=view.draft_tokens or "?")
    rows: list[tuple[str, str, str]] = []
    for one in view.golden:
        note = text("predict.use.acceptance.own" if one.own else "predict.use.acceptance.other", lang)
        place = one_line(clauses([f"{one.file.rpartition('/')[2]}, {one.mode}", note], lang))
        rows.append((text("predict.use.acceptance.golden", lang), f"{one.length:.2f}", place))
    if not view.golden:
        none = text("predict.use.acceptance.no_golden", lang)
        rows.append((text("predict.use.acceptance.golden", lang), "—", none))
    if view.forced is not None:
        by = one_line(view.forced_by or "")
        rows.append((text("predict.use.acceptance.forced", lang), f"{view.forced:.2f}", by))
    rows.append((text("predict.use.acceptance.expected", lang), *_expected(view, lang)))
    first, second = (max(columns_of(row[i]) for row in rows) for i in (0, 1))
    told = wrapped(head, width, "  ")
    for name, length, place in rows:
        start = f"    {padded(name, first, left=True)}  {padded(length, second, left=False)}  "
        lines = wrapped(place, max(20, width - columns_of(start)), "")
        told += [start + lines[0], *(" " * columns_of(start) + line.strip() for line in lines[1:])]
    if view.expected is not None and (view.golden or view.forced is not None):
        ratio = (view.forced or view.golden[0].length) / max(view.expected[1], 1e-9)
        if ratio > 1.1:  # a promise that service will not keep
            said = text("predict.use.acceptance.beware", lang, ratio=f"{ratio:.1f}")
            told += wrapped(f"! {said}", width, "  ")
    return told


def _expected(view: AcceptanceView, lang: str | None) -> tuple[str, str]:
    if view.measured is not None:
        least, middle, largest, count = view.measured
        shown = f"{middle:.2f}" if count == 1 else f"{least:.2f} … {largest:.2f}"
        return shown, text("predict.use.acceptance.measured", lang, count=count)
    if view.published is not None:
        known = view.published
        told = text(
            "predict.use.acceptance.published",
            lang,
            source=known.source,
            golden=f"{known.golden:.2f}",
            drafts=known.draft_tokens,
        )
        return f"{known.low:.2f} … {known.high:.2f}", told
    return "—", text("predict.use.acceptance.unknown", lang)


def _why(topology: TopologyForecast, found: ArmForecast, width: int) -> list[str]:
    """The measured points behind each load's throughput and latency per token."""
    told: list[str] = []
    for each in topology.forecasts:
        for why in found.forecaster.why(each):
            klass = text(f"predict.use.class.{why.klass}")
            head = with_head(label_of(why.metric), klass)
            told += ["", f"  c{each.planned.concurrency}  {head}"]
            coefficients = ", ".join(f"{name} {value:.4g}" for name, value in why.coefficients.items())
            if coefficients:
                told += wrapped(text("predict.use.coefficients", None, values=coefficients), width, "    ")
            told += [f"    {line}" for line in _used(why, width - 4)]
            for key, count in why.left_out.items():
                told += wrapped(text("predict.use.left_out", None, count=count, why=said(key)), width, "    ")
    return told


def _used(why: Why, width: int) -> list[str]:
    """The points: seconds of one output token that each gave (for throughput: its sessions over its tokens a second), how
    far the fit without each is off it, and what the figure changes by without it."""
    shown = display(Unit.SECONDS, [each.value for each in why.used])
    names = ("point", "load", "lengths", "seconds", "residual", "influence", "role")
    rows = [
        [
            one_line(each.ref),
            str(each.concurrency),
            f"{each.isl}/{each.osl}",
            shown.text(each.value),
            _percent(each.residual),
            _percent(each.influence),
            text(f"predict.use.role.{each.role}"),
        ]
        for each in why.used[:MAX_USED]
    ]
    if not rows:
        return []
    more = len(why.used) - len(rows)
    known = any(each.residual is not None for each in why.used[:MAX_USED])
    kept = [place for place, name in enumerate(names) if known or name != "residual"]
    heads = [text(f"predict.use.column.{names[place]}") for place in kept]
    told = table(heads, [[row[place] for place in kept] for row in rows], width)
    told += wrapped(text("predict.use.why_off" if known else "predict.use.why_influence"), width, "")
    return [*told, text("predict.use.more_used", None, count=more)] if more > 0 else told


def _percent(value: float | None) -> str:
    return "—" if value is None else f"{100 * value:+.1f} %"


def plain(found: ArmForecast, *, why: bool) -> dict[str, object]:
    """The arm for machines: base units, None where nothing is said."""
    return {
        "schema": 1,
        "suite": found.suite,
        "arm": found.arm.key,
        "model": found.arm.model,
        "points_of_model": found.points,
        "topologies": [
            {
                "topology": each.entry.topology,
                "points": [forecast_plain(one, found.forecaster if why else None) for one in each.forecasts],
                "unlisted": list(each.unlisted),
                "simulated": [asdict(one) for one in each.simulated],
                "not_simulated": None if each.not_simulated is None else each.not_simulated.what(),
                "acceptance": None if each.acceptance is None else _acceptance_plain(each.acceptance),
            }
            for each in found.topologies
        ],
    }


def forecast_plain(each: Forecast, forecaster: Forecaster | None = None) -> dict[str, object]:
    """One point for machines; with a forecaster also what its figures rest on."""
    found = each.predictions
    body: dict[str, object] = {
        "selector": each.planned.selector,
        "point_id": each.planned.point_id,
        "concurrency": each.planned.concurrency,
        "isl": found.isl if found is not None else None,
        "osl": found.osl if found is not None else None,
        "nearest": None if each.nearest is None else _match_plain(each.nearest),
        "class": found.klass if found is not None and found.figures else None,
        "figures": [asdict(figure) for figure in found.figures.values()] if found is not None else [],
        "cannot": None if each.cannot is None else {"key": each.cannot, "said": said(each.cannot)},
        "notes": [said(key, values) for key, values in found.notes] if found is not None else [],
        "measured": [
            {"point_key": one.point_key, "ref": one.ref, "at_utc": one.at_utc, "verdict": one.verdict}
            for one in each.measured
        ],
    }
    if forecaster is not None:
        body["why"] = [asdict(one) for one in forecaster.why(each)]
    return body


def _match_plain(match: Match) -> dict[str, object]:
    return {
        "level": match.level,
        "config_key": match.config_key,
        "points": len(match.points),
        "concurrencies": list(match.concurrencies),
        "newest_utc": match.newest_utc or None,
        "differs": [asdict(each) for each in match.differs],
        "unstated": [asdict(each) for each in match.unstated],
    }


def _acceptance_plain(view: AcceptanceView) -> dict[str, object]:
    return {**asdict(view), "expected": None if view.expected is None else list(view.expected)}
