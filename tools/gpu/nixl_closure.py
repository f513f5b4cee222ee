#!/usr/bin/env python3
"""Copy of NIXL what its Python bindings and its UCX plug-in link to, with the CUDA and CMA transports only.

    nixl_closure.py UNPACKED_WHEELS OUT

InfiniBand, GPUDirect Storage, S3, Azure and the expert-parallel library are left behind: 66 MB become 7.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

LIBRARIES = ("nixl_cu13.libs", ".nixl_cu13.mesonpy.libs")
_TRANSPORTS = re.compile(r"lib(ucm|uct)_(cuda|cma)\.")
_NEEDED = re.compile(r"NEEDED.*\[(.*?)\]")


def closure(root: Path) -> set[Path]:
    """Shared libraries that the bindings, the plug-in and the transports need, themselves included."""
    known: dict[str, list[Path]] = {}
    for folder in LIBRARIES:
        for path in (root / folder).iterdir():
            if ".so" in path.name:
                known.setdefault(path.name, []).append(path)
    left = [
        *root.glob("nixl_cu13/*.so"),
        root / "nixl_cu13.libs/nixl/libplugin_UCX.so",
        root / ".nixl_cu13.mesonpy.libs/plugins/libplugin_UCX.so",
        *(path for path in root.glob("nixl_cu13.libs/ucx/*.so*") if _TRANSPORTS.search(path.name)),
    ]
    found: set[Path] = set()
    while left:
        path = left.pop()
        if path in found:
            continue
        found.add(path)
        said = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
        for name in _NEEDED.findall(said):
            left += known.get(name, [])
    return found


def main() -> None:
    """The command line."""
    root, out = (Path(each) for each in sys.argv[1:3])
    shutil.rmtree(out, ignore_errors=True)
    for path in sorted(closure(root)):
        target = out / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    for folder in (root / "nixl", *root.glob("nixl*dist-info")):
        shutil.copytree(folder, out / folder.name)
    for path in root.glob("nixl_cu13/*.py"):
        shutil.copy(path, out / "nixl_cu13" / path.name)


if __name__ == "__main__":
    main()
