"""What Slurm says of jobs and nodes, in all the shapes in which its releases say it, and what each word means.

Jobs are read from `scontrol show job --oneliner`: its text has kept its form over all releases, and a job stays
visible there for some minutes after its end. JSON (`squeue`, `sinfo`, since 21.08) changed its types on the way: a
state became a list, a number became `{"set": …, "infinite": …, "number": …}`, an exit status became an object, and
before that it was the raw wait status. Both forms are read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

FIELD = re.compile(r"(?:^|\s)([A-Z][A-Za-z:/_]*)=")
WAITING = frozenset({"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
ALIVE = frozenset({"RUNNING", "SUSPENDED", "STOPPED", "RESIZING", "SIGNALING", "STAGE_OUT"})
NEVER = frozenset(
    {
        "PartitionConfig",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "BadConstraints",
        "AccountNotAllowed",
        "QOSNotAllowed",
        "InvalidAccount",
        "InvalidQOS",
        "DependencyNeverSatisfied",
        "AssocMaxNodePerJobLimit",
        "QOSMaxNodePerJobLimit",
        "QOSMaxWallDurationPerJobLimit",
        "AssocMaxWallDurationPerJobLimit",
    }
)
"""Reasons of a pending job that no waiting can change: Slurm keeps such a job for ever."""


@dataclass(frozen=True, slots=True)
class JobState:
    """One job, or one component of a heterogeneous one (`offset`). `exit_code` and `signal` as `wait` gives them."""

    job_id: str
    state: str
    reason: str
    nodes: str
    restarts: int
    offset: int = 0
    exit_code: int = 0
    signal: int = 0
    name: str = ""

    @property
    def waiting(self) -> bool:
        """Not started yet."""
        return self.state in WAITING

    @property
    def alive(self) -> bool:
        """Started and not ended."""
        return self.state in ALIVE

    @property
    def never(self) -> bool:
        """Waits for something that cannot come."""
        return self.state == "PENDING" and self.reason in NEVER


@dataclass(frozen=True, slots=True)
class NodeState:
    """One node as Slurm knows it. `memory_mib` in MiB (2^20)."""

    name: str
    state: str
    address: str
    gpus: int
    cpus: int
    memory_mib: int
    partitions: tuple[str, ...]
    reason: str

    @property
    def usable(self) -> bool:
        """Whether jobs can run there, now or when it is free."""
        words = set(re.split(r"[+*~#!%$@^-]", self.state.upper()))
        return not words & {
            "DOWN",
            "DRAIN",
            "DRAINED",
            "DRAINING",
            "FAIL",
            "NOT_RESPONDING",
            "UNKNOWN",
            "ERROR",
        }


def fields_of(line: str) -> dict[str, str]:
    """`Key=value Key=value…` of one line of scontrol; a value may hold spaces, the first of equal keys wins."""
    found: dict[str, str] = {}
    marks = list(FIELD.finditer(line))
    ends = [*(mark.start() for mark in marks[1:]), len(line)]
    for mark, end in zip(marks, ends, strict=False):
        found.setdefault(mark.group(1), line[mark.end() : end].strip())
    return found


def jobs_of_text(text: str) -> tuple[JobState, ...]:
    """`scontrol show job --oneliner`: components of a heterogeneous job in their order."""
    found = []
    for line in text.splitlines():
        fields = fields_of(line)
        if "JobId" not in fields or "JobState" not in fields:
            continue
        code, _, number = fields.get("ExitCode", "0:0").partition(":")
        found.append(
            JobState(
                job_id=fields["JobId"],
                state=fields["JobState"].split()[0],
                reason=fields.get("Reason", "None").split()[0] if fields.get("Reason") else "None",
                nodes=_named(fields.get("NodeList", "")),
                restarts=_digits(fields.get("Restarts")),
                offset=_digits(fields.get("HetJobOffset")),
                exit_code=_digits(code),
                signal=_digits(number),
                name=fields.get("JobName", ""),
            )
        )
    return tuple(sorted(found, key=lambda job: job.offset))


def jobs_of_json(text: str) -> tuple[JobState, ...]:
    """`squeue --json` of any release. ValueError for what is no such document."""
    found = []
    for job in _items(text, "jobs"):
        code, number = wait_status(job.get("exit_code"))
        found.append(
            JobState(
                job_id=str(whole(job.get("job_id"))),
                state=word(job.get("job_state")),
                reason=str(job.get("state_reason") or "None"),
                nodes=str(job.get("nodes") or ""),
                restarts=whole(job.get("restart_cnt")),
                offset=whole(job.get("het_job_offset")),
                exit_code=code,
                signal=number,
                name=str(job.get("name") or ""),
            )
        )
    return tuple(found)


def nodes_of_json(text: str) -> tuple[NodeState, ...]:
    """`sinfo --json` (old: `nodes`) or `scontrol show nodes --json`. ValueError for what is no such document."""
    return tuple(
        NodeState(
            name=str(node.get("name") or node.get("hostname") or ""),
            state="+".join([word(node.get("state")), *_texts(node.get("state_flags"))]),
            address=str(node.get("address") or ""),
            gpus=gpu_count(str(node.get("gres") or "")),
            cpus=whole(node.get("cpus")),
            memory_mib=whole(node.get("real_memory")),
            partitions=_texts(node.get("partitions")),
            reason=str(node.get("reason") or ""),
        )
        for node in _items(text, "nodes")
    )


def nodes_of_text(text: str) -> tuple[NodeState, ...]:
    """`scontrol show node --oneliner`."""
    found = []
    for line in text.splitlines():
        fields = fields_of(line)
        if "NodeName" in fields:
            found.append(
                NodeState(
                    name=fields["NodeName"],
                    state=fields.get("State", "UNKNOWN"),
                    address=_named(fields.get("NodeAddr", "")),
                    gpus=gpu_count(_named(fields.get("Gres", ""))),
                    cpus=_digits(fields.get("CPUTot")),
                    memory_mib=_digits(fields.get("RealMemory")),
                    partitions=tuple(part for part in fields.get("Partitions", "").split(",") if part),
                    reason=_named(fields.get("Reason", "")),
                )
            )
    return tuple(found)


def wait_status(value: object) -> tuple[int, int]:
    """(exit code, signal) of a JSON `exit_code`: a raw wait status, or an object of newer releases."""
    if isinstance(value, Mapping) and "return_code" in value:
        inner = value.get("signal")
        number = whole(inner.get("id") if isinstance(inner, Mapping) and "id" in inner else inner)
        return whole(value.get("return_code")), number
    raw = whole(value)
    return (raw >> 8) & 0xFF, raw & 0x7F


def whole(value: object) -> int:
    """A count: plain, or `{"set": true, "infinite": false, "number": 3}`; 0 for what is not set."""
    if isinstance(value, Mapping):
        return whole(value.get("number")) if value.get("set", True) and not value.get("infinite") else 0
    return int(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else _digits(value)


def word(value: object) -> str:
    """A state: plain, or the first of a list; in capitals."""
    words = _texts(value)
    return words[0].upper() if words else "UNKNOWN"


def gpu_count(gres: str) -> int:
    """GPUs of `gpu:h100:8(S:0-1),gpu:2`; a socket list in parentheses and other resources do not count."""
    plain = re.sub(r"\([^)]*\)", "", gres)
    counts = [part.rsplit(":", 1)[-1] for part in plain.split(",") if part.split(":")[0] == "gpu"]
    return sum(int(count) if count.isdigit() else 1 for count in counts)


def _texts(value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        return (value,) if value else ()
    return tuple(str(one) for one in value if one) if isinstance(value, list) else ()


def _digits(value: object) -> int:
    text = str(value if value is not None else "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 16 else 0


def _named(value: str) -> str:
    return "" if value in ("(null)", "None", "N/A", "none") else value


def _items(text: str, name: str) -> list[Mapping[str, object]]:
    try:
        body = json.loads(text)
    except RecursionError as error:
        raise ValueError(name) from error
    found = body.get(name) if isinstance(body, dict) else None
    if not isinstance(found, list):
        raise ValueError(name)
    return [one for one in found if isinstance(one, dict)]
