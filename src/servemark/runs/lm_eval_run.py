"""lm-evaluation-harness as a process of its own, against the chat endpoint, with data sets from a local folder only.

A data set of a task lies in `DATASETS/TASK/` as `test.jsonl` (and `train.jsonl`, `validation.jsonl`), in the columns that
the harness's own task expects: a task file is made that includes the harness's and names these files. Or a file
`DATASETS/TASK.yaml` is a task of the harness itself. Nothing is ever downloaded: the environment says so (HF_HUB_OFFLINE,
HF_DATASETS_OFFLINE), and what is not there is told before anything is started.

FOLDER/lm_eval.json   what was run: argv, exit, tasks
       tasks/         the task files that were made
       results/       what the harness wrote, untouched; `servemark import` reads it
       lm_eval.log    its stdout and stderr
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.base.files import disk_error, make_folder, write_atomic
from servemark.launch.process import start_worker
from servemark.replay.stop import StopSignal
from servemark.replay.target import Target, read_api_key
from servemark.runs.eval_folder import write_json
from servemark.runs.harness_run import said_last
from servemark.runs.manifest import utc_now
from servemark.runs.replay_run import Signals

LOG: Final = "lm_eval.log"
SPLITS: Final = ("train", "validation", "test")
GRACE_S: Final = 15.0
POLL_S: Final = 0.2
MAX_RESULTS: Final = 64 * 2**20
FIND_S: Final = 60.0
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,120}")
_OFFLINE: Final = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
_FIND: Final = """
import pathlib, re, sys, importlib.util
root = pathlib.Path(importlib.util.find_spec("lm_eval").origin).parent / "tasks"
name = re.compile(r"^task:\\s*[\\"']?" + re.escape(sys.argv[1]) + r"[\\"']?\\s*$", re.MULTILINE)
for path in sorted(root.rglob("*.yaml")):
    if name.search(path.read_text(encoding="utf-8", errors="replace")):
        print(path)
        break
"""


@dataclass(frozen=True, slots=True)
class HarnessJob:
    """Tasks of the harness at one concurrency. `path`: lm_eval itself or the environment that holds it."""

    target: Target
    tasks: tuple[str, ...]
    concurrency: int
    limit: int | None
    folder: Path
    datasets: Path | None
    path: Path | None


@dataclass(frozen=True, slots=True)
class HarnessResult:
    """What the harness wrote. `scores`: {task, metric, score, stderr, n}; `missing`: tasks without a score."""

    folder: Path
    concurrency: int
    scores: tuple[dict[str, object], ...]
    missing: tuple[str, ...]

    def plain(self) -> dict[str, object]:
        """As JSON."""
        return {
            "folder": str(self.folder),
            "concurrency": self.concurrency,
            "scores": list(self.scores),
            "missing": list(self.missing),
        }


def run_harness(job: HarnessJob) -> HarnessResult:
    """Run it to its end. Raises ServemarkError when it is not installed, a data set is not there, or it ends without
    results (its folder stays)."""
    program = find_harness(job.path)
    if job.folder.exists() and any(job.folder.iterdir()):
        raise input_error("evals.folder_used", path=job.folder)
    names = task_files(job, program)
    argv = command(job, program, names)
    facts: dict[str, object] = {"schema": 1, "argv": argv, "tasks": list(job.tasks), "started_utc": utc_now()}
    write_json(job.folder / "lm_eval.json", facts)
    stop = StopSignal()
    with Signals(stop):
        worker = start_worker(
            argv,
            _environment(job),
            base_url="",
            log_path=job.folder / LOG,
            work_dir=job.folder,
            grace_s=GRACE_S,
        )
        with worker:
            while (status := worker.wait(POLL_S)) is None:
                if stop.mode is not None:
                    status = worker.stop(GRACE_S)
                    break
    write_json(job.folder / "lm_eval.json", {**facts, "finished_utc": utc_now(), "exit": str(status)})
    found = sorted((job.folder / "results").rglob("results_*.json"))
    if not found:
        log = job.folder / LOG
        raise ServemarkError(
            "evals.harness_failed", Layer.EVALS, status=str(status), said=said_last(log), log=log
        )
    scores = _scores(found[-1], names)
    scored = {score["task"] for score in scores}
    return HarnessResult(job.folder, job.concurrency, scores, tuple(t for t in job.tasks if t not in scored))


def find_harness(given: Path | None) -> Path:
    """lm_eval: the path that was given, or below it, else beside this Python. Raises ServemarkError (layer install)."""
    import sys  # noqa: PLC0415

    places = (
        [Path(sys.executable).parent / "lm_eval"]
        if given is None
        else [given, given / "lm_eval", given / "bin" / "lm_eval"]
    )
    for place in places:
        if place.is_file() and os.access(place, os.X_OK):
            return place.absolute()
    raise ServemarkError(
        "evals.harness_missing", Layer.INSTALL, exit_code=2, place=", ".join(map(str, places))
    )


def task_files(job: HarnessJob, program: Path) -> dict[str, str]:
    """Name in the harness -> name that was asked for; files are made where data lies as JSONL. Raises ServemarkError
    (exit 2) for a task without data."""
    names: dict[str, str] = {}
    make_folder(job.folder / "tasks")
    for task in job.tasks:
        folder = job.datasets
        if not _NAME.fullmatch(task):
            raise input_error("evals.no_data", task=task[:80], folder=folder or "-", reason="name")
        if folder is None:
            raise input_error("evals.no_data", task=task, folder="-", reason="--datasets")
        if (folder / f"{task}.yaml").is_file():
            names[task] = task
            continue
        made = f"{task}_local"
        write_atomic(
            job.folder / "tasks" / f"{made}.yaml", _task_file(task, made, folder / task, program).encode()
        )
        names[made] = task
    return names


def _task_file(task: str, made: str, data: Path, program: Path) -> str:
    """The harness's own task over local rows. JSON is YAML, so every value is written as JSON."""
    files = {
        split: str((data / f"{split}.jsonl").absolute())
        for split in SPLITS
        if (data / f"{split}.jsonl").is_file()
    }
    if not files:
        raise input_error("evals.no_data", task=task, folder=data.parent, reason=f"{task}/test.jsonl")
    base = _own_task(task, program)
    if base is None:
        raise input_error("evals.no_data", task=task, folder=data.parent, reason=f"{task}.yaml")
    fields: dict[str, object] = {
        "include": str(base),
        "task": made,
        "tag": None,
        "dataset_path": "json",
        "dataset_name": None,
        "dataset_kwargs": {"data_files": files},
    }
    return "".join(f"{name}: {json.dumps(value)}\n" for name, value in fields.items())


