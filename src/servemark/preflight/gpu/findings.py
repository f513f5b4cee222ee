"""GPU measurements as findings: one for each GPU, one for links, one for pinning, one for what was not measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from typing import Any

from servemark.catalog.hardware import Gpu, gpu_of_device
from servemark.preflight.finding import Command, Finding, Saying, Verdict, say, seconds, size
from servemark.preflight.gpu.judge import (
    ESSENTIAL,
    LINK_PROBES,
    Compared,
    Judged,
    State,
    compare,
    is_link,
    judge_gpus,
)
from servemark.preflight.gpu.lines import Figure, Line, Pinned, Told, Trouble
from servemark.preflight.gpu.run import Measured, measure
from servemark.preflight.gpu.shown import difference, figure_name, probe_name, quantity, rate, share
from servemark.preflight.gpu.xids import Xid, read_xids
from servemark.preflight.root import HostRoot

VERDICT: dict[State, Verdict] = {"healthy": "ok", "slow": "warn", "broken": "fail", "unjudged": "unknown"}
FAILED = ("hang", "crash", "exit", "cuda_error", "error")
"""A link that was tried and did not work: an engine would meet the same, or fall back to a slower path in silence."""
PATHS = frozenset({0, 10, 20, 30, 40, 50})
"""NVML's levels of two GPUs' common ancestor."""


def gpu_findings(root: HostRoot, sink: Callable[[Line], None] = lambda line: None) -> list[Finding]:
    """Measure this host's GPUs and judge them; under a minute."""
    measured = measure(sink)
    return findings_of(measured, read_xids(root))


def findings_of(measured: Measured, xids: tuple[Xid, ...] | None) -> list[Finding]:
    """All findings of one measurement."""
    types = {device.name: gpu_of_device(device.name) for device in measured.devices}
    judged = judge_gpus(measured, types, xids)
    found = [_gpu(one) for one in judged]
    linked = any(isinstance(line, Figure) and is_link(line) for line in measured.lines)
    if len(measured.devices) > 1 or linked or any(_of(measured, probe) for probe in LINK_PROBES):
        found.append(_links(measured, types))
    rows = [line for line in measured.lines if isinstance(line, Pinned)]
    troubles = [line for line in measured.lines if isinstance(line, Trouble) and line.probe == "pin"]
    if rows or troubles:
        found.append(_pinning(rows, troubles))
    found.append(_probes(measured, judged, xids))
    return found


def _of(measured: Measured, probe: str) -> list[Trouble]:
    return [line for line in measured.lines if isinstance(line, Trouble) and line.probe == probe]


def _gpu(one: Judged) -> Finding:
    figures = [
        say(
            "preflight.gpu.value" if c.ratio is None else "preflight.gpu.value_share",
            figure=figure_name(c.figure.name),
            value=rate(c.figure),
            **({} if c.ratio is None else {"share": share(c.ratio)}),
        )
        for c in one.compared
    ]
    found = say(
        "preflight.gpu.found" if figures else "preflight.gpu.found_none",
        gpu=one.index,
        name=one.name,
        state=say(f"preflight.gpu.state.{one.state}"),
        **({"figures": figures} if figures else {}),
    )
    missing = [_missing(trouble) for trouble in one.missing if trouble.outcome == "unmeasured"]
    commands = (Command(f"nvidia-smi -q -i {one.index}"),) if one.state in {"broken", "slow"} else ()
    plain: dict[str, object] = {
        "gpu": one.index,
        "name": one.name,
        "uuid": one.uuid,
        "state": one.state,
        "figures": [c.plain() for c in one.compared],
        "unmeasured": [trouble.plain() for trouble in one.missing],
        "nvml": one.nvml or None,
        "watched": one.watched or None,
    }
    return Finding(
        "gpu", VERDICT[one.state], found, None, (*one.reasons, *one.notes, *missing), commands, plain
    )


def _missing(trouble: Trouble) -> Saying:
    why = say(f"preflight.gpu_why.{trouble.reason}", detail=trouble.detail or "—")
    return say("preflight.gpu.unmeasured", probe=probe_name(trouble.probe), why=why)


