"""GPUs, NICs, EFA, disks, clock, ports and kernel against an arm's needs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from servemark.preflight.facts import GIB, Disk, HostFacts, Nic
from servemark.preflight.finding import Command, Finding, Saying, Verdict, count, say, size
from servemark.preflight.needs import Needs
from servemark.preflight.read_devices import holder_of
from servemark.preflight.root import HostRoot

IMAGE_BYTES = 60 * GIB
"""Assumed: a serving image of 10 to 20 GB compressed, unpacked beside its layers."""
IMAGE_INODES = 1_000_000
"""Assumed: files of a few unpacked images."""
SHM_BYTES = GIB
"""Assumed: what NCCL and the engines' queues map per node; containers often get 64 MiB."""
BUSY_BYTES = 2 * GIB
"""GPU memory in use before anything was started that says another process is there."""
POPULATE_KERNEL = (5, 14)


def judge_devices(facts: HostFacts, needs: Needs | None, root: HostRoot) -> Iterator[Finding]:
    """Findings in the order in which they are read."""
    yield _gpus(facts, needs)
    yield _nics(facts, needs)
    yield _efa(facts, needs)
    yield _disks(facts, needs)
    yield _clock(facts)
    yield _ports(facts, needs, root)
    yield _kernel(facts)


def _gpus(facts: HostFacts, needs: Needs | None) -> Finding:
    gpus = facts.gpus
    names = Counter(gpu.name or "?" for gpu in gpus.devices)
    plain: dict[str, object] = {
        "count": len(gpus.devices),
        "names": dict(names),
        "driver": gpus.driver,
        "memory_bytes": [gpu.memory_bytes for gpu in gpus.devices],
        "used_bytes": [gpu.used_bytes for gpu in gpus.devices],
        "source": gpus.devices[0].source if gpus.devices else None,
    }
    wanted = needs.gpus if needs is not None else 0
    kind = needs.gpu_type if needs is not None and needs.gpu_type else "—"
    need = say("preflight.gpus.need", count=wanted, kind=kind) if wanted else None
    if not gpus.devices:
        said = say("preflight.gpus.none" if gpus.known else "preflight.gpus.unasked")
        verdict: Verdict = ("fail" if gpus.known else "unknown") if wanted else "none"
        command = () if gpus.known else (Command("pip install nvidia-ml-py"),)
        return Finding("gpus", verdict, said, need, (), command, plain)
    listed = ", ".join(f"{number} x {name}" for name, number in names.items())
    memory = next((gpu.memory_bytes for gpu in gpus.devices if gpu.memory_bytes), None)
    found = say("preflight.gpus.found", gpus=listed, memory=size(memory), driver=gpus.driver or "?")
    why: list[Saying] = []
    commands: list[Command] = []
    busy = [gpu.index for gpu in gpus.devices if (gpu.used_bytes or 0) > BUSY_BYTES]
    if busy:
        why.append(say("preflight.gpus.busy", gpus=busy))
        commands.append(Command("nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv"))
    broken = [gpu.index for gpu in gpus.devices if gpu.ecc_errors]
    if broken:
        why.append(say("preflight.gpus.ecc", gpus=broken))
    verdict = "warn" if why else "ok" if wanted else "none"
    if wanted and len(gpus.devices) < wanted:
        why.insert(0, say("preflight.gpus.few", missing=wanted - len(gpus.devices)))
        verdict = "fail"
    if wanted and kind != "—":
        other = [name for name in names if not _same_kind(kind, name)]
        if other:
            why.append(say("preflight.gpus.other", names=other, kind=kind))
            verdict = "warn" if verdict == "ok" else verdict
    return Finding("gpus", verdict, found, need, tuple(why), tuple(commands), plain)


def _same_kind(kind: str, name: str) -> bool:
    """Whether a device's name holds the recipe's GPU type as a word, at most with letters or a size behind it."""
    return re.search(rf"(?<![a-z0-9]){re.escape(kind.lower())}(?![0-9])", name.lower()) is not None


def _active(nic: Nic) -> bool:
    return (nic.state or "").upper() == "ACTIVE"


