"""`servemark preflight`: is this host ready for an arm, and which of many nodes is the odd one out."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.errors import input_error
from servemark.base.messages import text
from servemark.cli.options import Verb, language

if TYPE_CHECKING:
    from servemark.preflight.facts import HostFacts
    from servemark.preflight.finding import Finding
    from servemark.preflight.needs import Needs
    from servemark.preflight.root import HostRoot


@dataclass(frozen=True, slots=True)
class Asked:
    """The command line, beyond the arm."""

    disks: tuple[str, ...]
    mooncake: tuple[Path, ...]
    probe_memory: str | None
    probe_store: bool
    store_size: str
    gpu: bool
    gpu_lines: Path | None
    as_json: bool


@click.command(cls=Verb)
@click.argument("selector", required=False)
@click.option("--role", metavar="ROLE", help="preflight.option.role")
@click.option("--probe-memory", metavar="SIZE", help="preflight.option.probe_memory")
@click.option("--probe-store", is_flag=True, help="preflight.option.probe_store")
@click.option(
    "--store-size", metavar="SIZE", default="256MiB", show_default=True, help="preflight.option.store_size"
)
@click.option("--gpu", is_flag=True, help="preflight.option.gpu")
@click.option(
    "--gpu-lines",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="preflight.option.gpu_lines",
)
@click.option("--disk", "disks", multiple=True, metavar="DIR", help="preflight.option.disk")
@click.option(
    "--mooncake",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="preflight.option.mooncake",
)
@click.option(
    "--merge", multiple=True, type=click.Path(path_type=Path), metavar="FILE", help="preflight.option.merge"
)
@click.argument("more", nargs=-1, type=click.UNPROCESSED, metavar="[FILE]...")
@click.option("--json", "as_json", is_flag=True, help="cli.option.json")
@language
def preflight(
    selector: str | None,
    role: str | None,
    merge: tuple[Path, ...],
    more: tuple[str, ...],
    **options: object,
) -> int:
    """Text comes from the catalogue."""
    asked = _asked(options)
    if merge:
        files = [*merge, *(Path(one) for one in (selector, *more) if one)]
        return _merge(files, role, asked)
    if more:
        raise click.UsageError(text("cli.usage_extra", None, extra=" ".join(more)))
    return _here(selector, role, asked)


def _asked(options: dict[str, object]) -> Asked:
    memory, disks, mooncake = options["probe_memory"], options["disks"], options["mooncake"]
    lines = options["gpu_lines"]
    if lines is not None and not options["gpu"]:
        raise input_error("preflight.gpu_lines_alone")
    return Asked(
        disks=tuple(str(one) for one in disks) if isinstance(disks, tuple) else (),
        mooncake=tuple(one for one in mooncake if isinstance(one, Path))
        if isinstance(mooncake, tuple)
        else (),
        probe_memory=memory if isinstance(memory, str) else None,
        probe_store=bool(options["probe_store"]),
        store_size=str(options["store_size"]),
        gpu=bool(options["gpu"]),
        gpu_lines=lines if isinstance(lines, Path) else None,
        as_json=bool(options["as_json"]),
    )


def _here(selector: str | None, role: str | None, asked: Asked) -> int:
    from servemark.cli.preflight_view import report_lines, terminal_width  # noqa: PLC0415 - help needs no room
    from servemark.preflight.inspect import Where, inspect_host  # noqa: PLC0415
    from servemark.preflight.report import judge  # noqa: PLC0415
    from servemark.preflight.root import HostRoot  # noqa: PLC0415

    needs = _needs(selector, role)
    root = HostRoot()
    facts = inspect_host(Where(root, asked.disks, asked.mooncake or None))
    report = judge(facts, needs, root, _probes(facts, needs, asked, root))
    if asked.as_json:
        click.echo(json.dumps(report.plain(), ensure_ascii=False, allow_nan=False))
    else:
        for line in report_lines(report, terminal_width()):
            click.echo(line)
    return 1 if report.failed else 0


def _needs(selector: str | None, role: str | None) -> Needs | None:
    """What the arm needs of this host; None without an arm."""
    if selector is None:
        if role is not None:
            raise input_error("preflight.role_without_arm")
        return None
    from servemark.catalog.selector import parse_selector  # noqa: PLC0415 - facts alone need no catalogue
    from servemark.plan.points import choose  # noqa: PLC0415
    from servemark.preflight.needs import needs_of, role_name  # noqa: PLC0415

    choice = choose(parse_selector(selector), ".")
    chosen = role_name(role) if role is not None else None
    listed = [one.role for one in choice.deployment.roles]
    if role is not None and chosen not in listed:
        raise input_error("preflight.bad_role", role=role, roles=", ".join(listed))
    hardware = choice.suite.clusters.hardware.get(choice.arm.runner)
    mib = hardware.available_cpu_dram_mib if hardware is not None else None
    return needs_of(choice.deployment, arm=choice.arm.key, host_mib=mib, role=chosen)


def _probes(facts: HostFacts, needs: Needs | None, asked: Asked, root: HostRoot) -> tuple[Finding, ...]:
    found: list[Finding] = []
    if asked.probe_memory is not None:
        from servemark.preflight.probe_memory import memory_findings  # noqa: PLC0415

        found += memory_findings(facts, needs, asked.probe_memory, _progress)
    if asked.probe_store:
        from servemark.preflight.probe_store import store_finding  # noqa: PLC0415

        found.append(store_finding(facts, needs, asked.store_size, _progress))
    if asked.gpu:
        found += _gpus(root, asked.gpu_lines)
    return tuple(found)


def _gpus(root: HostRoot, keep: Path | None) -> list[Finding]:
    """GPU findings; results are kept as they come where a file was named."""
    from servemark.preflight.gpu.findings import gpu_findings, plain_line  # noqa: PLC0415 - only when asked
    from servemark.preflight.gpu.lines import Line, Trouble  # noqa: PLC0415

    with _Kept(keep) as kept:

        def sink(line: Line) -> None:
            kept.write(plain_line(line))
            if isinstance(line, Trouble):
                return
            name = getattr(line, "name", None)
            _progress(text(f"preflight.gpu.figure.{name}") if name else text("preflight.topic.gpu_probe"))

        return gpu_findings(root, sink)


class _Kept:
    """Where results of --gpu are kept as they come; nowhere without a path. A disk that refuses later costs that file alone,
    never the measurement."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._handle: int | None = None

    def __enter__(self) -> _Kept:
        if self._path is not None:
            flags = (
                os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
            )  # a pipe without a reader would hold it up
            try:
                self._handle = os.open(self._path, flags, 0o666)
            except OSError as error:
                reason = error.strerror or str(error)
                raise input_error("preflight.gpu_lines_unwritable", path=self._path, reason=reason) from None
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def write(self, line: Mapping[str, object]) -> None:
        """One line, whole: half a line is cut off again where the disk is full."""
        if self._handle is None:
            return
        whole = json.dumps(line, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"
        try:
            before = os.fstat(self._handle)
            if os.write(self._handle, whole) == len(whole):
                return
            reason = os.strerror(errno.ENOSPC)
            if stat.S_ISREG(before.st_mode):
                os.ftruncate(self._handle, before.st_size)
        except OSError as error:
            reason = error.strerror or str(error)
        click.echo(text("preflight.gpu_lines_stopped", None, path=self._path, reason=reason), err=True)
        self._close()

    def _close(self) -> None:
        if self._handle is not None:
            with contextlib.suppress(OSError):
                os.close(self._handle)
            self._handle = None


def _progress(what: str) -> None:
    """One line a step, only for a person who watches."""
    if sys.stderr.isatty():
        click.echo(text("preflight.view.progress", None, what=what), err=True)


def _merge(files: list[Path], role: str | None, asked: Asked) -> int:
    for option, given in (
        ("--role", role is not None),
        ("--probe-memory", asked.probe_memory is not None),
        ("--probe-store", asked.probe_store),
        ("--gpu", asked.gpu),
    ):
        if given:
            raise input_error("preflight.merge_with", option=option)
    from servemark.cli.preflight_merge_view import merge_lines  # noqa: PLC0415 - help needs no room
    from servemark.cli.preflight_view import terminal_width  # noqa: PLC0415
    from servemark.preflight.merge import merge_nodes, read_nodes  # noqa: PLC0415

    nodes, notes = read_nodes(files)
    for note in notes:
        click.echo(note.said(), err=True)
    merged = merge_nodes(nodes)
    if asked.as_json:
        click.echo(json.dumps(merged.plain(), ensure_ascii=False, allow_nan=False))
    else:
        for line in merge_lines(merged, terminal_width()):
            click.echo(line)
    return 1 if merged.odd or any(node.failed for node in merged.nodes) else 0
