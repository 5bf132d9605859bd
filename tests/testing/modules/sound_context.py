"""A small context module that keeps the contract; the broken ones are this one with a fault."""

from __future__ import annotations

from typing import Any

import msgspec

__amplifier_module_type__ = "context"

PRE, POST = "context:pre_compact", "context:post_compact"
CUT = 400


def size(row: dict[str, Any]) -> int:
    return len(msgspec.json.encode(row)) // 3


def copied(rows: Any) -> Any:
    """Another copy of each message; all that they hold is JSON."""
    return msgspec.json.decode(msgspec.json.encode(rows))


class SoundContext:
    """Keeps a list; drops the oldest rounds from requests, and cuts results that are too long."""

    def __init__(self, hooks: Any, max_tokens: int) -> None:
        self.hooks = hooks
        self.max_tokens = max_tokens
        self.kept: list[dict[str, Any]] = []
        self.prompt: Any = None

    async def add_message(self, message: dict[str, Any]) -> None:
        if "role" not in message:
            raise ValueError("expected a role")
        self.kept.append(copied(message))

    async def get_messages(self) -> list[dict[str, Any]]:
        return copied(self.kept)

    async def set_messages(self, messages: list[dict[str, Any]]) -> None:
        self.kept = copied(messages)

    async def clear(self) -> None:
        self.kept = []

    async def set_system_prompt_factory(self, factory: Any) -> None:
        self.prompt = factory

    def budget(self, token_budget: int | None, provider: Any) -> int:
        if token_budget is not None:
            return token_budget
        if provider is not None:
            limits = provider.get_info().defaults
            return min(self.max_tokens, limits["context_window"] - limits["max_output_tokens"])
        return self.max_tokens

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any = None
    ) -> list[dict[str, Any]]:
        budget = self.budget(token_budget, provider)
        view = copied(self.kept)
        if self.prompt is not None:
            view.insert(0, {"role": "system", "content": await self.prompt()})
        if sum(map(size, view)) <= budget:
            return view
        await self.say(PRE, view)
        view = self.compacted(view, budget)
        await self.say(POST, view)
        return view

    def compacted(self, view: list[dict[str, Any]], budget: int) -> list[dict[str, Any]]:
        rules = [row for row in view if row["role"] == "system"]
        turns: list[list[dict[str, Any]]] = []
        for row in view:
            if row["role"] == "user":
                turns.append([])
            if row["role"] != "system" and turns:
                turns[-1].append(row)
        sizes = [sum(map(size, turn)) for turn in turns]
        while len(turns) > 1 and sum(sizes) > budget:
            del turns[0], sizes[0]
        last = [row for turn in turns for row in turn]
        for row in last:
            if row["role"] == "tool" and size(row) > budget // 4:
                row["content"] = row["content"][:CUT]
        return rules + last

    async def say(self, name: str, view: list[dict[str, Any]]) -> None:
        tokens = sum(map(size, view))
        await self.hooks.emit(name, {"message_count": len(view), "token_count": tokens})


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    await mount_class(SoundContext, coordinator, config)


async def mount_class(kind: Any, coordinator: Any, config: dict[str, Any] | None) -> None:
    context = kind(coordinator.hooks, (config or {}).get("max_tokens", 100_000))
    coordinator.register_contributor("observability.events", "sound", lambda: [PRE, POST])
    await coordinator.mount("context", context)
