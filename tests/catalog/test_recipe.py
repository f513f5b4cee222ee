"""Recipes of all three shapes become one kind of deployment; expected values are worked out by hand from the texts."""

# ruff: noqa: E501 - made-up files and their expected values stand on one line each

from __future__ import annotations

import math

import pytest

from servemark.catalog.byte_sizes import binary_size
from servemark.catalog.deployment import Deployment
from servemark.catalog.engine_args import arguments_of, canonical_name
from servemark.catalog.nodes import Problem, errors_of
from servemark.catalog.recipe import deployment_of
from servemark.catalog.variants import variant_names
from servemark.catalog.yaml_nodes import parse_yaml

ONE = """\
name: one
model: {path: org/m, container: "org/img:1", precision: fp8}
resources:
  gpu_type: gb300
  gpus_per_node: 4
  prefill_nodes: 2
  prefill_workers: 1
  gpus_per_prefill: 8
  decode_nodes: 4
  decode_workers: 2
environment: {A: "1"}
dynamo: {hash: 0123abc, install: true}
identity: {model: {repo: org/m, revision: r1}, container: {image: "org/img:1"}, frameworks: {dynamo: 0123abc, vllm: "0.9"}}
health_check: {max_attempts: 360, interval_seconds: 10}
slurm: {time_limit: "8:00:00"}
infra: {nats_max_payload_mb: 32}
frontend: {type: dynamo, args: {router-mode: kv}, env: {F: "x"}}
backend:
  type: vllm
  connector: null
  prefill_environment: &env {P: "1"}
  decode_environment: {<<: *env, D: "2"}
  mooncake_kv_store:
    master_extra_args: ["--eviction_ratio=0.10"]
    store_config: {global_segment_size: 150GB, local_buffer_size: 4GB, protocol: rdma}
  vllm_config:
    prefill:
      kv-transfer-config: '{"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":{"connectors":[{"kv_connector":"NixlConnector","kv_role":"kv_both","kv_connector_extra_config":{"backends":["UCX"]}},{"kv_connector":"MooncakeStoreConnector","kv_connector_extra_config":{"load_async":true}}]}}'
      tensor-parallel-size: 8
      decode-context-parallel-size: 8
      enable-expert-parallel: true
      speculative-config: '{"model":"org/draft","method":"dspark","num_speculative_tokens":4,"draft_sample_method":"probabilistic","rejection_sample_method":"block"}'
    decode:
      tensor_parallel_size: 2
      data-parallel-size: 4
benchmark: {type: sa-bench, isl: 8192, osl: 1024, concurrencies: "512x1024", req_rate: inf}
"""


def deploy(text: str, variant: str | None = None) -> tuple[Deployment | None, list[Problem]]:
    """The deployment of a recipe's text and everything that is wrong with it."""
    root, problems = parse_yaml(text.encode(), "r")
    return deployment_of(root, problems, variant), problems


def good(text: str, variant: str | None = None) -> Deployment:
    """The deployment of a text without problems."""
    found, problems = deploy(text, variant)
    assert not problems and found is not None, problems
    return found


def test_schema_one_in_full() -> None:
    """Roles, sizes, environment, connectors, speculation, services, revisions, images, budgets."""
    found = good(ONE)
    prefill, decode = found.roles
    assert (found.schema, found.engine, found.gpu_type, found.gpus_per_node) == (1, "vllm", "gb300", 4)
    assert (prefill.role, prefill.workers, prefill.nodes, prefill.gpus) == ("prefill", 1, 2, 8)
    assert (decode.role, decode.workers, decode.nodes, decode.gpus) == ("decode", 2, 4, 8)  # 4 nodes x 4 / 2
    assert found.gpus_total == 24 and found.nodes_total == 6
    assert (prefill.parallel.tp, prefill.parallel.dcp, prefill.parallel.ep) == (8, 8, 8)
    assert prefill.parallel.ranks("vllm") == 8 and decode.parallel.ranks("vllm") == 8  # 2 x 4
    assert decode.parallel.dp_attention and decode.parallel.ep is None
    assert decode.env == {"P": "1", "D": "2"} and found.environment == {"A": "1"}
    assert [(c.name, c.inside) for c in prefill.connectors] == [
        ("MultiConnector", ()),
        ("NixlConnector", ("MultiConnector",)),
        ("MooncakeStoreConnector", ("MultiConnector",)),
    ]
    assert prefill.connectors[1].config == {"backends": ["UCX"]} and found.kv_transfer == ("nixl",)
    spec = prefill.speculative
    assert spec is not None and (spec.method, spec.draft_tokens, spec.draft_model) == (
        "dspark",
        4,
        "org/draft",
    )
    assert (spec.draft_sampling, spec.rejection_sampling) == ("probabilistic", "block")
    nats, store = found.services
    assert nats.sizes == {"max_payload": 32 * 2**20}
    assert store.sizes == {"global_segment_size": 150 * 2**30, "local_buffer_size": 4 * 2**30}
    assert store.args["eviction-ratio"].value == "0.10"
    assert [(s.name, s.kind, s.value) for s in found.software] == [
        ("dynamo", "hash", "0123abc"),
        ("dynamo", "identity", "0123abc"),
        ("vllm", "identity", "0.9"),
    ]
    assert [image.field for image in found.images] == ["model.container", "identity.container.image"]
    assert found.frontend is not None and found.frontend.router_mode == "kv"
    assert (found.ready_budget_s, found.ready_budget_stated, found.time_limit_s) == (3600.0, True, 8 * 3600)
    bench = found.benchmark
    assert (bench.type, bench.isl, bench.osl, bench.concurrencies) == ("sa-bench", 8192, 1024, (512, 1024))
    assert str(prefill.flags["tensor-parallel-size"].at) == "r:29:29"


