"""What runs beside the engines: etcd, nats, a Mooncake master, a bare command; and what engines are told of them."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path

from servemark.base.errors import Layer, ServemarkError, input_error
from servemark.catalog.byte_sizes import binary_size
from servemark.catalog.deployment import Service
from servemark.launch.engines.steps import JobContext, PlannedProcess, Probe, Rank, flags, url

MASTER = "mooncake-master"
_MASTER_OWN = frozenset(
    {
        "rpc-port",
        "port",
        "rpc-address",
        "metrics-port",
        "metrics-host",
        "http-metadata-server-port",
        "http-metadata-server-host",
        "enable-http-metadata-server",
    }
)
_STORE_KEYS = ("metadata_server", "global_segment_size", "local_buffer_size", "protocol", "device_name")
_WORD = re.compile(r"[A-Za-z0-9_.-]{1,80}\Z", re.ASCII)
P2P = "P2PHANDSHAKE"


def service(ctx: JobContext, given: Service, work_dir: Path) -> PlannedProcess:
    """The process of one service on the head node; what it offers is put into `ctx.services`.

    Raises ServemarkError (input) for a type that is not known, with the service's position.
    """
    makers = {"etcd": _etcd, "nats": _nats, MASTER: _master, "command": _command}
    maker = makers.get(given.type)
    if maker is None:
        raise ServemarkError(
            "launch.service_unknown",
            Layer.INPUT,
            exit_code=2,
            where=str(given.at),
            type=given.type[:80],
            known=", ".join(makers),
        )
    return maker(ctx, given, work_dir)


def etcd(ctx: JobContext, work_dir: Path) -> PlannedProcess:
    """etcd with its data in the working folder; its peer port is of no use to anybody and stays on loopback."""
    client, peer = ctx.ports(ctx.head, 2)
    at = url(ctx.head, client)
    listen = f"http://{ctx.listen(ctx.head)}:{client}"
    own = f"http://127.0.0.1:{peer}"
    ctx.services["etcd"] = at
    argv = ["etcd", "--data-dir", str(work_dir / "data")]
    argv += ["--listen-client-urls", listen, "--advertise-client-urls", at]
    argv += ["--listen-peer-urls", own, "--initial-advertise-peer-urls", own]
    argv += ["--initial-cluster", f"default={own}"]
    return PlannedProcess(
        tuple(argv),
        probe=Probe(at, "/health"),
    )


def nats(ctx: JobContext, work_dir: Path, max_payload: int | None = None) -> PlannedProcess:
    """nats-server with JetStream; the largest message can be set in a file only."""
    client, monitor = ctx.ports(ctx.head, 2)
    host = ctx.listen(ctx.head)
    lines = [f'host: "{host}"', f"port: {client}", f'http: "{host}:{monitor}"']
    lines += [f'jetstream {{ store_dir: "{work_dir}/jetstream" }}']
    if max_payload is not None:
        lines.append(f"max_payload: {max_payload}")
    ctx.services["nats"] = url(ctx.head, client).replace("http://", "nats://")
    return PlannedProcess(
        ("nats-server", "-c", str(ctx.config_root / work_dir.name / "nats.conf")),
        files={"nats.conf": "\n".join(lines) + "\n"},
        probe=Probe(url(ctx.head, monitor), "/healthz"),
    )


def _etcd(ctx: JobContext, given: Service, work_dir: Path) -> PlannedProcess:
    return etcd(ctx, work_dir)


def _nats(ctx: JobContext, given: Service, work_dir: Path) -> PlannedProcess:
    return nats(ctx, work_dir, given.sizes.get("max_payload"))


def _master(ctx: JobContext, given: Service, work_dir: Path) -> PlannedProcess:
    """`mooncake_master` with ports of its own.

    Its HTTP metadata server runs only where engines use it: it listens on every interface whatever it is told
    (Mooncake 0.3.13).
    """
    rpc, metrics = ctx.ports(ctx.head, 2)
    host = ctx.listen(ctx.head)
    rest, ignored = flags({a.spelled: a.value for a in given.args.values()}, _MASTER_OWN)
    argv = [program("mooncake_master"), f"-rpc_port={rpc}", f"-rpc_address={host}"]
    argv += [f"-metrics_port={metrics}", f"-metrics_host={host}"]
    config = given.options.get("store_config")
    wanted = config.get("metadata_server") if isinstance(config, dict) else None
    ctx.services[MASTER] = f"{ctx.head.address}:{rpc}"
    ctx.services["mooncake-metadata"] = P2P
    if wanted != P2P and not (ctx.bind == "loopback" and wanted is None):
        metadata = ctx.port(ctx.head)
        argv += ["-enable_http_metadata_server=true", f"-http_metadata_server_port={metadata}"]
        argv.append(f"-http_metadata_server_host={host}")
        ctx.services["mooncake-metadata"] = f"{url(ctx.head, metadata)}/metadata"
    if isinstance(config, dict):
        ctx.store_config = {**config, "master_server_address": ctx.services[MASTER]}
        ctx.store_config["metadata_server"] = ctx.services["mooncake-metadata"]
    argv += _gflags(rest)
    probe = Probe(url(ctx.head, metrics), "/health")
    # All it knows is in its memory and of this run, and its own way to end takes a second.
    return PlannedProcess(tuple(argv), probe=probe, ignored=tuple(ignored), grace_s=0.1)


def program(name: str) -> str:
    """A program that a wheel has put beside this Python, by its path; else by its name alone, from the PATH."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def _gflags(words: list[str]) -> list[str]:
    """`--a-b 1` and a bare `--a` as gflags reads them: one word, underscores."""
    found: list[str] = []
    for word in words:
        if word.startswith("--"):
            found.append("-" + word[2:].replace("-", "_"))
        else:
            found[-1] += f"={word}"
    return found


