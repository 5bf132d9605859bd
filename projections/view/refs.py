"""References: a message without its text, which is all that plans and views are decided on."""

from __future__ import annotations

import msgspec

from eventctx.log.plan import InsertionKind
from eventctx.messages.facts import Facts


class MessageRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Message ``number`` as a view shows it, and where its body lies in the stream.

    For a ``shortened`` message body, digest, facts and tokens are those of the shorter text. A
    ``stripped`` one is shown without its bound thinking blocks, which facts and tokens leave out.
    """

    number: int
    position: int
    index: int
    digest: bytes
    facts: Facts
    tokens: int
    shortened: bool = False
    stripped: bool = False


class InsertionRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """An insertion as it stands in a view. ``before`` as in ``plan.Insertion``.

    ``through`` is the last message number when it was made; ``depth`` as in ``plan.Insertion``.
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
