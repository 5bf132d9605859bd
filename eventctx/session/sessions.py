"""The sessions of one engine: each is opened once and closed once; also fork, link, dry run.

Invariant: a session has one ``Context`` and one ``OpenSession`` at a time, as long as a caller
refers to one of them or ``SessionCache`` keeps it. Else it is a name with its options, and both
objects are made anew for the next caller, without reading or writing anything.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from weakref import WeakValueDictionary

import msgspec

from eventctx.aio import KeyedLock
from eventctx.errors import (
    InvalidSetting,
    SessionWasDeleted,
    StoreError,
    StreamNotFound,
    WrongExpectedVersion,
)
from eventctx.log import events
from eventctx.log.arguments import shown
from eventctx.log.codec import decode_event, encode_event
from eventctx.log.events import Event
from eventctx.log.ids import CurrentSpan, check_session_id
from eventctx.log.record import Draft
from eventctx.log.store import STREAM_EXISTS, Appended, EventStore, Receipt
from eventctx.messages.tokens import Tokenizer
from eventctx.policies.advisers import Advisers, Intercept, Rememberer, Scorer, Summarizer
from eventctx.policies.named import recorded_settings
from eventctx.policies.policy import Policy
from eventctx.session.activity import SessionEmitter
from eventctx.session.context import Context, Observe
from eventctx.session.open_session import OpenSession, SessionCache
from eventctx.session.pending import Clock, DeferringQueue, Listener, deferring_to, forget_deferring
from eventctx.session.repository import load, make_session, open_session
from eventctx.session.scope import Scope
from eventctx.session.settings import Settings, SettingsForgotten, check_advised, settings_in

if TYPE_CHECKING:
    from eventctx.log.integrity import Signer
    from eventctx.search.recall import Recall
    from eventctx.session.compaction_run import CompactionCause
    from eventctx.session.result import CompactionResult

_LINKED_WITHIN: Final = 2_000
"""Records of a parent among which a link looks for the call that started the child."""


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


class Sessions:
    """The open sessions of one engine. ``cache`` keeps those that were used last."""

    def __init__(self, environment: Environment, cache: SessionCache) -> None:
        self._environment = environment
        self._cache = cache
        self._openings: dict[str, SessionOpening] = {}
        self._found: WeakValueDictionary[str, OpenSession] = WeakValueDictionary()
        self._contexts: WeakValueDictionary[str, Context] = WeakValueDictionary()
        self._last: SessionOpening | None = None
        self._locks = KeyedLock()
        self._making = threading.RLock()

    def opening(self, session: str) -> SessionOpening | None:
        """The options of a session, if it is open."""
        return self._openings.get(session)

    def context(self, session: str) -> Context | None:
        """The context manager of a session, if it is open."""
        with self._making:
            opening = self._openings.get(session)
            if opening is None:
                return None
            context = self._contexts.get(session)
            if context is None:
                found = self._found.get(session) or self._make_anew(session, opening)
                context = self._contexts[session] = self._context(found, opening)
            return context

    async def open(self, session: str, opening: SessionOpening) -> Context:
        """The context manager of a session, opened if it is not yet, created if it is new.

        Raises InvalidSetting where the session is open with other options, and what the store
        raises. A failed attempt leaves nothing open, so the next one may use other options.
        """
        while True:
            context = self.context(session)
            if context is not None:
                _check_equal(session, self._openings.get(session, opening), opening)
                return context
            # A sink that catches up a second time forgets the records since the first time.
            async with self._locks(session):
                if session not in self._openings:
                    return await self._open(session, opening)

    async def _open(self, session: str, opening: SessionOpening) -> Context:
        await self._environment.catch_up(session)
        opening = self._share(opening)
        policy, settings = opening.policy, opening.settings
        recorded = {**recorded_settings(policy), **msgspec.to_builtins(settings)}
        found = await self.take_up(session, {**recorded, "policy": policy.name}, opening.tokenizer)
        was_there = found.memory.left_open.head >= 0
        if was_there and not opening.chooses_policy:
            settings, policy = await remembered_of(self._environment.store, session, opening)
            opening = self._share(opening._replace(settings=settings, policy=policy))
        with self._making:
            self._openings[session] = opening
            self._keep(found)
            context = self._contexts[session] = self._context(found, opening)
        self._cache.used(found)
        return context

    def _share(self, opening: SessionOpening) -> SessionOpening:
        """The same options as one object, since most sessions of an engine have equal ones."""
        if opening != self._last:
            self._last = opening
        return self._last

    def _make_anew(self, session: str, opening: SessionOpening) -> OpenSession:
        """A session that no object is left of. Its sinks and its log know it already."""
        env = self._environment
        found = make_session(
            env.store, session, None, env.listener, env.clock, env.random, opening.tokenizer
        )
        self._keep(found)
        return found

    def _keep(self, found: OpenSession) -> None:
        self._found[found.stream] = found
        found.appends.used = self._cache.usage_of(found)

    def _context(self, found: OpenSession, opening: SessionOpening) -> Context:
        env = self._environment
        settings = opening.settings
        found.thinking = settings.thinking
        recall = env.recall(found.stream)
        advisers = Advisers(opening.summarizer, opening.scorer, recall, settings.adviser_timeout)
        return Context(
            found,
            opening.policy,
            settings,
            env.current_span,
            advisers,
            env.intercept,
            env.recaller,
            env.observe,
        )

    async def take_up(
        self,
        session: str,
        settings: dict[str, Any] | None = None,
        tokenizer: Tokenizer | None = None,
    ) -> OpenSession:
        """Load a session to append to, whether or not it is open already."""
        env = self._environment
        return await open_session(
            env.store, session, env.listener, env.clock, env.random, settings, tokenizer
        )

    async def flush(self, session: str) -> None:
        """Write all that is under way in a session. No error if it is not open."""
        found = self._found.get(session)
        if found is not None:
            await found.close()

    async def send(self, session: str | None = None) -> None:
        """Write deferred drafts of a session, or of all, so that they can be read."""
        found = None if session is None else self._found.get(session)
        queues: list[DeferringQueue] = [] if found is None else [found.appends]
        for queue in [*queues, *deferring_to(self._environment.store, session)]:
            # Reading goes on without it; the next append that is waited for raises the error.
            with suppress(StoreError):
                await queue.flush()

    async def renew(self, session: str) -> None:
        """Forget what is held of a session, since contents of it were destroyed."""
        found = self._found.get(session)
        if found is not None:
            await found.close()
            found.renew()

    async def close(self, session: str) -> None:
        """Write all that is under way in a session, and forget it. No error if it is not open."""
        async with self._locks(session):
            with self._making:
                self._openings.pop(session, None)
                self._contexts.pop(session, None)
                found = self._found.pop(session, None)
            if found is not None:
                self._cache.forget(found)
                await found.close()

    async def close_all(self) -> None:
        """Close every session; then raise the first error, if there was one.

        Of a session that was deleted meanwhile nothing is to be written.
        """
        failed: BaseException | None = None
        for session in list(self._openings):
            try:
                await self.close(session)
            except SessionWasDeleted:
                pass
            except BaseException as error:  # a cancellation, too, waits until all are closed
                failed = failed or error
        for queue in deferring_to(self._environment.store):
            try:
                await queue.flush()
            except BaseException as error:
                forget_deferring(queue)
                if not isinstance(error, SessionWasDeleted):  # its events went with it
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
        differing = _differing(found.settings, wanted.settings)
        if wanted.policy != found.policy:
            differing += _differing(found.policy, wanted.policy)
        raise InvalidSetting(
            f"session {session!r} is open with "
            + ", ".join([f"{name}={shown(is_now)}" for name, is_now, _ in differing])
            + ", found "
            + ", ".join([f"{name}={shown(asked)}" for name, _, asked in differing])
            + "; close the session first (engine.close_session), or leave out the settings"
        )


def _differing(found: object, wanted: object) -> list[tuple[str, object, object]]:
    """The fields in which two settings or policies of one class differ, with both values."""
    if type(found) is not type(wanted) or not isinstance(found, msgspec.Struct):
        return [("policy", getattr(found, "name", found), getattr(wanted, "name", wanted))]
    pairs = [
        (field.name, getattr(found, field.name), getattr(wanted, field.name))
        for field in msgspec.structs.fields(found)
    ]
    return [one for one in pairs if one[1] != one[2]]


async def remembered_of(
    store: EventStore, session: str, opening: SessionOpening, stacklevel: int = 4
) -> tuple[Settings, Policy]:
    """The settings and policy with which a session, or the parent of a fork, was made.

    Warns of what the log could not keep, and of a policy whose function is not given.
    """
    async for record in store.read(session, start=0, stop=0, bodies=False):
        start = decode_event(record)
        if isinstance(start, events.SessionStart):
            settings, policy, lost = settings_in(start.settings)
            try:
                check_advised(policy, opening.summarizer, opening.scorer)
            except InvalidSetting as error:
                policy, lost = opening.policy, str(error)
            if lost is not None:
                warnings.warn(
                    f"session {session!r} goes on with the policy {policy.name!r}: {lost}; give "
                    "policy= and its settings again",
                    SettingsForgotten,
                    stacklevel,
                )
            return settings, policy
    return opening.settings, opening.policy


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
    info = await store.head(session)
    if info is not None and info.deleted:
        raise SessionWasDeleted(session)
    name, version, payload = encode_event(events.SessionFork(parent=session, at=at))
    time, last = clock(), max(at, 0)
    async for record in store.read(session, start=last, stop=last, bodies=False):
        time = max(time, record.time)
    first = Draft(random(16), name, version, time, payload)
    appended = await store.fork(session, at, new_session, first)
    erased = await _erased_behind(store, session, at)
    if erased is None:
        return appended
    name, version, payload = encode_event(erased)
    note = await store.append(
        new_session, [Draft(random(16), name, version, time, payload)], STREAM_EXISTS
    )
    return Appended((*appended.records, *note.records), note.receipt)


async def _erased_behind(store: EventStore, session: str, at: int) -> events.Erased | None:
    """The erasure of contents that a fork inherits, of which only its parent's chain knows."""
    numbers: set[int] = set()
    bodies: set[tuple[int, int]] = set()
    async for record in store.read(session, start=at + 1, bodies=False):
        event = decode_event(record) if record.type == "context:erased" else None
        if isinstance(event, events.Erased):
            inherited = {place for place in event.bodies if place[0] <= at}
            bodies |= inherited
            numbers |= set(event.numbers) if inherited else set()
    if not bodies:
        return None
    reason = f"erased in session {session!r} before the fork"
    return events.Erased(
        numbers=tuple(sorted(numbers)), bodies=tuple(sorted(bodies)), reason=reason
    )


