"""A streamed turn as server-sent events, for any web host (WHATWG HTML, "Server-sent events")."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any, Final

import msgspec

from eventctx.errors import EventctxError
from eventctx.orchestrators.protocol import Chunk, Response

HEADERS: Final = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-store",
    "x-accel-buffering": "no",
}
"""The headers of a host's answer; the last one keeps nginx from collecting the pieces."""


async def server_sent_events(
    pieces: AsyncIterator[Chunk | Response],
) -> AsyncGenerator[bytes, None]:
    """The events of ``StreamingOrchestrator.stream(...)``, each with an id that counts from 0.

    The events ``text`` and ``thinking`` carry ``{"text", "block"}``, ``response`` the whole
    ``Response``. The last event is ``message.end`` with ``{"turn_id", "finish"}``, or an ``error``
    with ``{"type", "message"}``. A program error is raised as it is, after an ``error`` event
    without details. Closing this closes ``pieces``.
    """
    number = 0
    try:
        async for piece in pieces:
            for name, data in _events(piece):
                yield _event(number, name, data)
                number += 1
    except EventctxError as error:
        yield _event(number, "error", {"type": type(error).__name__, "message": str(error)})
    except Exception:
        # The text of a server's own error belongs in its log, not in a stream that anyone reads.
        payload = {"type": "InternalError", "message": "the turn could not be finished"}
        yield _event(number, "error", payload)
        raise
    finally:
        close = getattr(pieces, "aclose", None)
        if callable(close):
            await close()


def _events(piece: Chunk | Response) -> list[tuple[str, Any]]:
    if isinstance(piece, Chunk):
        return [(piece.kind, {"text": piece.text, "block": piece.block})]
    end = {"turn_id": piece.turn_id, "finish": piece.finish}
    return [("response", msgspec.to_builtins(piece)), ("message.end", end)]


def _event(number: int, name: str, data: Any) -> bytes:
    encoded = msgspec.json.encode(_sound(data))
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (number, name.encode(), encoded)


def _sound(data: Any) -> Any:
    """The data with lone surrogates replaced: a model may write them, UTF-8 cannot hold them."""
    if isinstance(data, str):
        return data.encode("utf-8", "replace").decode()
    if isinstance(data, dict):
        return {name: _sound(value) for name, value in data.items()}
    return data
