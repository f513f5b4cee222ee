"""What an InferenceX row says of its deployment -> the constant part of its points, worked out once a configuration.

Public API rows, flat aggregates (all versions) and evaluation rows use other keys for the same things; `Stated` is the
one shape that they are brought to.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import lru_cache
from operator import itemgetter
from typing import NamedTuple

from servemark.results.importers.inferencex_names import SINGLE_POOL, Names, Problem, names_of
from servemark.results.point import Execution, Offload, PointIdentity, RoleTopology, Scenario

_DIGEST = re.compile(r"@(sha256:[0-9a-f]{64})\Z")
_RUN = re.compile(r"/runs/(\d+)(?:/attempts/(\d+))?")
_GATHERED = re.compile(r"results_(\d{4}-\d{2}-\d{2})T(\d{2})-(\d{2})-(\d{2})[.0-9]*\.json\Z", re.ASCII)
_ATTEMPT = re.compile(r"attempt[-_ ]?(\d{1,4})")
MAX_COUNT = 10**6
KNOWN = 256
"""Concurrencies of one configuration that are remembered; a real sweep has a dozen."""


class Stated(NamedTuple):
    """One row's deployment as stated; hashable, so that a configuration is worked out once."""

    model: object
    prefix: object
    hardware: object
    framework: object
    precision: object
    speculation: object
    disagg: object
    multinode: object
    prefill_tp: object
    prefill_ep: object
    prefill_dpa: object
    prefill_workers: object
    prefill_gpus: object
    decode_tp: object
    decode_ep: object
    decode_dpa: object
    decode_workers: object
    decode_gpus: object
    gpus: object
    """A count of all GPUs, where the row has one."""
    pp: object
    dcp: object
    pcp: object
    isl: object
    osl: object
    scenario: object
    image: object
    fingerprint: object
    offload: object
    offload_backend: object
    dataset: object
    rules: object
    evaluation: object
    """The task of an evaluation row."""


@dataclass(frozen=True, slots=True)
class Config:
    """The constant part of the points of one configuration."""

    names: Names
    scenario: Scenario
    topology: tuple[RoleTopology, ...]
    offload: Offload | None
    image: str | None
    fingerprint: str | None
    extra: dict[str, object]
    declared: dict[str, object]
    disaggregated: bool
    tp: int | None
    ep: int | None
    prefill_gpus: int | None
    decode_gpus: int | None
    lost_split: bool
    """The row has no worker counts and one GPU count on both sides."""
    gpus_stated: int | None
    own_count: bool
    """True where the count of GPUs is the row's own and not made of tp and ep."""
    notes: tuple[str, ...] = field(default=())
    known: dict[int, PointIdentity] = field(default_factory=dict, compare=False, repr=False)
    """Identities by concurrency: the points of many runs share one."""

    def at(self, concurrency: int) -> PointIdentity:
        """The identity at one concurrency, made once."""
        found = self.known.get(concurrency)
        if found is None:
            if len(self.known) >= KNOWN:
                self.known.clear()
            found = self.known[concurrency] = self.identity(concurrency)
        return found

    def identity(
        self,
        concurrency: int | None,
        topology: tuple[RoleTopology, ...] | None = None,
        split: Mapping[str, int] | None = None,
    ) -> PointIdentity:
        """The identity at one concurrency; `topology` and `split` for a row whose roles had to be recovered."""
        names = self.names
        return PointIdentity(
            names.model, names.hardware, names.engine, self.scenario, concurrency, None, None, self.image,
            names.precision, names.speculation, self.topology if topology is None else topology, self.offload,
            self.fingerprint, names.router, {**self.extra, **split} if split else dict(self.extra),
        )  # fmt: skip


_ROLES = (
    "prefill_tp", "prefill_ep", "prefill_dp_attention", "prefill_num_workers", "num_prefill_gpu",
    "decode_tp", "decode_ep", "decode_dp_attention", "decode_num_workers", "num_decode_gpu",
)  # fmt: skip
_ROLE_FIELDS = itemgetter(*_ROLES)
_API_FIELDS = itemgetter(
    "model", "hardware", "framework", "precision", "spec_method", "disagg", "is_multinode", *_ROLES
)


def api_configuration(row: Mapping[str, object]) -> Config | Problem:
    """Of a row of the public API (benchmarks and evaluations). Raises KeyError for a field that every row has."""
    get = row.get
    return _api_configuration(
        *_API_FIELDS(row), get("isl"), get("osl"), get("benchmark_type"), get("image"),
        get("recipe_fingerprint"), get("offload_mode"), get("task"),
    )  # fmt: skip


@lru_cache(maxsize=4096, typed=True)  # by type too: true is no count, though it equals 1
def _api_configuration(model: object, *fields: object) -> Config | Problem:
    """`fields`: the others of _API_FIELDS, then what `api_configuration` gives beside them."""
    *roles, isl, osl, kind, image, fingerprint, offload, task = fields
    rest = (None, None, None, None, isl, osl, kind, image, fingerprint, offload, None, None, None, task)
    return configuration(Stated._make((model, None, *roles, *rest)))


