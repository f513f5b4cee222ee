"""One fact of a correct arm changed at a time: is it found? (harmless.py: edits that change no fact.)

    python benchmarks/checks/mutants.py SUITE [--count 1000] [--seed 1]

Draws, blind to the rules, from every scalar of a correct arm (one without an error) that states a fact which the arm
states elsewhere too. Which fields do is decided in two ways, neither of which looks at a rule: `stated_twice` counts in
the suite's own files which fields agree with which, and `MASTER_FACTS` and `RECIPE_FACTS` name by the format's meaning
those whose second statement is another text or a calculation (a digest and a tag; a size times ranks; a connector and an
engine's name). A mutant counts as found when an error or warning appears that was not there before. Prints a table by
field and every miss; exit code 1 below 95 % or when a harmless edit gives a finding.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from stated_twice import Field, fields_of, stated_twice  # type: ignore[import-not-found]

from servemark.catalog.arms import Arm
from servemark.catalog.nodes import Node
from servemark.catalog.suite import Suite, read_suite
from servemark.checks.check import check_suite
from servemark.checks.model import Finding
from servemark.checks.places import token_length

MASTER_FACTS = frozenset(
    (
        "image", "model", "precision", "framework", "runner", "version", "kv-p2p-transfer", "disagg", "isl", "osl",
        "spec-decoding", "kv-offloading", "name", "dram-utilization", "conc-list", "num-worker", "tp", "pp",
        "dcp-size", "pcp-size", "ep", "dp-attn", "additional-settings",
    )
)  # fmt: skip
RECIPE_FACTS = frozenset(
    (
        "container", "precision", "repo", "image", "dynamo", "vllm", "sglang", "tensorrt_llm", "version", "hash",
        "wheel", "gpu_type", "gpus_per_node", "prefill_nodes", "decode_nodes", "agg_nodes", "prefill_workers",
        "decode_workers", "agg_workers", "gpus_per_prefill", "gpus_per_decode", "gpus_per_agg", "isl", "osl",
        "concurrencies", "served-model-name", "tensor-parallel-size", "tensor_parallel_size", "tp-size",
        "pipeline-parallel-size", "data-parallel-size", "dp-size", "ep-size", "expert-parallel-size",
        "moe_expert_parallel_size", "enable-dp-attention", "enable_attention_dp", "decode-context-parallel-size",
        "enable-expert-parallel", "kv-transfer-config", "speculative-config", "speculative-num-steps",
        "num_nextn_predict_layers", "disaggregation-transfer-backend", "enable-hierarchical-cache", "hicache-size",
        "host_cache_size", "global_segment_size", "SGLANG_SIMULATE_ACC_LEN",
        "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS", "nodes", "workers", "gpus", "rev", "source",
    )
)  # fmt: skip
_INSIDE = {
    "kv-transfer-config": (
        ("NixlConnector", "MooncakeConnector"),
        ("MooncakeStoreConnector", "SomethingConnector"),
        ("SimpleCPUOffloadConnector", "SomethingConnector"),
        ('"kv_both"', '"kv_bot"'),
    ),
    "speculative-config": (
        ('"num_speculative_tokens":', '"num_speculative_tokens":1'),
        ('"method":"mtp"', '"method":"eagle3"'),
        ('"method":"dspark"', '"method":"mtp"'),
        ('"method":"eagle3"', '"method":"mtp"'),
    ),
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One changed span of one file."""

    file: Path
    field: str
    line: int
    start: int
    end: int
    new: str

    def apply(self, text: str) -> str:
        """The file's text with the change."""
        lines = text.split("\n")
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.start] + self.new + line[self.end :]
        return "\n".join(lines)


def arm_block(text: str, arm: Arm) -> str:
    """The lines of one master entry."""
    lines = text.split("\n")
    first = next(n for n, line in enumerate(lines) if line.startswith((f"{arm.key}:", f'"{arm.key}":')))
    last = first + 1
    while last < len(lines) and not re.match(r"[^\s#]", lines[last]):
        last += 1
    return "\n".join(lines[first:last]).rstrip() + "\n"