def test_comments_and_order_are_no_part_of_the_fingerprint() -> None:
    """Spelling of a flag, comments and order of keys change nothing; a value does."""
    base = good(ONE).fingerprint()
    assert (
        good("# hello\n" + ONE.replace("tensor_parallel_size: 2", "tensor-parallel-size: 2")).fingerprint()
        == base
    )
    assert good(ONE.replace("tensor_parallel_size: 2", "tensor-parallel-size: 4")).fingerprint() != base
    assert good(ONE.replace('A: "1"', 'A: "2"')).fingerprint() != base
    assert good(ONE.replace("max_attempts: 360", "max_attempts: 361")).fingerprint() == base


def test_infinite_arguments_have_a_fingerprint() -> None:
    """JSON has no infinity; the hash must not fail on it."""
    text = ONE.replace("data-parallel-size: 4", "data-parallel-size: 4\n      x: .inf")
    found = good(text)
    assert found.roles[1].flag("x") == math.inf and len(found.fingerprint()) == 64


TWO = """\
schema: 2
name: two
model: {path: org/m, container: i, precision: fp4}
dynamo: {source: {rev: abc}}
services:
- {name: m, type: mooncake-master, placement: {node: infra}, args: [--default_kv_lease_ttl=60000, --flag, -x, "-1"],
   options: {store_config: {global_segment_size: 190GB}}}
engine: {type: sglang, port: 8000}
roles:
  aggregated:
    nodes: 1
    workers: 2
    gpus: 4
    args: "--tp 4 --dp-size=2 --enable-dp-attention --speculative-algo EAGLE --speculative-num-steps 3"
benchmark: {type: custom, concurrencies: [48]}
"""


def test_schema_two_with_flags_in_one_text() -> None:
    """Short spellings, values after `=` or a space, switches; sizes of services by their own rules."""
    found = good(TWO)
    role = found.roles[0]
    assert (role.workers, role.gpus, found.gpus_total, found.port) == (2, 4, 8, 8000)
    assert role.flag("enable-dp-attention") is True and role.flag("tensor-parallel-size") == "4"
    assert (role.parallel.tp, role.parallel.dp, role.parallel.ranks("sglang")) == (4, 2, 4)
    assert role.speculative is not None and (role.speculative.method, role.speculative.draft_tokens) == (
        "eagle",
        3,
    )
    service = found.services[0]
    assert service.placement == "infra" and service.sizes == {"global_segment_size": 204_010_946_560}
    assert {name: a.value for name, a in service.args.items()} == {
        "default-kv-lease-ttl": "60000",
        "flag": True,
        "x": "-1",
    }
    assert [(s.kind, s.value) for s in found.software] == [("source", "abc")]
    assert not found.ready_budget_stated


VARIANTS = (
    "base:\n" + "".join(f"  {line}\n" for line in ONE.splitlines())
    + """\
override_small:
  name: small
  backend: {vllm_config: {prefill: {enable-expert-parallel: null}}}
zip_override_wide:
  name: [w0, w1, w2]
  resources: {prefill_workers: [1, 2, 4], prefill_nodes: [2, 4, 8], decode_workers: 4}
  benchmark: {concurrencies: [[1], [2, 3], [4]]}
zip_override_bad:
  name: [x, y]
  resources: {prefill_workers: [1, 2, 3]}
"""
)  # fmt: skip


def test_variants_merge_over_the_base() -> None:
    """null deletes, lists of a zip block are chosen by index, everything else stays; positions follow the block."""
    root, _ = parse_yaml(VARIANTS.encode(), "r")
    assert variant_names(root) == ("override_small", *(f"zip_override_wide[{i}]" for i in range(3)))
    small = good(VARIANTS, "override_small")
    assert small.name == "small" and small.roles[0].parallel.ep is None
    wide = good(VARIANTS, "zip_override_wide[1]")
    assert (wide.name, wide.roles[0].workers, wide.roles[1].workers) == ("w1", 2, 4)
    assert wide.benchmark.concurrencies == (2, 3) and wide.variant == "zip_override_wide[1]"
    assert wide.roles[1].gpus == 4 * 4 // 4 and wide.roles[0].flag("tensor-parallel-size") == 8
    assert good(VARIANTS, "override_small").fingerprint() != wide.fingerprint()