async def link(
    store: EventStore, sessions: Sessions, parent: str, child: str, kind: str, call_id: str | None
) -> None:
    """Record in both sessions that ``child`` belongs to ``parent``.

    A parent that is not in the store is named in the child alone. Raises StreamNotFound where the
    child is not, and InvalidSetting; then neither has a record of it.
    """
    found = await store.head(child)
    if found is None or found.deleted:
        raise StreamNotFound(child)
    trace_id, span_id = await _span_of(store, sessions, parent, call_id)
    of_child = events.SessionLinked(
        session=parent,
        relation="parent",
        kind=kind,
        call_id=call_id,
        trace_id=trace_id,
        span_id=span_id,
    )
    of_parent = events.SessionLinked(session=child, relation="child", kind=kind, call_id=call_id)
    await _append(sessions, child, of_child)
    found = await store.head(parent)
    if found is not None and not found.deleted:
        await _append(sessions, parent, of_parent)


async def _span_of(
    store: EventStore, sessions: Sessions, session: str, call_id: str | None
) -> tuple[str | None, str | None]:
    """Trace id and span id of a tool call among a session's last records, else None twice."""
    from eventctx.projections.trace.identity import CallSpans

    if call_id is None:
        return None, None
    await sessions.send(session)
    info, known = await store.head(session), CallSpans()
    if info is None or info.deleted:
        return None, None
    start = max(0, info.head - _LINKED_WITHIN)
    async for record in store.read(session, start=start, bodies=False):
        known.see(record)
    return known.calls.get(call_id, (None, None))


