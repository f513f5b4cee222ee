"""The pages' modules, style and data in one HTML file: no build step, no network, opened from disk.

Modules are joined as they are: each becomes a function of its own scope, in the order in which they need each other. That
takes a few rules (named imports on one line at the top, `export` before a declaration, no template literal over two lines),
which are checked: a module that breaks one is refused by file and line and never half joined.

Data go in as gzip in base64, which a browser unpacks by itself; nothing in them can end the script element that holds them.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import posixpath
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined

from servemark import __version__
from servemark.base.errors import Layer, ServemarkError
from servemark.report.assets import tight_css

Reader = Callable[[str], str]
"""The text of a file below the folder of the pages."""

_NAME = r"[A-Za-z_$][\w$]*"
_IMPORT = re.compile(
    rf'import \{{ ({_NAME}(?: as {_NAME})?(?:, {_NAME}(?: as {_NAME})?)*) \}} from "(\.{{1,2}}/[\w./-]+\.js)";'
)
_EXPORT = re.compile(rf"export (?:async function|function|const|class) ({_NAME})\b")
_FORBIDDEN = re.compile(r"\bimport\s*\(|\bimport\.meta\b|</script|<!--|\u2028|\u2029", re.IGNORECASE)
_AWAIT = re.compile(r"(?:(?:const|let|var) .*= )?await\b|for await\b")
_MODULES = "M"


@dataclass(slots=True)
class _Module:
    """One module: lines that are left, what it takes from others, what it gives."""

    lines: list[str] = field(default_factory=list)
    needs: list[str] = field(default_factory=list)
    gives: list[str] = field(default_factory=list)


def _refused(name: str, number: int, line: str) -> ServemarkError:
    return ServemarkError("report.bundle.rule", Layer.REPORT, file=name, line=number, code=line.strip()[:120])


def join_modules(read: Reader, entry: str) -> str:
    """One script that does what the module `entry` does with all that it imports.

    Raises ServemarkError (layer report) for a module that breaks a rule, is missing, or needs itself.
    """
    modules: dict[str, _Module] = {}
    _take(read, entry, modules, ())
    bodies = [f"const {_MODULES} = {{}};"]
    for name, module in modules.items():
        gives = ", ".join(module.gives)
        body = "\n".join(module.lines)
        bodies.append(f'{_MODULES}["{name}"] = (() => {{\n{body}\nreturn {{ {gives} }};\n}})();')
    return "\n".join(bodies)


def _take(read: Reader, name: str, modules: dict[str, _Module], above: tuple[str, ...]) -> None:
    """Add a module after all that it needs."""
    if name in modules:
        return
    if name in above:
        raise ServemarkError("report.bundle.cycle", Layer.REPORT, files=" → ".join((*above, name)))
    try:
        text = read(name)
    except OSError as error:
        raise ServemarkError("report.bundle.missing", Layer.REPORT, file=name) from error
    module = _parse(name, text)
    for needed in module.needs:
        _take(read, needed, modules, (*above, name))
    modules[name] = module


def _parse(name: str, text: str) -> _Module:
    module = _Module()
    begun = False
    for number, line in enumerate(text.split("\n"), 1):
        bare = line.strip()
        if not bare or bare.startswith("//"):
            continue
        if _FORBIDDEN.search(line) or line.count("`") % 2 or _AWAIT.match(line):
            raise _refused(name, number, line)
        if line.startswith("import"):
            taken = _IMPORT.fullmatch(bare)
            if taken is None or begun:
                raise _refused(name, number, line)
            needed = posixpath.normpath(posixpath.join(posixpath.dirname(name), taken[2]))
            module.needs.append(needed)
            names = taken[1].replace(" as ", ": ")
            module.lines.append(f'const {{ {names} }} = {_MODULES}["{needed}"];')
            continue
        begun = True
        if line.startswith("export"):
            given = _EXPORT.match(line)
            if given is None:
                raise _refused(name, number, line)
            module.gives.append(given[1])
        module.lines.append(bare.removeprefix("export "))
    return module


def only_pages(text: str, kept: Collection[str]) -> str:
    """The list of pages (`pages.js`) with these pages alone: a report holds no others."""
    lines = []
    for line in text.splitlines():
        page = re.search(r'from "\./pages/([\w-]+)\.js";', line) or re.search(r'\bname: "([\w-]+)"', line)
        home = re.fullmatch(r'export const HOME = "/([\w-]*)";', line)
        if home is not None and home[1] not in kept:
            lines.append(f'export const HOME = "/{next(iter(kept))}";')
        elif page is None or page[1] in kept:
            lines.append(line)
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class PlainTable:
    """What a browser without scripts shows: sentences, and the points as a table. `note` says what is not in it."""

    title: str
    findings: tuple[str, ...]
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str
    scripts: str
    """What a script would add."""


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything of a page: scripts that run before and as the page, its style, its data (answers by their key) and the
    table for readers without scripts. `old` is said by browsers that cannot unpack the data."""

    lang: str
    title: str
    before: str
    script: str
    style: str
    data: Mapping[str, bytes]
    """JSON by key."""
    plain: PlainTable
    old: str


_START = """const packed = document.getElementById("servemark-data");
const bytes = Uint8Array.from(atob(packed.textContent), (letter) => letter.charCodeAt(0));
try {
new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text().then((text) => {
packed.textContent = text;
run();
});
} catch {
document.getElementById("main").textContent = packed.dataset.old;
}
function run() {
"""
"""Unpacks the data, then runs the page, which finds them as the text of their element."""


def pack(data: Mapping[str, bytes]) -> str:
    """Answers by key as base64 of gzip of one JSON object."""
    body = b"{" + b",".join(json.dumps(key).encode() + b":" + value for key, value in data.items()) + b"}"
    return base64.b64encode(gzip.compress(body, 9, mtime=0)).decode("ascii")


def one_page(parts: Parts) -> str:
    """The file's text. Every name and figure in it is escaped or packed; its policy allows these scripts and this style by
    their hashes and no request at all."""
    script = f"{_START}{parts.script}\n}}"
    before = "\n".join(line for line in parts.before.splitlines() if not line.startswith("//"))
    style = tight_css(parts.style)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_hash(before)}' '{_hash(script)}'",
            f"style-src '{_hash(style)}'",
            "img-src data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    page = (
        _environment()
        .get_template("bundle.html.j2")
        .render(
            parts=parts,
            html_lang="zh-Hans" if parts.lang == "zh" else parts.lang,
            policy=policy,
            before=before,
            script=script,
            style=style,
            packed=pack(parts.data),
            version=__version__,
        )
    )
    return page.encode("utf-8", errors="replace").decode("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@cache
def _environment() -> Environment:
    return Environment(
        loader=PackageLoader("servemark.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
