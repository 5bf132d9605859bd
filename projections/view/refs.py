"""References: a message or insertion without its text. Plans and views need no more than that."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from eventctx.log.plan import InsertionKind
from eventctx.messages.facts import Facts
from eventctx.messages.tokens import UNANSWERED_TOKENS


class MessageRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Message ``number`` as a view shows it; its body is ``index`` of the record at ``position``.

    If ``shortened``, then body, digest, facts and tokens are those of the shorter text. If
    ``stripped``, the view shows the message without its bound thinking blocks, and facts and
    tokens do not count them. If ``replaced``, the host's system prompt takes its place, and the
    view does not show it.
    """

    number: int
    position: int
    index: int
    digest: bytes
    facts: Facts
    tokens: int
    shortened: bool = False
    stripped: bool = False
    replaced: bool = False


class CallEnd(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the log knows of a call without a result.

    ``ended``: the call was recorded as ended, so the tool did its work or failed at it. Its answer,
    where it was kept, is body 0 of the record at ``position``; digest, facts and tokens are the
    answer's, and ``tokens`` are those of the text that a view makes of all this.
    """

    ended: bool = False
    position: int | None = None
    digest: bytes = b""
    facts: Facts | None = None
    tokens: int = UNANSWERED_TOKENS


class InsertionRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An insertion in a view; its body is ``index`` of the record at ``position``.

    ``before``, ``stands_for``, ``depth`` and ``demands`` are as in ``plan.Insertion``. ``through``
    is the last message number at the time of the insertion. ``ahead``: the message that it stands
    before was still to come, so that until then it is the last entry.
    """

    kind: InsertionKind
    position: int
    index: int
    digest: bytes
    facts: Facts
    tokens: int
    before: int | None
    stands_for: tuple[tuple[int, int], ...]
    through: int
    depth: int = 0
    demands: tuple[tuple[int, int], ...] = ()
    ahead: bool = False


class DemandRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A person's message with ``demands`` demands that hold; its body is ``index`` of ``position``.

    ``withdrawn`` are those that were taken back, counted from 1 in the order of the text; they are
    not among ``demands``.
    """

    number: int
    position: int
    index: int
    demands: int
    withdrawn: tuple[int, ...] = ()

    def holding(self, sentences: Sequence[str]) -> tuple[str, ...]:
        """The demands that hold, of all demands of the message (``messages.demands``)."""
        taken_back = self.withdrawn
        return tuple([one for at, one in enumerate(sentences, 1) if at not in taken_back])
