"""lm-evaluation-harness `results_*.json`: accuracy of one model behind an endpoint, as a point with evals and no figures.

Each `METRIC,FILTER` of a task is one eval, its standard error beside it. The samples of a task (`samples_TASK_*.jsonl`
beside it) are counted: items per filter must be what the summary says it averaged over.
Fields: lm-eval 0.4.13, as its own output shows them.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import BinaryIO

from servemark.results.importers.base import Given, Importer
from servemark.results.importers.bench_serving import head_has, read_rows
from servemark.results.importers.mapping import Draft, RowError, number, part, utc, whole, words
from servemark.results.point import Eval, Mapped, Requests, Scenario

VERSION = 2
MAX_LINE = 8 << 20
MAX_TASKS = 10_000


def _detect(given: Given) -> float:
    if head_has(given, "lm_eval_version"):
        return 0.95
    return 0.8 if head_has(given, "results", "n-samples") or head_has(given, "results", "n-shot") else 0.0


def count_samples(stream: BinaryIO) -> Counter[str]:
    """Lines of a samples file by filter (`none` where it names none), `damaged` for those that are no sample."""
    counted: Counter[str] = Counter()
    while line := stream.readline(MAX_LINE):
        if not line.strip():
            continue
        try:
            sample = json.loads(line)
        except (ValueError, RecursionError):
            counted["damaged"] += 1
            continue
        known = isinstance(sample, dict) and "doc_id" in sample
        counted[str(sample.get("filter", "none"))[:80] if known else "damaged"] += 1
    return counted


def _evals(draft: Draft, row: Mapping[str, object]) -> list[Eval]:
    found = []
    for task, scores in list(part(row, "results").items())[:MAX_TASKS]:
        if not isinstance(scores, dict):
            raise RowError("results.import_wrong_shape", missing=f"results.{task}")
        items = part(row, "n-samples", task)
        n = whole(items.get("effective"), f"/n-samples/{task}/effective")
        for name, value in scores.items():
            metric, comma, chosen = name.partition(",")
            if not comma or metric.endswith("_stderr") or isinstance(value, str | dict | list):
                continue
            at = f"/results/{task}/{name}"
            score = number(value, at)
            if score is None:
                continue
            if score > 1:
                draft.notes.append(f"{at} is {score:g}, not a share: left in the raw row")
                continue
            spread = scores.get(f"{metric}_stderr,{chosen}")
            stderr = (
                None
                if isinstance(spread, str)
                else number(spread, f"/results/{task}/{metric}_stderr,{chosen}")
            )
            found.append(Eval(task, score, metric if chosen == "none" else f"{metric},{chosen}", stderr, n))
    return found


def _samples(draft: Draft, tasks: Mapping[str, object]) -> None:
    """Counts the samples files of the same run: the same name ending."""
    stamp = draft.given.name.rsplit("results_", 1)[-1].removesuffix(".json")
    counted = {}
    for task in tasks:
        beside = draft.given.siblings.get(f"samples_{task}_{stamp}.jsonl")
        if beside is not None:
            with beside.open() as stream:
                counted[task] = dict(count_samples(stream))
    if counted:
        draft.observed["samples"] = counted


def _model(draft: Draft, row: Mapping[str, object]) -> None:
    arguments = part(row, "config").get("model_args")
    if isinstance(arguments, str):
        arguments = dict(pair.partition("=")[::2] for pair in arguments.split(","))
    named = words(part(arguments).get("model")) or words(part(arguments).get("pretrained"))
    draft.model = named or words(row.get("model_name"))
    limit = part(arguments).get("num_concurrent")
    if isinstance(limit, str) and limit.isdigit():
        limit = int(limit)
    draft.concurrency = whole(limit, "/config/model_args/num_concurrent")


def _fill(draft: Draft, row: dict[str, object]) -> None:
    if not part(row, "results"):
        raise RowError("results.import_wrong_shape", missing="results")
    version = words(row.get("lm_eval_version"))
    _model(draft, row)
    draft.evals = tuple(_evals(draft, row))
    draft.scenario = Scenario("eval", dataset=",".join(sorted(part(row, "results")))[:200])
    asked = [
        whole(part(row, "n-samples", task).get("original"), "/n-samples") for task in part(row, "results")
    ]
    done = [
        whole(part(row, "n-samples", task).get("effective"), "/n-samples") for task in part(row, "results")
    ]
    if None not in done and None not in asked:
        draft.requests = Requests(planned=sum(n or 0 for n in done))
        if done != asked:
            draft.notes.append(
                f"a limit was set: {sum(n or 0 for n in done)} of {sum(n or 0 for n in asked)} items"
            )
    draft.expected["evals"] = sorted(part(row, "results"))
    seconds = row.get("total_evaluation_time_seconds")
    try:
        draft.duration_s = (
            number(float(seconds), "/total_evaluation_time_seconds") if isinstance(seconds, str) else None
        )
    except ValueError:
        draft.duration_s = None
    draft.started_utc = utc(number(row.get("date"), "/date"))
    draft.declared["fewshot"] = {task: n for task, n in part(row, "n-shot").items() if isinstance(n, int)}
    draft.declared["task_hashes"] = {task: str(one)[:64] for task, one in part(row, "task_hashes").items()}
    draft.client["harness_version"] = version
    _samples(draft, part(row, "results"))


def _read(given: Given) -> Iterator[Mapped]:
    return read_rows(given, _fill, lambda: Draft(given, 0, IMPORTER.id, VERSION, "lm-eval"), frozenset())


IMPORTER = Importer("lm-eval", VERSION, "lm-evaluation-harness", _detect, _read)


def _detect_samples(given: Given) -> float:
    return 0.9 if head_has(given, "doc_id", "doc_hash", "resps") else 0.0


def _read_samples(given: Given) -> Iterator[Mapped]:
    with given.open() as stream:
        counted = count_samples(stream)
    damaged = counted.pop("damaged", 0)
    values: dict[str, object] = {"records": sum(counted.values()), "damaged": damaged}
    yield Mapped(0, "unmapped", None, None, "results.import_records", values)


SAMPLES_IMPORTER = Importer("lm-eval-samples", VERSION, "lm-eval samples", _detect_samples, _read_samples)
