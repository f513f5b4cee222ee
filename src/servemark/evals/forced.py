"""Who forces acceptance: under it drafts are taken by a rule and not by verification, so the text is not the model's and
no eval means anything.

Three may say so: the master (`SYNTHETIC_ACCEPTANCE`), the recipe (a setting of its engine), and the running engine (its
own configuration, or counters that only a rule makes).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from servemark.base.errors import Layer, ServemarkError
from servemark.catalog.acceptance import master_force
from servemark.catalog.arms import SearchEntry
from servemark.catalog.deployment import Deployment
from servemark.checks.golden import recipe_lengths
from servemark.evals.acceptance import Acceptance, SpecCounters, acceptance, spec_counters
from servemark.launch.engines.prometheus import parse_prometheus
from servemark.launch.http_probe import ProbeError, fetch, fetch_json

_LENGTH_KEYS = ("synthetic_acceptance_length", "speculative.synth_len", "synth_len", "simulate_acc_len")
_RATE_KEYS = ("synthetic_acceptance_rates", "speculative.synth_rates", "synth_rates")
_ENV_KEYS = ("SGLANG_SIMULATE_ACC_LEN", "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS")
_CONFIG_PATHS = ("/server_info?config_format=json", "/server_info", "/get_server_info")
"""vLLM prints its configuration as one text unless it is asked for JSON; SGLang takes no notice of the question."""
_MAX_BYTES = 16 << 20
MAX_DEPTH = 8
LEAST_STEPS = 50
"""Verify steps below which an exact pattern of positions may be chance."""
_WHOLE = 1e-9
MAX_TEXT = 1_000_000
"""Characters of a text in which settings are looked for."""
_KEYS = "|".join(
    re.escape(key).replace("_", "[_-]")
    for key in (*_LENGTH_KEYS, *_RATE_KEYS, *_ENV_KEYS, "rejection_sample_method")
)
_IN_TEXT = re.compile(rf"(?<![A-Za-z0-9])({_KEYS})[\"']?\s*[=:]\s*[\"']?([\w.+-]{{1,40}}|\[)")
"""A setting and its value as a text shows them: a Python repr, JSON inside of JSON, a command line."""


@dataclass(frozen=True, slots=True)
class Forced:
    """Forced acceptance: who says so, by which name, where it is written ("" for a running engine), and the length in
    tokens a step (bonus token included) where it is stated."""

    by: str
    """`master`, `recipe`, `engine` or `counters`."""
    name: str
    where: str = ""
    length: float | None = None

    def refusal(self, where: str = "") -> ServemarkError:
        """Why no eval runs here (exit 2)."""
        return ServemarkError(
            f"evals.forced.{self.by}",
            Layer.EVALS,
            where=self.where or where or None,
            exit_code=2,
            name=self.name,
            length="—" if self.length is None else f"{self.length:.2f}",
        )


def forced_in_master(entry: SearchEntry) -> Forced | None:
    """What the arm's additional settings force."""
    said = master_force(entry)
    return None if said is None else Forced("master", said.name, str(said.at), said.length)


def forced_in_recipe(deployment: Deployment) -> Forced | None:
    """What the recipe's own engine settings force on any role."""
    for role in deployment.roles:
        for stated in recipe_lengths(deployment, role):
            if stated is not None:
                return Forced("recipe", stated.name, str(stated.at), stated.value)
        argument = role.flags.get("speculative-config")
        found = None if argument is None else forced_by_engine({"speculative-config": argument.value})
        if argument is not None and found is not None:
            return Forced("recipe", found.name, str(argument.at), found.length)
    return None


def forced(entry: SearchEntry | None, deployment: Deployment) -> Forced | None:
    """What master or recipe force; None where acceptance is real."""
    found = forced_in_master(entry) if entry is not None else None
    return found or forced_in_recipe(deployment)


def forced_by_engine(details: Mapping[str, object]) -> Forced | None:
    """What a running engine says of its own configuration, wherever in it and however spelt that stands: as fields, or
    in a text (vLLM prints its configuration as one; a `speculative_config` may be JSON inside of JSON)."""
    waiting: list[tuple[object, int]] = [(details, 0)]
    while waiting:
        here, depth = waiting.pop()
        if isinstance(here, list | tuple) and depth < MAX_DEPTH:
            waiting += [(inner, depth + 1) for inner in here]
        if isinstance(here, str):
            found = _in_text(here)
            if found is not None:
                return found
        if not isinstance(here, Mapping):
            continue
        for key, value in here.items():
            found = _engine_field(str(key), value)
            if found is not None:
                return found
            if depth < MAX_DEPTH and isinstance(value, Mapping | list | tuple | str):
                waiting.append((value, depth + 1))
    return None


def _in_text(said: str) -> Forced | None:
    for match in _IN_TEXT.finditer(said[:MAX_TEXT].replace("\\", "")):
        value: object = match[2] if match[2] != "[" else [match[2]]
        found = _engine_field(match[1], value)
        if found is not None:
            return found
    return None


def _engine_field(key: str, value: object) -> Forced | None:
    if "-" in key:
        key = key.replace("-", "_")
    if key in _LENGTH_KEYS or key in _ENV_KEYS:
        length = _number(value)
        if length is not None and length > 0:
            more = 1.0 if key == _ENV_KEYS[1] else 0.0
            return Forced("engine", key, length=round(length + more, 9))
    if key in _RATE_KEYS and isinstance(value, list | tuple) and value:
        return Forced("engine", key)
    if key == "rejection_sample_method" and str(value).lower() == "synthetic":
        return Forced("engine", key)
    return None


def forced_by_counters(found: Acceptance) -> Forced | None:
    """The pattern that only a least-variance rule makes: the first positions always accepted, one at some share, every
    further one never. Verification of real drafts is never that sharp over `LEAST_STEPS` steps."""
    shares = found.per_position
    if found.steps is None or found.steps < LEAST_STEPS or len(shares) < 3:
        return None
    always = next((i for i, share in enumerate(shares) if share < 1 - _WHOLE), len(shares))
    after = shares[always + 1 :]
    if always >= 1 and after and all(share <= _WHOLE for share in after):
        return Forced("counters", ", ".join(f"{share:.2f}" for share in shares), length=found.length)
    return None


def forced_by_settings(base_url: str) -> Forced | None:
    """What a running server shows of its own configuration, where it shows any (vLLM in development mode, SGLang)."""
    for path in _CONFIG_PATHS:
        try:
            said = fetch_json(base_url, path, timeout_s=10.0, max_bytes=_MAX_BYTES)
        except (ProbeError, ValueError):
            continue
        found = forced_by_engine(said) if isinstance(said, dict) else None
        if found is not None:
            return found
    return None


def forced_by_server(url: str) -> Forced | None:
    """Whether a running server, by its settings or by what it has counted since it started, forces acceptance. None also
    where it tells nothing: then nobody can know from outside."""
    base = url.rstrip("/").removesuffix("/v1")
    found = forced_by_settings(base)
    if found is not None:
        return found
    try:
        reply = fetch(base, "/metrics", timeout_s=10.0, max_bytes=_MAX_BYTES)
        raw = parse_prometheus(reply.body.decode("utf-8")) if reply.status == 200 else {}
    except (ProbeError, ValueError):
        return None
    return forced_by_counters(acceptance(SpecCounters(None, None, None), spec_counters(raw)))


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
