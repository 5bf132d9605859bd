"""References: a message or insertion without its text. Plans and views need no more than that."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from eventctx.log.plan import InsertionKind
from eventctx.log.record import Record
from eventctx.messages.facts import Facts, decode_facts
from eventctx.messages.shorten import MARKER_CHARACTERS
from eventctx.messages.tokens import UNANSWERED_TOKENS, Estimator


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
    """The log's knowledge of a call without a result.

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
    is the last message number at the time of the insertion. ``ahead``: the message after it
    was still to come, so that until then it is the last entry.
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


KEPT_CHARACTERS: Final = 4_000
"""Characters of a kept answer in a view; no policy can shorten what is no message."""

MAX_KNOWN_ENDS: Final = 256
"""Most calls without a result whose ends a view knows; of others it says that none is known."""

NOT_ENDED: Final = CallEnd()
"""Of a call without a result nothing more is known."""


class CallEnds(NamedTuple):
    """The ends of calls without a result: ``known``, by message number and call id.

    Calls of messages up to number ``plain_until`` were shown by renderer 1, and stay as they were.
    """

    known: dict[tuple[int, str], CallEnd]
    plain_until: int = -1

    def of(self, number: int, call_id: str) -> CallEnd | None:
        """The end that a made-up result of this call tells; None as in ``Entry``."""
        if number <= self.plain_until:
            return None
        return self.known.get((number, call_id), NOT_ENDED)

    def with_end(self, number: int, call_id: str, end: CallEnd) -> CallEnds:
        """The same with the end of one more call, while there is room."""
        if len(self.known) >= MAX_KNOWN_ENDS and (number, call_id) not in self.known:
            return self
        return self._replace(known={**self.known, (number, call_id): end})

    def without_answered(self, rows: Iterable[MessageRef], unanswered: Collection[str]) -> CallEnds:
        """The same without the calls of ``rows`` that got their results."""
        numbers = {ref.number for ref in rows}
        return self._replace(
            known={
                key: end
                for key, end in self.known.items()
                if key[0] not in numbers or key[1] in unanswered
            }
        )

    def only_of(self, rows: Iterable[MessageRef]) -> CallEnds:
        """The same for the calls of ``rows`` alone; the others have left the transcript."""
        numbers = {ref.number for ref in rows}
        return self._replace(known={k: end for k, end in self.known.items() if k[0] in numbers})

    def recount(self, estimator: Estimator) -> CallEnds:
        """The same with the tokens that ``estimator`` counts."""
        known = {
            key: end
            if end.facts is None
            else msgspec.structs.replace(end, tokens=_tokens(end.facts, estimator))
            for key, end in self.known.items()
        }
        return self._replace(known=known)


NO_ENDS: Final = CallEnds({})


def end_in(record: Record, estimator: Estimator) -> CallEnd:
    """The end that ``record`` tells of, with the answer that it keeps."""
    if not record.bodies:
        return CallEnd(ended=True)
    body = record.bodies[0]
    facts = decode_facts(body.facts)
    return CallEnd(True, record.position, body.digest, facts, _tokens(facts, estimator))


def _tokens(facts: Facts, estimator: Estimator) -> int:
    shown = min(facts.outcome, KEPT_CHARACTERS + MARKER_CHARACTERS)
    return UNANSWERED_TOKENS + estimator.tokens_with(facts, 0, 0, shown)