def _nics(facts: HostFacts, needs: Needs | None) -> Finding:
    active = [nic for nic in facts.nics if _active(nic)]
    down = [f"{nic.device}/{nic.port}" for nic in facts.nics if not _active(nic)]
    plain: dict[str, object] = {
        "ports": len(facts.nics),
        "active": len(active),
        "rates_gbit": sorted({nic.rate_gbit for nic in active if nic.rate_gbit is not None}),
        "drivers": sorted({nic.driver for nic in facts.nics if nic.driver}),
        "down": down,
    }
    fabric = _fabric(needs)
    need = say("preflight.nics.need", protocols=", ".join(fabric)) if fabric else None
    if not facts.nics:
        verdict: Verdict = ("fail" if facts.nics_known else "unknown") if fabric else "none"
        return Finding("nics", verdict, say("preflight.nics.none"), need, facts=plain)
    kinds = Counter(
        (nic.driver or "?", f"{nic.rate_gbit:g}" if nic.rate_gbit is not None else "?") for nic in active
    )
    listed = ", ".join(f"{number} x {driver} {rate} Gb/s" for (driver, rate), number in sorted(kinds.items()))
    found = say("preflight.nics.found", active=listed or "—", down=len(down))
    if not fabric:
        return Finding("nics", "none", found, facts=plain)
    if not active:
        return Finding("nics", "fail", found, need, (say("preflight.nics.down", ports=down),), (), plain)
    if down:
        commands = (Command("grep . /sys/class/infiniband/*/ports/*/state"),)
        return Finding(
            "nics", "warn", found, need, (say("preflight.nics.down", ports=down),), commands, plain
        )
    return Finding("nics", "ok", found, need, facts=plain)


def _fabric(needs: Needs | None) -> list[str]:
    known = ("efa", "rdma", "libfabric", "verbs", "barex")
    return [name for name in needs.protocols if name in known] if needs is not None else []


def _efa(facts: HostFacts, needs: Needs | None) -> Finding:
    efa = facts.efa
    plain: dict[str, object] = {"asked": efa.asked, "domains": len(efa.domains)}
    wanted = needs is not None and "efa" in needs.protocols
    need = say("preflight.efa.need") if wanted else None
    here = any(nic.driver == "efa" for nic in facts.nics)
    command = Command("/opt/amazon/efa/bin/fi_info -p efa -t FI_EP_RDM")
    if not efa.asked:
        why = (say("preflight.efa.path"),) if wanted or here else ()
        verdict: Verdict = "unknown" if wanted else "none"
        return Finding(
            "efa", verdict, say("preflight.efa.unasked"), need, why, (command,) if why else (), plain
        )
    if not efa.domains:
        why = (say("preflight.efa.no_domain"),) if wanted or here else ()
        verdict = "fail" if wanted else "none"
        return Finding("efa", verdict, say("preflight.efa.none"), need, why, (command,) if why else (), plain)
    return Finding(
        "efa",
        "ok" if wanted else "none",
        say("preflight.efa.found", count=len(efa.domains)),
        need,
        facts=plain,
    )


def _disks(facts: HostFacts, needs: Needs | None) -> Finding:
    plain: dict[str, object] = {
        disk.use: {"path": disk.path, "free_bytes": disk.free_bytes, "free_inodes": disk.free_inodes}
        for disk in facts.disks
    }
    if not facts.disks:
        return Finding("disk", "unknown", say("preflight.disk.none"), facts=plain)
    listed = [
        say(
            "preflight.disk.one",
            use=say(f"preflight.disk.use.{disk.use}"),
            path=disk.path,
            free=size(disk.free_bytes),
            total=size(disk.total_bytes),
            inodes=count(disk.free_inodes) if disk.free_inodes is not None else "—",
            kind=disk.kind or "?",
        )
        for disk in facts.disks
    ]
    found = say("preflight.disk.found", disks=listed)
    if needs is None or not _image(needs):
        return Finding("disk", "none", found, facts=plain)
    why = [saying for disk in facts.disks for saying in _disk_faults(disk, needs)]
    need = say(
        "preflight.disk.need", image=size(IMAGE_BYTES), inodes=count(IMAGE_INODES), shm=size(SHM_BYTES)
    )
    commands = tuple(
        Command(f"df -h {d.path}; df -i {d.path}") for d in facts.disks if _disk_faults(d, needs)
    )
    return Finding("disk", "warn" if why else "ok", found, need, tuple(why), commands, plain)


