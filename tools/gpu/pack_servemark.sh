#!/bin/bash
# Packs servemark's own wheel for the host, suites, models and hardware files in it. usage: tools/gpu/pack_servemark.sh OUT
# PYTHON names a Python with hatchling. What it imports on the host: wheels.txt has starlette, uvicorn, httptools and msgspec;
# click, jinja2, numpy, pyyaml, rich, uvloop and aiohttp are the host's.
set -euo pipefail
project=$(cd "$(dirname "$0")/../.." && pwd); out=$(realpath "$1"); work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
(cd "$project" && "${PYTHON:-python3}" -m hatchling build -t wheel -d "$work" >/dev/null)
mkdir "$work/site"; unzip -q "$work"/*.whl -d "$work/site"
tar -cf - --owner=0 --group=0 -C "$work/site" . | xz -T2 -6 > "$out/servemark.txz"