def flat_configuration(row: Mapping[str, object], hints: Mapping[str, str]) -> Config | Problem:
    """Of an aggregate of any version: `tp`, `ep`, `dp_attention` for one server, `prefill_*` and `decode_*` for roles."""
    get = row.get
    data = get("dataset")
    data = data if isinstance(data, dict) else {}
    tp, ep, dpa = get("tp"), get("ep"), get("dp_attention")
    split = get("prefill_tp") is not None and _flag(get("disagg")) is not False
    said = (
        get("model"), get("infmax_model_prefix", get("model_prefix")), get("hw"), get("framework"), get("precision"),
        get("spec_decoding", get("mtp")), get("disagg"), get("is_multinode"),
    )  # fmt: skip
    roles = _ROLE_FIELDS(_Absent(row)) if split else (tp, ep, dpa, None, None) * 2
    rest = (
        get("num_gpus") or _whole_hint(hints, "gpus"), get("pp"), get("dcp_size"), get("pcp_size"),
        get("isl") or _whole_hint(hints, "isl"), get("osl") or _whole_hint(hints, "osl"), get("scenario_type"),
        get("image"), get("recipe_fingerprint"), get("kv_offloading"), get("kv_offload_backend"),
        data.get("hf_dataset_name"), data.get("loader"), get("task"),
    )  # fmt: skip
    return configuration(Stated._make((*said, *roles, *rest)))


class _Absent(dict[str, object]):
    """A row in which every key stands, null where it is not stated."""

    def __missing__(self, key: str) -> None:
        return None


def _whole_hint(hints: Mapping[str, str], name: str) -> int | None:
    text = hints.get(name, "")
    return int(text) if text.isdecimal() and len(text) < 10 else None


def _flag(value: object) -> bool | None:
    """true, "true", 1 ...; None for what is no flag."""
    if value is None or isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    return (
        True
        if word in {"true", "1", "yes", "on"}
        else False
        if word in {"false", "0", "no", "off", "none", ""}
        else None
    )


class CountError(Exception):
    """A count that is none: the field and its value."""

    def __init__(self, name: str, value: object) -> None:
        super().__init__(name)
        self.problem = Problem("results.import_bad_count", {"field": name, "value": repr(value)[:60]}, True)


def count(value: object, name: str, least: int = 0) -> int | None:
    """A whole number of at least `least`, also one in digits; None for null. Raises CountError for anything else."""
    if value is None:
        return None
    if isinstance(value, str) and value.strip().isdecimal() and len(value) < 10:
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MAX_COUNT:
        raise CountError(name, value)
    return value


def configuration(stated: Stated) -> Config | Problem:
    """What a configuration's points have in common, or why they cannot be mapped."""
    return _of_stated(*stated)


@lru_cache(maxsize=4096, typed=True)  # as above
def _of_stated(*said: object) -> Config | Problem:
    stated = Stated._make(said)
    names = names_of(
        stated.model, stated.prefix, stated.hardware, stated.framework, stated.precision, stated.speculation
    )
    if isinstance(names, Problem):
        return names
    scenario = _scenario(stated)
    if isinstance(scenario, Problem):
        return scenario
    try:
        return _configuration(stated, names, scenario)
    except CountError as error:
        return error.problem


def _configuration(stated: Stated, names: Names, scenario: Scenario) -> Config:
    sides = {
        role: (
            count(getattr(stated, f"{role}_tp"), f"{role}_tp"), count(getattr(stated, f"{role}_ep"), f"{role}_ep"),
            _flag(getattr(stated, f"{role}_dpa")), count(getattr(stated, f"{role}_workers"), f"{role}_num_workers"),
            count(getattr(stated, f"{role}_gpus"), f"num_{role}_gpu"),
        )
        for role in ("prefill", "decode")
    }  # fmt: skip
    flagged = _flag(stated.disagg)
    one_pool = (
        flagged and scenario.type == "eval" and names.framework in SINGLE_POOL and not _flag(stated.multinode)
    )
    one_pool = one_pool and sides["prefill"] == sides["decode"]
    disaggregated = bool(flagged) and not one_pool
    p_tp, p_ep, dpa, p_workers, p_gpus = sides["prefill"]
    d_workers, d_gpus = sides["decode"][3:]
    lost = disaggregated and not p_workers and not d_workers and p_gpus is not None and p_gpus == d_gpus
    own = count(stated.gpus, "num_gpus")
    pp, dcp, pcp = count(stated.pp, "pp"), count(stated.dcp, "dcp_size"), count(stated.pcp, "pcp_size")
    if disaggregated:
        topology = () if lost else tuple(_role(role, sides[role]) for role in ("prefill", "decode"))
        gpus = own if own is not None else None if p_gpus is None or d_gpus is None else p_gpus + d_gpus
    else:
        topology = (RoleTopology("aggregated", None, None, p_tp, pp, None, p_ep, dcp, pcp, dpa),)
        gpus = own if own is not None else p_gpus
    declared = _declared(stated)
    if lost:
        declared |= {"prefill_gpus": p_gpus, "decode_gpus": d_gpus}
    return Config(
        names, scenario, topology, _offload(stated), _word(stated.image), _word(stated.fingerprint), _extra(names),
        declared, disaggregated, p_tp, p_ep, p_gpus, d_gpus, lost, gpus, own is not None,
        ("flagged disaggregated, but this framework starts one server: taken as one pool",) if one_pool else (),
    )  # fmt: skip