def _links(measured: Measured, types: dict[str, Gpu | None]) -> Finding:
    figures = [line for line in measured.lines if isinstance(line, Figure) and is_link(line)]
    kinds = {types.get(device.name) is not None and device.name for device in measured.devices}
    kind = types.get(measured.devices[0].name) if len(kinds) == 1 else None
    # References are for two GPUs; NIXL within one GPU is another path.
    compared = [compare(figure, kind if len(figure.gpus) > 1 else None) for figure in figures]
    wrong = [t for probe in LINK_PROBES for t in _of(measured, probe) if t.outcome == "wrong"]
    slow = [one for one in compared if one.mark == "slow"]
    why = [
        say("preflight.gpu.wrong", probe=probe_name(t.probe), detail=f"GPU {list(t.gpus)} {t.detail}")
        for t in wrong
    ]
    why += [_slow_link(one) for one in slow]
    why += [say("preflight.gpu.blamed", gpu=gpu) for gpu in _blamed(compared)]
    why += [_missing(t) for probe in LINK_PROBES for t in _of(measured, probe) if t.outcome == "unmeasured"]
    judged = any(one.mark == "ok" for one in compared)
    failed = any(t.reason in FAILED for probe in LINK_PROBES for t in _of(measured, probe))
    verdict: Verdict = "fail" if wrong else "warn" if slow or failed else "ok" if judged else "none"
    said = list(_summary(figures)) or [say("preflight.gpu.links_none")]
    nvml = measured.nvml or {}
    plain: dict[str, object] = {
        "figures": [one.plain() for one in compared],
        "unmeasured": [t.plain() for probe in LINK_PROBES for t in _of(measured, probe)],
        "topology": nvml.get("links"),
    }
    why += _topology(nvml.get("links"))
    return Finding(
        "gpu_links", verdict, say("preflight.gpu.links", figures=said), None, tuple(why), (), plain
    )


def _summary(figures: Iterable[Figure]) -> Iterable[Saying]:
    """Each kind of figure with its range over the pairs."""
    names: dict[str, list[Figure]] = {}
    for figure in figures:
        names.setdefault(figure.name, []).append(figure)
    for name, group in names.items():
        low, high = min(group, key=lambda f: f.value), max(group, key=lambda f: f.value)
        shown = rate(low) if len(group) == 1 or rate(low) == rate(high) else f"{rate(low)} - {rate(high)}"
        yield say("preflight.gpu.value", figure=figure_name(name), value=shown)


def _slow_link(one: Compared) -> Saying:
    pair = " -> ".join(map(str, one.figure.gpus))
    reference = one.reference
    return say(
        "preflight.gpu.link_below",
        pair=pair,
        figure=figure_name(one.figure.name),
        value=rate(one.figure),
        share=difference(one.ratio),
        reference=rate(one.figure, reference.value) if reference is not None else "?",
    )


def _blamed(compared: Iterable[Compared]) -> list[int]:
    """GPUs all of whose links are a tenth below the median of the others' (peer copies; from three GPUs on)."""
    links = [one.figure for one in compared if one.figure.name == "peer_copy_bytes_per_s"]
    gpus = sorted({gpu for figure in links for gpu in figure.gpus})
    found = []
    for gpu in gpus if len(gpus) > 2 else []:
        own = [figure.value for figure in links if gpu in figure.gpus]
        others = [figure.value for figure in links if gpu not in figure.gpus]
        if own and others and max(own) < 0.9 * statistics.median(others):
            found.append(gpu)
    return found


def _topology(links: object) -> list[Saying]:
    """Pairs by how they are linked."""
    kinds: dict[tuple[object, bool], list[str]] = {}
    for one in links if isinstance(links, list) else []:
        if isinstance(one, dict) and isinstance(one.get("gpus"), list):
            kind = one.get("path"), bool(one.get("nvlink"))
            kinds.setdefault(kind, []).append("-".join(map(str, one["gpus"])))
    found = []
    for (level, nvlink), pairs in kinds.items():
        path = say(f"preflight.gpu.path.{level}" if level in PATHS else "preflight.gpu.path.unknown")
        found.append(say(f"preflight.gpu.topology{'_nvlink' if nvlink else ''}", pairs=pairs, path=path))
    return found


