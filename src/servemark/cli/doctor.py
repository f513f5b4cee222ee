"""`servemark doctor`: is everything that was measured still there and whole?"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from servemark.base.home import Home
from servemark.base.messages import text
from servemark.cli.options import Verb, common

if TYPE_CHECKING:
    from servemark.runs.doctor import Finding


@click.command(cls=Verb)
@common
def doctor(home: str | None, as_json: bool) -> int:
    """Text comes from the catalogue."""
    from servemark.runs.doctor import examine  # noqa: PLC0415 - --help imports no room

    where = Home.resolve(home)
    broken = seen = 0
    for found in examine(where):
        seen += 1
        broken += found.broken
        if as_json:
            click.echo(json.dumps(_json(found), ensure_ascii=False))
        else:
            click.echo(_line(found))
    if not as_json:
        end = "broken" if broken else "findings" if seen else "sound"
        click.echo(text(f"cli.doctor.{end}", None, home=where.root, broken=broken, count=seen))
    return 1 if broken else 0


def _line(found: Finding) -> str:
    from servemark.base.printable import one_line, printable  # noqa: PLC0415
    from servemark.cli.import_view import reason_text  # noqa: PLC0415

    mark = text("cli.doctor.mark.broken" if found.broken else "cli.doctor.mark.note")
    if found.error is not None:
        step = found.error.next_step()
        return f"{mark} {printable(found.error.what())}" + (f" ({printable(step)})" if step else "")
    names = one_line(", ".join(found.names)) + (
        ", …" if len(found.names) < found.count and found.names else ""
    )
    values = dict(found.values)
    if found.kind == "left_out":
        said = values.get("values")
        values["why"] = reason_text(str(values["reason"]), said if isinstance(said, dict) else {})
        values["status"] = text(f"cli.import.status.{values['status']}")
        values.pop("values")
    return (
        f"{mark} "
        + text(f"runs.doctor.{found.kind}", None, count=found.count, names=names, **values).rstrip()
    )


def _json(found: Finding) -> dict[str, object]:
    error = found.error
    return {
        "kind": found.kind,
        "broken": found.broken,
        "count": found.count,
        "names": list(found.names),
        "values": found.values,
        "error": None if error is None else {"key": error.key, "what": error.what()},
    }
