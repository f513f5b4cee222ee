"""CPU time and memory of reading and planning a suite, paired with `yaml.safe_load` of the same files.

    python benchmarks/plan/measure.py SUITE [--rounds 7] [--json] [--reference CHECKOUT]

Every figure is a fresh process, user + system time, so that imports count; rounds alternate between the programs,
and the median and its range are printed. `safe_load` is PyYAML's pure reader, which the reference generator uses,
and `libyaml` is its C loader; both only read. With a checkout of the reference repository its generator runs in the
same rounds. Budgets are seconds of one core; exit code 1 when one is missed.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

LOAD = "import sys,yaml\nfor p in sys.argv[2:]:\n    yaml.load(open(p,'rb').read(), getattr(yaml, sys.argv[1]))\n"
WHOLE = """\
import gc, sys
gc.disable()
from servemark.base.collector import uncollected
from servemark.catalog.nodes import Problem
from servemark.catalog.recipe import deployment_of
from servemark.catalog.suite import read_suite
from servemark.catalog.variants import has_variants, variant_names
from servemark.plan.strict import Wishes, plan_suite
with uncollected():
    suite, problems = read_suite(sys.argv[1])
    made = plan_suite(suite, Wishes(priorities=suite.priorities(problems)))
    entries = suite.changelog(problems)
    suite.golden(problems), suite.thresholds(problems)
    deployments = 0
    planned = {row.recipe.deployment.node for row in made.rows if row.recipe.deployment is not None}
    deployments = len(planned)
    for path in suite.recipe_files():
        root, found = suite.recipe_tree(path)
        if root in planned:
            continue
        for name in variant_names(root) if has_variants(root) else (None,):
            deployments += deployment_of(root, problems, name) is not None
gc.freeze()  # as the verb does
sys.stderr.write(f"{len(made.rows)} points, {len(entries)} entries, {deployments} deployments")
"""


def cpu(command: list[str], folder: Path | None = None) -> tuple[float, float]:
    """(CPU seconds, peak MiB) of one process; it must end well."""
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, env=environment
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode not in {0, 1}:
        raise SystemExit(f"{command[:6]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def clone(suite: Path, folder: Path) -> Path:
    """A repository that holds the suite at two commits: one image and one recipe differ."""
    root = folder / "clone"
    shutil.copytree(suite, root)
    git = ["git", "-c", "user.name=m", "-c", "user.email=m@m", "-C", str(root)]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-qm", "one"], check=True)
    for path in sorted(root.glob("configs/*-master.yaml"))[:2]:
        path.chmod(0o644)
        text = path.read_text(encoding="utf-8")
        path.write_text(text.replace("  image: ", "  image: changed-", 1), encoding="utf-8")
    return root


def programs(suite: Path, folder: Path) -> dict[str, tuple[list[str], float | None]]:
    """Name -> (command, budget in seconds)."""
    verb = [sys.executable, "-m", "servemark", "plan"]
    masters = folder / "masters"
    (masters / "configs").mkdir(parents=True)
    for path in suite.glob("configs/*.yaml"):
        shutil.copyfile(path, masters / "configs" / path.name)
    key = next(
        line.split(":")[0]
        for line in (suite / "configs" / "nvidia-master.yaml").read_text(encoding="utf-8").splitlines()
        if line.startswith("kimik3")
    )
    files = [str(p) for p in sorted(suite.rglob("*.yaml")) if b"!function" not in p.read_bytes()]
    loaded = [str(p) for p in sorted(suite.glob("configs/*-master.yaml"))]
    repository = str(clone(suite, folder))
    return {
        "python starts": ([sys.executable, "-c", "pass"], None),
        "safe_load, all files": ([sys.executable, "-c", LOAD, "SafeLoader", *files], None),
        "libyaml, all files": ([sys.executable, "-c", LOAD, "CSafeLoader", *files], None),
        "safe_load, masters": ([sys.executable, "-c", LOAD, "SafeLoader", *loaded], None),
        "libyaml, masters": ([sys.executable, "-c", LOAD, "CSafeLoader", *loaded], None),
        "whole suite read and planned": ([sys.executable, "-c", WHOLE, str(suite)], 0.8),
        "plan SUITE --json": ([*verb, str(suite), "--json"], 0.8),
        "plan, masters alone": ([*verb, str(masters), "--json"], 0.35),
        "plan, masters alone, reference": ([*verb, str(masters), "--format", "reference"], 0.35),
        "plan, one key": ([*verb, str(suite), "--keys", key], 0.25),
        "plan --changed-since": ([*verb, repository, "--changed-since", "HEAD"], 0.5),
        "servemark --version": ([sys.executable, "-m", "servemark", "--version"], 0.08),
    }


def generator(checkout: Path) -> list[str]:
    """The reference's own command for the two masters of its checkout."""
    configs = checkout / "configs"
    return [
        sys.executable,
        str(checkout / "utils" / "matrix_logic" / "generate_sweep_configs.py"),
        "full-sweep",
        "--config-files",
        *(str(configs / f"{name}-master.yaml") for name in ("nvidia", "amd")),
        "--runner-config",
        str(configs / "runners.yaml"),
    ]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", type=Path)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--reference", type=Path, help="a checkout with utils/matrix_logic")
    wanted = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory(prefix="measure-") as folder:
        listed = programs(wanted.suite.resolve(), Path(folder))
        if wanted.reference is not None:
            listed["reference generator, full sweep"] = (generator(wanted.reference.resolve()), None)
        for command, _ in listed.values():
            cpu(command)  # byte code and file cache
        for _ in range(wanted.rounds):
            for name, (command, _) in listed.items():
                found.setdefault(name, []).append(cpu(command))
    rows = []
    for name, (_, budget) in listed.items():
        seconds = sorted(one for one, _ in found[name])
        rows.append({
            "name": name, "median_s": round(statistics.median(seconds), 3), "least_s": round(seconds[0], 3),
            "most_s": round(seconds[-1], 3), "peak_mib": round(max(m for _, m in found[name])), "budget_s": budget,
        })  # fmt: skip
    if wanted.as_json:
        print(json.dumps(rows))
    else:
        print(f"{'':32}  median   least    most  peak MiB  budget")
        for row in rows:
            limit = "" if row["budget_s"] is None else f"{row['budget_s']:.2f}"
            print(f"{row['name']:32} {row['median_s']:7.3f} {row['least_s']:7.3f} {row['most_s']:7.3f} "
                  f"{row['peak_mib']:9} {limit:>7}")  # fmt: skip
    missed = [
        name
        for name, (_, budget) in listed.items()
        if budget is not None and statistics.median(one for one, _ in found[name]) > budget
    ]
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
