"""The report: the state of every item in a view, from the gathered items and the view's texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from eventctx.log.naming import message_name, position_name
from eventctx.messages.mentions import Mentions
from eventctx.messages.overlap import normal
from eventctx.projections import numbering
from eventctx.projections.presence import Presence
from eventctx.queries.lost.answers import (
    KINDS,
    STATES,
    CommandUse,
    FileUse,
    ItemKind,
    Left,
    Lost,
    MessageCounts,
    StateCounts,
    ViewItem,
)
from tests.lost.rereading.gathering import Gathered, Gathering, Occurrence
from tests.lost.rereading.needles import Needle
from tests.lost.rereading.views import Asked, ViewContents

MOST_QUOTED: Final = 10


class Scene(NamedTuple):
    """A view with its texts: those of shortened messages, normalised, and of its summaries."""

    view: ViewContents
    shortened: Mapping[int, str]
    mentions: Mentions

    def holds(self, found: Gathered, one: Occurrence) -> Presence | None:
        """Whether the messages of one occurrence are in view; None where they are not."""
        ref = self.view.shown.get(one.number)
        if ref is None:
            return None
        result = None if one.result is None else self.view.shown.get(one.result)
        cut = result is not None and result.shortened
        if not ref.shortened and not cut:
            return (
                Presence.SHORTENED if one.result is not None and result is None else Presence.WHOLE
            )
        if ref.shortened and normal(found.text) not in self.shortened.get(one.number, ""):
            return None
        error = "" if found.outcome is None else normal(found.outcome.error)
        if cut and one.result is not None and error not in self.shortened.get(one.result, ""):
            return None
        return Presence.SHORTENED

    def mentioned(self, found: Gathered, alone: bool) -> bool:
        """Whether a summary in view mentions an item; ``alone``: no other file has its name."""
        mentions = self.mentions
        if mentions.empty:
            return False
        if found.kind == "file":
            return mentions.file(found.text, alone=alone)
        if found.kind == "command":
            if found.outcome is not None and found.outcome.failed:
                return mentions.failure(found.outcome.error)
            return mentions.command(found.text)
        return mentions.sentence(found.text)


class Report:
    """Makes the report of one question; pure, over what was gathered."""

    def __init__(
        self, asked: Asked, after: Scene, before: Scene | None, gathering: Gathering
    ) -> None:
        self._asked = asked
        self._after = after
        self._before = before
        self._gathering = gathering
        self._positions = [origin.ref.position for origin in asked.origins]
        self._turns: dict[str | None, int | None] = {}
        gathering.unite_paths()
        names = Counter(_file_name(key) for kind, key, _ in gathering.items if kind == "file")
        self._alone = {name for name, count in names.items() if count == 1}
        self._files = set(names)

    def make(self, session: str, erased: int, sealed: int) -> Lost:
        """The report; ``erased`` messages had no contents, ``sealed`` summaries are encrypted."""
        asked = self._asked
        items = [item for found in self._gathering.items.values() for item in self._item(found)]
        items += self._results()
        items.sort(key=_order)
        return Lost(
            session,
            asked.about,
            asked.compaction,
            asked.compactions,
            asked.turn,
            None if asked.position is None else position_name(asked.position),
            asked.position,
            self._messages(erased),
            len(asked.after.summaries),
            sealed,
            tuple([_counted(kind, items) for kind in KINDS]),
            tuple(items),
        )

    # -- messages --------------------------------------------------------------------------------

    def _messages(self, erased: int) -> MessageCounts:
        after, before = self._asked.after, self._asked.before
        numbers: Iterable[int] = range(after.known) if before is None else before.shown
        shown = [after.shown[number] for number in numbers if number in after.shown]
        left = [number for number in numbers if number not in after.shown]
        cut = sum(ref.shortened for ref in shown)
        return MessageCounts(
            len(shown) + len(left),
            len(shown) - cut,
            cut,
            len(left),
            dict(Counter(after.left[number].by for number in left)),
            dict(Counter(self._writer(number) for number in left)),
            erased,
        )

    def _writer(self, number: int) -> str:
        facts = self._asked.origins[number].ref.facts
        if facts.human:
            return "person"
        return {"assistant": "model", "result": "tool"}.get(facts.kind, "other")

    # -- items -----------------------------------------------------------------------------------

    def _item(self, found: Gathered) -> Iterable[ViewItem]:
        """The item; none where it came later than the view, or was gone before the compaction."""
        known = self._asked.after.known
        held = [one for one in found.occurrences if one.number < known]
        if not held or (
            self._before is not None and self._state(self._before, found) == Presence.GONE
        ):
            return
        state = self._state(self._after, found)
        last = held[0]
        in_view = [one for one in held if self._after.holds(found, one) is not None]
        yield ViewItem(
            kind=found.kind,
            state=state,
            text=found.text,
            name=message_name(last.number),
            number=last.number,
            turn=self._turn(last.number),
            messages=len({one.number for one in held}),
            in_view=len({one.number for one in in_view}),
            used_again=self._used_again(found, held),
            left=self._left(last, bool(in_view)),
            file=_file_use(held) if found.kind == "file" else None,
            command=_command_use(found, held) if found.kind == "command" else None,
        )

    def _state(self, scene: Scene, found: Gathered) -> Presence:
        held = [scene.holds(found, o) for o in found.occurrences if o.number < scene.view.known]
        if Presence.WHOLE in held:
            return Presence.WHOLE
        if Presence.SHORTENED in held:
            return Presence.SHORTENED
        alone = _file_name(found.text) in self._alone
        return Presence.SUMMARY if scene.mentioned(found, alone) else Presence.GONE

    def _used_again(self, found: Gathered, held: list[Occurrence]) -> int:
        """How many later messages have the item, or for a sentence a name in it."""
        since = self._since(held)
        if since is None:
            return 0
        positions = {self._positions[one.number] for one in found.occurrences}
        for name in found.names:
            needle = self._gathering.needles[name]
            positions.update(() if needle is None else needle.used)
        return sum(position > since for position in positions)

    def _since(self, held: list[Occurrence]) -> int | None:
        if self._before is not None:
            return self._asked.position
        left = self._asked.after.left
        gone = [left[one.number].position for one in held if one.number in left]
        return min(gone, default=None)

    def _left(self, last: Occurrence, in_view: bool) -> Left | None:
        return None if in_view else self._asked.after.left.get(last.number)

    def _turn(self, number: int) -> int | None:
        turn_id = self._asked.origins[number].turn_id
        if turn_id not in self._turns:
            self._turns[turn_id] = numbering.turn_number(self._asked.time, turn_id)
        return self._turns[turn_id]

    # -- results ---------------------------------------------------------------------------------

    def _results(self) -> list[ViewItem]:
        held = self._gathering.needles.by_holder(self._files)
        shown = self._after.view.shown
        found = [self._result(number, needles) for number, needles in sorted(held.items())]
        # Of a result that left, nothing is lost if all that was used again is in view elsewhere.
        return [one for one in found if one.state != Presence.WHOLE or one.number in shown]

    def _result(self, number: int, needles: dict[str, Needle]) -> ViewItem:
        states = {text: self._state_of_needle(text, one, number) for text, one in needles.items()}
        state = next(one for one in STATES if one in states.values())
        since = self._asked.position if self._before is not None else None
        if since is None:
            since = self._asked.after.left[number].position
        used = {
            text: needles[text].used_behind(since) for text, its in states.items() if its == state
        }
        best = sorted(used, key=lambda text: (-len(used[text]), -len(text), text))
        sources = self._gathering.sources.get(number, ())
        ref = self._after.view.shown.get(number)
        return ViewItem(
            kind="result",
            state=state,
            text="; ".join(sources) or "a result whose call is not known",
            name=message_name(number),
            number=number,
            turn=self._turn(number),
            messages=1,
            in_view=0 if ref is None else 1,
            used_again=len({position for one in used.values() for position in one}),
            left=self._asked.after.left.get(number),
            quoted=tuple([needles[text].text for text in best[:MOST_QUOTED]]),
        )

    def _state_of_needle(self, text: str, needle: Needle, number: int) -> Presence:
        ref = self._after.view.shown.get(number)
        if needle.in_view:
            return Presence.WHOLE
        if ref is not None and ref.shortened and normal(text) in self._after.shortened[number]:
            return Presence.SHORTENED
        mentions = self._after.mentions
        found = mentions.line(text) if " " in text else mentions.name(text)
        return Presence.SUMMARY if not mentions.empty and found else Presence.GONE


def _order(item: ViewItem) -> tuple[int, int, int, bool, int]:
    failed = item.command is not None and item.command.failed
    state = STATES.index(item.state)
    return (KINDS.index(item.kind), state, -item.used_again, not failed, item.number)


def _counted(kind: ItemKind, items: Iterable[ViewItem]) -> StateCounts:
    states = Counter(item.state for item in items if item.kind == kind)
    by_name = {state: states[state] for state in STATES}
    return StateCounts(kind, states.total(), **by_name)


def _file_use(held: Iterable[Occurrence]) -> FileUse:
    how = Counter(dict.fromkeys([(one.how, one.number) for one in held]).keys())
    kinds = Counter(kind for kind, _ in how)
    return FileUse(kinds["read"], kinds["written"], kinds["edited"])


def _command_use(found: Gathered, held: list[Occurrence]) -> CommandUse:
    outcome = found.outcome
    if outcome is None:
        return CommandUse(len(held), False, None, "")
    return CommandUse(len(held), outcome.failed, outcome.status, outcome.error)


def _file_name(path: str) -> str:
    return path.rsplit("/", 1)[-1].casefold()
