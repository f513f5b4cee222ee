"""Whole hosts as folders, and arms as texts, made by the tests themselves."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from servemark.catalog.deployment import Deployment
from servemark.catalog.nodes import errors_of
from servemark.catalog.recipe import deployment_of
from servemark.catalog.yaml_nodes import read_yaml
from servemark.preflight.root import HostRoot

GIB_KB = 1 << 20
"""KiB of one GiB, as /proc/meminfo counts."""


@pytest.fixture(autouse=True)
def alone(alone_with_the_pool: None) -> None:
    """Tests here reserve huge pages, or count them."""


class FakeHost:
    """A host below a folder: files are written by absolute path; programs are real shell scripts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "bin").mkdir()

    def put(self, where: str, text: str) -> None:
        """Write one file."""
        file = self.path / where.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def link(self, where: str, target: str) -> None:
        """A symbolic link, as /sys has them for drivers."""
        file = self.path / where.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def program(self, name: str, script: str) -> None:
        """A program on this host's PATH."""
        file = self.path / "bin" / name
        file.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        file.chmod(0o755)

    @property
    def root(self) -> HostRoot:
        """What the readers take."""
        return HostRoot(self.path, programs=f"{self.path / 'bin'}{os.pathsep}{self.path / 'none'}")

    def memory(self, total_gib: int, available_gib: int, nodes: int = 1) -> None:
        """meminfo, and NUMA nodes that share it evenly."""
        self.put(
            "/proc/meminfo",
            f"MemTotal: {total_gib * GIB_KB} kB\nMemFree: {available_gib * GIB_KB} kB\n"
            f"MemAvailable: {available_gib * GIB_KB} kB\nSwapTotal: 0 kB\n",
        )
        for node in range(nodes):
            base = f"/sys/devices/system/node/node{node}"
            self.put(
                f"{base}/meminfo",
                f"Node {node} MemTotal: {total_gib * GIB_KB // nodes} kB\n"
                f"Node {node} MemFree: {available_gib * GIB_KB // nodes} kB\n",
            )
            self.put(f"{base}/cpulist", f"{node * 96}-{node * 96 + 95}")

    def pool(self, total: int, free: int, nodes: int = 1, kb: int = 2048) -> None:
        """hugetlb pages of one size on the whole host and evenly on its nodes."""
        folder = f"hugepages-{kb}kB"
        self.put(f"/sys/kernel/mm/hugepages/{folder}/nr_hugepages", f"{total}\n")
        self.put(f"/sys/kernel/mm/hugepages/{folder}/free_hugepages", f"{free}\n")
        self.put(f"/sys/kernel/mm/hugepages/{folder}/resv_hugepages", "0\n")
        for node in range(nodes):
            base = f"/sys/devices/system/node/node{node}/hugepages/{folder}"
            self.put(f"{base}/nr_hugepages", f"{total // nodes}\n")
            self.put(f"{base}/free_hugepages", f"{free // nodes}\n")

    def thp(self, enabled: str = "madvise", defrag: str = "madvise") -> None:
        """Modes as the kernel prints them."""
        base = "/sys/kernel/mm/transparent_hugepage"
        for name, word, words in (
            ("enabled", enabled, "always madvise never"),
            ("defrag", defrag, "always defer defer+madvise madvise never"),
        ):
            shown = " ".join(f"[{one}]" if one == word else one for one in words.split())
            self.put(f"{base}/{name}", shown + "\n")
        self.put(f"{base}/hpage_pmd_size", "2097152\n")

    def limits(self, memlock: str = "unlimited", caps: str = "0000000000000000") -> None:
        """memlock and capabilities of the process that looks."""
        self.put(
            "/proc/self/limits",
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            f"Max locked memory         {memlock:<20} {memlock:<20} bytes     \n",
        )
        self.put("/proc/self/status", f"Name:\tpython\nCapEff:\t{caps}\nMems_allowed_list:\t0-1\n")

    def listening(self, *ports: int) -> None:
        """/proc/net/tcp with listeners on all addresses."""
        head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
        rows = [
            f"   {n}: 00000000:{port:04X} 00000000:0000 0A 0:0 00:0 0     0        0 {900 + n} 1\n"
            for n, port in enumerate(ports)
        ]
        self.put("/proc/net/tcp", head + "".join(rows))


