"""The engine: opens a store and gives sessions, replays, audits, forks and proofs.

The composition root: the one module that knows stores, projections, hooks and policies.
"""

from __future__ import annotations

import os
import time
import unicodedata
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import msgspec

from eventctx import events, reading
from eventctx.codec import encode_event
from eventctx.context import Context
from eventctx.errors import InvalidSessionId, InvalidSetting
from eventctx.hooks.registry import Hooks
from eventctx.identity import CurrentSpan, random_bytes
from eventctx.policies.policy import Policy
from eventctx.policies.simple import Simple
from eventctx.projections import audit, timeline, usage
from eventctx.reading import Message, RequestView
from eventctx.record import Draft, Record
from eventctx.resume import open_session
from eventctx.settings import Settings
from eventctx.store import Appended, EventStore, Receipt, StreamInfo
from eventctx.verify import Verification, verify

MAX_SESSION_ID = 256
"""Characters; hosts' own ids (UUIDs, W3C span pairs with an agent's name) stay far below."""

_PATH_CHARACTERS = frozenset("/\\")


class Audit(msgspec.Struct, frozen=True):
    """The audit of a session: a row per request, a row per compaction, the turns, and usage."""

    session: str
    requests: tuple[audit.AuditRow, ...]
    compactions: tuple[audit.CompactionRow, ...]
    turns: tuple[timeline.Turn, ...]
    usage: dict[str, usage.Usage]


def check_session_id(session: object) -> str:
    """Return a session id that can be used. Raises InvalidSessionId."""
    if not isinstance(session, str) or not session:
        raise InvalidSessionId(
            f"session id: expected a text of 1 or more characters, found {session!r}"
        )
    if len(session) > MAX_SESSION_ID:
        raise InvalidSessionId(
            f"session id: expected at most {MAX_SESSION_ID} characters, found {len(session)}"
        )
    if session in (".", "..") or not _PATH_CHARACTERS.isdisjoint(session):
        raise InvalidSessionId(f"session id: expected no path (/, \\, ..), found {session!r}")
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in session):
        raise InvalidSessionId(f"session id: expected no control characters, found {session!r}")
    return session


def policy_named(name: str, **settings: Any) -> Policy:
    """A policy by its name and settings. Raises InvalidSetting."""
    if name != "simple":
        raise InvalidSetting(f"policy: expected one of ['simple'], found {name!r}")
    try:
        return Simple(**settings)
    except TypeError as error:
        raise InvalidSetting(f"policy {name!r}: {error}") from error


