"""The engine: a reader with sessions, on one store.

It answers every question of a ``Reader`` and composes the write side: the one module that knows
sessions, hooks, sinks and receipts together. Invariants: an engine has one context manager for a
session, however often it is asked for; hooks and sinks get a record only after the store has it;
``close`` returns when all that was begun is on the disk, or raises the first error.
"""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Unpack

from eventctx.aio import Opening, awaited_first, run_apart
from eventctx.errors import EventctxError, InvalidSetting, NotOpened
from eventctx.hooks.hook_failures import HookFailures
from eventctx.hooks.interceptors import Interceptors
from eventctx.hooks.registry import Hooks
from eventctx.hooks.sinks import Sink, Sinks
from eventctx.log.arguments import check_callable, check_optional_text, check_text
from eventctx.log.ids import CurrentSpan, check_session_id, random_bytes
from eventctx.log.integrity import Signer
from eventctx.log.record import CheckedClock
from eventctx.log.store import EventStore, Receipt
from eventctx.messages.tokens import Tokenizer
from eventctx.policies.advisers import NO_OBJECTION, CompactionAsked, Scorer, Summarizer, Verdict
from eventctx.policies.constraints import Position, WaitSeconds, check_value
from eventctx.policies.policy import Policy, PolicyFunction
from eventctx.reader import Reader
from eventctx.session.context import Context
from eventctx.session.erasure.destruction import Destruction
from eventctx.session.open_session import MOST_OPEN_SESSIONS, OPEN_SESSION_BYTES, SessionCache
from eventctx.session.pending import Listener, deferring_to, flush_all
from eventctx.session.repository import IdleFrames
from eventctx.session.sessions import Environment, SessionOpening, Sessions, fork, link, sign
from eventctx.session.settings import SessionSettings, Settings, check_advised, choose
from eventctx.stores.location import book_of, open_store, path_or_url
from eventctx.stores.receipt_book import ReceiptBook
from eventctx.text import without_password

if TYPE_CHECKING:
    from eventctx.policies.named import PolicyName
    from eventctx.queries.copy_sessions import CopyTarget
    from eventctx.session.erasure.erasing import ErasureResult


