"""Write the names of an engine's arguments, read from the engine's own wheel, into the rules' data.

Usage: python scripts/engine_flags.py NAME VERSION WHEEL. Nothing is installed or run: the parser's source is
read as a syntax tree. Names are the fields of the argument classes and every text of the parser's source that
is an argument's name (so that other names of an argument are known too).
"""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from pathlib import Path

SOURCES = {
    "vllm": ("vllm/engine/arg_utils.py", "vllm/entrypoints/openai/cli_args.py"),
    "sglang": ("sglang/srt/server_args.py",),
}
CLASSES = {"EngineArgs", "AsyncEngineArgs", "FrontendArgs", "BaseFrontendArgs", "ServerArgs"}
FLAG = re.compile(r"--[a-z0-9][A-Za-z0-9_-]*\Z")
FOLDER = Path(__file__).resolve().parents[1] / "src" / "servemark" / "checks" / "engines"


def names_in(source: str) -> set[str]:
    """Argument names of one file, with `-` between words."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef) and node.name in CLASSES:
            fields = [f.target for f in node.body if isinstance(f, ast.AnnAssign)]
            found |= {target.id for target in fields if isinstance(target, ast.Name)}
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and FLAG.match(node.value):
            found.add(node.value[2:])
    return {name.replace("_", "-") for name in found if not name.startswith("_")}


def main() -> int:
    """Read the wheel, write `<name>-<version>.yaml`."""
    name, version, wheel = sys.argv[1:4]
    found: set[str] = set()
    with zipfile.ZipFile(wheel) as archive:
        for path in SOURCES[name]:
            if path in archive.namelist():
                found |= names_in(archive.read(path).decode("utf-8"))
    FOLDER.mkdir(exist_ok=True)
    body = "".join(f"  - {one}\n" for one in sorted(found))
    out = FOLDER / f"{name}-{version}.yaml"
    out.write_text(f"engine: {name}\nversion: {version}\nnames:\n{body}", encoding="utf-8")
    sys.stdout.write(f"{out.name}: {len(found)} names\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
