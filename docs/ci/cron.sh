#!/usr/bin/env bash
# What changed since the last time is checked and measured, and the report is written again: from cron, without any CI service.
#
#   17 3 * * *  cron.sh REPOSITORY SUITE RESULTS [CLUSTER] >> /var/log/servemark.log 2>&1
#
# REPOSITORY is a clone of its own, brought to its upstream branch; SUITE the suite's folder in it; RESULTS the folder with the
# official home (`home/`), the pages (`site/`) and, for a CLUSTER, the file that describes it (`clusters.yaml`). A second start
# while one works ends at once. A commit whose points have not all a result is gone on with the next time: what was measured
# stays, what failed is tried again. Exit code: 0 done or nothing to do, 1 findings or failed points, 2 bad use.
set -euo pipefail
# In a function, so that all of it is read before the pull below may replace this very file.
main() {
  if [ "$#" -lt 3 ]; then
    echo "usage: cron.sh REPOSITORY SUITE RESULTS [CLUSTER]" >&2
    exit 2
  fi
  repository=$1 suite=$2 results=$3 cluster=${4:-}
  mkdir -p "$results/site"
  exec 9> "$results/cron.lock"
  flock --nonblock 9 || { echo "another one is at work"; exit 0; }
  note() { # NAME: the commit, whole or not at all
    echo "$head" > "$results/$1.new"
    mv "$results/$1.new" "$results/$1"
  }
  cd "$repository"
  if git rev-parse --quiet --verify "@{upstream}" > /dev/null 2>&1; then
    git fetch --quiet
    git merge --quiet --ff-only '@{upstream}'
  fi
  head=$(git rev-parse HEAD)
  last=$(cat "$results/measured-commit" 2> /dev/null || true)
  if [ "$head" = "$last" ]; then
    echo "nothing new since $head"
    exit 0
  fi
  servemark check "$suite"
  since=()
  if [ -n "$last" ]; then since=(--changed-since "$last"); fi
  where=()
  if [ -n "$cluster" ]; then where=(--cluster "$cluster" --clusters "$results/clusters.yaml"); fi
  code=0
  points=$({ servemark plan "$suite" --no-canary --json "${since[@]}" || [ $? -eq 1 ]; } |
    python3 -I -c 'import json, sys; print(len(json.load(sys.stdin)["points"]))')
  # The lock is this script's: what a sweep leaves running must not hold it (9>&-).
  if [ "$head" = "$(cat "$results/tried-commit" 2> /dev/null || true)" ]; then
    servemark sweep resume latest --home "$results/home" 9>&- ||
      servemark sweep retry latest --failed --home "$results/home" 9>&- || code=$?
  elif [ "$points" -gt 0 ]; then
    note tried-commit
    servemark sweep start --suite "$suite" "${since[@]}" "${where[@]}" --canary --home "$results/home" 9>&- || code=$?
  fi
  if [ "$code" -eq 2 ]; then rm -f "$results/tried-commit"; fi # nothing was begun that could be gone on with
  if [ "$code" -gt 1 ]; then exit "$code"; fi
  servemark report source=servemark --home "$results/home" --out "$results/site/index.html" --lang en || code=1
  servemark report source=servemark --home "$results/home" --out "$results/site/zh.html" --lang zh || code=1
  if [ "$code" -eq 0 ]; then
    note measured-commit
  fi
  exit "$code"
}
main "$@"