class Engine(Reader):
    """Sessions on one store. ``async with eventctx.open(url) as engine``.

    ``hooks`` is the registry of observers; ``on`` is its ``on``. ``sinks`` get every record, catch
    up with a session that is opened again, and emit what they hold back when the engine closes
    (``hooks.sinks``). ``intercept(name, handler)`` adds an interceptor: an awaited handler that
    may veto or change an operation before it happens; without a handler it is a decorator, as
    ``on`` is.
    ``receipts`` is the book in which it notes the head of each session at the end of its turns.
    ``clock`` returns UTC nanoseconds and ``random(n)`` n random bytes; tests pass fixed ones
    (``eventctx.testing``). Durations are the process's own, unless the clock has a ``stopwatch``.
    A clock that gives no time raises InvalidSetting in every call that would write, which then
    writes nothing.
    ``most_open_sessions`` and ``open_session_bytes`` bound what sessions hold in memory: the least
    recently used ones are evicted, and loaded again for their next use. Raises InvalidSetting.
    """

    _opened: str | None = None
    """The store that ``open`` opened for this engine, as it is shown, until ``close``."""

    def __init__(
        self,
        store: EventStore,
        *,
        hooks: Hooks | None = None,
        sinks: Sequence[Sink] = (),
        current_span: CurrentSpan | None = None,
        clock: Callable[[], int] = time.time_ns,
        random: Callable[[int], bytes] = random_bytes,
        receipts: ReceiptBook | None = None,
        most_open_sessions: int = MOST_OPEN_SESSIONS,
        open_session_bytes: int = OPEN_SESSION_BYTES,
    ) -> None:
        super().__init__(store, receipts=receipts)
        self.store = store  # to write to, where a reader only reads it
        self.hooks = hooks if hooks is not None else Hooks()
        self.on = self.hooks.on
        self._failures: HookFailures = HookFailures(store.cache_path, self.hooks.on_loss)
        self._sinks = Sinks(sinks, self.hooks)
        self.interceptors = Interceptors(failed=partial(self._failures.note, kind="error"))
        self.intercept = self.interceptors.on
        self._clock = CheckedClock(clock)
        check_callable("random", random)
        self._random = random
        self._idle_frames = IdleFrames(store)
        self._sessions = Sessions(
            Environment(
                store,
                # Not a method of the engine: appends under way would keep a dropped one alive.
                Listener(
                    self._idle_frames.after(self._receipts.before(self.hooks.publish)),
                    self._sinks.appended if sinks else None,
                    self._sinks.lend if self._sinks.borrow else None,
                ),
                self._clock,
                random,
                current_span or self._sinks.current_span,
                self._ask_interceptors,
                self.hooks.on,
                self.recaller,
                lambda session: partial(self._recall_snippets, session),
                self._catch_up,
            ),
            SessionCache(most_open_sessions, open_session_bytes),
        )
        self._destruction = Destruction(
            store,
            self._sessions,
            self._receipts,
            self.recaller,
            self.hooks.publish,
            self._clock,
            random,
        )

    # -- sessions --------------------------------------------------------------------------------

    @awaited_first(partial(NotOpened, session=True))
    async def session(
        self,
        session: str,
        *,
        policy: PolicyName | Policy | PolicyFunction | None = None,
        summarizer: Summarizer | None = None,
        scorer: Scorer | None = None,
        tokenizer: Tokenizer | None = None,
        **settings: Unpack[SessionSettings],
    ) -> Context:
        """The context manager of a session, which is created if it is new.

        There is one per session and engine; a second call returns it, and refuses other settings.
        Without a policy and settings, an existing session has those it was made with, as far as its
        log holds them (else SettingsForgotten warns).
        ``settings`` are those of ``Settings`` and, for a policy given by name, of the policy;
        unknown ones cause a warning. ``summarizer`` and ``scorer`` are called by the policies that
        need them, ``tokenizer`` counts the texts of messages added from here on. Raises
        InvalidSessionId, InvalidSetting.
        """
        check_session_id(session)
        made, chosen = choose(policy, settings, scorer)
        check_advised(chosen, summarizer, scorer, tokenizer)
        chooses = bool(settings) or policy is not None
        opening = SessionOpening(chosen, made, summarizer, scorer, tokenizer, chooses)
        return await self._sessions.open(session, opening)

    async def _check_store(self) -> None:
        """Compare the store with its newest receipt, and finish an erasure that was cut off."""
        await self._receipts.check_store()
        await self._destruction.resume()

    async def _catch_up(self, session: str) -> None:
        """Let the sinks fold a session's present records, outside the loop's thread."""
        await self._receipts.check_session(session)
        needed = self._sinks.history()
        if needed == "none" or await self.store.head(session) is None:
            return
        bodies = needed == "contents"
        history = [record async for record in self.store.read(session, bodies=bodies)]
        await asyncio.to_thread(self._sinks.resume, history)

    async def _send(self, session: str | None = None) -> None:
        await self._sessions.send(session)

    async def _chosen_for(self, session: str, unset: SessionOpening) -> tuple[Settings, Policy]:
        opening = self._sessions.opening(session)
        if opening is None:
            return await super()._chosen_for(session, unset)
        return opening.settings, opening.policy

    async def _recall_snippets(
        self, session: str, query: str, limit: int, besides: frozenset[int]
    ) -> list[str]:
        """Snippets of a session's messages that are out of view and match ``query``."""
        found = await self.recaller().search(query, session, limit, every=False, besides=besides)
        return [f"(message {one.number}) {one.snippet}" for one in found]

    async def _ask_interceptors(self, compaction: CompactionAsked) -> Verdict:
        return await self.interceptors.ask(compaction) if self.interceptors else NO_OBJECTION

    async def fork(self, session: str, at: int, new_session: str) -> Receipt:
        """Create ``new_session`` as ``session`` up to position ``at`` (inclusive), by reference.

        A fork of an imported session is ours. Raises StreamNotFound, StreamExists,
        InvalidSessionId, InvalidSetting.
        """
        check_session_id(session)
        check_value("at", at, Position)
        await self._sessions.flush(session)
        appended = await fork(self.store, session, at, new_session, self._clock, self._random)
        for record in appended.records:
            self.hooks.publish(record)
        return appended.receipt

    async def link(
        self, parent: str, child: str, *, kind: str = "subagent", call_id: str | None = None
    ) -> None:
        """Record in both sessions that ``child`` belongs to ``parent``, such as a subagent's.

        ``call_id`` is the tool call that started it. A parent that is not in this store is named
        in the child alone. Raises StreamNotFound where the child is not, InvalidSessionId and
        InvalidSetting.
        """
        check_session_id(parent)
        check_session_id(child)
        check_text("kind", kind)
        check_optional_text("call_id", call_id)
        await link(self.store, self._sessions, parent, child, kind, call_id)

    # -- erasure and deletion --------------------------------------------------------------------

    async def erase(
        self, session: str, numbers: Sequence[int], *, reason: str = "", dry_run: bool = False
    ) -> ErasureResult:
        """Destroy the contents of messages, and all that was made of them, for ever.

        With a message go its tool round, summaries and shortened copies, raw parts of an imported
        file, what a host was sent, snapshots and search terms, in every fork that reaches them; a
        ``context:erased`` in each says so. Chains, receipts and older views still verify. With
        ``dry_run`` nothing is written. Raises StreamNotFound, InvalidSetting, LogCorrupted.
        """
        check_session_id(session)
        check_text("reason", reason)
        return await self._destruction.erase(session, numbers, reason, dry_run=dry_run)

    async def delete(self, session: str, *, reason: str = "", forks: bool = False) -> list[str]:
        """Destroy a session for ever, with ``forks`` also those that were forked from it.

        One record stays in each place, which says so and from which the chain still follows.
        Returns the names of what was deleted. Raises StreamNotFound, SessionWasDeleted, and
        InvalidSetting for a session with forks that are not to go.
        """
        check_session_id(session)
        check_text("reason", reason)
        return await self._destruction.delete(session, reason, forks=forks)

    async def _copy_target(self) -> CopyTarget:
        await self._sessions.send()
        return self._destruction

    async def sign(self, session: str, key: Signer) -> Receipt:
        """Sign all records of a session until now; the signature is a record, too.

        ``key`` is made by ``eventctx.signer``. Raises StreamNotFound, InvalidSetting.
        """
        if not isinstance(key, Signer):
            raise InvalidSetting(
                "key: expected what `eventctx.signer(pem)` makes, found an object of type "
                f"{type(key).__name__}"
            )
        await self._readable(session)
        return await sign(self.store, self._sessions, session, key)

    async def close_session(self, session: str) -> None:
        """Write all that is under way in a session, and forget its context manager.

        It can be opened again, then also with other settings. One that is not open is no error.
        Raises InvalidSessionId.
        """
        check_session_id(session)
        await self._sessions.close(session)

    def note_receipt(self, receipt: Receipt) -> None:
        """Note the end of a session that something else than this engine wrote, as an import does.

        The book of receipts then tells of a tail that is cut. Never raises.
        """
        self._receipts.copied(receipt)

    # -- life ------------------------------------------------------------------------------------

    async def close(self) -> None:
        """Write all that is under way, let hooks finish, and release the store.

        A session that cannot be written does not keep the others from being written. The first
        error is raised at the end.
        """
        self._opened = None
        try:
            await self._sessions.close_all()
        finally:
            try:
                await self._idle_frames.close()
                self._receipts.note_all()
                await self.hooks.close()
                await self._sinks.close()
                if self._recall is not None:
                    await self._recall.close()
            finally:
                try:
                    await self._failures.close()
                finally:
                    await self.store.close()

    def __del__(self) -> None:
        """Write what is queued, and end the threads, of an engine that was not closed."""
        # A collection of garbage may run this in the middle of the store's code, so nothing here
        # may take a lock: what is to be written is written in a thread of its own.
        if self._opened is None:
            store = getattr(self, "store", None)
            if store is not None and deferring_to(store):
                run_apart(partial(flush_all, store), "eventctx-flush")
        else:
            run_apart(partial(_release, self.hooks, self._failures, self.store), "eventctx-release")
            warnings.warn(
                f"the engine of {self._opened} was dropped without a close: use `async with "
                "eventctx.open(…)`, or await engine.close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )


async def _release(hooks: Hooks, failures: HookFailures, store: EventStore) -> None:
    try:
        await flush_all(store)
        # Handlers may wait for a loop that has ended, so they get little time.
        await hooks.close(timeout=1.0)
        await failures.close()
    finally:
        await store.close()


def open_engine(
    url: str | os.PathLike[str] = "memory://",
    *,
    durability: Literal["full", "normal", "local", "replicated"] | None = None,
    create: bool = True,
    lock_timeout: float = 5.0,
    read_only: bool = False,
    receipts: bool | str | os.PathLike[str] = True,
    hooks: Hooks | None = None,
    sinks: Sequence[Sink] = (),
    current_span: CurrentSpan | None = None,
    clock: Callable[[], int] = time.time_ns,
    random: Callable[[int], bytes] = random_bytes,
    most_open_sessions: int = MOST_OPEN_SESSIONS,
    open_session_bytes: int = OPEN_SESSION_BYTES,
) -> Opening[Engine]:
    """Open a store: ``memory://``, ``sqlite:///relative.db``, ``sqlite:////absolute.db``, a path.

    ``postgresql://…`` and ``nats://…`` are stores on servers. Of ``durability`` a store takes its
    own words, and its strongest that needs one machine without one: a file ``full`` (the default)
    or ``normal``, PostgreSQL ``local`` (the default) or ``replicated``. ``normal`` may lose the
    last acknowledged records when the power fails, never when only the process ends.

    ``lock_timeout`` is in seconds. With ``read_only`` nothing is written, neither to the store nor
    to a file that is kept with it: every write raises StoreReadOnly, receipts are compared and not
    noted, and the index of a search is a temporary one; ``read`` is for questions alone.
    ``receipts`` is the path of the book of receipts; True puts it into the user's state folder,
    False keeps none. All others are those of ``Engine``. An engine that is dropped without
    ``close`` warns (ResourceWarning), writes what is queued, and ends its threads.

    Raises on entering: NotAStore, StoreTooNew, StoreUnavailable, InvalidSetting.
    """

    parts = {
        "hooks": hooks,
        "sinks": sinks,
        "current_span": current_span,
        "clock": clock,
        "random": random,
        "most_open_sessions": most_open_sessions,
        "open_session_bytes": open_session_bytes,
    }
    options: dict[str, Any] = {
        "create": create,
        "lock_timeout": lock_timeout,
        "read_only": read_only,
    }
    if durability is not None:
        options["durability"] = durability
    return Opening(partial(_open, url, receipts, options, parts), NotOpened)


async def _open(
    url: str | os.PathLike[str],
    receipts: bool | str | os.PathLike[str],
    options: dict[str, Any],
    parts: dict[str, Any],
) -> Engine:
    """An engine made of ``parts`` on a store that is opened with ``options``."""
    check_value("create", options["create"], bool)
    check_value("lock_timeout", options["lock_timeout"], WaitSeconds)
    check_value("read_only", options["read_only"], bool)
    store = await open_store(path_or_url(url), **options)
    book = book_of(store, receipts, read_only=options["read_only"])
    engine: Engine | None = None
    try:
        engine = Engine(store, receipts=book, **parts)
        await engine._check_store()
    except BaseException:
        with suppress(EventctxError):  # the first error says more
            await (engine or store).close()
        raise
    engine._opened = without_password(os.fspath(url))
    return engine
