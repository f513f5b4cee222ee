#!/bin/bash
# Sourced on the host, in any folder: unpacks what tools/gpu/pack.sh made, and sets what `servemark` needs to be started.
#
#     . PACKED/unpack.sh && servemark sweep start --suite h200-qwen3 --cluster h200-host --clusters CLUSTERS 'ARM'
#
# Everything goes to tmpfs, where the suite's clusters file looks for it: small files are slow on some disks (61 s, here 1 s).
packed=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=${SERVEMARK_GPU_ROOT:-/dev/shm/servemark-gpu}
mkdir -p "$root"/site "$root"/models "$root"/cache
for archive in vllm nixl servemark; do
  [ -e "$root/.$archive" ] || { xz -dc -T0 "$packed/$archive.txz" | tar -x -C "$root/site" && touch "$root/.$archive"; }
done
# A compile cache of an earlier start on the same software saves half a minute of the next one.
[ -e "$root/.cache" ] || { [ ! -e "$packed/cache.txz" ] || xz -dc -T0 "$packed/cache.txz" | tar -x -C "$root/cache"; touch "$root/.cache"; }
cp -r "$packed/models/." "$root/models/"
export PYTHONPATH=$root/site PATH=$root/site/bin:$PATH
