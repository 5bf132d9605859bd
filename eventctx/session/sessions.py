"""The sessions of one engine: each is opened once and closed once; also fork and link."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from eventctx.aio import KeyedLock
from eventctx.errors import InvalidSetting, StreamNotFound, WrongExpectedVersion
from eventctx.log import events, signatures
from eventctx.log.codec import encode_event
from eventctx.log.events import Event
from eventctx.log.ids import CurrentSpan
from eventctx.log.record import Draft
from eventctx.log.session_id import check_session_id
from eventctx.log.signatures import Signer
from eventctx.log.store import Appended, EventStore, Receipt
from eventctx.messages.tokenizers import Tokenizer
from eventctx.policies.advisers import Rememberer, Scorer, Summarizer
from eventctx.policies.interception import Intercept
from eventctx.policies.policy import Policy
from eventctx.policies.recorded import recorded_settings
from eventctx.search.recall import Recall
from eventctx.session.append_queue import Clock, Listener
from eventctx.session.context import Context, Observe
from eventctx.session.open_session import OpenSession
from eventctx.session.questions import Advisers
from eventctx.session.repository import open_session
from eventctx.session.scope import Scope
from eventctx.session.settings import Settings


class Environment(NamedTuple):
    """The parts that the sessions of one engine share.

    ``catch_up(session)`` lets sinks fold a session's records before it is opened.
    ``recall(session)`` returns the function that answers memory questions about it. ``recaller``
    returns the search itself.
    """

    store: EventStore
    listener: Listener
    clock: Clock
    random: Callable[[int], bytes]
    current_span: CurrentSpan | None
    intercept: Intercept
    observe: Observe
    recaller: Callable[[], Recall]
    recall: Callable[[str], Rememberer]
    catch_up: Callable[[str], Awaitable[None]]


class SessionOpening(NamedTuple):
    """The options of a caller that opens a session; None means: as the session is open already."""

    policy: Policy
    settings: Settings
    summarizer: Summarizer | None = None
    scorer: Scorer | None = None
    tokenizer: Tokenizer | None = None
    chooses_policy: bool = False


class _Opened(NamedTuple):
    context: Context
    opening: SessionOpening


class Sessions:
    """The open sessions of one engine."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment
        self._opened: dict[str, _Opened] = {}
        self._locks = KeyedLock()

    def context(self, session: str) -> Context | None:
        """The context manager of a session, if it is open."""
        opened = self._opened.get(session)
        return None if opened is None else opened.context

    async def open(self, session: str, opening: SessionOpening) -> Context:
        """The context manager of a session, opened if it is not yet, created if it is new.

        Raises InvalidSetting where the session is open with other options, and what the store
        raises. A failed attempt leaves nothing behind, so the next one may use other options.
        """
        opened = self._opened.get(session)
        if opened is None:
            # A sink that catches up a second time forgets the records since the first time.
            async with self._locks(session):
                opened = self._opened.get(session)
                if opened is None:
                    context = await self._open(session, opening)
                    self._opened[session] = _Opened(context, opening)
                    return context
        _check_equal(session, opened.opening, opening)
        return opened.context

    async def _open(self, session: str, opening: SessionOpening) -> Context:
        rim = self._environment
        await rim.catch_up(session)
        policy, settings = opening.policy, opening.settings
        recorded = {**recorded_settings(policy), **msgspec.to_builtins(settings)}
        found = await self.take_up(session, {**recorded, "policy": policy.name}, opening.tokenizer)
        advisers = Advisers(
            opening.summarizer, opening.scorer, rim.recall(session), settings.adviser_timeout
        )
        return Context(
            found,
            policy,
            settings,
            rim.current_span,
            advisers,
            rim.intercept,
            rim.recaller,
            rim.observe,
        )

    async def take_up(
        self,
        session: str,
        settings: dict[str, Any] | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> OpenSession:
        """Load a session to append to, also beside one that is open already."""
        rim = self._environment
        return await open_session(
            rim.store, session, rim.listener, rim.clock, rim.random, settings, tokenizer
        )

    async def close(self, session: str) -> None:
        """Write all that is under way in a session, and forget it. No error if it is not open."""
        async with self._locks(session):
            opened = self._opened.pop(session, None)
            if opened is not None:
                await opened.context.close()

    async def close_all(self) -> None:
        """Close every session; then raise the first error, if there was one."""
        failed: BaseException | None = None
        for session in list(self._opened):
            try:
                await self.close(session)
            except BaseException as error:  # a cancellation, too, waits until all are closed
                failed = failed or error
        if failed is not None:
            raise failed


def _check_equal(session: str, found: SessionOpening, wanted: SessionOpening) -> None:
    """Raise InvalidSetting for options that the open session does not have."""
    for name in ("summarizer", "scorer", "tokenizer"):
        if getattr(wanted, name) not in (None, getattr(found, name)):
            raise InvalidSetting(
                f"session {session!r} is open with another {name}; close the session first "
                "(engine.close_session), or leave it out"
            )
    if wanted.chooses_policy and (wanted.settings, wanted.policy) != (found.settings, found.policy):
        raise InvalidSetting(
            f"session {session!r} is open with {found.policy} and {found.settings}, found "
            f"{wanted.policy} and {wanted.settings}; close the engine first, or leave out the "
            "settings"
        )


async def fork(
    store: EventStore,
    session: str,
    at: int,
    new_session: str,
    clock: Clock,
    random: Callable[[int], bytes],
) -> Appended:
    """Create ``new_session`` as ``session`` up to position ``at`` (inclusive), by reference.

    Raises StreamNotFound, StreamExists, InvalidSessionId, InvalidSetting.
    """
    check_session_id(new_session)
    if type(at) is not int:
        raise InvalidSetting(f"fork: expected a position (int), found {at!r}")
    name, version, payload = encode_event(events.SessionFork(parent=session, at=at))
    time, last = clock(), max(at, 0)
    async for record in store.read(session, start=last, stop=last, bodies=False):
        time = max(time, record.time)
    first = Draft(random(16), name, version, time, payload)
    return await store.fork(session, at, new_session, first)


async def link(
    store: EventStore, sessions: Sessions, parent: str, child: str, kind: str, call_id: str | None
) -> None:
    """Record in both sessions that ``child`` belongs to ``parent``.

    A parent that is not in the store is named in the child alone. Raises StreamNotFound where the
    child is not, and InvalidSetting; then neither has a record of it.
    """
    if await store.head(child) is None:
        raise StreamNotFound(child)
    of_child = events.SessionLinked(session=parent, relation="parent", kind=kind, call_id=call_id)
    of_parent = events.SessionLinked(session=child, relation="child", kind=kind, call_id=call_id)
    await _append(sessions, child, of_child)
    if await store.head(parent) is not None:
        await _append(sessions, parent, of_parent)


async def sign(store: EventStore, sessions: Sessions, session: str, key: Signer) -> Receipt:
    """Record a signature over all records of a session until now. Raises StreamNotFound."""
    if await store.head(session) is None:
        raise StreamNotFound(session)
    found = await sessions.take_up(session)
    while True:
        await found.appends.synchronised()
        info = await store.head(session)
        assert info is not None  # noqa: S101 - sessions do not vanish
        event = signatures.sign(info.head, info.digest, key)
        draft = found.appends.draft(event, scope=Scope(session))
        # Who appends in between makes a signature of what is no longer all: sign again.
        with suppress(WrongExpectedVersion):
            appended = await found.appends.append_exactly(info.head, draft)
            if appended is not None:
                return Receipt(session, appended[-1].position, appended[-1].digest)


async def _append(sessions: Sessions, session: str, event: Event) -> None:
    context = sessions.context(session)
    if context is not None:
        await context.emit(event)
        return
    found = await sessions.take_up(session)
    await found.appends.append(found.appends.draft(event, scope=Scope(session)))
