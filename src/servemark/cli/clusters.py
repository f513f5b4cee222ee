"""`servemark clusters list|show|check`: what the clusters file says, and whether the cluster agrees."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.messages import text
from servemark.cli.options import SubVerbGroup, Verb, common, language

if TYPE_CHECKING:
    from servemark.catalog.cluster_launch import LaunchCluster

FILE = "clusters.yaml"


class ClustersVerb(Verb):
    """A verb below `clusters`: its texts stand under `cli.clusters_<verb>`."""

    group = "clusters"


def clusters_option(function: click.decorators.FC) -> click.decorators.FC:
    """--clusters FILE."""
    return click.option(
        "--clusters",
        "file",
        type=click.Path(path_type=Path),
        metavar="FILE",
        envvar="SERVEMARK_CLUSTERS",
        help="cli.option.clusters",
    )(function)


def clusters_file(option: Path | None, home: str | None) -> Path:
    """The file that was asked for: --clusters, SERVEMARK_CLUSTERS, else clusters.yaml in the home folder."""
    from servemark.base.home import Home  # noqa: PLC0415 - --help imports no room

    return option if option is not None else Home.resolve(home).root / FILE


def clusters_read(option: Path | None, home: str | None) -> Path:
    """The same; without one in the home folder, that of the suite whose folder this is."""
    from servemark.catalog.layout import layout_of, suite_here  # noqa: PLC0415 - --help imports no room

    path = clusters_file(option, home)
    if option is None and not path.is_file() and suite_here() is not None:
        named = layout_of(Path.cwd(), []).clusters
        path = Path(named) if named is not None and Path(named).is_file() else path
    return path


@click.group(cls=SubVerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@language
def clusters() -> None:
    """Text comes from the catalogue."""


@clusters.command("list", cls=ClustersVerb)
@clusters_option
@common
def list_clusters(file: Path | None, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.catalog.cluster_launch import read_launch_clusters  # noqa: PLC0415
    from servemark.cli.text_table import table  # noqa: PLC0415

    found = read_launch_clusters(clusters_read(file, home))
    if as_json:
        for cluster in found.values():
            click.echo(json.dumps(plain(cluster), ensure_ascii=False))
        return 0
    heads = [text(f"cli.clusters.head.{name}") for name in ("name", "launcher", "partition", "gpus", "cache")]
    rows = [
        [
            one.name,
            one.launcher,
            one.partition or "—",
            "—" if one.gpus_per_node is None else str(one.gpus_per_node),
            "—" if one.image_cache is None else str(one.image_cache),
        ]
        for one in found.values()
    ]
    for line in table(heads, rows, 110, 4):
        click.echo(line)
    return 0


@clusters.command("show", cls=ClustersVerb)
@click.argument("name")
@clusters_option
@common
def show_cluster(name: str, file: Path | None, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    cluster = named_cluster(name, file, home)
    if as_json:
        click.echo(json.dumps(plain(cluster), ensure_ascii=False))
        return 0
    for key, value in plain(cluster).items():
        if value not in (None, [], {}):
            click.echo(f"{key}: {_shown(value)}")
    return 0


def _shown(value: object) -> str:
    """A value on one line, as the file spells it: `[a, b]`, `{images: 3600}`."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_shown(one)}" for key, one in value.items()) + "}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(map(_shown, value)) + "]"
    return f"{value:g}" if isinstance(value, float) else "—" if value is None else str(value)


@clusters.command("check", cls=ClustersVerb)
@click.argument("name")
@clusters_option
@common
def check_cluster(name: str, file: Path | None, home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.launch.cluster_check import compare  # noqa: PLC0415 - --help imports no room

    said = compare(named_cluster(name, file, home))
    for one in said:
        if as_json:
            body = {"verdict": one.verdict, "key": one.key, "what": text(one.key, None, **one.values)}
            click.echo(json.dumps(body, ensure_ascii=False))
        else:
            mark = {"ok": "✓", "warn": "!", "fail": "✗"}[one.verdict]
            click.echo(f"{mark} {text(one.key, None, **one.values)}")
    return 1 if any(one.verdict == "fail" for one in said) else 0


def named_cluster(name: str, file: Path | None, home: str | None) -> LaunchCluster:
    """The cluster of that name or label."""
    from servemark.catalog.cluster_launch import launch_cluster, read_launch_clusters  # noqa: PLC0415

    path = clusters_read(file, home)
    return launch_cluster(read_launch_clusters(path), name, str(path))


def plain(cluster: LaunchCluster) -> dict[str, object]:
    """A cluster as JSON; keys as its file has them."""
    body: dict[str, object] = {}
    for field in fields(cluster):
        value = getattr(cluster, field.name)
        key = {"image_import": "import"}.get(field.name, field.name.replace("_", "-"))
        if field.name == "at":
            body["at"] = str(value)
        elif field.name == "budgets_s":
            body[key] = dict(value)
        elif field.name in ("model_paths", "environment"):
            body[key] = {name: str(each) for name, each in value}
        elif field.name == "image_import":
            body[key] = (
                None if value is None else {"command": list(value.command), "digest": list(value.digest)}
            )
        else:
            listed = isinstance(value, tuple)
            body[key] = (
                [str(one) for one in value] if listed else str(value) if isinstance(value, Path) else value
            )
    return body
