"""The manifest: what was asked and what is expected, written before anything starts."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from servemark.catalog.acceptance import differences
from servemark.evals.expected import ExpectedSet
from servemark.evals.forced import forced
from servemark.launch.engines.registry import FRAMEWORKS
from servemark.runs.host import host_facts, package_versions, versions
from servemark.traces.describe import describe

if TYPE_CHECKING:
    from servemark.plan.points import Point
    from servemark.runs.request import LineRequest


def utc_now() -> str:
    """Wall-clock time for people: ISO 8601, seconds, Z. Never used to measure."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def new_line_id(arm: str) -> str:
    """Sorts by time, lines of one arm and second by 256ths of it; four random hex digits keep them apart."""
    now = datetime.now(UTC)
    stamp = now.strftime("%Y%m%d-%H%M%S")
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", arm).strip("-.")[:60] or "arm"
    return f"{stamp}-{name}-{now.microsecond * 256 // 1_000_000:02x}{secrets.token_hex(2)}"


def run_id(line_id: str, concurrency: int | None) -> str:
    """One run a point: the line's id and the concurrency, or `open` for an open loop."""
    return f"{line_id}-open" if concurrency is None else f"{line_id}-c{concurrency}"


def declared(request: LineRequest) -> dict[str, object]:
    """What master and recipe say will run, to be put beside what was observed."""
    choice = request.choice
    frameworks = choice.deployment.identity.get("frameworks")
    version = frameworks.get(choice.deployment.engine) if isinstance(frameworks, dict) else None
    return {
        "model": choice.arm.model,
        "model_path": choice.deployment.model_path,
        "weights": choice.deployment.weights or "model",
        "precision": choice.arm.precision,
        "image": choice.arm.image,
        "container": choice.deployment.container,
        "framework": choice.arm.framework,
        "engine": FRAMEWORKS.get(choice.deployment.engine, choice.deployment.engine),
        "engine_version": version,
        "hardware": choice.arm.runner,
        "gpus": choice.deployment.gpus_total,
        "spec_decoding": choice.entry.spec_decoding,
        "kv_offloading": choice.entry.kv_offloading,
        "engine_args": dict(choice.deployment.roles[0].args),
        **_speculation(request),
        **_thresholds(request),
        **_scored_on(request),
    }


def _scored_on(request: LineRequest) -> dict[str, object]:
    """Where acceptance is forced: the deployment that tasks are asked on instead, or why none is asked."""
    rule, scored = request.not_scored, request.scored
    if rule is not None:
        return {
            "not_scored": {"code": "forced_acceptance", "by": rule.by, "name": rule.name, "at": rule.where}
        }
    if scored is None:
        return {}
    measured, other = request.choice.deployment, scored.choice.deployment
    return {
        "eval_deployment": {
            "acceptance": "real",
            "file": other.file,
            "fingerprint": other.fingerprint(),
            "differences": [each.plain() for each in differences(measured, other)],
        }
    }


def _thresholds(request: LineRequest) -> dict[str, object]:
    """Least scores of the suite for this arm's model, written down before the run; nothing where it states none."""
    found = request.choice.suite.thresholds([]) if request.tasks else None
    if found is None:
        return {}
    prefix = request.choice.arm.model_prefix
    limits = {task.id: found.of(prefix, task.id) for task in request.tasks}
    return {"eval_thresholds": {task: limit for task, limit in limits.items() if limit is not None}}


def _speculation(request: LineRequest) -> dict[str, object]:
    """Speculative decoding as the recipe asks for it, and whether its acceptance is forced; nothing without it."""
    deployment = request.choice.deployment
    role = deployment.role("decode") or deployment.role("aggregated")
    asked = role.speculative if role is not None else None
    rule = forced(request.choice.entry, deployment)
    if asked is None and rule is None:
        return {}
    found: dict[str, object] = {
        "speculation": {
            "method": None if asked is None else asked.method,
            "draft_tokens": None if asked is None else asked.draft_tokens,
            "draft_model": None if asked is None else asked.draft_model,
            "acceptance": "real" if rule is None else "forced",
            "forced_by": None if rule is None else rule.name,
        }
    }
    if rule is not None and rule.length is not None:
        found["acceptance_length"] = rule.length
    return found


def workload_facts(request: LineRequest) -> dict[str, object]:
    """The workload as manifest and row keep it: id, how to make it again, sizes."""
    return describe(request.workload)


def cache_state(request: LineRequest) -> dict[str, object]:
    """Law 13: the state each point starts from."""
    if request.cold:
        return {"kind": "cold", "marker_scope": None}
    return {"kind": "marked", "marker_scope": request.cache_bust}


def manifest(
    request: LineRequest,
    line_id: str,
    point: Point,
    created: str,
    foretold: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """One point's manifest."""
    choice = request.choice
    return {
        "run_id": run_id(line_id, point.concurrency),
        "line_id": line_id,
        "created_utc": created,
        "suite": choice.suite.name,
        "arm": choice.arm.key,
        "topology": choice.entry.topology,
        "concurrency": point.concurrency,
        "point_id": point.identity.point_id,
        "series_id": point.identity.series_id,
        "identity": point.identity.canonical,
        "declared": declared(request),
        "workload": workload_facts(request),
        "cache_state": cache_state(request),
        "expected": {
            "requests": request.workload.requests,
            "evals": ExpectedSet.of(
                request.tasks, [choice.deployment.benchmark.eval_concurrency or point.concurrency]
            ).plain(),
            "files": ["requests.jsonl", "server_metrics.jsonl", "logs/engine.log", "result.json"]
            + (["evals.json", "samples.jsonl"] if request.tasks else []),
            "line_runs": [run_id(line_id, p.concurrency) for p in request.points],
            **(foretold or {}),
        },
        "cluster": None if request.described is None else request.described.name,
        "inputs": request.inputs,
        "host": host_facts(),
        "packages": package_versions(),
        "versions": versions(),
        "command": list(request.command),
        "pid": os.getpid(),
    }
