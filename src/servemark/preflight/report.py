"""All findings of one node, as one value and as one JSON line."""

from __future__ import annotations

from dataclasses import dataclass

from servemark import __version__
from servemark.preflight.facts import HostFacts
from servemark.preflight.finding import VERDICTS, Finding, Saying, Verdict, say
from servemark.preflight.judge_devices import judge_devices
from servemark.preflight.judge_limits import judge_limits
from servemark.preflight.judge_memory import judge_memory, mooncake_finding
from servemark.preflight.needs import Needs
from servemark.preflight.root import HostRoot

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Report:
    """One node: its facts, what was asked, and the findings in reading order."""

    facts: HostFacts
    needs: Needs | None
    findings: tuple[Finding, ...]

    def counts(self) -> dict[Verdict, int]:
        """Verdict -> how many."""
        return {verdict: sum(f.verdict == verdict for f in self.findings) for verdict in VERDICTS}

    @property
    def failed(self) -> bool:
        """Whether anything found contradicts what the arm needs."""
        return any(finding.verdict == "fail" for finding in self.findings)

    def plain(self) -> dict[str, object]:
        """One JSON object; keys are stable within a schema number."""
        needs = self.needs
        return {
            "schema": SCHEMA,
            "kind": "preflight",
            "servemark": __version__,
            "node": self.facts.node,
            "taken_at": round(self.facts.taken_at, 3),
            "arm": needs.arm if needs is not None else None,
            "roles": [role.role for role in needs.roles] if needs is not None else None,
            "counts": self.counts(),
            "findings": [finding.plain() for finding in self.findings],
        }


def judge(facts: HostFacts, needs: Needs | None, root: HostRoot, probes: tuple[Finding, ...] = ()) -> Report:
    """Every finding about one node. `probes`: what real allocations found, put at the end."""
    store = needs.store if needs is not None else None
    findings = [
        *judge_memory(facts, needs),
        *judge_limits(facts, needs),
        mooncake_finding(facts, store),
        *judge_devices(facts, needs, root),
        *(
            Finding("recipe", "unknown", _problem(key))
            for key in (needs.problems if needs is not None else ())
        ),
        *probes,
    ]
    return Report(facts, needs, tuple(findings))


def _problem(key: str) -> Saying:
    return say(key)
