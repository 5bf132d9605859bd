"""Answers about a session's views: the findings of pure projections, with their texts."""

from __future__ import annotations

from typing import Any

import msgspec

from eventctx.log import notebook
from eventctx.log.naming import request_name
from eventctx.projections.explain.view_diff import Kind
from eventctx.projections.explain.why import Reason, Why
from eventctx.projections.figures import RequestFigures
from eventctx.projections.view.sendable.rows import RowChange

Message = dict[str, Any]


class StandIn(msgspec.Struct, frozen=True):
    """A message of a view that stands for others; ``message`` is None where it was erased."""

    kind: str
    position: int
    stands_for: tuple[tuple[int, int], ...]
    message: Message | None


class Explanation(Why, frozen=True, kw_only=True):
    """``Why``, with the texts, and the request that it is about.

    ``position``, ``turn`` and ``iteration`` are those of the request; all None for the view as it
    stands now. ``message`` is the message as it was added, ``shows`` its form in the view, each
    None where it was erased or is not there. ``stands_in`` are the messages of the view that
    stand for it. ``changes`` are the rules by which it is sent otherwise than the log has it, so
    that a provider takes it; ``left_out`` is true where one of them leaves out the whole message.
    """

    session: str
    position: int | None = None
    turn: int | None = None
    iteration: int | None = None
    message: Message | None = None
    shows: Message | None = None
    stands_in: tuple[StandIn, ...] = ()
    changes: tuple[RowChange, ...] = ()
    left_out: bool = False

    def __repr__(self) -> str:
        when = "now"
        if self.position is not None:
            when = f"in {request_name(self.turn, self.iteration, self.position)}"
        return notebook.line(
            f"Explanation {self.session} #{self.number} {when}:",
            self.standing,
            self.ruling and self.ruling.rule,
        )

    def _repr_html_(self) -> str:
        shown = [("added", self.message), ("in view", self.shows)]
        shown += [(f"{one.kind} in its place", one.message) for one in self.stands_in]
        rows = [(what, notebook.text_of(one)) for what, one in shown if one is not None]
        return notebook.table(repr(self)[1:-1], ("", "text"), rows)


class Side(msgspec.Struct, frozen=True):
    """One of two requests.

    ``groups`` are estimated tokens of its messages by kind; they add up to ``figures.messages``.
    """

    position: int
    turn: int | None
    iteration: int | None
    entries: int
    figures: RequestFigures
    budget: int | None
    groups: dict[str, int]

    @property
    def tokens(self) -> int:
        """``figures.total``."""
        return self.figures.total

    @property
    def name(self) -> str:
        """``2.3``, or ``@48`` for a request outside a turn or without an iteration."""
        return request_name(self.turn, self.iteration, self.position)


class MessageDifference(msgspec.Struct, frozen=True):
    """The change of one message between two requests, and its reason.

    ``message`` is the message as it was added; None where it was erased.
    """

    number: int
    kind: Kind
    role: str
    ruling: Reason | None
    message: Message | None


class ExtraEntry(msgspec.Struct, frozen=True):
    """A message in a view that is in no transcript: an insertion, a synthetic result, an opening.

    ``position`` is that of the insertion's record; ``number`` is the message whose call has no
    result. Each is None where it does not apply.
    """

    kind: str
    position: int | None
    number: int | None
    stands_for: tuple[tuple[int, int], ...]
    message: Message | None


class ViewDiff(msgspec.Struct, frozen=True):
    """The differences of two requests, the earlier one first.

    ``differences`` are in order of message number; ``came`` (only in the later view) and ``went``
    (only in the earlier one) in the order of their view. ``passed`` counts messages that were
    added in between and are not in the later view either.
    """

    session: str
    before: Side
    after: Side
    differences: tuple[MessageDifference, ...]
    came: tuple[ExtraEntry, ...]
    went: tuple[ExtraEntry, ...]
    passed: int

    def of(self, *kinds: Kind) -> tuple[MessageDifference, ...]:
        """The differences of these kinds."""
        return tuple([one for one in self.differences if one.kind in kinds])

    def __repr__(self) -> str:
        return notebook.line(
            f"ViewDiff {self.session} {self.before.name} -> {self.after.name}:",
            notebook.counted(len(self.differences), "message"),
            f"{len(self.came):,} other came" if self.came else None,
            f"{len(self.went):,} other went" if self.went else None,
            f"{self.before.tokens:,} -> {self.after.tokens:,} tokens",
        )

    def _repr_html_(self) -> str:
        rows: list[tuple[object, ...]] = [
            (f"#{one.number}", one.kind, one.role, notebook.text_of(one.message))
            for one in self.differences
        ]
        for kind, extras in (("came", self.came), ("went", self.went)):
            rows += [("", kind, one.kind, notebook.text_of(one.message)) for one in extras]
        return notebook.table(repr(self)[1:-1], ("message", "change", "role", "text"), rows)
