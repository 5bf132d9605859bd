"""Rules that all stores share: expected versions, retries, and which drafts can be stored."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from eventctx.errors import InvalidSetting, WrongExpectedVersion
from eventctx.log.record import GENESIS, Draft, chain_digest
from eventctx.log.store import ANY, NO_STREAM, STREAM_EXISTS, Expected, Last

MAX_BODIES = 2**20 - 1
"""Most bodies of one record."""


def accepts(expected: Expected, head: int, last: bytes | None) -> bool:
    """Whether a stream is in the state that the writer expected.

    ``head`` is its last position (-1: none) and ``last`` the event id there.
    """
    if isinstance(expected, Last):
        return (expected.position, expected.id) == (head, last)
    if expected is ANY:
        return True
    if expected is NO_STREAM:
        return head == -1
    if expected is STREAM_EXISTS:
        return head >= 0
    return expected == head


def retried_at(expected: Expected, head: int, count: int) -> int | None:
    """First position of the ``count`` records if this append was made before; None if impossible.

    An append that expects no position can only be compared with the last records of the stream.
    """
    if expected is NO_STREAM:
        first = 0
    elif isinstance(expected, Last):
        first = expected.position + 1
    elif isinstance(expected, int):
        first = expected + 1
    else:
        first = head - count + 1
    return first if first >= 0 and first + count - 1 <= head else None


def conflict(stream: str, expected: Expected, head: int) -> WrongExpectedVersion:
    """The error for an append that met another version; it names both versions."""
    if isinstance(expected, Last):
        # Both sides name one position and differ in the record there, so the ids must be shown.
        if expected.position == head:
            return WrongExpectedVersion(stream, f"{head} (event {expected.id.hex()})", head)
        return WrongExpectedVersion(stream, expected.position, head)
    return WrongExpectedVersion(
        stream, expected if isinstance(expected, int) else expected.value, head
    )


def has_forks(stream: str, forks: Sequence[str]) -> InvalidSetting:
    """The error for a deletion of a stream from which others were forked."""
    named = ", ".join(repr(one) for one in forks[:5]) + (", …" if len(forks) > 5 else "")
    return InvalidSetting(
        f"delete {stream!r}: expected a session without forks, found {named}, which read its "
        "records; delete them first, or with it"
    )


def same_ids(found: Sequence[bytes], drafts: Sequence[Draft]) -> bool:
    """Whether the event ids found are those of the drafts, in order."""
    return len(found) == len(drafts) and all(
        event_id == draft.id for event_id, draft in zip(found, drafts, strict=True)
    )


def chain(stream: str, previous: bytes | None, first: int, drafts: Sequence[Draft]) -> list[bytes]:
    """Digests of ``drafts`` from position ``first`` on, chained to ``previous`` (None: the start).

    Raises InvalidSetting if there are no drafts, or a draft cannot be stored.
    """
    if not drafts:
        raise InvalidSetting(f"append to {stream!r}: expected at least one draft, found none")
    digest = GENESIS if previous is None else previous
    digests = []
    for position, draft in enumerate(drafts, first):
        _check(stream, draft)
        try:
            digest = chain_digest(digest, position, draft)
        except (struct.error, OverflowError, TypeError, ValueError, AttributeError) as error:
            raise InvalidSetting(
                f"append to {stream!r}: the draft of a {draft.type!r} has a field of the wrong "
                f"type or range: {error}"
            ) from error
        digests.append(digest)
    return digests


def _check(stream: str, draft: Draft) -> None:
    if type(draft.id) is not bytes or len(draft.id) != 16:
        raise InvalidSetting(
            f"append to {stream!r}: expected an event id of 16 bytes, found {draft.id!r}"
        )
    if draft.iteration is not None and not 0 <= draft.iteration < 2**63:
        raise InvalidSetting(
            f"append to {stream!r}: expected an iteration from 0 below 2**63, "
            f"found {draft.iteration}"
        )
    if len(draft.bodies) > MAX_BODIES:
        raise InvalidSetting(
            f"append to {stream!r}: expected at most {MAX_BODIES} bodies in one record, found "
            f"{len(draft.bodies)}; spread them over several records"
        )
    for index, body in enumerate(draft.bodies):
        if len(body.digest) != 32:
            raise InvalidSetting(
                f"append to {stream!r}: body {index} of a {draft.type!r} needs a digest of 32 "
                f"bytes, found {len(body.digest)}"
            )
        # A body stored without data or salt would read as an erased one later.
        if (body.data is None or body.salt is None) is not body.erased:
            raise InvalidSetting(
                f"append to {stream!r}: body {index} of a {draft.type!r} needs data and salt, or "
                "to be marked as erased and have neither; read records with bodies=True to copy "
                "them"
            )


def sizes(drafts: Iterable[Draft]) -> int:
    """Roughly how many bytes these drafts keep in memory while they wait to be written."""
    total = 0
    for draft in drafts:
        total += 512 + len(draft.payload)
        for body in draft.bodies:
            total += 256 + len(body.data or b"")
    return total