def _image(needs: Needs) -> bool:
    """Whether a container image is unpacked: not for an engine that comes as a package."""
    return bool(needs.container) and not needs.container.startswith("pypi#")


def _disk_faults(disk: Disk, needs: Needs) -> list[Saying]:
    if disk.use == "shared_memory":
        if disk.total_bytes < SHM_BYTES and needs.gpus > 1:
            return [say("preflight.disk.small_shm", path=disk.path, total=size(disk.total_bytes))]
        return []
    found = []
    if disk.free_bytes < IMAGE_BYTES:
        found.append(say("preflight.disk.short", path=disk.path, free=size(disk.free_bytes)))
    if disk.free_inodes is not None and disk.free_inodes < IMAGE_INODES:
        found.append(say("preflight.disk.inodes", path=disk.path, free=count(disk.free_inodes)))
    return found


def _clock(facts: HostFacts) -> Finding:
    clock = facts.clock
    plain: dict[str, object] = {
        "synchronised": clock.synchronised,
        "max_error_s": clock.max_error_s,
        "source": clock.source,
    }
    if clock.synchronised is None:
        return Finding("clock", "unknown", say("preflight.clock.none"), facts=plain)
    if clock.synchronised:
        error = f"{(clock.max_error_s or 0) * 1e3:.3g}"
        return Finding(
            "clock", "ok", say("preflight.clock.found", error=error, source=clock.source or "?"), facts=plain
        )
    read_back = Command("timedatectl show -p NTPSynchronized", "yes")
    commands = (Command("sudo timedatectl set-ntp true"), read_back)
    found = say("preflight.clock.free", source=clock.source or "?")
    return Finding("clock", "warn", found, None, (say("preflight.clock.why"),), commands, plain)


def _ports(facts: HostFacts, needs: Needs | None, root: HostRoot) -> Finding:
    held = {port.number: port for port in facts.listening}
    plain: dict[str, object] = {"listening": len(held)}
    if not facts.listening_known:
        return Finding("ports", "unknown", say("preflight.ports.none"), facts=plain)
    found = say("preflight.ports.found", count=len(held))
    if needs is None or not needs.ports:
        return Finding("ports", "none", found, facts=plain)
    need = say("preflight.ports.need", ports=", ".join(f"{port} ({name})" for port, name in needs.ports))
    taken = [(port, name) for port, name in needs.ports if port in held]
    plain["taken"] = [port for port, _ in taken]
    if not taken:
        return Finding("ports", "ok", found, need, facts=plain)
    why = tuple(
        say(
            "preflight.ports.taken",
            port=port,
            name=name,
            address=held[port].address,
            holder=holder_of(root, port) or "?",
        )
        for port, name in taken
    )
    commands = tuple(Command(f"sudo ss -ltnp 'sport = :{port}'") for port, _ in taken)
    return Finding("ports", "fail", found, need, why, commands, plain)


def _kernel(facts: HostFacts) -> Finding:
    plain: dict[str, object] = {"release": facts.kernel, "machine": facts.machine, "cpus": facts.cpus}
    found = say(
        "preflight.kernel.found", release=facts.kernel or "?", machine=facts.machine, cpus=count(facts.cpus)
    )
    version = re.match(r"(\d{1,4})\.(\d{1,4})", facts.kernel or "")
    if version is None:
        return Finding("kernel", "unknown", found, facts=plain)
    if (int(version.group(1)), int(version.group(2))) < POPULATE_KERNEL:
        return Finding("kernel", "warn", found, None, (say("preflight.kernel.old"),), (), plain)
    return Finding("kernel", "none", found, facts=plain)
