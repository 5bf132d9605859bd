"""``transcript`` as a document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eventctx.errors import InvalidSetting
from eventctx.log.naming import message_name, position_name
from eventctx.log.store import StreamInfo
from eventctx.queries.transcript import Message

if TYPE_CHECKING:
    from eventctx.engine import Engine


async def transcript_of(
    engine: Engine, info: StreamInfo, at: int | None = None, turn: int | None = None
) -> list[Message]:
    """The transcript now, after a position, or at the end of a turn.

    Raises StreamNotFound, and InvalidSetting for a position that the session does not have.
    """
    if at is not None and not 0 <= at <= info.head:
        raise InvalidSetting(
            f"session {info.stream!r} has positions @0 to {position_name(info.head)}, "
            f"found --at {position_name(at)}"
        )
    return await engine.transcript(info.stream, at=at, turn=turn)


def transcript_document(messages: list[Message]) -> list[dict[str, Any]]:
    """The messages with stable keys."""
    return [{"name": message_name(one.number), **one._asdict()} for one in messages]