def _own_task(task: str, program: Path) -> Path | None:
    """The file of the harness that defines a task; asked of its own Python."""
    python = program.with_name("python")
    try:
        done = subprocess.run(
            [str(python), "-c", _FIND, task],
            capture_output=True,
            text=True,
            timeout=FIND_S,
            check=False,
            errors="replace",
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = done.stdout.strip()
    return Path(said) if done.returncode == 0 and said and Path(said).is_file() else None


def command(job: HarnessJob, program: Path, names: Mapping[str, str]) -> list[str]:
    """The command line: the chat endpoint, no tokenizer (none would be found offline), samples kept."""
    root = job.target.base_url.rstrip("/").removesuffix("/v1")
    model = {
        "model": job.target.model,
        "base_url": f"{root}/v1/chat/completions",
        "num_concurrent": job.concurrency,
        "max_retries": 3,
        "tokenized_requests": False,
        "tokenizer_backend": None,
        "timeout": int(job.target.idle_timeout_s) + 1,
    }
    argv = [
        str(program),
        "--model", "local-chat-completions",
        "--model_args", ",".join(f"{name}={value}" for name, value in model.items()),
        "--tasks", ",".join(names),
        "--include_path", str((job.folder / "tasks").absolute()),
        "--apply_chat_template",
        "--output_path", str((job.folder / "results").absolute()),
        "--log_samples",
    ]  # fmt: skip
    if any(made == task for made, task in names.items()) and job.datasets is not None:
        _copy_own(job, [task for made, task in names.items() if made == task])
    return argv if job.limit is None else [*argv, "--limit", str(job.limit)]


def _copy_own(job: HarnessJob, tasks: list[str]) -> None:
    """Task files of the user's folder beside those that were made: the harness takes one folder."""
    for task in tasks:
        source = (job.datasets or Path()) / f"{task}.yaml"
        try:
            write_atomic(job.folder / "tasks" / source.name, source.read_bytes())
        except OSError as error:
            raise disk_error(error, source) from error


def _environment(job: HarnessJob) -> dict[str, str]:
    key = read_api_key(job.target)
    return {**_OFFLINE, **({} if key is None else {"OPENAI_API_KEY": key})}


def _scores(path: Path, names: Mapping[str, str]) -> tuple[dict[str, object], ...]:
    """Every metric of every task; a score that is no finite number is none."""
    try:
        if path.stat().st_size > MAX_RESULTS:
            raise ValueError("size")
        plain = json.loads(path.read_bytes())
        results, counts = plain["results"], plain.get("n-samples", {})
        found: list[dict[str, object]] = []
        for made, values in results.items():
            for name, score in values.items():
                metric, _, kind = name.partition(",")
                if made not in names or not kind or metric.endswith("_stderr"):
                    continue
                if not isinstance(score, int | float) or not math.isfinite(score):
                    continue
                stderr = values.get(f"{metric}_stderr,{kind}")
                n = counts.get(made, {}).get("effective")
                found.append({"task": names[made], "metric": name, "score": score, "stderr": stderr, "n": n})
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise ServemarkError(
            "evals.bad_file",
            Layer.EVALS,
            exit_code=2,
            where=str(path),
            reason=f"{type(error).__name__}: {error}"[:200],
        ) from None
    return tuple(found)