def _command(ctx: JobContext, given: Service, work_dir: Path) -> PlannedProcess:
    """A bare command: `options.command` is its argv, a list of texts. No shell, ever."""
    words = given.options.get("command")
    if (
        not isinstance(words, list)
        or not words
        or not all(isinstance(w, str) and w and "\0" not in w for w in words)
    ):
        raise input_error("launch.command_list", where=str(given.at), name=given.name[:80])
    return PlannedProcess(tuple(words))


def store_env(ctx: JobContext, rank: Rank) -> dict[str, str]:
    """How an engine finds the store: Mooncake's own variables, and the path of the file written beside it."""
    if MASTER not in ctx.services:
        return {}
    env = {
        "MOONCAKE_MASTER": ctx.services[MASTER],
        "MOONCAKE_TE_META_DATA_SERVER": ctx.services["mooncake-metadata"],
        "MOONCAKE_LOCAL_HOSTNAME": rank.node.address,
    }
    if ctx.store_config is not None:
        env["MOONCAKE_CONFIG_PATH"] = str(rank.config_dir / "mooncake.json")
    if ctx.bind == "loopback":
        env["MC_TCP_BIND_ADDRESS"] = rank.node.address
    return env


def store_file(ctx: JobContext) -> dict[str, str]:
    """The file that MOONCAKE_CONFIG_PATH names, where the recipe configures a store."""
    return {} if ctx.store_config is None else {"mooncake.json": json.dumps(ctx.store_config, indent=1)}


def store_settings(ctx: JobContext, where: str) -> dict[str, object]:
    """The store's configuration checked, sizes in bytes: what an agent of ours is started with.

    Sizes are read as vLLM reads them (KB, MB, GB are powers of 1024). Raises ServemarkError (input, `where`).
    """
    config = ctx.store_config
    if config is None or MASTER not in ctx.services:
        raise input_error("launch.store_missing", where=where)
    found: dict[str, object] = {"master": ctx.services[MASTER]}
    for key, target in (("global_segment_size", "segment_bytes"), ("local_buffer_size", "buffer_bytes")):
        size = binary_size(config.get(key))
        if size is None or not 1 << 20 <= size <= 1 << 50 or not math.isfinite(size):
            raise input_error("launch.store_value", where=where, option=key, value=str(config.get(key))[:80])
        found[target] = size
    protocol, device = config.get("protocol", "tcp"), config.get("device_name") or ""
    for key, value in (("protocol", protocol), ("device_name", device or "x")):
        if not isinstance(value, str) or not _WORD.match(value):
            raise input_error("launch.store_value", where=where, option=key, value=str(value)[:80])
    found["metadata_server"] = ctx.services["mooncake-metadata"]
    return {**found, "protocol": protocol, "device": device}
