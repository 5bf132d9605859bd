"""The engine: opens a store and gives sessions, replays, audits, forks and proofs.

The composition root: the one module that knows stores, projections, hooks and policies.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Literal

import msgspec

from eventctx.aio import KeyedLock
from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.hooks.interceptors import Interceptors
from eventctx.hooks.losses import LossRecorder
from eventctx.hooks.registry import Hooks
from eventctx.hooks.sinks import Sink, Sinks
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.hook_failures import Loss, LossBook
from eventctx.log.ids import CurrentSpan, random_bytes
from eventctx.log.record import Draft, Record
from eventctx.log.session_id import check_session_id
from eventctx.log.store import Appended, EventStore, Receipt, StreamInfo
from eventctx.messages.tokenizers import Tokenizer
from eventctx.policies.advisers import Scorer, Summarizer
from eventctx.policies.interception import NO_OBJECTION, CompactionAsked, Verdict
from eventctx.policies.policy import Policy
from eventctx.queries import requests as reading
from eventctx.queries.audit import Audit, audited
from eventctx.queries.explain import answering
from eventctx.queries.explain.answers import Explanation, ViewDiff
from eventctx.queries.explain.selectors import RequestSelector
from eventctx.queries.requests import Message, RequestView
from eventctx.queries.verify import Verification, verify
from eventctx.search import documents as recall_documents
from eventctx.search.recall import Recall, Recalled
from eventctx.session.aggregate import Listener
from eventctx.session.choosing import check_advised, choose
from eventctx.session.compaction_run import CompactionCause, settings_of
from eventctx.session.context import Context
from eventctx.session.dry_run import dry_run
from eventctx.session.questions import Advisers
from eventctx.session.repository import open_session
from eventctx.session.result import CompactionResult
from eventctx.session.scope import Scope
from eventctx.session.settings import Settings, by_own_name
from eventctx.stores.location import open_store
from eventctx.stores.memory_losses import MemoryLosses


class Engine:
    """Sessions on one store. ``async with eventctx.open(url) as engine``.

    ``hooks`` is the registry of observers; ``on`` is its ``on``. ``sinks`` hear of every record,
    catch up with a session that is opened again, and emit what they hold back when the engine
    closes (``hooks.sinks``). ``intercept(name, handler)`` adds an interceptor: an awaited handler
    that may change what is about to happen; without a handler it is a decorator, as ``on`` is.
    ``clock`` returns UTC nanoseconds and ``random(n)`` n random bytes; tests pass fixed ones
    (``eventctx.testing``). Durations are the process's own, unless the clock has a ``stopwatch``.
    """

    def __init__(
        self,
        store: EventStore,
        *,
        hooks: Hooks | None = None,
        sinks: Sequence[Sink] = (),
        current_span: CurrentSpan | None = None,
        clock: Callable[[], int] = time.time_ns,
        random: Callable[[int], bytes] = random_bytes,
    ) -> None:
        self.store = store
        self.hooks = hooks if hooks is not None else Hooks()
        self.on = self.hooks.on
        self._losses = LossRecorder(self.hooks, _loss_book(store))
        self._sinks = Sinks(sinks, self.hooks)
        self._listener = Listener(self.hooks.publish, self._sinks.appended if sinks else None)
        self.interceptors = Interceptors(failed=partial(self._losses.note, kind="error"))
        self.intercept = self.interceptors.on
        self._current_span = current_span or self._sinks.current_span
        self._clock = clock
        self._random = random
        self._contexts: dict[str, Context] = {}
        self._opening = KeyedLock()
        self._advised: dict[str, tuple[Summarizer | None, Scorer | None]] = {}
        self._recall: Recall | None = None

    # -- sessions --------------------------------------------------------------------------------

    async def session(
        self,
        session: str,
        *,
        policy: str | Policy | None = None,
        summarizer: Summarizer | None = None,
        scorer: Scorer | None = None,
        tokenizer: Tokenizer | None = None,
        **settings: Any,
    ) -> Context:
        """The context manager of a session, which is created if it is new.

        There is one per session and engine; asking again returns it, and refuses other settings.
        ``settings`` are those of ``Settings`` and, for a policy given by name, of the policy; of
        unknown ones it warns. ``summarizer`` and ``scorer`` are called by the policies that need
        them, ``tokenizer`` counts the texts of messages added from here on. Raises
        InvalidSessionId, InvalidSetting.
        """
        check_session_id(session)
        made, chosen = choose(policy, settings, scorer)
        check_advised(chosen, summarizer, scorer)
        remember = partial(self._remembered, session)
        advisers = Advisers(summarizer, scorer, remember, made.adviser_timeout)
        context = self._contexts.get(session)
        known = self._advised.setdefault(session, (summarizer, scorer))
        if summarizer not in (None, known[0]) or scorer not in (None, known[1]):
            raise InvalidSetting(
                f"session {session!r} is open with another summarizer or scorer; close the engine "
                "first, or leave them out"
            )
        if context is None:
            # A sink that caught up again would forget what it heard of the session since.
            async with self._opening(session):
                context = self._contexts.get(session)
                if context is None:
                    return await self._open(session, chosen, made, advisers, tokenizer)
        if (settings or policy is not None) and (made, chosen) != (
            context.settings,
            context.policy,
        ):
            raise InvalidSetting(
                f"session {session!r} is open with {context.policy} and {context.settings}, found "
                f"{chosen} and {made}; close the engine first, or leave out the settings"
            )
        return context

    async def _open(
        self,
        session: str,
        policy: Policy,
        settings: Settings,
        advisers: Advisers,
        tokenizer: Tokenizer | None,
    ) -> Context:
        recorded = {**msgspec.to_builtins(settings), "policy": policy.name}
        recorded = {**settings_of(policy), **recorded}
        await self._resume(session)
        live = await open_session(
            self.store,
            session,
            self._listener,
            self._clock,
            self._random,
            recorded,
            tokenizer,
        )
        context = self._contexts[session] = Context(
            live,
            policy,
            settings,
            self._current_span,
            advisers,
            self._intercepted,
            self.recaller,
            self.hooks.on,
        )
        return context

    async def _resume(self, session: str) -> None:
        """Let the sinks fold what a session holds already, outside the loop's thread."""
        needed = self._sinks.history()
        if needed == "none" or await self.store.head(session) is None:
            return
        bodies = needed == "contents"
        history = [record async for record in self.store.read(session, bodies=bodies)]
        await asyncio.to_thread(self._sinks.resume, history)

    # -- recall ----------------------------------------------------------------------------------

    def recaller(self) -> Recall:
        """The search over this store; its index is made when the first search needs it."""
        if self._recall is None:
            from eventctx.search.sqlite_index import SqliteTextIndex

            path = getattr(self.store, "path", None)
            index = SqliteTextIndex(path, version=recall_documents.VERSION)
            self._recall = Recall(self.store, index)
        return self._recall

    async def recall(
        self, query: str, session: str | None = None, limit: int = 10
    ) -> list[Recalled]:
        """The messages that match ``query`` best, whether or not a view still shows them.

        Words, ``"phrases"`` and ``prefix*`` are understood, all else is literal. Raises
        StreamNotFound, InvalidSetting, StoreUnavailable.
        """
        return await self.recaller().search(query, session, limit)

    async def _remembered(
        self, session: str, query: str, limit: int, besides: frozenset[int]
    ) -> list[str]:
        """Snippets of messages of a session that are out of view and bear on ``query``."""
        found = await self.recaller().search(query, session, limit, every=False, besides=besides)
        return [f"(message {one.number}) {one.snippet}" for one in found]

    async def _intercepted(self, asked: CompactionAsked) -> Verdict:
        return await self.interceptors.ask(asked) if self.interceptors else NO_OBJECTION

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

    async def link(
        self, parent: str, child: str, *, kind: str = "subagent", call_id: str | None = None
    ) -> None:
        """Record in both sessions that ``child`` belongs to ``parent``, such as a subagent's.

        ``call_id`` is the tool call that started it. A parent that is not in this store is named
        in the child alone. Raises StreamNotFound where the child is not.
        """
        if await self.store.head(child) is None:
            raise StreamNotFound(child)
        of_child = events.SessionLinked(
            session=parent, relation="parent", kind=kind, call_id=call_id
        )
        of_parent = events.SessionLinked(
            session=child, relation="child", kind=kind, call_id=call_id
        )
        sides = [(child, of_child)]
        if await self.store.head(parent) is not None:
            sides.append((parent, of_parent))
        for session, event in sides:
            context = self._contexts.get(session)
            if context is not None:
                await context.emit(event)
                continue
            live = await open_session(
                self.store, session, self._listener, self._clock, self._random
            )
            await live.append(live.draft(event, Scope(session)))

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
        return await audited(self.store, session)

    async def verify(
        self, session: str, receipt: Receipt | None = None, *, facts: bool = True
    ) -> Verification:
        """Recompute every digest of a session, and compare facts. Raises StreamNotFound.

        Without ``facts`` only what digests cover is checked, in half the time.
        """
        return await verify(self.store, session, receipt, facts=facts)

    async def why(
        self,
        session: str,
        number: int,
        *,
        turn: int | None = None,
        iteration: int | None = None,
        position: int | None = None,
    ) -> Explanation:
        """How message ``number`` stands in a request's view, and why; else in the view as it is.

        The request is named as for ``request_view``. Raises StreamNotFound, InvalidSetting.
        """
        selector = RequestSelector(turn, iteration, position)
        return await answering.why(self.store, session, number, selector)

    async def diff(
        self,
        session: str,
        before: int | tuple[int, int],
        after: int | tuple[int, int],
        *,
        by: Literal["turn", "position"] = "turn",
    ) -> ViewDiff:
        """What two requests differ in: the last ones of two turns, or of ``(turn, iteration)``.

        With ``by="position"``, the requests prepared at these positions. Raises StreamNotFound,
        InvalidSetting.
        """
        one, other = RequestSelector.of(before, by), RequestSelector.of(after, by)
        return await answering.difference(self.store, session, one, other)

    async def lost(
        self,
        session: str,
        turn: int | None = None,
        *,
        iteration: int | None = None,
        position: int | None = None,
    ) -> tuple[Explanation, ...]:
        """A person's messages that a request's view does not show, each with the reason.

        The request is named as for ``why``. Raises StreamNotFound, InvalidSetting.
        """
        selector = RequestSelector(turn, iteration, position)
        return await answering.lost_messages(self.store, session, selector)

    async def dry_run(
        self,
        session: str,
        *,
        policy: str | Policy | None = None,
        reason: str | None = None,
        keep: str | None = None,
        **settings: Any,
    ) -> CompactionResult:
        """What ``compact`` would do now, under another policy or settings. Nothing is written.

        ``policy`` and ``settings`` are as for ``session``; without any, those of the session as
        it is open in this engine. A given ``max_tokens`` is the budget, else it is that of the
        last request. A policy's questions get placeholders for answers. Raises StreamNotFound,
        InvalidSetting.
        """
        made, chosen = choose(policy, settings)
        context = self._contexts.get(session)
        if context is not None and policy is None and not settings:
            made, chosen = context.settings, context.policy
        limit = made.limit if "max_tokens" in by_own_name(settings) else None
        asked = CompactionCause("manual", "caller", reason, keep)
        rim = (self._clock, self._random)
        return await dry_run(self.store, session, chosen, made, *rim, asked=asked, limit=limit)

    async def losses(self) -> tuple[Loss, ...]:
        """What hooks failed at or dropped on this store so far, in all processes that used it.

        Counts of other processes are at most about a second old. Raises StoreError.
        """
        return await asyncio.to_thread(self._losses.read)

    async def close_session(self, session: str) -> None:
        """Write what is under way in a session, and forget its context manager.

        It can be asked for again, then also with other settings. One that is not open is no error.
        """
        async with self._opening(session):
            context = self._contexts.pop(session, None)
            self._advised.pop(session, None)
            if context is not None:
                await context.close()

    # -- life ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write what is under way, let hooks finish, and release the store."""
        try:
            for context in list(self._contexts.values()):
                await context.close()
        finally:
            self._contexts.clear()
            self._advised.clear()
            try:
                await self.hooks.close()
                await self._sinks.close()
                if self._recall is not None:
                    await self._recall.close()
            finally:
                try:
                    await self._losses.close()
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


def _loss_book(store: EventStore) -> LossBook:
    """Where the losses of a store are kept: beside its file, else in memory."""
    path = getattr(store, "path", None)
    if path is None:
        return MemoryLosses()
    from eventctx.stores.sqlite_losses import SqliteLosses

    return SqliteLosses(path)


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
        store = await open_store(
            os.fspath(url), durability=durability, create=create, lock_timeout=lock_timeout
        )
        return Engine(store, **options)

    return Opening(make)