def _pinning(rows: list[Pinned], troubles: list[Trouble]) -> Finding:
    done = [row for row in rows if row.populate_s is not None and row.register_s is not None]
    said = [
        say(
            "preflight.gpu.pinned",
            size=size(row.size_bytes),
            pages=say(f"preflight.gpu.pages.{row.pages}"),
            populate=seconds(row.populate_s or 0.0),
            register=seconds(row.register_s or 0.0),
        )
        for row in done
    ]
    why = [say("preflight.gpu.pin_share", **ratio) for ratio in _pin_ratio(done)]
    rates = [row.copy_bytes_per_s for row in done if row.copy_bytes_per_s]
    if rates:
        shown = dict.fromkeys((quantity(min(rates), "B/s"), quantity(max(rates), "B/s")))
        why.append(say("preflight.gpu.pin_rate", rates=" - ".join(shown)))
    why += [
        say(
            "preflight.gpu.pin_skipped",
            size=size(row.size_bytes),
            pages=say(f"preflight.gpu.pages.{row.pages}"),
            why=say(f"preflight.gpu_why.{row.reason}", detail=row.detail or "—"),
        )
        for row in rows
        if row.reason is not None
    ]
    why += [_missing(trouble) for trouble in troubles]
    plain: dict[str, object] = {
        "rows": [row.plain() for row in rows],
        "unmeasured": [trouble.plain() for trouble in troubles],
    }
    found = say("preflight.gpu.pinning", rows=said) if said else say("preflight.gpu.pinning_none")
    return Finding("gpu_pinning", "none" if said else "unknown", found, None, tuple(why), (), plain)


def _pin_ratio(done: list[Pinned]) -> list[dict[str, Any]]:
    """Largest size that was done in 4 KiB and in huge pages: seconds a GiB of both."""
    for length in sorted({row.size_bytes for row in done}, reverse=True):
        total = {
            row.pages: ((row.populate_s or 0) + (row.register_s or 0)) / (length / (1 << 30))
            for row in done
            if row.size_bytes == length
        }
        if "4k" in total and len(total) > 1:
            fastest = min((name for name in total if name != "4k"), key=lambda name: total[name])
            return [
                {
                    "size": size(length),
                    "small": f"{total['4k']:.2g}",
                    "large": f"{total[fastest]:.2g}",
                    "pages": say(f"preflight.gpu.pages.{fastest}"),
                }
            ]
    return []


def _probes(measured: Measured, judged: tuple[Judged, ...], xids: tuple[Xid, ...] | None) -> Finding:
    """How long it took, and what of the whole could not be asked."""
    why = [_missing(t) for probe in ("cuda", "nvml", "watch") for t in _of(measured, probe)]
    # A driver that NVML can ask and CUDA cannot start, as without the NVLink fabric's manager: of no use to anybody.
    dead = bool(judged) and any(t.reason in {"cuda_error", "hang", "crash"} for t in _of(measured, "cuda"))
    if dead:
        why.insert(0, say("preflight.gpu.no_start"))
    if xids is None:
        why.append(say("preflight.gpu.no_log"))
    states: dict[str, int] = {}
    for one in judged:
        states[one.state] = states.get(one.state, 0) + 1
    slowest = {
        name: min(values)
        for name in ESSENTIAL
        if (values := [c.figure.value for one in judged for c in one.compared if c.figure.name == name])
    }
    plain: dict[str, object] = {
        "slowest": slowest,
        "seconds": round(measured.seconds, 3),
        "states": states,
        "driver": (measured.nvml or {}).get("driver"),
        "cuda_version": (measured.cuda or {}).get("cuda_version"),
        "xid_events": (measured.watch or {}).get("events"),
        "xids": [{"number": x.number, "address": x.address} for x in xids] if xids is not None else None,
    }
    counted = [
        say("preflight.gpu.count", count=n, state=say(f"preflight.gpu.state.{s}")) for s, n in states.items()
    ]
    found = (
        say("preflight.gpu.summary", states=counted, seconds=f"{measured.seconds:.0f}")
        if judged
        else say("preflight.gpu.none_found")
    )
    verdict: Verdict = "fail" if dead else "none" if judged else "unknown"
    return Finding("gpu_probe", verdict, found, None, tuple(why), (), plain)


def plain_line(line: Line) -> dict[str, object]:
    """A measured line for a file."""
    if isinstance(line, Told):
        return {"kind": "facts", "probe": line.probe, "facts": line.facts}
    kind = "figure" if isinstance(line, Figure) else "pinned" if isinstance(line, Pinned) else "unmeasured"
    return {"kind": kind, **line.plain()}
