"""What the summaries of a view mention."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from eventctx.messages.mentions import Mentions
from eventctx.queries.lost.gathering import GatheredItem
from eventctx.queries.summaries import is_sealed, text_of_summary


class SummaryMentions:
    """The summaries of a view; ``sealed`` of them are encrypted."""

    def __init__(self, messages: Iterable[dict[str, Any]]) -> None:
        given = list(messages)
        self.sealed = sum(map(is_sealed, given))
        self._texts = [text_of_summary(one) for one in given]
        self.empty = not any(self._texts)

    @cached_property
    def _mentions(self) -> Mentions:
        return Mentions(self._texts)

    def item(self, item: GatheredItem, *, alone: bool) -> bool:
        """Whether an item is mentioned; ``alone``: no other file has its name."""
        if self.empty:
            return False
        outcome = item.outcome
        if item.kind == "command" and outcome is not None and outcome.failed:
            return self._mentions.holds("failure", outcome.error)
        kind = "file_alone" if item.kind == "file" and alone else item.kind
        return self._mentions.holds(kind, item.text)

    def needle(self, text: str) -> bool:
        """Whether a name or line is mentioned."""
        return not self.empty and self._mentions.holds("line" if " " in text else "name", text)