def b300_node(host: FakeHost) -> FakeHost:
    """A healthy node of 8 B300 with 16 EFA devices, 2 NUMA nodes, 4,096 GiB, and the pool that the arm needs."""
    host.memory(4096, 2200, nodes=2)
    host.pool(850_248, 850_248, nodes=2)
    host.pool(0, 0, nodes=2, kb=1 << 20)
    host.thp()
    host.limits()
    host.listening(22)
    # 2,200 GiB free are 576,716,800 pages of 4 KiB, all of them in blocks of 4 MiB (order 10): 563,200 of them.
    host.put(
        "/proc/buddyinfo",
        "".join(f"Node {n}, zone   Normal      0 0 0 0 0 0 0 0 0 0 281600\n" for n in (0, 1)),
    )
    host.put(
        "/proc/vmstat",
        "thp_fault_alloc 900\nthp_fault_fallback 0\ncompact_stall 12\ncompact_success 12\ncompact_fail 0\n",
    )
    host.put("/proc/self/cgroup", "0::/system.slice/slurmstepd.scope/job_7\n")
    host.put("/sys/fs/cgroup/cgroup.controllers", "cpu memory hugetlb\n")
    host.put("/proc/sys/kernel/osrelease", "6.8.0-1021-aws\n")
    host.put("/proc/sys/kernel/hostname", "b300-00\n")
    host.put(
        "/proc/driver/nvidia/version",
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (x@y)\nGCC version: 15\n",
    )
    for index in range(8):
        address = f"0000:{index:02x}:06.0"
        host.put(
            f"/proc/driver/nvidia/gpus/{address}/information",
            f"Model: \t\t NVIDIA B300 SXM6 AC\nDevice Minor: \t {index}\n",
        )
        host.put(f"/sys/bus/pci/devices/{address}/numa_node", f"{index // 4}\n")
    for index in range(16):
        base = f"/sys/class/infiniband/rdmap{index}s0"
        host.put(f"{base}/ports/1/state", "4: ACTIVE\n")
        host.put(f"{base}/ports/1/rate", "400 Gb/sec (4X NDR)\n")
        host.put(f"{base}/ports/1/link_layer", "Unspecified\n")
        host.put(f"{base}/device/numa_node", f"{index // 8}\n")
        host.link(f"{base}/device/driver", "../../../bus/pci/drivers/efa")
    domains = "".join(f"provider: efa\n    domain: rdmap{n}s0-rdm\n" for n in range(16))
    host.program("fi_info", f"cat <<'END'\n{domains}END")
    return host


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    """An empty host: nothing can be read from it."""
    path = tmp_path / "host"
    path.mkdir()
    return FakeHost(path)


@pytest.fixture
def b300(host: FakeHost) -> FakeHost:
    """The healthy node."""
    return b300_node(host)


RECIPE = """\
schema: 2
name: store-1p1d
model: {{path: some/model, container: "reg.example#a/b:t", precision: fp4}}
environment: {{{environment}}}
resources: {{gpu_type: {gpu}, gpus_per_node: 8}}
services:
- {{name: etcd, type: etcd}}
- name: mooncake-master
  type: mooncake-master
  options:
    store_config:
      metadata_server: P2PHANDSHAKE
      global_segment_size: {segment}
      local_buffer_size: {buffer}
      protocol: {protocol}
      mode: {mode}
frontend: {{type: dynamo}}
engine: {{type: vllm}}
roles:
  prefill: &role
    nodes: 1
    workers: 1
    gpus: 8
    args:
      tensor-parallel-size: 8
      kv-transfer-config: '{{"kv_connector":"MultiConnector","kv_role":"kv_both","kv_connector_extra_config":
        {{"connectors":[{{"kv_connector":"NixlConnector","kv_role":"kv_both"}},
        {{"kv_connector":"MooncakeStoreConnector","kv_role":"kv_both"}}]}}}}'
  decode:
    <<: *role
benchmark: {{type: custom, command: "true", concurrencies: [48]}}
"""

MakeDeployment = Callable[..., Deployment]


@pytest.fixture
def deploy(tmp_path: Path) -> MakeDeployment:
    """A deployment of the recipe above, with some of its words changed."""

    def make(**changed: str) -> Deployment:
        words = {
            "environment": "",
            "gpu": "b300",
            "segment": "190GB",
            "buffer": "4GB",
            "protocol": "efa",
            "mode": "embedded",
        }
        path = tmp_path / "recipe.yaml"
        path.write_text(RECIPE.format(**{**words, **changed}), encoding="utf-8")
        root, problems = read_yaml(path, "recipe.yaml")
        made = deployment_of(root, problems, None)
        assert made is not None and not errors_of(problems), [p.error().what() for p in problems]
        return made

    return make


def line(node: str, *, taken_at: float = 1.0, arm: str | None = "a", **topics: dict[str, object]) -> str:
    """One node's line with the facts of some topics."""
    facts: dict[str, dict[str, object]] = {
        "kernel": {"release": "6.8.0", "cpus": 192},
        "memory": {"total_bytes": 4 << 40, "available_bytes": 3 << 40},
        "thp": {"enabled": "madvise", "defrag": "madvise"},
        "huge_pages": {"2048kB": {"total": 850_248, "free": 850_248}},
        "gpus": {"names": {"NVIDIA B300": 8}, "driver": "580.1", "used_bytes": [600 << 20] * 8},
    }
    for topic, changed in topics.items():
        facts[topic] = {**facts.get(topic, {}), **changed}
    findings = [{"topic": topic, "verdict": "ok", "facts": inner} for topic, inner in facts.items()]
    findings += [
        {
            "topic": "probe_memory",
            "verdict": "none",
            "facts": {"method": "thp", "fastest_s_per_gib": s, "huge_share": 1.0},
        }
        for s in [topics.get("probe", {}).get("s", 0.2)]
    ]
    body = {"schema": 1, "kind": "preflight", "node": node, "taken_at": taken_at, "arm": arm}
    return json.dumps({**body, "counts": {"ok": len(findings)}, "findings": findings})


@pytest.fixture(name="line")
def line_fixture() -> Callable[..., str]:
    """The function above."""
    return line
