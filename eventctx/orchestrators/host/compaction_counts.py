"""The size of a view before and after a compaction, under every name that hosts use for it.

The host's modules name the counts differently: context-simple writes ``before_tokens``, hooks-otel
reads ``tokens_before``, context-managed tells ``input_tokens_before``, the context contract has
``token_count``. A payload with all of these names lets each listener find the one it reads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

_NAMES: Final[Mapping[str, tuple[str, ...]]] = {
    "tokens_before": (
        "before_tokens",
        "tokens_before",
        "input_tokens_before",
        "semantic_input_tokens",
    ),
    "tokens_after": ("after_tokens", "tokens_after", "input_tokens_after"),
    "messages_before": ("before_messages", "messages_before"),
    "messages_after": ("after_messages", "messages_after"),
}


class CompactionCounts(msgspec.Struct, frozen=True):
    """Tokens and messages of a view, before and after; None for an unknown count."""

    tokens_before: int | None = None
    messages_before: int | None = None
    tokens_after: int | None = None
    messages_after: int | None = None

    @classmethod
    def read(cls, payload: Mapping[str, Any]) -> CompactionCounts:
        """The counts in another module's payload, under whichever names it has them."""
        found = {
            field: next((payload[name] for name in names if type(payload.get(name)) is int), None)
            for field, names in _NAMES.items()
        }
        return cls(**found)

    @property
    def unchanged(self) -> bool:
        """Whether nothing was compacted: something was counted, and it is as before."""
        pairs = (
            (self.tokens_before, self.tokens_after),
            (self.messages_before, self.messages_after),
        )
        counted = [(a, b) for a, b in pairs if a is not None and b is not None]
        return bool(counted) and all(a == b for a, b in counted)

    def before(self) -> dict[str, int]:
        """The counts for a compaction that begins."""
        return _without_none(
            {
                "message_count": self.messages_before,
                "token_count": self.tokens_before,
                **self._named("before", self.tokens_before, self.messages_before),
            }
        )

    def after(self) -> dict[str, int]:
        """The counts for a compaction that ended."""
        tokens = _difference(self.tokens_before, self.tokens_after)
        messages = _difference(self.messages_before, self.messages_after)
        return _without_none(
            {
                "message_count": self.messages_after,
                "token_count": self.tokens_after,
                **self._named("before", self.tokens_before, self.messages_before),
                **self._named("after", self.tokens_after, self.messages_after),
                **self._named("removed", tokens, messages),
                "tokens_saved": tokens,
            }
        )

    @staticmethod
    def _named(when: str, tokens: int | None, messages: int | None) -> dict[str, int | None]:
        return {
            f"{when}_tokens": tokens,
            f"tokens_{when}": tokens,
            f"{when}_messages": messages,
            f"messages_{when}": messages,
        }


def _difference(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else before - after


def _without_none(counts: Mapping[str, int | None]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if count is not None}
