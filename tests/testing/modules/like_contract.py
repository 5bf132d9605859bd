"""A context as the contract's page has it, written anew: its requirements and nothing more.

Where its page contradicts itself, the rule marked REQUIRED counts: its first sample of a compaction
edits what is stored, its second one, taken here, makes a view. Its sample of ``mount()`` names a
mount point that Amplifier does not have.
"""

from __future__ import annotations

from typing import Any

__amplifier_module_type__ = "context"

Row = dict[str, Any]

KEEP_RECENT = 10
MARGIN = 1_000


def tokens(rows: list[Row]) -> int:
    return sum(len(str(row)) // 4 for row in rows)


class LikeContract:
    """A list of messages; over the threshold a request has the system messages and the last ten."""

    def __init__(self, hooks: Any, settings: Row) -> None:
        self.hooks = hooks
        self.max_tokens = settings.get("max_tokens", 100_000)
        self.threshold = settings.get("compaction_threshold", 0.8)
        self.messages: list[Row] = []

    async def add_message(self, message: Row) -> None:
        if "role" not in message:
            raise ValueError("a message has a role")
        self.messages.append(message)

    async def get_messages(self) -> list[Row]:
        return list(self.messages)

    async def set_messages(self, messages: list[Row]) -> None:
        self.messages = list(messages)

    async def clear(self) -> None:
        self.messages = []

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any = None
    ) -> list[Row]:
        rows = list(self.messages)
        if tokens(rows) <= self.budget(token_budget, provider) * self.threshold:
            return rows
        await self.tell("context:pre_compact", rows)
        view = self.compacted(rows)
        await self.tell("context:post_compact", view)
        return view

    def budget(self, token_budget: int | None, provider: Any) -> int:
        if token_budget is not None:
            return token_budget
        limits = (provider.get_info().defaults or {}) if provider is not None else {}
        if limits.get("context_window") and limits.get("max_output_tokens"):
            return int(limits["context_window"] - limits["max_output_tokens"] - MARGIN)
        return int(self.max_tokens)

    def compacted(self, rows: list[Row]) -> list[Row]:
        start = max(0, len(rows) - KEEP_RECENT)
        # A result at the beginning needs the call before it.
        while start > 0 and rows[start]["role"] == "tool":
            start -= 1
        return [row for row in rows[:start] if row["role"] == "system"] + rows[start:]

    async def tell(self, name: str, rows: list[Row]) -> None:
        await self.hooks.emit(name, {"message_count": len(rows), "token_count": tokens(rows)})


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> LikeContract:
    context = LikeContract(coordinator.hooks, dict(config or {}))
    names = ["context:pre_compact", "context:post_compact"]
    coordinator.register_contributor("observability.events", "like-contract", lambda: names)
    await coordinator.mount("context", context)
    return context
