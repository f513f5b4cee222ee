"""Byte mutations of real suite files through every reader: no exception, no reading over two seconds.

    python benchmarks/plan/mutants.py SUITE... [--count 20000] [--seed 1]

Prints one line of figures; exit code 1 when a mutant failed (its bytes are kept below the folder that is named).
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from servemark.catalog.changelog import additions, entries_of
from servemark.catalog.clusters import Clusters, clusters_of
from servemark.catalog.master import arms_of
from servemark.catalog.nodes import Node, Problem
from servemark.catalog.priorities import priorities_of
from servemark.catalog.recipe import deployment_of
from servemark.catalog.references import golden_of, thresholds_of
from servemark.catalog.suite import Suite
from servemark.catalog.variants import has_variants, variant_names
from servemark.catalog.yaml_nodes import parse_yaml
from servemark.plan.reference_evals import mark_evals
from servemark.plan.reference_rows import reference_rows
from servemark.plan.strict import Wishes, plan_suite

LIMIT_S = 2.0
TOKENS = (
    b"\t", b"\r\n", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"&a ", b"*a", b"<<: *a\n", b"- ", b"{", b"}", b"[", b"]",
    b'"', b"'", b": ", b":", b"#", b"|\n", b">\n", b"? ", b"!!int ", b"!!python/object:os.system ", b"!x ", b"---\n",
    b"...\n", b"%YAML 9.9\n", b"~", b"null", b"yes", b"-8", b"8.0", b"1e999", b".nan", b".inf", b"0x", b"0b", b"09",
    b"9" * 400, b"9" * 5000, b"12:00:00", b"[" * 300, b"{a: " * 150, b"\xc2\x85", b"\xe2\x80\xa8", b"\x1b[31m",
    b"base:\n", b"zip_override_x:\n  a: [1, 2]\n", b"override_x: null\n", b"roles:\n", b"'{\"a\":'", b"\xf0\x9f\x98\x80",
)  # fmt: skip


def mutate(data: bytes, chance: random.Random) -> bytes:
    """One to four small damages."""
    body = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(body) + 1)
        span = chance.choice((1, 1, 2, 8, 40, 400))
        kind = chance.randrange(7)
        if kind == 0 and at < len(body):
            body[at] = chance.randrange(256)
        elif kind == 1:
            del body[at : at + span]
        elif kind == 2:
            body[at:at] = body[at : at + span]
        elif kind == 3:
            body[at:at] = chance.choice(TOKENS)
        elif kind == 4:
            lines = bytes(body).split(b"\n")
            one, two = chance.randrange(len(lines)), chance.randrange(len(lines))
            lines[one], lines[two] = lines[two], lines[one]
            body = bytearray(b"\n".join(lines))
        elif kind == 5:
            end = body.find(b"\n", at)
            begin = body.rfind(b":", 0, end if end >= 0 else len(body)) + 1
            body[begin : end if end >= 0 else len(body)] = b" " + chance.choice(TOKENS)
        else:
            del body[at:]
    return bytes(body)


def read_master(root: Node, problems: list[Problem]) -> None:
    """Arms, reference rows with all kinds of evals, and the strict plan."""
    arms = arms_of(root, problems)
    clusters = Clusters({}, {}, None)
    for mode in ("marked", "only", "all"):
        mark_evals(reference_rows(arms.values(), clusters, problems), mode)
    made = plan_suite(Suite("fuzz", Path("/nowhere"), (), (), arms), Wishes())
    problems += made.problems
    for row in made.rows:
        row.plain()


def read_recipe(root: Node, problems: list[Problem]) -> None:
    """The deployment, or those of all variants."""
    names = variant_names(root)[:20] if has_variants(root) else (None,)
    for name in names or (None,):
        found = deployment_of(root, problems, name)
        if found is not None:
            found.fingerprint()


READERS: dict[str, Callable[[Node, list[Problem]], object]] = {
    "master": read_master,
    "recipe": read_recipe,
    "clusters": clusters_of,
    "changelog": entries_of,
    "golden": golden_of,
    "thresholds": thresholds_of,
    "priorities": priorities_of,
}


def material(suites: list[Path]) -> list[tuple[str, bytes]]:
    """(reader, bytes) of every file; large files also in pieces of a few top-level blocks."""
    found: list[tuple[str, bytes]] = []
    for suite in suites:
        for path in sorted(suite.rglob("*.yaml")):
            name = str(path.relative_to(suite))
            kind = "recipe"
            for part, reader in (
                ("master", "master"), ("runners", "clusters"), ("clusters", "clusters"), ("changelog", "changelog"),
                ("golden", "golden"), ("thresholds", "thresholds"), ("priority", "priorities"),
            ):  # fmt: skip
                kind = reader if part in name else kind
            data = path.read_bytes()
            found.append((kind, data))
            if len(data) > 40_000:
                blocks = data.split(b"\n\n")
                found += [(kind, b"\n\n".join(blocks[i : i + 3]) + b"\n") for i in range(0, len(blocks), 3)]
    return found


def read(kind: str, data: bytes) -> list[Problem]:
    """Everything that a verb would do with the bytes, messages in both languages included."""
    root, problems = parse_yaml(data, "mutant.yaml")
    READERS[kind](root, problems)
    if kind == "changelog":
        problems += additions(data[: len(data) // 2], data, "mutant.yaml")[1]
    for problem in problems[:50]:
        error = problem.error()
        assert error.what("en") and error.what("zh") and problem.at.line >= 1
        error.next_step("zh")
    return problems


def mutants(files: list[tuple[str, bytes]], count: int, seed: int) -> Iterator[tuple[str, bytes]]:
    """`count` mutants, small files more often than large ones."""
    chance = random.Random(seed)
    weights = [1.0 / max(1.0, len(data) / 4000) for _, data in files]
    for kind, data in chance.choices(files, weights, k=count):
        yield kind, mutate(data, chance)


def main() -> int:
    """Run all mutants and report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suites", nargs="+", type=Path)
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    files = material(wanted.suites)
    kinds: Counter[str] = Counter()
    failed, faulty, slowest = 0, 0, 0.0
    kept = Path(tempfile.mkdtemp(prefix="mutants-"))
    for number, (kind, data) in enumerate(mutants(files, wanted.count, wanted.seed)):
        kinds[kind] += 1
        began = time.perf_counter()
        try:
            faulty += bool(read(kind, data))
        except Exception:
            failed += 1
            (kept / f"{number}-{kind}.yaml").write_bytes(data)
            (kept / f"{number}-{kind}.txt").write_text(traceback.format_exc(), encoding="utf-8")
        slowest = max(slowest, time.perf_counter() - began)
    shown = ", ".join(f"{kind} {count}" for kind, count in sorted(kinds.items()))
    print(f"{wanted.count} mutants of {len(files)} pieces ({shown}): failed {failed}, with problems {faulty}, "
          f"slowest {slowest:.3f} s; kept in {kept}")  # fmt: skip
    return 1 if failed or slowest > LIMIT_S else 0


if __name__ == "__main__":
    sys.exit(main())
