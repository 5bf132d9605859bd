"""Gathers the items of a session from its messages, read from the last to the first."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, NamedTuple

from eventctx.messages.call_effects import How, core, read_effect
from eventctx.messages.demands import demands_in
from eventctx.messages.extracts import decisions, instructions, names_in, words_of_person
from eventctx.messages.facts import Facts
from eventctx.messages.overlap import normal
from eventctx.messages.parts import Part, read_parts, words_of
from eventctx.messages.recall_text import text_of
from eventctx.messages.tool_results import CallOutcome, outcome_of, text_of_result
from eventctx.queries.lost.answers import ItemKind
from tests.lost.rereading.needles import Needles

NO_MATCH: Final = ("grep ", "egrep ", "rg ", "diff ", "git diff ", "git grep ")
"""Commands that exit with 1 where they find no match or a difference, which is no failure."""


class Occurrence(NamedTuple):
    """An item in a message: the message's number, and that of the result of its call."""

    number: int
    result: int | None = None
    how: How | None = None


class Gathered:
    """An item: its text as it was last written, and its occurrences, the latest first."""

    __slots__ = ("kind", "names", "occurrences", "outcome", "text")

    def __init__(self, kind: ItemKind, text: str, outcome: CallOutcome | None = None) -> None:
        self.kind = kind
        self.text = text
        self.outcome = outcome
        self.occurrences: list[Occurrence] = []
        self.names: set[str] = set()


class Gathering:
    """The items of all messages. ``read`` takes them from the last to the first.

    ``in_view`` says whether the view asked about shows a message whole; ``since`` gives the
    position from which on a use of a message counts as "again", None where none does.
    ``taken_back`` are demands that no longer hold: numbers of messages, and which of them (from 1).
    """

    def __init__(
        self,
        in_view: Callable[[int], bool],
        since: Callable[[int], int | None],
        taken_back: Collection[tuple[int, int]] = (),
    ) -> None:
        self.items: dict[tuple[str, str, str], Gathered] = {}
        self.needles = Needles()
        self.sources: dict[int, list[str]] = {}
        self._in_view = in_view
        self._since = since
        self._taken_back = frozenset(taken_back)
        self._results: dict[str, tuple[int, CallOutcome]] = {}

    def read(self, number: int, position: int, facts: Facts, message: dict[str, Any]) -> None:
        """Take in one message, which is older than all before."""
        text = text_of(message)
        in_view = self._in_view(number)
        if facts.kind == "system":
            self.needles.system(text)
            return
        parts = read_parts(message)
        if facts.kind == "assistant":
            self.needles.used_by_model(text, position, in_view=in_view)
            for sentence in decisions(words_of(message)):
                self._sentence("decision", sentence, number)
        else:
            by = number if facts.answers else None
            self.needles.held(text, in_view=in_view, by=by, since=self._since(number))
        for part in parts:
            if part.kind == "result":
                self._result(part, number)
        for part in reversed(parts):
            if part.kind in ("call", "hosted"):
                self._call(part, number)
        if facts.human:
            demands = demands_in(message)
            named = [one for at, one in enumerate(demands, 1) if (number, at) in self._taken_back]
            for sentence in instructions(words_of_person(message), demands, named):
                self._sentence("instruction", sentence, number)

    def _sentence(self, kind: ItemKind, sentence: str, number: int) -> None:
        found = self._item(kind, normal(sentence), sentence)
        found.names |= names_in(sentence)
        found.occurrences.append(Occurrence(number))

    def _result(self, part: Part, number: int) -> None:
        outcome = outcome_of(part, text_of_result(part))
        for call_id in part.ids:
            self._results[call_id] = (number, outcome)

    def _call(self, part: Part, number: int) -> None:
        effect = read_effect(part)
        result, outcome = None, CallOutcome()
        for call_id in part.ids:
            result, outcome = self._results.pop(call_id, (result, outcome))
        if result is not None:
            name = part.name or "a call"
            what = core(effect.command) if effect.command is not None else ""
            what = what or ", ".join([path for path, _ in effect.files])
            self.sources.setdefault(result, []).insert(0, f"{name} {what}".strip())
        for path, how in dict.fromkeys(effect.files):
            self._item("file", path, path).occurrences.append(Occurrence(number, result, how))
        if effect.command is not None:
            text = core(effect.command)
            if outcome.status == 1 and text.startswith(NO_MATCH):
                outcome = CallOutcome(1)
            found = self._item("command", text, text, outcome)
            found.occurrences.append(Occurrence(number, result))

    def _item(
        self, kind: ItemKind, key: str, text: str, outcome: CallOutcome | None = None
    ) -> Gathered:
        error = "" if outcome is None or not outcome.failed else f"failed {outcome.error}"
        found = self.items.get((kind, key, error))
        if found is None:
            found = self.items[kind, key, error] = Gathered(kind, text, outcome)
        return found

    def unite_paths(self) -> None:
        """Take a relative path and the one absolute path that ends with it as one file."""
        paths = [key for kind, key, _ in self.items if kind == "file"]
        absolute: dict[str, list[str]] = {}
        for path in paths:
            if path.startswith(("/", "~")):
                absolute.setdefault(path.rsplit("/", 1)[-1], []).append(path)
        for path in paths:
            if path.startswith(("/", "~")):
                continue
            ends = f"/{path}"
            same = [one for one in absolute.get(path.rsplit("/", 1)[-1], ()) if one.endswith(ends)]
            if len(same) == 1:
                into = self.items["file", same[0], ""]
                into.occurrences += self.items.pop(("file", path, "")).occurrences
                into.occurrences.sort(key=lambda one: one.number, reverse=True)