_Side = tuple[int | None, int | None, bool | None, int | None, int | None]


def _role(role: str, side: _Side) -> RoleTopology:
    """One role. GPUs of a worker only where they are a whole part of the role's and not made of tp x ep."""
    tp, ep, dpa, workers, gpus = side
    each = gpus // workers if gpus and workers and gpus % workers == 0 else None
    if each is not None and tp and ep and ep > 1 and each == tp * ep:
        each = None
    return RoleTopology(
        "prefill" if role == "prefill" else "decode", workers or None, each, tp, ep=ep, dp_attention=dpa
    )


def _scenario(stated: Stated) -> Scenario | Problem:
    if stated.evaluation is not None:
        return Scenario("eval", dataset=str(stated.evaluation)[:120])
    try:
        isl, osl = count(stated.isl, "isl", 1), count(stated.osl, "osl", 1)
    except CountError as error:
        return error.problem
    kind = str(stated.scenario or "").lower()
    if "agentic" in kind or (isl is None and osl is None and kind):
        if "agentic" not in kind:
            return Problem("results.import_unknown_scenario", {"word": kind[:120]})
        return Scenario("agentic-coding", dataset=_word(stated.dataset), rules=_word(stated.rules))
    if isl is None or osl is None:
        return Problem("results.import_no_shape")
    return Scenario("fixed-seq-len", isl=isl, osl=osl)


def _offload(stated: Stated) -> Offload | None:
    tier = _word(stated.offload)
    if tier is None or tier.lower() in {"none", "off"}:
        return None
    return Offload("dram" if tier.lower() == "on" else tier, _word(stated.offload_backend))


def _extra(names: Names) -> dict[str, object]:
    return {} if names.framework == names.engine else {"framework": names.framework}


def _declared(stated: Stated) -> dict[str, object]:
    """Words as reported, beside what they were mapped to."""
    said: dict[str, object] = {
        "model": stated.model,
        "hardware": stated.hardware,
        "framework": stated.framework,
    }
    image = _word(stated.image)
    digest = _DIGEST.search(image) if image else None
    if digest is not None:
        said["image_digest"] = digest.group(1)
    return said


def _word(value: object) -> str | None:
    return value.strip() if isinstance(value, str) and value.strip() else None


def execution(row: Mapping[str, object], hints: Mapping[str, str], name: str) -> Execution:
    """Which run and attempt a row is of: its own link first, then what the user says, then the file's name.

    A row that names the file it was gathered from (`source`: .../results_TIME.json) is of that file's own execution. A
    file that says nothing of its run is a run of its folder; two attempts lie in one folder as `attempt1`, `attempt2`.
    """
    get, hint = row.get, hints.get
    gathered = get("source")
    gathered = gathered if isinstance(gathered, str) and not get("run_url") else ""
    at = _GATHERED.search(gathered)
    told = f"{at.group(1)}T{at.group(2)}:{at.group(3)}:{at.group(4)}Z" if at else None
    started = get("timestamp") or told or get("date") or hint("date")
    run = hint("run") or gathered.rpartition("/")[2].removesuffix(".json")[:100] or None
    return _execution(get("run_url"), started, run, hint("attempt"), name)


@lru_cache(maxsize=1024)
def _execution(url: object, started: object, run: str | None, attempt: str | None, name: str) -> Execution:
    begun = started[:40] if isinstance(started, str) and _is_time(started) else None
    link = url if isinstance(url, str) else None
    found = _RUN.search(link) if link else None
    if found is not None:
        return Execution(found.group(1), _attempt(found.group(2) or attempt or "") or 1, begun, None, link)
    folder, _, file = name.replace("\\", "/").rpartition("/")
    number = _attempt(attempt or "")
    if number is None:
        in_name = _ATTEMPT.search(file.lower())
        number = int(in_name.group(1)) if in_name else 1
    return Execution(run or folder.rpartition("/")[2] or "unstated", max(1, number), begun, None, link)


def _is_time(text: str) -> bool:
    """A date or a moment in ISO 8601; anything else would stand in a false order."""
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _attempt(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 5 and int(text) > 0 else None
