"""A context as context-simple's documents describe it: written anew, and as costly as it.

It works out every request from the whole history: nothing that was decided or counted before is
kept. ``len(str(row)) // 4`` is its estimate of tokens. A request at or over ``compact_threshold``
of its budget goes through eight levels until it is at ``target_usage``: levels 1, 2, 4 and 6
shorten tool results, oldest first; 3, 5 and 7 leave out old rounds and shorten the user's messages
between the first and the last one; level 8 shortens the first one, too.
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
        # Its log line says how full the context is, so each message costs a pass over all.
        _ = estimated(self.messages) / self.settings["max_tokens"]

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
        await self.hooks.emit(
            "context:compaction",
            {
                "before_tokens": before,
                "after_tokens": estimated(view),
                "before_messages": len(rows),
                "after_messages": len(view),
                "strategy_level": made.level,
                "budget": budget,
                "target_tokens": made.target,
            },
        )
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
    text = f"Older messages were shortened or left out of this request (level {level} of 8)."
    return {
        "role": "system",
        "content": f'<system-reminder source="context-compaction">\n{text}\n</system-reminder>',
        "metadata": {"source": "context-compaction", "ephemeral": True},
    }


class Compaction:
    """One request's way through the levels. The rows that it is given are not changed."""

    def __init__(self, settings: Row, rows: list[Row], budget: int) -> None:
        self.settings = settings
        self.target = int(budget * settings["target_usage"])
        self.rules = [dict(row) for row in rows if row["role"] == "system"]
        self.rows = [dict(row) for row in rows if row["role"] != "system"]
        self.level = 0

    def run(self) -> list[Row]:
        share = self.settings["protected_recent"]
        levels: tuple[Callable[[], None], ...] = (
            lambda: self.shorten(0, 0.25),
            lambda: self.shorten(0.25, 0.5),
            lambda: self.leave_out(share),
            lambda: self.shorten(0.5, 0.75),
            lambda: self.leave_out(share * 0.6),
            lambda: self.shorten(0, 1),
            lambda: self.leave_out(share * 0.3),
            self.stub_the_first,
        )
        for self.level, work in enumerate(levels, 1):
            work()
            if self.is_done():
                break
        return self.rules + self.rows

    def is_done(self) -> bool:
        return estimated(self.rules) + estimated(self.rows) <= self.target

    def shorten(self, start: float, end: float) -> None:
        """Shorten the tool results of this part of the history, but not the latest ones."""
        results = [place for place, row in enumerate(self.rows) if row["role"] == "tool"]
        spared = results[-self.settings["protected_tool_results"] :]
        for place in results[int(len(results) * start) : int(len(results) * end)]:
            if self.is_done():
                return
            content = self.rows[place].get("content")
            if place not in spared and isinstance(content, str):
                self.rows[place] = {**self.rows[place], "content": self.cut(content)}

    def cut(self, text: str) -> str:
        size = self.settings["truncate_chars"]
        if len(text) <= size or text.startswith("[truncated"):
            return text
        return f"[truncated: about {len(text) // 4} tokens; call the tool again] {text[:size]}"

    def leave_out(self, share: float) -> None:
        """Leave out old answers and rounds, outside the protected share at the end."""
        end = int(len(self.rows) * (1 - share))
        gone: set[int] = set()
        size = estimated(self.rules) + estimated(self.rows)
        for place in range(end):
            if size <= self.target:
                break
            row = self.rows[place]
            if place in gone or row["role"] != "assistant":
                continue
            group = [place, *self.results_of(row)]
            if max(group) < end:
                gone.update(group)
                left = estimated(self.rows[one] for one in gone)
                size = estimated(self.rules) + estimated(self.rows) - left
        self.rows = [row for place, row in enumerate(self.rows) if place not in gone]
        users = [place for place, row in enumerate(self.rows) if row["role"] == "user"]
        for place in users[1:-1]:
            if self.is_done():
                return
            self.stub(place)

    def results_of(self, row: Row) -> list[int]:
        wanted = {call.get("id") for call in row.get("tool_calls") or ()}
        return [
            place
            for place, other in enumerate(self.rows)
            if other["role"] == "tool" and other.get("tool_call_id") in wanted
        ]

    def stub_the_first(self) -> None:
        users = [place for place, row in enumerate(self.rows) if row["role"] == "user"]
        if len(users) > 1:
            self.stub(users[0])

    def stub(self, place: int) -> None:
        content = self.rows[place].get("content")
        if isinstance(content, str) and len(content) > STUB + 30:
            text = f"[shortened message of the user: {content[:STUB]}…]"
            self.rows[place] = {**self.rows[place], "content": text}


async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
    await coordinator.mount("context", LikeSimple(coordinator.hooks, dict(config or {})))
