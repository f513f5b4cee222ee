#!/bin/sh
# Check a suite in any CI: `check.sh SUITE [BASE]`. Writes servemark.sarif and review.md beside it; BASE is the
# commit that the change grew from, for the changelog. Exit code: 0 clean, 1 findings, 2 unreadable or bad use.
set -u
suite="${1:-.}"
base="${2:-}"
servemark check "$suite" --format sarif > servemark.sarif
servemark check "$suite" --format markdown > review.md
servemark check "$suite"
code=$?
if [ -n "$base" ]; then
  servemark changelog check --suite "$suite" --base "$base"
  changelog=$?
  [ "$changelog" -gt "$code" ] && code=$changelog
fi
exit "$code"