def mini_suite(suite: Suite, arm: Arm, folder: Path) -> Path | None:
    """A suite of this arm alone, with its recipes and the suite's side files; None when no recipe is read."""
    recipes = {suite.recipe_file(e) for e in arm.entries if suite.recipe(e).state == "read"}
    if None in recipes or not recipes:
        return None
    for master in suite.masters:
        text = (suite.root / master).read_text(encoding="utf-8")
        if f"\n{arm.key}:" in f"\n{text}":
            target = folder / master
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(arm_block(text, arm), encoding="utf-8")
    for name in ("configs/runners.yaml", "golden_al_distribution", "utils/evals/thresholds.yaml"):
        source = suite.root / name
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, folder / name)
        elif source.is_file():
            shutil.copyfile(source, folder / name)
    for path in recipes:
        if path is not None:
            target = folder / path.relative_to(suite.root)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    return folder


def other_value(field: str, value: str, chance: random.Random) -> str | None:
    """A plausible other value; None where the text holds no fact."""
    if field in _INSIDE:
        fitting = [(old, new) for old, new in _INSIDE[field] if old in value]
        old, new = chance.choice(fitting or [("", "")])
        once = chance.random() < 0.5
        return value.replace(old, new, 1 if once else -1) if old else None
    if field == "additional-settings":
        match = re.match(r"(SYNTHETIC_ACCEPTANCE_LENGTH=)([\d.]+)", value)
        changed = f"{float(match.group(2)) + chance.choice((0.2, -0.3)):.2f}" if match is not None else ""
        return match.group(1) + changed if match is not None else None
    number = _other_number(value, chance)
    if number is not None:
        return number
    swaps = {"true": "false", "false": "true", "mtp": "none", "dram": "none", "fp4": "fp8", "fp8": "fp4"}
    swaps |= {"nixl": "mooncake"} | ({"none": "mtp"} if field == "spec-decoding" else {})
    if value.lower() in swaps or value == "none":
        return swaps.get(value.lower())
    digits = list(re.finditer(r"\d", value))
    if digits:
        spot = chance.choice(digits)
        changed = str((int(spot.group()) + chance.randint(1, 8)) % 10)
        return value[: spot.start()] + changed + value[spot.end() :]
    return value[:-1] + ("x" if value[-1] != "x" else "y") if len(value) > 2 else None


