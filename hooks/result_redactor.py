"""Redacts answers for readers outside, unless they ask to see secrets."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from eventctx.hooks.redact import DEFAULT, Redactor
from eventctx.log.ids import MAX_SESSION_ID
from eventctx.messages.recall_text import text_of
from eventctx.queries.encoding import builtins_of
from eventctx.search.documents import parse, snippet

_NAMED: Final = "session"
"""A key under which only what is a secret by itself is redacted."""

_COLUMNS: Final = frozenset(
    ("messages", "requests", "changes", "extras", "calls", "recounts", "updated")
)
"""Parts of a timeline's document that hold numbers, digests and codes, and may be very long."""


class ResultRedactor:
    """Redacts documents by the rules of every sink; with ``reveal`` it leaves them as they are."""

    def __init__(self, *, reveal: bool, redactor: Redactor = DEFAULT) -> None:
        self.reveal = reveal
        self._redactor = redactor

    def document(self, value: Any, keep: Collection[str] = ()) -> Any:
        """A document of any answer. ``keep`` are the names of sessions, which are addresses."""
        if self.reveal:
            return value
        return self._redactor.document(builtins_of(value), frozenset(keep))

    def doubtful(self, value: Any) -> list[str]:
        """The texts in a document that may be names of sessions, and would be redacted."""
        if self.reveal:
            return []
        found: dict[str, None] = {}
        waiting = [builtins_of(value)]
        while waiting:
            one = waiting.pop()
            if isinstance(one, dict):
                waiting += [*one, *one.values()]
            elif isinstance(one, list):
                waiting += one
            elif isinstance(one, str) and 0 < len(one) <= MAX_SESSION_ID:
                found[one] = None
        return [one for one in found if self._redactor.document({_NAMED: one})[_NAMED] != one]

    def found(self, answers: Sequence[Any], query: str, keep: Collection[str]) -> Any:
        """The answers of a search. Each snippet is cut from the redacted text: cut before, a secret
        may lose the part that tells it.
        """
        rows = builtins_of(answers)
        if self.reveal:
            return rows
        terms = parse(query)
        shown = self.document(rows, keep)
        for row, whole in zip(shown, rows, strict=True):
            if row["message"] != whole["message"]:
                row["snippet"] = snippet(text_of(row["message"]), terms)
        return shown

    def timeline(self, document: dict[str, Any], *, addresses: bool = True) -> dict[str, Any]:
        """A timeline's document: its few texts are names, and the errors of compactions.

        With ``addresses`` the names of sessions stay, as the page finds them by these.
        """
        if self.reveal:
            return document
        keep = _sessions_in(document) if addresses else frozenset()
        return {
            name: part if name in _COLUMNS else self._redactor.document(part, keep)
            for name, part in document.items()
        }

    def text(self, text: str) -> str:
        """A text of our own that may quote one, such as an error's."""
        return text if self.reveal else self._redactor.text(text)


def _sessions_in(document: dict[str, Any]) -> frozenset[str]:
    found = {document["session"], *[one["session"] for one in document["links"]]}
    return frozenset(
        found if document["parent"] is None else {*found, document["parent"]["session"]}
    )