class Engine:
    """Sessions on one store. ``async with eventctx.open(url) as engine``.

    ``hooks`` is the registry of observers; ``on`` is its ``on``. ``clock`` returns UTC nanoseconds
    and ``random(n)`` n random bytes; tests pass fixed ones.
    """

    def __init__(
        self,
        store: EventStore,
        *,
        hooks: Hooks | None = None,
        current_span: CurrentSpan | None = None,
        clock: Callable[[], int] = time.time_ns,
        random: Callable[[int], bytes] = random_bytes,
    ) -> None:
        self.store = store
        self.hooks = hooks if hooks is not None else Hooks()
        self.on = self.hooks.on
        self._current_span = current_span
        self._clock = clock
        self._random = random
        self._contexts: dict[str, Context] = {}

    # -- sessions --------------------------------------------------------------------------------

    async def session(
        self, session: str, *, policy: str | Policy = "simple", **settings: Any
    ) -> Context:
        """The context manager of a session, which is created if it is new.

        There is one per session and engine; asking again returns it, and refuses other settings.
        ``settings`` are those of ``Settings`` and, for a policy given by name, of the policy
        (``keep_recent``, ``max_messages``). Raises InvalidSessionId, InvalidSetting.
        """
        check_session_id(session)
        known = {field.name for field in msgspec.structs.fields(Settings)}
        own = {name: value for name, value in settings.items() if name in known}
        others = {name: value for name, value in settings.items() if name not in known}
        chosen = policy_named(policy, **others) if isinstance(policy, str) else policy
        if not isinstance(policy, str) and others:
            raise InvalidSetting(
                f"settings: expected some of {sorted(known)}, found {sorted(others)}"
            )
        made = Settings(**own)
        context = self._contexts.get(session)
        if context is None:
            context = await self._open(session, chosen, made)
        elif (settings or policy != "simple") and (made, chosen) != (
            context.settings,
            context.policy,
        ):
            raise InvalidSetting(
                f"session {session!r} is open with {context.policy} and {context.settings}, found "
                f"{chosen} and {made}; close the engine first, or leave out the settings"
            )
        return context

    async def _open(self, session: str, policy: Policy, settings: Settings) -> Context:
        recorded = {**msgspec.to_builtins(settings), "policy": policy.name}
        if isinstance(policy, msgspec.Struct):
            recorded = {**msgspec.to_builtins(policy), **recorded}
        live = await open_session(
            self.store, session, self.hooks.publish, self._clock, self._random, recorded
        )
        # Two tasks may have opened it at the same time: the first one in keeps the place.
        return self._contexts.setdefault(
            session, Context(live, policy, settings, self._current_span)
        )

    async def sessions(self) -> list[StreamInfo]:
        """All sessions in order of creation."""
        return await self.store.streams()

    async def fork(self, session: str, at: int, new_session: str) -> Receipt:
        """Create ``new_session`` as ``session`` up to position ``at`` (inclusive), by reference.

        Raises StreamNotFound, StreamExists, InvalidSessionId, InvalidSetting.
        """
        check_session_id(new_session)
        if type(at) is not int:
            raise InvalidSetting(f"fork: expected a position (int), found {at!r}")
        context = self._contexts.get(session)
        if context is not None:
            await context.close()
        name, version, payload = encode_event(events.SessionFork(parent=session, at=at))
        now = self._clock()
        async for record in self.store.read(
            session, start=max(at, 0), stop=max(at, 0), bodies=False
        ):
            now = max(now, record.time)
        first = Draft(self._random(16), name, version, now, payload)
        appended: Appended = await self.store.fork(session, at, new_session, first)
        for record in appended.records:
            self.hooks.publish(record)
        return appended.receipt

    # -- replay and audit ------------------------------------------------------------------------

    def records(
        self,
        session: str,
        start: int = 0,
        stop: int | None = None,
        *,
        bodies: bool = False,
    ) -> AsyncIterator[Record]:
        """Records from position ``start`` to ``stop`` (inclusive). Raises StreamNotFound."""
        return self.store.read(session, start=start, stop=stop, bodies=bodies)

    async def transcript(
        self, session: str, *, at: int | None = None, turn: int | None = None
    ) -> list[Message]:
        """The transcript as it was after position ``at``, or at the end of turn ``turn``; else now.

        Raises StreamNotFound, InvalidSetting.
        """
        if at is not None and turn is not None:
            raise InvalidSetting("transcript: expected at most one of at and turn, found both")
        if turn is not None:
            at = await reading.position_of_turn(self.store, session, turn)
        return await reading.transcript_at(self.store, session, at)

    async def request_view(
        self,
        session: str,
        turn: int | None = None,
        iteration: int | None = None,
        *,
        position: int | None = None,
    ) -> RequestView:
        """What the model was sent: in a turn (its last request, or that of one iteration).

        Or at the position of a ``context:request_prepared``, as the audit lists it. Raises
        StreamNotFound, InvalidSetting.
        """
        if (turn is None) == (position is None):
            raise InvalidSetting("request_view: expected either a turn or a position")
        if position is not None:
            return await reading.request_at(self.store, session, position)
        assert turn is not None  # noqa: S101 - tells the type checker
        return await reading.request_of_turn(self.store, session, turn, iteration)

    async def audit(self, session: str) -> Audit:
        """A row per request and per compaction. Raises StreamNotFound."""
        state: audit.AuditState = audit.initial()
        used: usage.UsageState = usage.initial()
        async for record in self.store.read(session, bodies=False):
            state = audit.evolve(state, record)
            used = usage.evolve(used, record)
        return Audit(
            session,
            tuple(audit.rows(state)),
            tuple(state.compactions),
            tuple(turn for turn in timeline.turns(state.time) if turn.first > state.own_from),
            dict(used.models),
        )

    async def verify(
        self, session: str, receipt: Receipt | None = None, *, facts: bool = True
    ) -> Verification:
        """Recompute every digest of a session, and compare facts. Raises StreamNotFound.

        Without ``facts`` only what digests cover is checked, in half the time.
        """
        return await verify(self.store, session, receipt, facts=facts)

    # -- life ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write what is under way, let hooks finish, and release the store."""
        try:
            for context in list(self._contexts.values()):
                await context.close()
        finally:
            self._contexts.clear()
            try:
                await self.hooks.close()
            finally:
                await self.store.close()

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class Opening:
    """What ``open`` returns: ``async with`` it, or ``await`` it and close the engine yourself."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._engine: Engine | None = None

    def __await__(self) -> Any:
        return self._make().__await__()

    async def __aenter__(self) -> Engine:
        self._engine = await self._make()
        return self._engine

    async def __aexit__(self, *exc: Any) -> None:
        if self._engine is not None:
            await self._engine.close()


def open_engine(
    url: str | os.PathLike[str] = "memory://",
    *,
    durability: Literal["full", "normal"] = "full",
    create: bool = True,
    lock_timeout: float = 5.0,
    **options: Any,
) -> Opening:
    """Open a store: ``memory://``, ``sqlite:///relative.db``, ``sqlite:////absolute.db``, a path.

    ``durability="normal"`` may lose the last moments of acknowledged records when the power fails,
    never when the process does. ``options`` are those of ``Engine``. Raises on entering:
    NotAStore, StoreTooNew, StoreUnavailable, InvalidSetting.
    """

    async def make() -> Engine:
        store = await _open_store(
            os.fspath(url), durability=durability, create=create, lock_timeout=lock_timeout
        )
        return Engine(store, **options)

    return Opening(make)


async def _open_store(url: str, **options: Any) -> EventStore:
    if url in ("memory://", ":memory:"):
        from eventctx.stores.memory import MemoryStore

        return MemoryStore()
    scheme, separator, rest = url.partition("://")
    if not separator:
        path = url
    elif scheme == "sqlite":
        path = rest.removeprefix("/")
    else:
        raise InvalidSetting(f"store: expected memory://, sqlite:///PATH or a path, found {url!r}")
    if not path:
        raise InvalidSetting(f"store: expected a path after sqlite:///, found {url!r}")
    from eventctx.stores.sqlite import SqliteStore

    return await SqliteStore.open(Path(path), **options)
