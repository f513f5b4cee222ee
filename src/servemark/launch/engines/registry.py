"""Engine names -> adapters. A suite's `framework` and the adapter's own name both lead to it."""

from __future__ import annotations

from servemark.base.errors import input_error
from servemark.launch.engines.protocol import EngineAdapter

EMBEDDED = "llamacpp-embedded"
FRAMEWORKS: dict[str, str] = {"llamacpp": EMBEDDED, EMBEDDED: EMBEDDED}
"""Framework name as suites spell it -> adapter name."""


def get_adapter(framework: str) -> EngineAdapter:
    """The adapter that runs `framework`; raises ServemarkError (input) naming the known ones."""
    name = FRAMEWORKS.get(framework)
    if name == EMBEDDED:
        from servemark.launch.engines.embedded import EmbeddedAdapter  # noqa: PLC0415 - loaded when it is wanted

        return EmbeddedAdapter()
    raise input_error("launch.engine_unknown", name=str(framework)[:80], known=", ".join(FRAMEWORKS))
