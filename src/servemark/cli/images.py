"""`servemark images list|import|verify|prune`: the squash files of a cluster's image cache."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.errors import input_error
from servemark.base.messages import text
from servemark.base.printable import one_line
from servemark.cli.clusters import clusters_option, named_cluster
from servemark.cli.options import Finite, SubVerbGroup, Verb, common, language

if TYPE_CHECKING:
    from collections.abc import Callable

    from servemark.catalog.cluster_launch import ImageImport
    from servemark.launch.images import CachedImage, ImageCache
    from servemark.launch.images_import import Progress


class ImagesVerb(Verb):
    """A verb below `images`: its texts stand under `cli.images_<verb>`."""

    group = "images"


def _where(function: click.decorators.FC) -> click.decorators.FC:
    """--cluster, --clusters and --cache."""
    function = click.option(
        "--cache", type=click.Path(path_type=Path), metavar="DIR", help="cli.images.cache"
    )(function)
    function = click.option("--cluster", metavar="NAME", help="cli.images.cluster")(function)
    return clusters_option(function)


def _cache(
    cluster: str | None, file: Path | None, cache: Path | None, home: str | None
) -> tuple[ImageCache, ImageImport | None]:
    from servemark.launch.images import ImageCache  # noqa: PLC0415 - --help imports no room

    found = named_cluster(cluster, file, home) if cluster is not None else None
    folder = cache or (found.image_cache if found is not None else None)
    if folder is None:
        raise input_error("cli.images.where")
    if not folder.is_dir():
        raise input_error("cli.images.no_folder", path=str(folder))
    return ImageCache(folder), found.image_import if found is not None else None


@click.group(cls=SubVerbGroup, context_settings={"help_option_names": ["-h", "--help"]})
@language
def images() -> None:
    """Text comes from the catalogue."""


@images.command("list", cls=ImagesVerb)
@_where
@common
def list_images(
    cluster: str | None, file: Path | None, cache: Path | None, home: str | None, as_json: bool
) -> int:
    """Text comes from the catalogue."""
    for image in _cache(cluster, file, cache, home)[0].all():
        if as_json:
            click.echo(json.dumps(_plain(image), ensure_ascii=False))
            continue
        record = image.record
        told = (
            text("cli.images.unrecorded") if record is None else f"{record.reference}  {record.digest or '—'}"
        )
        click.echo(f"{image.size / 1e9:8.2f} GB  {one_line(image.path.name)}  {told}")
    return 0


@images.command("import", cls=ImagesVerb)
@click.argument("reference")
@_where
@common
def import_image(  # noqa: PLR0917 - click passes by name
    reference: str,
    cluster: str | None,
    file: Path | None,
    cache: Path | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.launch.images import canonical_image  # noqa: PLC0415
    from servemark.launch.images_import import ensure_image  # noqa: PLC0415

    image = canonical_image(reference)
    store, how = _cache(cluster, file, cache, home)
    found = ensure_image(store, image, how, tell=_teller())
    if as_json:
        body = {**_plain(found.image), "other_spelling": found.other_spelling}
        click.echo(json.dumps(body, ensure_ascii=False))
        return 0
    if found.other_spelling:
        click.echo(text("cli.images.other_spelling", None, path=found.image.path, reference=reference))
    click.echo(str(found.image.path))
    return 0


def _teller() -> Callable[[Progress], None]:
    """Progress on stderr, each kind and attempt once."""
    said: set[tuple[str, int]] = set()

    def tell(progress: Progress) -> None:
        if (progress.kind, progress.attempt) not in said:
            said.add((progress.kind, progress.attempt))
            values = {
                "attempt": progress.attempt,
                "seconds": f"{progress.seconds:.1f}",
                "reason": progress.reason,
            }
            click.echo(text(f"cli.images.progress.{progress.kind}", None, **values), err=True)

    return tell


@images.command("verify", cls=ImagesVerb)
@click.option("--adopt", metavar="REFERENCE", help="cli.images.adopt")
@_where
@common
def verify_images(  # noqa: PLR0917 - click passes by name
    adopt: str | None,
    cluster: str | None,
    file: Path | None,
    cache: Path | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.launch.images import canonical_image, spelled  # noqa: PLC0415
    from servemark.launch.images_check import State, check_all  # noqa: PLC0415
    from servemark.launch.images_check import adopt as record_it  # noqa: PLC0415

    store, _ = _cache(cluster, file, cache, home)
    if adopt is not None:
        image = canonical_image(adopt)
        found = store.find(image)
        if found is None:
            raise input_error("cli.images.nothing", reference=adopt[:200], folder=str(store.folder))
        if found.image.record is None:
            record_it(found.image, spelled(image))
    bad = False
    for checked in check_all(store):
        bad = bad or checked.state in (State.CORRUPT, State.DAMAGED)
        if as_json:
            body = {**_plain(checked.image), "state": checked.state, "reason": checked.reason}
            click.echo(json.dumps(body, ensure_ascii=False))
        else:
            state = text(f"cli.images.state.{checked.state}")
            click.echo(f"{state}  {one_line(checked.image.path.name)}  {checked.reason}".rstrip())
    return 1 if bad else 0


@images.command("prune", cls=ImagesVerb)
@click.option("--unused-days", type=Finite(min=0), metavar="DAYS", help="cli.images.unused_days")
@click.option("--dry-run", is_flag=True, help="cli.images.dry_run")
@_where
@common
def prune_images(  # noqa: PLR0917 - click passes by name
    unused_days: float | None,
    dry_run: bool,
    cluster: str | None,
    file: Path | None,
    cache: Path | None,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.launch.images_check import prune, removable  # noqa: PLC0415

    items = removable(_cache(cluster, file, cache, home)[0], unused_days=unused_days)
    if not dry_run:
        prune(items)
    for item in items:
        if as_json:
            body = {"path": str(item.path), "why": item.why, "size": item.size, "removed": not dry_run}
            click.echo(json.dumps(body, ensure_ascii=False))
        else:
            click.echo(
                f"{text(f'cli.images.why.{item.why}')}  {item.size / 1e9:.2f} GB  {one_line(item.path.name)}"
            )
    if not as_json:
        total = f"{sum(item.size for item in items) / 1e9:.2f}"
        click.echo(
            text("cli.images.would" if dry_run else "cli.images.removed", None, count=len(items), gb=total)
        )
    return 0


def _plain(image: CachedImage) -> dict[str, object]:
    record = None if image.record is None else asdict(image.record)
    return {"path": str(image.path), "size": image.size, "record": record}
