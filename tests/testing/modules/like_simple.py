"""A context as context-simple's documents describe it, written anew.

It works out every request from the whole history: nothing that was decided or counted before is
kept. ``len(str(row)) // 4`` is its estimate of tokens. A request at or over ``compact_threshold``
of its budget goes through three levels until it is at ``target_usage``: it shortens tool results,
leaves out old rounds, and shortens the user's messages but the last.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any

__amplifier_module_type__ = "context"

Row = dict[str, Any]

DEFAULTS: dict[str, Any] = {
    "max_tokens": 200_000,
    "compact_threshold": 0.92,
    "target_usage": 0.50,
    "protected_recent": 0.30,
    "protected_tool_results": 5,
    "truncate_chars": 250,
    "compaction_notice_enabled": True,
    "compaction_notice_token_reserve": 800,
    "output_reserve_fraction": 0.5,
}
SAFETY_MARGIN = 4_096
STUB = 50


def estimated(rows: Iterable[Row]) -> int:
    """Tokens of these rows: a quarter of the characters of each as Python writes it."""
    return sum(len(str(row)) // 4 for row in rows)


class LikeSimple:
    """Keeps all messages in memory; what it sends is worked out anew for every request."""

    def __init__(self, hooks: Any, settings: Row) -> None:
        self.hooks = hooks
        self.settings = {**DEFAULTS, **settings}
        self.messages: list[Row] = []
        self.prompt: Callable[[], Awaitable[str]] | None = None

    async def add_message(self, message: Row) -> None:
        metadata = dict(message.get("metadata") or {})
        metadata.setdefault("timestamp", datetime.now(UTC).isoformat(timespec="milliseconds"))
        self.messages.append({**message, "metadata": metadata})

    async def get_messages(self) -> list[Row]:
        return list(self.messages)

    async def set_messages(self, messages: list[Row]) -> None:
        self.messages = list(messages)

    async def clear(self) -> None:
        self.messages = []

    async def set_system_prompt_factory(self, factory: Callable[[], Awaitable[str]]) -> None:
        self.prompt = factory

    async def get_messages_for_request(
        self, token_budget: int | None = None, provider: Any = None
    ) -> list[Row]:
        budget = self.budget(token_budget, provider)
        if self.settings["compaction_notice_enabled"]:
            budget -= self.settings["compaction_notice_token_reserve"]
        rows = await self.with_prompt()
        before = estimated(rows)
        if budget <= 0 or before / budget < self.settings["compact_threshold"]:
            return rows
        made = Compaction(self.settings, rows, budget)
        view = made.run()
        sizes = {"before_tokens": before, "after_tokens": estimated(view)}
        counts = {"before_messages": len(rows), "after_messages": len(view)}
        told = {"strategy_level": made.level, "budget": budget, "target_tokens": made.target}
        await self.hooks.emit("context:compaction", {**sizes, **counts, **told})
        if self.settings["compaction_notice_enabled"]:
            view.insert(1, notice(made.level))
        return view

    async def with_prompt(self) -> list[Row]:
        """The history; a factory's prompt takes the place of stored system messages."""
        if self.prompt is None:
            return list(self.messages)
        leading: Row = {"role": "system", "content": await self.prompt()}
        return [leading, *(row for row in self.messages if not is_replaced(row))]

    def budget(self, token_budget: int | None, provider: Any) -> int:
        if token_budget is not None:
            return token_budget
        limits = limits_of(provider)
        window, output = limits.get("context_window"), limits.get("max_output_tokens")
        if not window or not output:
            return int(self.settings["max_tokens"])
        return int(window - output * self.settings["output_reserve_fraction"] - SAFETY_MARGIN)


def is_replaced(row: Row) -> bool:
    """Whether a factory's prompt replaces this row: a system message that no hook injected."""
    return row["role"] == "system" and (row.get("metadata") or {}).get("source") != "hook"


def limits_of(provider: Any) -> Row:
    """What a provider says of its model; nothing where it cannot be asked."""
    try:
        if hasattr(provider, "get_model_info"):
            return dict(vars(provider.get_model_info()))
        return dict(provider.get_info().defaults or {})
    except Exception:
        return {}


def notice(level: int) -> Row:
    text = f"Older messages were shortened or left out of this request (level {level} of 3)."
    content = f'<system-reminder source="context-compaction">\n{text}\n</system-reminder>'
    metadata = {"source": "context-compaction", "ephemeral": True}
    return {"role": "system", "content": content, "metadata": metadata}


class Compaction:
    """One request's way through the levels. The rows that it is given are not changed."""

    def __init__(self, settings: Row, rows: list[Row], budget: int) -> None:
        self.settings = settings
        self.target = int(budget * settings["target_usage"])
        self.rules = [dict(row) for row in rows if row["role"] == "system"]
        self.rows = [dict(row) for row in rows if row["role"] != "system"]
        self.tokens = estimated(self.rules) + estimated(self.rows)
        self.level = 0

    def run(self) -> list[Row]:
        levels = (self.shorten, self.leave_out, self.stub)
        for self.level, work in enumerate(levels, 1):
            work()
            if self.is_done():
                break
        return self.rules + self.rows

    def is_done(self) -> bool:
        return self.tokens <= self.target

    def put(self, place: int, content: str) -> None:
        before, row = self.rows[place], {**self.rows[place], "content": content}
        self.tokens += estimated([row]) - estimated([before])
        self.rows[place] = row

    def places_of(self, role: str) -> list[int]:
        return [place for place, row in enumerate(self.rows) if row["role"] == role]

    def shorten(self) -> None:
        """Shorten the tool results, oldest first, but not the latest ones."""
        size = self.settings["truncate_chars"]
        for place in self.places_of("tool")[: -self.settings["protected_tool_results"]]:
            content = self.rows[place].get("content")
            if not self.is_done() and isinstance(content, str) and len(content) > size:
                self.put(place, f"[truncated] {content[:size]}")

    def leave_out(self) -> None:
        """Leave out old answers with their results, but not of the protected share at the end."""
        end = int(len(self.rows) * (1 - self.settings["protected_recent"] * 0.3))
        for answer in [self.rows[place] for place in self.places_of("assistant") if place < end]:
            if self.is_done():
                return
            ids = {call.get("id") for call in answer.get("tool_calls") or ()}
            group = [row for row in self.rows if row is answer or row.get("tool_call_id") in ids]
            if all(row in self.rows[:end] for row in group):
                self.tokens -= estimated(group)
                self.rows = [row for row in self.rows if not any(row is one for one in group)]
                end -= len(group)

    def stub(self) -> None:
        """Shorten what the user wrote before the latest message."""
        for place in self.places_of("user")[:-1]:
            content = self.rows[place].get("content")
            if not self.is_done() and isinstance(content, str) and len(content) > STUB:
                self.put(place, f"[shortened message of the user: {content[:STUB]}…]")


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    await coordinator.mount("context", LikeSimple(coordinator.hooks, dict(config or {})))
