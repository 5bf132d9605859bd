"""What the summaries of a view mention, each thing looked for once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from eventctx.messages.notable.mentions import Mentions
from eventctx.queries.lost.gathering import GatheredItem
from eventctx.queries.summaries import is_sealed, text_of_summary


class SummaryMentions:
    """The summaries of a view; ``sealed`` of them are encrypted."""

    def __init__(self, messages: Iterable[dict[str, Any]]) -> None:
        given = list(messages)
        self.sealed = sum(map(is_sealed, given))
        self._texts = [text_of_summary(one) for one in given]
        self.empty = not any(self._texts)
        self._known: dict[tuple[str, str], bool] = {}

    @cached_property
    def _mentions(self) -> Mentions:
        return Mentions(self._texts)

    def item(self, item: GatheredItem, *, alone: bool) -> bool:
        """Whether an item is mentioned; ``alone``: no other file has its name."""
        if self.empty:
            return False
        if item.kind == "file":
            return self._looked_up("a file alone" if alone else "file", item.text)
        outcome = item.outcome
        if item.kind == "command" and outcome is not None and outcome.failed:
            return self._looked_up("failure", outcome.error)
        return self._looked_up("command" if item.kind == "command" else "sentence", item.text)

    def needle(self, text: str) -> bool:
        """Whether a name or line is mentioned."""
        return not self.empty and self._looked_up("line" if " " in text else "name", text)

    def _looked_up(self, kind: str, text: str) -> bool:
        found = self._known.get((kind, text))
        if found is None:
            found = self._known[kind, text] = self._look(kind, text)
        return found

    def _look(self, kind: str, text: str) -> bool:
        mentions = self._mentions
        match kind:
            case "file" | "a file alone":
                return mentions.file(text, alone=kind != "file")
            case "failure":
                return mentions.failure(text)
            case "command":
                return mentions.command(text)
            case "sentence":
                return mentions.sentence(text)
            case "line":
                return mentions.line(text)
            case _:
                return mentions.name(text)
