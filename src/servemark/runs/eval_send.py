"""From a prompt of an accuracy task to a request of the one client, the same way beside a run and against any server."""

from __future__ import annotations

from collections.abc import Callable

from servemark.evals.runner import Send
from servemark.evals.tasks import EvalPrompt, EvalTask
from servemark.replay.client import ChatRequest, Client
from servemark.replay.record import RequestRecord


def sender(client: Client, task: EvalTask, sink: Callable[[RequestRecord], None] | None = None) -> Send:
    """Sends a task's prompts through `client`; every record also goes to `sink`. Its phase is `eval`, so that no token
    of it enters a measured window."""

    async def send(prompt: EvalPrompt) -> RequestRecord:
        turn = f"/t{prompt.turn}" if prompt.turn else ""
        record = await client.send(
            ChatRequest(
                id=f"{task.id}/{prompt.item}{turn}/{prompt.attempt}",
                session=f"eval-{task.id}",
                turn=prompt.turn,
                phase="eval",
                messages=[{"role": role, "content": content} for role, content in prompt.messages],
                max_tokens=prompt.max_tokens,
                temperature=prompt.temperature,
                stop=list(prompt.stop) or None,
                keep_text=True,
                tools=prompt.tools,
            )
        )
        if sink is not None:
            sink(record)
        return record

    return send
