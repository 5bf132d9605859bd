"""What is answered about a session's views: the pure projections' findings, with their texts."""

from __future__ import annotations

from typing import Any

import msgspec

from eventctx.projections.explain.view_diff import Kind
from eventctx.projections.explain.why import Reason, Why

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
    stands now. ``message`` is as it was added and ``shows`` as it is in view, each None where it
    was erased or is not there.
    """

    session: str
    position: int | None = None
    turn: int | None = None
    iteration: int | None = None
    message: Message | None = None
    shows: Message | None = None
    stands_in: tuple[StandIn, ...] = ()


class Side(msgspec.Struct, frozen=True):
    """One of two requests. ``tokens`` are estimated; ``groups`` add up to them."""

    position: int
    turn: int | None
    iteration: int | None
    entries: int
    tokens: int
    budget: int | None
    groups: dict[str, int]


class MessageDifference(msgspec.Struct, frozen=True):
    """What became of one message between two requests, and why; ``message`` is as it was added."""

    number: int
    kind: Kind
    role: str
    ruling: Reason | None
    message: Message | None


class ExtraEntry(msgspec.Struct, frozen=True):
    """A message in a view that is in no transcript: an insertion, or one that was made up.

    ``position`` is that of the insertion; ``number`` is the call that got no result.
    """

    kind: str
    position: int | None
    number: int | None
    stands_for: tuple[tuple[int, int], ...]
    message: Message | None


class ViewDiff(msgspec.Struct, frozen=True):
    """What the later of two requests shows otherwise than the earlier one.

    ``differences`` are in order of number; ``came`` and ``went`` in that of the view. ``passed``
    counts messages that were added in between and are not in the later view either.
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