@pytest.mark.parametrize(
    ("variant", "key"),
    [
        (None, "catalog.variant_missing"),
        ("override_none", "catalog.no_variant"),
        ("zip_override_wide", "catalog.zip_index"),
        ("zip_override_wide[3]", "catalog.zip_index"),
        ("zip_override_wide[-1]", "catalog.no_variant"),
        ("override_small[0]", "catalog.index_without_zip"),
        ("zip_override_bad[0]", "catalog.zip_lengths"),
        ("base", "catalog.no_variant"),
    ],
)
def test_variants_that_cannot_be_had(variant: str | None, key: str) -> None:
    """Each is one error that names what there is."""
    found, problems = deploy(VARIANTS, variant)
    assert found is None and [p.key for p in errors_of(problems)] == [key]


BAD = {
    "no roles booked": (ONE.replace("_workers: 1", "_workers: 0").replace("_workers: 2", "_workers: 0"), "catalog.no_roles"),
    "other engine": (ONE.replace("type: vllm", "type: sglang"), "catalog.other_engine"),
    "no engine": (ONE.replace("  type: vllm\n", "").replace("vllm_config", "vllm_konfig"), "catalog.no_engine"),
    "env number": (ONE.replace('A: "1"', "A: 1"), "catalog.env_value"),
    "env name": (ONE.replace('A: "1"', "A B: x"), "catalog.env_name"),
    "bad size": (ONE.replace("150GB", "lots"), "catalog.bad_size"),
    "bad limit": (ONE.replace('"8:00:00"', "soon"), "catalog.time_limit"),
    "bad interval": (ONE.replace("interval_seconds: 10", "interval_seconds: 0"), "catalog.out_of_range"),
    "bad concurrencies": (ONE.replace('"512x1024"', '"512xx"'), "catalog.wrong_type"),
    "typing mistake": (ONE.replace("benchmark:", "bechmark: 1\nbenchmark:"), "catalog.unknown_field_near"),
    "not a recipe": ("a: 1\n", "catalog.recipe_shape"),
    "a list": ("- 1\n", "catalog.recipe_shape"),
    "schema 3": (TWO.replace("schema: 2", "schema: 3"), "catalog.recipe_schema"),
    "stray word": (TWO.replace('"--tp 4', '"what --tp 4'), "catalog.stray_word"),
    "open quote": (TWO.replace('"--tp 4', "\"--tp '4"), "catalog.bad_flags"),
    "roles a list": (TWO.split("roles:", maxsplit=1)[0] + "roles: []\nbenchmark: {type: x}\n", "catalog.wrong_type"),
    "no roles": (TWO.split("roles:", maxsplit=1)[0] + "roles: {}\nbenchmark: {type: x}\n", "catalog.no_roles"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_each_mistake_is_an_error_with_a_place(name: str) -> None:
    """The first error has that key and a place in the file; nothing is deployed."""
    text, key = BAD[name]
    found, problems = deploy(text)
    errors = errors_of(problems)
    assert found is None and key in [p.key for p in errors]
    assert all(p.at.file == "r" and p.at.line >= 1 and p.error().what("zh") for p in errors)


def test_suspicious_things_are_warnings() -> None:
    """Broken JSON, a flag in two spellings and a field like no known one leave the recipe usable."""
    text = ONE.replace(
        "data-parallel-size: 4", "data-parallel-size: 4\n      data_parallel_size: 4\n      x: '{\"a\":'"
    )
    found, problems = deploy(text + "zzzz: 1\n")
    assert found is not None
    assert sorted(p.key for p in problems) == [
        "catalog.bad_json",
        "catalog.flag_twice",
        "catalog.unknown_field",
    ]
    assert {p.severity for p in problems} == {"warning"}


def test_flag_spellings_are_one_name() -> None:
    """Dashes, underscores, short forms."""
    names = ("--tensor-parallel-size", "tensor_parallel_size", "tp", "--tp-size", "-tp")
    assert {canonical_name(name) for name in names} == {"tensor-parallel-size"}
    root, problems = parse_yaml(b"[--a=1, --b, --c, '2', -d, --e=x=y]", "r")
    assert {n: a.value for n, a in arguments_of(root, problems).items()} == {
        "a": "1", "b": True, "c": "2", "d": True, "e": "x=y",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("190GB", 190 * 2**30), ("4 GiB", 4 * 2**30), ("1.5g", 3 * 2**29), ("64mb", 64 * 2**20), ("10", 10),
        (7, 7), ("1TB", 2**40), ("GB", None), ("-1GB", None), ("1e3", None), (True, None), (None, None), (1.5, None),
    ],
)  # fmt: skip
def test_sizes_are_powers_of_two(text: object, size: int | None) -> None:
    """A "GB" that Mooncake and vLLM read is 2^30 bytes."""
    assert binary_size(text) == size
