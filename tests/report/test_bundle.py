"""Joining the pages' modules: the rules are checked, and nothing in data or names can end a script element."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

import servemark.web
from servemark.base.errors import ServemarkError
from servemark.report.bundle import Parts, PlainTable, join_modules, one_page, only_pages, pack

STATIC = Path(servemark.web.__file__).parent / "static"
EVIL = "</script><script>alert(1)</script><!--\u2028\u2029]]>"
PLAIN = PlainTable(EVIL, (EVIL,), ("a", EVIL), ((EVIL, "1"),), EVIL, EVIL)
PARTS = Parts(
    "en", EVIL, "// a note\nf();", "g();", "p { color: red; }", {EVIL: json.dumps(EVIL).encode()}, PLAIN, EVIL
)


def joined(**files: str) -> str:
    """Modules by name, `app.js` first."""

    def read(name: str) -> str:
        if name not in files:
            raise FileNotFoundError(name)
        return files[name]

    return join_modules(read, "app.js")


def test_modules_stand_in_the_order_of_their_needs() -> None:
    """Each in a scope of its own, imports by name, also under another name and from a folder below."""
    script = joined(
        **{
            "app.js": 'import { one, two as zwei } from "./pages/b.js";\n\n// why\nzwei(one);',
            "pages/b.js": 'import { base } from "../c.js";\nexport const one = base;\nexport async function two() {}',
            "c.js": "export class base {}\nconst inner = 1;",
        }
    )
    assert script.index('M["c.js"]') < script.index('M["pages/b.js"] =') < script.index('M["app.js"]')
    assert 'const { one, two: zwei } = M["pages/b.js"];' in script
    assert "return { one, two };" in script and "export" not in script and "import" not in script


@pytest.mark.parametrize(
    "line",
    [
        'import b from "./b.js";',
        'import * as b from "./b.js";',
        'import "./b.js";',
        "import { b } from './b.js';",
        'import { b } from "https://example.org/b.js";',
        'import { b } from "b.js";',
        "export default 1;",
        "export { b };",
        "export let b = 1;",
        'const b = await import("./b.js");',
        "await f();",
        "const b = await f();",
        "const b = import.meta.url;",
        "const b = `one",
        'const b = "</script>";',
        'const b = "<!--";',
        'const b = "\u2028";',
    ],
)
def test_a_line_against_the_rules_is_refused_by_its_place(line: str) -> None:
    with pytest.raises(ServemarkError) as caught:
        joined(**{"app.js": f"const a = 1;\n{line}", "b.js": "export const b = 1;"})
    assert caught.value.key == "report.bundle.rule"
    assert (caught.value.values["file"], caught.value.values["line"]) == ("app.js", 2)


def test_a_circle_and_a_missing_module_are_named() -> None:
    circle = {"app.js": 'import { b } from "./b.js";', "b.js": 'import { a } from "./app.js";'}
    with pytest.raises(ServemarkError) as caught:
        joined(**circle)
    assert caught.value.values["files"] == "app.js → b.js → app.js"
    with pytest.raises(ServemarkError) as caught:
        joined(**{"app.js": 'import { b } from "./b.js";'})
    assert caught.value.key == "report.bundle.missing"


def test_the_pages_keep_the_rules() -> None:
    """All modules of the real pages join, with every page and with those of a report alone."""

    def read(name: str) -> str:
        return (STATIC / name).read_text(encoding="utf-8")

    def fewer(name: str) -> str:
        return only_pages(read(name), ("front", "point")) if name == "pages.js" else read(name)

    whole, some = join_modules(read, "app.js"), join_modules(fewer, "app.js")
    assert 'M["pages/metrics.js"]' in whole and 'M["pages/metrics.js"]' not in some
    assert 'M["pages/point.js"]' in some and len(some) < len(whole)


def test_the_page_names_its_scripts_and_its_style_by_their_hashes() -> None:
    """A policy that lets nothing else run, and asks nobody for anything."""
    page = one_page(PARTS)
    found = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', page)
    assert found is not None
    policy = found[1].replace("&#39;", "'")
    assert "default-src 'none'" in policy and "unsafe" not in policy and "http" not in policy
    inside = re.findall(r"<(?:style|script|script type=\"module\")>(.*?)</(?:style|script)>", page, re.DOTALL)
    assert len(inside) == 3
    for text in inside:
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"'sha256-{digest}'" in policy
    assert "a note" not in page and 'src="' not in page and "@import" not in page and "url(" not in page


def test_hostile_text_is_text_wherever_it_stands() -> None:
    """In the title, sentences, cells, an attribute, and the packed data: no element of its own."""
    page = one_page(PARTS)
    assert page.count("<script") == 3 and page.count("</script") == 3 and "<!--" not in page
    packed = re.search(r'id="servemark-data"[^>]*>([^<]*)<', page)
    assert packed is not None
    assert json.loads(gzip.decompress(base64.b64decode(packed[1]))) == {EVIL: EVIL}
    assert pack(PARTS.data) == packed[1]


def test_the_same_input_gives_the_same_bytes() -> None:
    assert one_page(PARTS) == one_page(PARTS)
