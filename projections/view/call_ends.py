"""What the log knows of calls without a result, for the results that a view makes up for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

import msgspec

from eventctx.log.record import Record
from eventctx.messages.facts import Facts, decode_facts
from eventctx.messages.shorten import MARKER_CHARACTERS
from eventctx.messages.tokens import UNANSWERED_TOKENS, Estimator
from eventctx.projections.view.refs import CallEnd, MessageRef

KEPT_CHARACTERS: Final = 4_000
"""Characters of a kept answer in a view; no policy can shorten what is no message."""

MAX_KNOWN_ENDS: Final = 256
"""Most calls without a result whose ends a view knows; of others it says that none is known."""

NOT_ENDED: Final = CallEnd()
"""Of a call without a result nothing more is known."""


class CallEnds(NamedTuple):
    """What is known of calls without a result: ``known``, by message number and call id.

    Calls of messages up to number ``plain_until`` were shown by renderer 1, and stay as they were.
    """

    known: dict[tuple[int, str], CallEnd]
    plain_until: int = -1

    def of(self, number: int, call_id: str) -> CallEnd | None:
        """What a made-up result of this call says; None as in ``Entry``."""
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

    def recounted(self, estimator: Estimator) -> CallEnds:
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
