"""A session that is open in this process: the parts that its command handlers use.

Each part has a file of its own: the aggregate (folded state), the append queue (the way to the
store), the body cache, and the transcript lines. The sources of random bytes and durations are
beside them.

What is heavy in the parts may be let go while nothing is under way (``let_go``). It is loaded again
by the next command that needs it, so no command handler notices. What no store knows stays here,
in ``memory``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from eventctx.log.store import EventStore
from eventctx.messages.thinking import ThinkingSetting
from eventctx.messages.tokens import Tokenizer
from eventctx.session.aggregate import Aggregate
from eventctx.session.append_queue import AppendQueue
from eventctx.session.body_cache import BodyCache
from eventctx.session.scope import Drafts
from eventctx.session.transcript_lines import TranscriptLines

EMPTY_BYTES = 6_000
"""Memory of a session that holds no view; measured on CPython 3.11."""


class LeftOpen(NamedTuple):
    """The ids of the spans that were open in the log when position ``head`` was its last."""

    spans: frozenset[str] = frozenset()
    head: int = -1


@dataclass(slots=True)
class SessionMemory:
    """What a session knows that is not in the store, and that handlers of one session share.

    ``prepared`` are the positions of the last requests by turn and iteration, ``additions`` the
    places of a host's additions by their SHA-256, ``usage_of`` the requests (by position) and
    answers (by id) whose usage was reported, ``overflowed_at`` is the position of the record
    of the last overflow, -1 for none. ``ending`` are the ends under way of compactions that an
    error stopped. ``left_open`` is what was open when the session was first loaded, until a turn
    begins.
    """

    prepared: dict[tuple[str | None, int | None], int] = field(default_factory=dict)
    additions: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    usage_of: dict[int | str, None] = field(default_factory=dict)
    overflowed_at: int = -1
    ending: set[asyncio.Future[None]] = field(default_factory=set)
    left_open: LeftOpen = field(default_factory=LeftOpen)


@dataclass(slots=True, eq=False, weakref_slot=True)
class OpenSession:
    """One session in this process. Made by ``repository``.

    ``random(n)`` returns n bytes; ``stopwatch`` returns nanoseconds, and only differences between
    them mean anything. ``tokenizer`` counts the texts of messages that are added from here on.
    ``thinking`` is the session's setting.
    """

    stream: str
    store: EventStore
    aggregate: Aggregate
    drafts: Drafts
    appends: AppendQueue
    bodies: BodyCache
    lines: TranscriptLines
    random: Callable[[int], bytes]
    stopwatch: Callable[[], int]
    tokenizer: Tokenizer | None = None
    thinking: ThinkingSetting = "by_model"
    memory: SessionMemory = field(default_factory=SessionMemory)

    @property
    def bytes_held(self) -> int:
        """About how much memory the session takes."""
        return EMPTY_BYTES + self.aggregate.bytes_held + self.lines.bytes_held

    @property
    def body_bytes(self) -> int:
        """Bytes of bodies that are held: what may grow fast."""
        return self.aggregate.unfolded_bytes + self.bodies.bytes_held + self.lines.row_bytes

    @property
    def remembers(self) -> bool:
        """Whether it would behave otherwise if it were made anew from the store."""
        memory = self.memory
        return bool(
            self.drafts.held is not None
            or memory.additions
            or memory.overflowed_at >= 0
            or memory.ending
            or memory.left_open.spans
        )

    def grown(self) -> None:
        """Note that bodies or lines were read from the store, and take memory now."""
        self.appends.used()

    def let_go(self) -> bool:
        """Let go what can be loaded again; false, and nothing happens, while anything is under way.

        Waits for nothing, so that no cancellation can leave a session half let go.
        """
        if self.memory.ending or not self.appends.let_go():
            return False
        self.lines.let_go()
        return True

    def renew(self) -> None:
        """Forget all contents, and where additions were stored: some of it was destroyed."""
        self.appends.renew()
        self.lines.let_go()
        self.memory.additions.clear()

    async def close(self) -> None:
        """Wait for appends and compactions under way. Raises what kept one from being written."""
        while self.memory.ending:
            await asyncio.wait(self.memory.ending)
        await self.appends.flushed()
