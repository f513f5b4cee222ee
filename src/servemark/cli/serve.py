"""`servemark serve`: the page and its JSON over HTTP."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from servemark.base.home import Home
from servemark.base.messages import current_language, text
from servemark.cli.options import Verb, common

if TYPE_CHECKING:
    from servemark.web.guard import Rules

MIN_TOKEN = 16
MAX_TOKEN_FILE = 4096


@click.command(cls=Verb)
@click.option("--host", default="127.0.0.1", metavar="ADDRESS", help="serve.verb.option.host")
@click.option("--port", default=8765, type=click.IntRange(0, 65535), help="serve.verb.option.port")
@click.option("--suite", metavar="DIR", help="serve.verb.option.suite")
@click.option(
    "--unofficial",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    metavar="DIR",
    help="serve.verb.option.unofficial",
)
@click.option("--open/--no-open", "open_page", default=False, help="serve.verb.option.open")
@click.option(
    "--token-file", type=click.Path(path_type=Path), metavar="FILE", help="serve.verb.option.token_file"
)
@click.option("--public-read", is_flag=True, help="serve.verb.option.public_read")
@click.option("--allow-host", "hosts", multiple=True, metavar="NAME", help="serve.verb.option.allow_host")
@click.option("--allow-writes", is_flag=True, help="serve.verb.option.allow_writes")
@common
def serve(  # noqa: PLR0917 - click names them
    host: str,
    port: int,
    suite: str | None,
    unofficial: Path | None,
    open_page: bool,
    token_file: Path | None,
    public_read: bool,
    hosts: tuple[str, ...],
    allow_writes: bool,
    home: str | None,
    as_json: bool,
) -> int:
    """Text comes from the catalogue."""
    from servemark.web.app import create_app  # noqa: PLC0415 - --help imports no room
    from servemark.web.server import Address, listen, run_server  # noqa: PLC0415
    from servemark.web.site import Site  # noqa: PLC0415
    from servemark.web.unofficial import Unofficial  # noqa: PLC0415

    where = Home.resolve(home)
    rules = _rules(host, token_file, hosts, public_read=public_read)
    beside = Unofficial(unofficial) if unofficial is not None else None
    site = Site(where, _suite(suite), allow_writes=allow_writes, unofficial=beside)
    address = Address(host, port)
    sock = listen(address)
    try:
        url = address.url(sock.getsockname()[1])
        if as_json:
            click.echo(json.dumps({"url": url, "home": str(where.root)}, ensure_ascii=False))
        else:
            click.echo(text("serve.verb.listening", None, url=url, home=where.root))
            if not where.store.exists():
                click.echo(text("serve.verb.empty", None, home=where.root))
        if open_page:
            click.launch(url)
        run_server(create_app(site, rules, current_language()), sock)
    finally:
        sock.close()
    return 0


def _rules(host: str, token_file: Path | None, hosts: tuple[str, ...], *, public_read: bool) -> Rules:
    """Who may do what. Beyond this machine nobody reads without a token unless that is said."""
    from servemark.base.errors import input_error  # noqa: PLC0415
    from servemark.web.guard import Rules, is_loopback  # noqa: PLC0415

    local = host == "localhost" or is_loopback(host)
    token = _token(token_file) if token_file is not None else None
    if not local and token is None and not public_read:
        raise input_error("serve.verb.no_token", host=host)
    known = frozenset(each.lower().rstrip(".") for each in hosts)
    return Rules(token=token, public_read=public_read, open_writes=local, hosts=known)


def _token(path: Path) -> str:
    from servemark.base.errors import input_error  # noqa: PLC0415
    from servemark.base.files import disk_error  # noqa: PLC0415

    try:
        with path.open("rb") as stream:
            found = stream.read(MAX_TOKEN_FILE).decode("ascii", "replace").strip()
    except OSError as error:
        raise disk_error(error, path) from error
    if len(found) < MIN_TOKEN or not found.isascii() or not found.isprintable() or " " in found:
        raise input_error("serve.verb.bad_token", path=path, limit=MIN_TOKEN)
    return found


def _suite(option: str | None) -> Path | None:
    """The folder of a suite by path or by a shipped one's name; ServemarkError when it is none."""
    if option is None:
        return None
    from servemark.catalog.layout import layout_of, suite_root  # noqa: PLC0415

    root = suite_root(option)
    layout_of(root, [])
    return root