def _other_number(value: str, chance: random.Random) -> str | None:
    if re.fullmatch(r"\d+", value):
        number = int(value)
        return str(chance.choice([n for n in (number * 2, number // 2, number + 1) if n > 0 and n != number]))
    if re.fullmatch(r"0\.\d+", value):
        return f"{min(float(value) * chance.choice((0.5, 0.8)), 1):.3f}"
    if re.fullmatch(r"\d+[KMGT]B", value):
        return f"{int(value[:-2]) * 2}{value[-2:]}"
    return None


def scalars(root: Node, facts: frozenset[str], counted: set[tuple[int, int]]) -> Iterator[tuple[str, Node]]:
    """(field, scalar) of every fact; an item of a list belongs to the list's field."""
    for path, node in root.walk():
        if node.entries is not None or node.items is not None or node.scalar is None:
            continue
        names = [name for name in path if not name.isdigit()]
        if "decode" in names and _no_decode(root, path):
            continue  # a block of no workers: its other numbers name nothing that runs
        if names and (names[-1] in facts or (node.line, node.column) in counted):
            yield names[-1], node


def _no_decode(root: Node, path: tuple[str, ...]) -> bool:
    """Whether a scalar stands in a decode block of a master entry that has no workers."""
    node = root
    for name in path[: path.index("decode") + 1]:
        entries = node.entries
        node = entries[name] if entries is not None else (node.items or [])[int(name)]
    workers = (node.entries or {}).get("num-worker")
    return workers is not None and workers.scalar == 0 and path[-1] != "num-worker"


def mutants_of(folder: Path, chance: random.Random, twice: dict[Field, list[Field]]) -> list[Mutant]:
    """One mutant of every fact in a mini suite."""
    suite, _ = read_suite(folder)
    found = []
    roots = [("master", arm.node, MASTER_FACTS) for arm in suite.arms.values()]
    roots += [("recipe", suite.recipe_tree(path)[0], RECIPE_FACTS) for path in suite.recipe_files()]
    lines: dict[Path, list[str]] = {}
    for kind, root, facts in roots:
        if root is None:
            continue
        path = folder / root.file.partition("/")[2]
        lines.setdefault(path, path.read_text(encoding="utf-8").split("\n"))
        seen = set()
        counted = {(node.line, node.column) for one, _, node in fields_of(kind, root) if one in twice}
        for name, node in scalars(root, facts, counted):
            if (node.line, node.column) in seen:
                continue
            seen.add((node.line, node.column))
            line, start = lines[path][node.line - 1], node.column - 1
            end = start + token_length(line, start)
            written = line[start:end]
            quote = written[:1] if written[:1] in {"'", '"'} else ""
            new = other_value(name, written.strip(quote) if quote else written, chance)
            if new is not None:
                found.append(Mutant(path, name, node.line, start, end, f"{quote}{new}{quote}"))
    return found


def serious(findings: tuple[Finding, ...]) -> Counter[tuple[object, ...]]:
    """Errors and warnings, whatever their place."""
    return Counter((f.code, f.key, repr(sorted(f.values.items()))) for f in findings if f.severity != "note")


@dataclass
class Outcome:
    """What became of all mutants."""

    arms: int = 0
    """Correct arms that were drawn from."""
    pool: int = 0
    """Scalars that could be drawn."""
    drawn: int = 0
    found: int = 0
    by_field: Counter[tuple[str, bool]] = field(default_factory=Counter)
    misses: list[str] = field(default_factory=list)


Prepared = tuple[Path, "Counter[tuple[object, ...]]", Mutant]
"""A suite, its errors and warnings as it is, and what to change."""


def run(where: Path, count: int, seed: int) -> Outcome:
    """Draw from the correct arms of a suite, each checked alone with its recipes and the suite's side files."""
    chance = random.Random(seed)
    suite, _ = read_suite(where)
    twice = stated_twice(suite)
    result = Outcome()
    with tempfile.TemporaryDirectory() as name:
        prepared: list[Prepared] = []
        for number, arm in enumerate(suite.arms.values()):
            folder = mini_suite(suite, arm, Path(name) / f"a{number}" / "suite")
            if folder is not None:
                result.arms += prepare(folder, twice, chance, prepared)
        judge(prepared, count, chance, result)
    return result


def run_whole(folder: Path, count: int, seed: int) -> Outcome:
    """The same for a small suite that may be written to, as it is."""
    chance = random.Random(seed)
    result = Outcome()
    prepared: list[Prepared] = []
    result.arms = prepare(folder, stated_twice(read_suite(folder)[0]), chance, prepared)
    judge(prepared, count, chance, result)
    return result


def prepare(folder: Path, twice: dict[Field, list[Field]], chance: random.Random, to: list[Prepared]) -> int:
    """Put a suite's mutants to the others; gives the number of its arms, 0 when it is not correct."""
    found = check_suite(folder).findings
    if any(finding.severity == "error" for finding in found):
        return 0
    to += [(folder, serious(found), one) for one in mutants_of(folder, chance, twice)]
    return len(read_suite(folder)[0].arms)


def judge(prepared: list[Prepared], count: int, chance: random.Random, result: Outcome) -> None:
    """Apply the first `count` in a random order, each alone, and note what is found."""
    result.pool = len(prepared)
    chance.shuffle(prepared)
    for folder, before, mutant in prepared[:count]:
        text = mutant.file.read_text(encoding="utf-8")
        mutant.file.write_text(mutant.apply(text), encoding="utf-8")
        more = serious(check_suite(folder).findings) - before
        mutant.file.write_text(text, encoding="utf-8")
        result.drawn += 1
        result.found += bool(more)
        result.by_field[mutant.field, bool(more)] += 1
        if not more:
            old = text.split("\n")[mutant.line - 1]
            shown = mutant.file.relative_to(folder)
            said = f"{mutant.field}: {shown}:{mutant.line}: {old.strip()[:110]} -> {mutant.new[:80]}"
            result.misses.append(said)


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser()
    parser.add_argument("suite", type=Path)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    result = run(asked.suite, asked.count, asked.seed)
    fields = sorted({name for name, _ in result.by_field})
    for name in fields:
        yes, no = result.by_field[name, True], result.by_field[name, False]
        sys.stdout.write(f"{name:<45} {yes:>4} found {no:>4} missed\n")
    sys.stdout.write("\n".join(result.misses) + "\n")
    share = result.found / max(result.drawn, 1)
    sys.stdout.write(f"{result.pool} scalars of {result.arms} arms\n")
    sys.stdout.write(f"{result.found} of {result.drawn} found ({share:.1%})\n")
    return 0 if share >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