async def sign(store: EventStore, sessions: Sessions, session: str, key: Signer) -> Receipt:
    """Record a signature over all records of a session until now. Raises StreamNotFound."""
    from eventctx.log import integrity

    if await store.head(session) is None:
        raise StreamNotFound(session)
    found = await sessions.take_up(session)
    while True:
        await found.appends.synchronise()
        info = await store.head(session)
        assert info is not None  # noqa: S101 - sessions do not vanish
        event = integrity.sign(info.head, info.digest, key)
        draft = found.drafts.make(event, scope=Scope(session))
        # A concurrent append makes the signature incomplete: sign again.
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
    await found.appends.append(found.drafts.make(event, scope=Scope(session)))


async def dry_run(
    store: EventStore,
    stream: str,
    policy: Policy,
    settings: Settings,
    clock: Clock,
    random: Callable[[int], bytes],
    *,
    cause: CompactionCause,
    limit: int | None = None,
    force: bool = False,
) -> CompactionResult:
    """Return the result of a compaction on demand. Nothing is written, and no model is called.

    ``limit`` is a budget in tokens to use instead of the last request's. Raises StreamNotFound.
    """
    from eventctx.session.questions import PolicyQuestions
    from eventctx.session.requests import RequestHandler

    loaded = await load(store, stream)
    if loaded is None:
        raise StreamNotFound(stream)
    unheard = Listener(lambda record: None)
    session = make_session(store, stream, loaded, unheard, clock, random)
    questions = PolicyQuestions(session, SessionEmitter(session, None), Advisers())
    requests = RequestHandler(session, policy, settings, questions, None)
    return await requests.compact(policy, cause, limit=limit, dry_run=True, force=force)
