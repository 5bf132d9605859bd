"""The engine: sessions, replays, audits, forks and proofs on one store.

This is the composition root: the one module that knows stores, projections, hooks and policies.
What answers a question is loaded by the first such question: most processes that open a store ask
none (docs/decisions/0053-what-loads-when.md).
"""

from __future__ import annotations

import asyncio
import os
import time
import warnings
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Unpack

from eventctx.aio import awaited_first, run_apart
from eventctx.comparison.defaults import BUDGETS, LOSSES, PRICES, Prices, Progress
from eventctx.errors import InvalidSetting, NotOpened
from eventctx.hooks.hook_failures import HookFailures, Loss
from eventctx.hooks.interceptors import Interceptors
from eventctx.hooks.registry import Hooks
from eventctx.hooks.sinks import Sink, Sinks
from eventctx.log.arguments import check_callable, check_optional_text, check_text, is_text, shown
from eventctx.log.ids import CurrentSpan, check_session_id, random_bytes
from eventctx.log.integrity import Signer
from eventctx.log.record import CheckedClock, Record
from eventctx.log.store import EventStore, Receipt, StreamInfo
from eventctx.messages.tokenizers import Tokenizer
from eventctx.policies.advisers import Scorer, Summarizer
from eventctx.policies.constraints import Position, WaitSeconds, checked
from eventctx.policies.interception import NO_OBJECTION, CompactionAsked, Verdict
from eventctx.policies.policy import Policy, PolicyFunction
from eventctx.session.appends.pending import Listener
from eventctx.session.appends.riding import flush_all, riding_to
from eventctx.session.context import Context
from eventctx.session.evidence.destruction import Destruction
from eventctx.session.evidence.receipt_keeper import ReceiptKeeper
from eventctx.session.residents import MOST_OPEN_SESSIONS, OPEN_SESSION_BYTES, Residents
from eventctx.session.sessions import (
    Environment,
    SessionOpening,
    Sessions,
    dry_run,
    fork,
    link,
    mirror_of,
    remembered_of,
    sign,
)
from eventctx.session.settings import SessionSettings, by_own_name, check_advised, choose
from eventctx.stores.location import EXPECTED, default_book, in_users_folder, open_store
from eventctx.stores.receipt_book import ReceiptBook
from eventctx.text import without_password

if TYPE_CHECKING:
    from eventctx.comparison.compare import Comparison
    from eventctx.queries.audit import Audit
    from eventctx.queries.copying.answers import CopyProgress, CopyResult
    from eventctx.queries.explain.answers import Explanation, ViewDiff
    from eventctx.queries.instructions.answers import Instructions
    from eventctx.queries.lost.answers import Lost
    from eventctx.queries.requests import RequestView
    from eventctx.queries.transcript import Message
    from eventctx.queries.verification.findings import Verification
    from eventctx.queries.verification.whole_store import StoreVerification
    from eventctx.search.recall import Recall, Recalled
    from eventctx.session.evidence.deleting import ExpiredSession
    from eventctx.session.evidence.erasing import ErasureResult
    from eventctx.session.result import CompactionResult


class Engine:
    """Sessions on one store. ``async with eventctx.open(url) as engine``.

    ``hooks`` is the registry of observers; ``on`` is its ``on``. ``sinks`` get every record, catch
    up with a session that is opened again, and emit what they hold back when the engine closes
    (``hooks.sinks``). ``intercept(name, handler)`` adds an interceptor: an awaited handler that
    may veto or change an operation before it happens; without a handler it is a decorator, as
    ``on`` is.
    ``receipts`` is the book in which it notes where each session stands at the end of its turns.
    ``clock`` returns UTC nanoseconds and ``random(n)`` n random bytes; tests pass fixed ones
    (``eventctx.testing``). Durations are the process's own, unless the clock has a ``stopwatch``.
    A clock that gives no time raises InvalidSetting in every call that would write, which then
    writes nothing.
    ``most_open_sessions`` and ``open_session_bytes`` bound what sessions hold in memory: the least
    recently used ones are let go, and loaded again when they are next used. Raises InvalidSetting.
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
        self.store = store
        self._receipts = ReceiptKeeper(store, receipts)
        self.hooks = hooks if hooks is not None else Hooks()
        self.on = self.hooks.on
        self._losses = HookFailures(store.beside, self.hooks.on_loss)
        self._sinks = Sinks(sinks, self.hooks)
        self.interceptors = Interceptors(failed=partial(self._losses.note, kind="error"))
        self.intercept = self.interceptors.on
        self._clock = CheckedClock(clock)
        check_callable("random", random)
        self._random = random
        self._recall: Recall | None = None
        self._sessions = Sessions(
            Environment(
                store,
                # Not a method of the engine: appends under way would keep a dropped one alive.
                Listener(
                    partial(_stored, self._receipts, self.hooks),
                    self._sinks.appended if sinks else None,
                    self._sinks.lend if self._sinks.borrow else None,
                ),
                self._clock,
                random,
                current_span or self._sinks.current_span,
                self._intercepted,
                self.hooks.on,
                self.recaller,
                lambda session: partial(self._remembered, session),
                self._catch_up,
            ),
            Residents(most_open_sessions, open_session_bytes),
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
        policy: str | Policy | PolicyFunction | None = None,
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

    # -- recall ----------------------------------------------------------------------------------

    def recaller(self) -> Recall:
        """The search over this store; its index is made by the first search."""
        if self._recall is None:
            from eventctx.search.documents import VERSION
            from eventctx.search.of_store import text_index
            from eventctx.search.recall import Recall

            index = text_index(self.store, VERSION)
            self._recall = Recall(self.store, index)
        return self._recall

    async def recall(
        self, query: str, session: str | None = None, limit: int = 10
    ) -> list[Recalled]:
        """The messages that match ``query`` best, whether or not a view still shows them.

        The query holds words, ``"phrases"`` and ``prefix*``; all else is literal. Raises
        StreamNotFound, InvalidSessionId, InvalidSetting, StoreUnavailable.
        """
        checked("recall", query, str)
        if session is not None:
            check_session_id(session)
        return await self.recaller().search(query, session, limit)

    async def _remembered(
        self, session: str, query: str, limit: int, besides: frozenset[int]
    ) -> list[str]:
        """Snippets of a session's messages that are out of view and match ``query``."""
        found = await self.recaller().search(query, session, limit, every=False, besides=besides)
        return [f"(message {one.number}) {one.snippet}" for one in found]

    async def _intercepted(self, compaction: CompactionAsked) -> Verdict:
        return await self.interceptors.ask(compaction) if self.interceptors else NO_OBJECTION

    async def sessions(
        self, *, after: str | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """Sessions in order of creation, without those that were deleted.

        With ``after`` those that were made after this one, with ``limit`` at most so many: the name
        of the last one is the next page's ``after``. Raises StreamNotFound, InvalidSetting.
        """
        checked("limit", limit, Position | None)
        if limit == 0:
            return []
        found: list[StreamInfo] = []
        sessions: Any = self.each_session(after=after)
        async with aclosing(sessions):
            async for info in sessions:
                found.append(info)
                if len(found) == limit:
                    break
        return found

    async def each_session(self, *, after: str | None = None) -> AsyncIterator[StreamInfo]:
        """The same sessions, one by one: any number of them takes the same memory."""
        if after is not None:
            check_session_id(after)
        async for info in self.store.streams(after=after):
            if not info.deleted:
                yield info

    async def fork(self, session: str, at: int, new_session: str) -> Receipt:
        """Create ``new_session`` as ``session`` up to position ``at`` (inclusive), by reference.

        A fork of an imported session is ours. Raises StreamNotFound, StreamExists,
        InvalidSessionId, InvalidSetting.
        """
        check_session_id(session)
        checked("at", at, Position)
        await self._sessions.flush(session)
        appended = await fork(self.store, session, at, new_session, self._clock, self._random)
        for record in appended.records:
            self.hooks.publish(record)
        return appended.receipt

    async def mirror_of(self, session: str) -> str | None:
        """The name of the file that an imported session mirrors; None for a session of ours.

        A mirror changes by import alone: ``fork`` it to go on. Raises StreamNotFound.
        """
        check_session_id(session)
        return await mirror_of(self.store, session)

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

    async def forks(self, session: str) -> list[str]:
        """The sessions that were forked from this one, and from those; the last made first.

        Raises StreamNotFound, InvalidSessionId.
        """
        from eventctx.session.evidence.deleting import forks_of

        check_session_id(session)
        return await forks_of(self.store, session)

    async def expired(self, before: int) -> list[ExpiredSession]:
        """The sessions whose last record is older than ``before``, in UTC nanoseconds.

        They stand in an order in which they can be deleted: forks first.
        """
        from eventctx.session.evidence.deleting import expired

        return await expired(self.store, before)

    # -- replay and audit ------------------------------------------------------------------------

    def records(
        self,
        session: str,
        start: int = 0,
        stop: int | None = None,
        *,
        bodies: bool = False,
    ) -> AsyncIterator[Record]:
        """Records from position ``start`` to ``stop`` (inclusive).

        Raises InvalidSessionId and InvalidSetting, and on iteration StreamNotFound.
        """
        check_session_id(session)
        checked("start", start, Position)
        checked("stop", stop, Position | None)
        return self._records(session, start, stop, bodies)

    async def _records(
        self, session: str, start: int, stop: int | None, bodies: bool
    ) -> AsyncIterator[Record]:
        store = await self._readable(session)
        async for record in store.read(session, start=start, stop=stop, bodies=bodies):
            yield record

    async def _readable(self, session: str) -> EventStore:
        """The store, once it holds all records of a session that were made in this process."""
        check_session_id(session)
        await self._sessions.send(session)
        return self.store

    async def transcript(
        self, session: str, *, at: int | None = None, turn: int | None = None
    ) -> list[Message]:
        """The transcript as it was after position ``at``, or at the end of turn ``turn``; else now.

        Raises StreamNotFound, InvalidSetting.
        """
        from eventctx.queries.requests import position_of_turn
        from eventctx.queries.transcript import transcript_at

        if at is not None and turn is not None:
            raise InvalidSetting("transcript: expected at most one of at and turn, found both")
        store = await self._readable(session)
        if turn is not None:
            checked("turn", turn, Position)
            at = await position_of_turn(store, session, turn)
        return await transcript_at(store, session, at)

    async def request_view(
        self,
        session: str,
        turn: int | None = None,
        iteration: int | None = None,
        *,
        position: int | None = None,
        allow_damage: bool = False,
    ) -> RequestView:
        """The request that the model was sent: a turn's last one, or that of one iteration.

        Or the one at the position of a ``context:request_prepared``, as the audit lists it. With
        ``allow_damage`` a request with edited messages is returned, as one that is not verified;
        without, it raises LogCorrupted. Raises StreamNotFound, InvalidSetting.
        """
        from eventctx.queries.requests import request_at, request_of_turn

        check_session_id(session)
        self._check_request(turn, iteration, position)
        if (turn is None) == (position is None):
            raise InvalidSetting("request_view: expected either a turn or a position")
        store = await self._readable(session)
        if position is not None:
            return await request_at(store, session, position, allow_damage=allow_damage)
        assert turn is not None  # noqa: S101 - tells the type checker
        return await request_of_turn(store, session, turn, iteration, allow_damage=allow_damage)

    @staticmethod
    def _check_request(turn: int | None, iteration: int | None, position: int | None) -> None:
        for name, number in (("turn", turn), ("iteration", iteration), ("position", position)):
            checked(name, number, Position | None)

    async def audit(self, session: str) -> Audit:
        """A row per request and per compaction. Raises StreamNotFound."""
        from eventctx.queries.audit import audited

        return await audited(await self._readable(session), session)

    async def timeline(self, session: str, *, after: int | None = None) -> dict[str, Any]:
        """A session at a glance, as columns of numbers, ids and codes without any text.

        With ``after`` only what continues the document whose ``head`` that position was. The
        columns are those of the timeline document in ``docs/reference/inspect.md``. Raises
        StreamNotFound, InvalidSetting.
        """
        from eventctx.queries.timelines.columns import timeline_document
        from eventctx.queries.timelines.key_frames import key_frames

        checked("after", after, Position | None)
        store = await self._readable(session)
        return await timeline_document(key_frames(store).at, session, after)

    async def verify(
        self, session: str, receipt: Receipt | None = None, *, facts: bool = True
    ) -> Verification:
        """Recompute every digest of a session, and compare facts. Raises StreamNotFound.

        The session is compared with ``receipt``, and with its last one in the book of receipts.
        Without ``facts`` only the content that digests cover is checked, in half the time. Raises
        InvalidSetting for what is no receipt.
        """
        from eventctx.queries.verification.session import verify

        check_session_id(session)
        if receipt is not None and not isinstance(receipt, Receipt):
            raise InvalidSetting(f"receipt: expected a Receipt, found {shown(receipt)}")
        noted = (await self._receipts.receipts()).get(session)
        receipts = {one for one in (receipt, noted) if one is not None}
        store = await self._readable(session)
        return await verify(store, session, tuple(receipts), facts=facts)

    async def verify_store(
        self,
        *,
        facts: bool = True,
        began: Callable[[str, int, int], None] | None = None,
    ) -> StoreVerification:
        """Verify every session, those that only the receipts know, and the store as a whole.

        ``began`` is called with each session's name, the number of those done, and that of all.
        """
        from eventctx.queries.verification.whole_store import verify_store

        await self._sessions.send()
        receipts = await self._receipts.receipts()
        return await verify_store(self.store, receipts, facts=facts, began=began)

    async def verifications(
        self,
        *,
        facts: bool = True,
        began: Callable[[str, int, int], None] | None = None,
    ) -> AsyncIterator[Verification | str]:
        """What ``verify_store`` finds, one by one: each session, then the problems of the store.

        Any number of sessions takes the same memory, but for their receipts.
        """
        from eventctx.queries.verification.whole_store import verifications

        await self._sessions.send()
        receipts = await self._receipts.receipts()
        async for found in verifications(self.store, receipts, facts=facts, began=began):
            yield found

    async def backup(self, path: str | os.PathLike[str]) -> StoreVerification:
        """Copy the store as it is now to a new file, and verify the copy whole.

        Reading and writing go on meanwhile. The copy is compared with the book of receipts, too;
        it stays where it is when something is found. Raises InvalidSetting (there is something at
        ``path``, or the store is no file), StoreFull, StoreReadOnly, StoreUnavailable.
        """
        from eventctx.queries.verification.backups import back_up

        await self._sessions.send()
        # Read first: the copy holds every record that has a receipt by now.
        receipts = await self._receipts.receipts()
        return await back_up(self.store, Path(path), receipts)

    async def copy_to(
        self,
        target: Engine,
        sessions: Sequence[str] | None = None,
        *,
        progress: CopyProgress | None = None,
    ) -> CopyResult:
        """Copy sessions to the store of another engine, verbatim; all of them without ``sessions``.

        Records keep ids, times, digests and salts, forks their parents, and what was erased or
        deleted is so in the target, too: receipts of this store hold for that one. What is there
        already is compared and not written again, so a copy that was cut off is made again. Every
        session is read back. Raises, before anything is written, SessionDiffers where the target
        has another session of a name, InvalidSetting for a fork without its parent, and
        StreamNotFound; and StoreError of either store.
        """
        from eventctx.queries.copying.copy import copy_sessions

        if isinstance(sessions, str):
            raise InvalidSetting(
                f"sessions: expected a list of session ids, found {shown(sessions)}"
            )
        for session in sessions or ():
            check_session_id(session)
        await self._sessions.send()
        await target._sessions.send()
        into = _CopyInto(target.store, target._destruction, target._receipts)
        return await copy_sessions(self.store, into, sessions, progress)

    @property
    def receipts_path(self) -> Path | None:
        """The path of the book of receipts; None if none is kept."""
        return None if self._receipts.book is None else self._receipts.book.path

    async def sign(self, session: str, key: Signer) -> Receipt:
        """Vouch for all records of a session until now, with a record that carries the signature.

        ``key`` is made by ``eventctx.signer``. Raises StreamNotFound, InvalidSetting.
        """
        await self._readable(session)
        return await sign(self.store, self._sessions, session, key)

    async def why(
        self,
        session: str,
        number: int,
        *,
        turn: int | None = None,
        iteration: int | None = None,
        position: int | None = None,
    ) -> Explanation:
        """How message ``number`` appears in a request's view, and why; else in the present view.

        The request is named as for ``request_view``. Raises StreamNotFound, InvalidSetting.
        """
        from eventctx.queries.explain.answering import why
        from eventctx.queries.explain.selectors import RequestSelector

        check_session_id(session)
        self._check_request(turn, iteration, position)
        checked("message number", number, Position)
        selector = RequestSelector(turn, iteration, position)
        store = await self._readable(session)
        return await why(store, session, number, selector)

    async def diff(
        self,
        session: str,
        before: int | tuple[int, int],
        after: int | tuple[int, int],
        *,
        by: Literal["turn", "position"] = "turn",
    ) -> ViewDiff:
        """The differences of two requests: the last ones of two turns, or of ``(turn, iteration)``.

        With ``by="position"``, the requests prepared at these positions. Raises StreamNotFound,
        InvalidSetting.
        """
        from eventctx.queries.explain.answering import difference
        from eventctx.queries.explain.selectors import RequestSelector

        check_session_id(session)
        one, other = RequestSelector.of(before, by), RequestSelector.of(after, by)
        store = await self._readable(session)
        return await difference(store, session, one, other)

    async def lost(
        self, session: str, *, compaction: int | None = None, turn: int | None = None
    ) -> Lost:
        """What is no longer in view now, in a turn's last request, or after a compaction.

        Instructions of a person, files, commands, decisions and results, each whole, shortened,
        in a summary, or gone. ``compaction`` counts the applied ones from 1. Raises
        StreamNotFound, InvalidSetting.
        """
        from eventctx.queries.explain.selectors import RequestSelector
        from eventctx.queries.lost.reading import what_left

        check_session_id(session)
        checked("compaction", compaction, Position | None)
        self._check_request(turn, None, None)
        if compaction is not None and turn is not None:
            raise InvalidSetting("lost: expected at most one of compaction and turn, found both")
        selector = RequestSelector(turn)
        store = await self._readable(session)
        return await what_left(store, session, compaction=compaction, selector=selector)

    async def compare(
        self,
        sessions: Sequence[str],
        *,
        policies: Sequence[str | Policy | PolicyFunction] | None = None,
        budgets: Sequence[int | str] = BUDGETS,
        summarizer: Summarizer | None = None,
        scorer: Scorer | None = None,
        prices: Prices = PRICES,
        losses: int = LOSSES,
        progress: Progress | None = None,
    ) -> Comparison:
        """What each policy would have kept of what the model needed, and at what cost.

        Plays every session as if live, in memory, with each budget in tokens (``50_000``,
        ``"50k"``); writes nothing and calls no model.

        ``policies`` are names, with settings behind colons (``ladder:target_usage=0.3``), or
        objects; without any, all that need no function of yours. A policy that asks a summarizer or
        scorer gets yours. Every session is used up to its first compaction. ``losses`` is how many
        of the worst losses are listed for each policy and budget. ``progress`` is called with the
        runs that are done, and with all of them. Raises InvalidSetting and StreamNotFound.
        """
        # Loaded here, because few programs compare, and all of them start.
        from eventctx.comparison.compare import compare
        from eventctx.comparison.stored import recordings_of

        if isinstance(sessions, str):
            raise InvalidSetting(
                f"sessions: expected a list of session ids, found {shown(sessions)}"
            )
        for session in sessions:
            check_session_id(session)
            await self._readable(session)
        recordings, passed_over = await recordings_of(self.store, sessions)
        return await compare(
            recordings,
            policies,
            budgets,
            summarizer=summarizer,
            scorer=scorer,
            prices=prices,
            losses=losses,
            passed_over=passed_over,
            progress=progress,
        )

    async def instructions(
        self,
        session: str,
        *,
        turn: int | None = None,
        iteration: int | None = None,
        position: int | None = None,
    ) -> Instructions:
        """Every demand of a person, and how each request held it: verbatim, in a summary, absent.

        With a request, named as for ``request_view``, the answer goes up to there and is about its
        view; else it is about the present view. Raises StreamNotFound, InvalidSetting.
        """
        from eventctx.queries.explain.selectors import RequestSelector
        from eventctx.queries.instructions.reading import instructions_of

        check_session_id(session)
        self._check_request(turn, iteration, position)
        selector = RequestSelector(turn, iteration, position)
        return await instructions_of(await self._readable(session), session, selector)

    async def dry_run(
        self,
        session: str,
        *,
        policy: str | Policy | PolicyFunction | None = None,
        reason: str | None = None,
        keep: str | None = None,
        force: bool = False,
        **settings: Unpack[SessionSettings],
    ) -> CompactionResult:
        """The result of ``compact``, also under another policy or settings. Nothing is written.

        ``policy`` and ``settings`` are as for ``session``; without any, those of the session as
        it is open in this engine, or as it was made. The budget is ``max_tokens`` if given, else
        that of the last request. A policy's questions get placeholders for answers. Raises
        StreamNotFound, InvalidSetting, and, as ``compact`` without ``force``, ContextOverflow and
        CompactionRefused for a ``max_tokens`` that is too small.
        """
        from eventctx.session.compaction_run import CompactionCause

        check_session_id(session)
        checked("reason", reason, str | None)
        checked("keep", keep, str | None)
        checked("force", force, bool)
        made, chosen = choose(policy, settings)
        if policy is None and not settings:
            opening = self._sessions.opening(session)
            if opening is not None:
                made, chosen = opening.settings, opening.policy
            else:
                unset = SessionOpening(chosen, made)
                made, chosen = await remembered_of(self.store, session, unset)
        limit = made.limit if "max_tokens" in by_own_name(settings) else None
        cause = CompactionCause("manual", "caller", reason, keep)
        rim = (self._clock, self._random)
        return await dry_run(
            self.store, session, chosen, made, *rim, cause=cause, limit=limit, force=force
        )

    async def losses(self) -> tuple[Loss, ...]:
        """How often hooks on this store failed so far, and how much they dropped.

        The counts are sums over all processes that used the store.

        Counts of other processes are at most about a second old. Raises StoreError.
        """
        return await asyncio.to_thread(self._losses.read)

    async def close_session(self, session: str) -> None:
        """Write all that is under way in a session, and forget its context manager.

        It can be opened again, then also with other settings. One that is not open is no error.
        Raises InvalidSessionId.
        """
        check_session_id(session)
        await self._sessions.close(session)

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
                self._receipts.note_all()
                await self.hooks.close()
                await self._sinks.close()
                if self._recall is not None:
                    await self._recall.close()
            finally:
                try:
                    await self._losses.close()
                finally:
                    await self.store.close()

    def __del__(self) -> None:
        """Write what is queued, and end the threads, of an engine that nobody closed."""
        # A collection of garbage may run this in the middle of the store's code, so nothing here
        # may take a lock: what is to be written is written in a thread of its own.
        if self._opened is None:
            store = getattr(self, "store", None)
            if store is not None and riding_to(store):
                run_apart(partial(flush_all, store), "eventctx-flush")
        else:
            run_apart(partial(_release, self.hooks, self._losses, self.store), "eventctx-release")
            warnings.warn(
                f"the engine of {self._opened} was dropped without a close: use `async with "
                "eventctx.open(…)`, or await engine.close()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    async def __aenter__(self) -> Engine:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


class _CopyInto:
    """An engine as the target of a copy."""

    def __init__(
        self, store: EventStore, destruction: Destruction, receipts: ReceiptKeeper
    ) -> None:
        self.store = store
        self.erase_again = destruction.erase_again
        self.delete_again = destruction.delete_again
        self.copied = receipts.copied


def _stored(receipts: ReceiptKeeper, hooks: Hooks, record: Record) -> None:
    receipts.stored(record)
    hooks.publish(record)


async def _release(hooks: Hooks, losses: HookFailures, store: EventStore) -> None:
    try:
        await flush_all(store)
        # Handlers may wait for a loop that has ended, so they get little time.
        await hooks.close(timeout=1.0)
        await losses.close()
    finally:
        await store.close()


class Opening:
    """An engine to open: ``async with`` it, or ``await`` it and close the engine yourself."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._engine: Engine | None = None

    def __await__(self) -> Any:
        return self._make().__await__()

    if not TYPE_CHECKING:  # a type checker refuses both by itself

        def __getattr__(self, name: str) -> NoReturn:
            if name.startswith("__"):
                raise AttributeError(name)
            raise NotOpened(name)

        def __enter__(self) -> NoReturn:
            raise NotOpened("with")

        def __exit__(self, *exc: object) -> None:
            """Python looks for it before it calls ``__enter__``."""

    async def __aenter__(self) -> Engine:
        self._engine = await self._make()
        return self._engine

    async def __aexit__(self, *exc: Any) -> None:
        if self._engine is not None:
            await self._engine.close()


def _path_or_url(url: object) -> str:
    path = os.fspath(url) if isinstance(url, str | os.PathLike) else url
    if not isinstance(path, str) or not is_text(path) or "\0" in path:
        raise InvalidSetting(f"store: expected {EXPECTED}, found {shown(url)}")
    return path


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
) -> Opening:
    """Open a store: ``memory://``, ``sqlite:///relative.db``, ``sqlite:////absolute.db``, a path.

    ``postgresql://…`` and ``nats://…`` are stores on servers. Of ``durability`` a store takes its
    own words, and its strongest that needs one machine without one: a file ``full`` (the default)
    or ``normal``, PostgreSQL ``local`` (the default) or ``replicated``. ``normal`` may lose the
    last acknowledged records when the power fails, never when only the process ends.

    ``lock_timeout`` is in seconds. With ``read_only`` nothing is written,
    neither to the store nor beside it: every write raises StoreReadOnly, receipts are compared and
    not noted, and the index of a search is a temporary one. ``receipts`` is the path of the book of
    receipts; True puts it into the user's state folder, False keeps none. All others are those of
    ``Engine``. An engine that is dropped without ``close`` warns (ResourceWarning), writes what is
    queued, and ends its threads.

    Raises on entering: NotAStore, StoreTooNew, StoreUnavailable, InvalidSetting.
    """

    async def make() -> Engine:
        checked("create", create, bool)
        checked("lock_timeout", lock_timeout, WaitSeconds)
        checked("read_only", read_only, bool)
        chosen = {} if durability is None else {"durability": durability}
        store = await open_store(
            _path_or_url(url),
            create=create,
            lock_timeout=lock_timeout,
            read_only=read_only,
            **chosen,
        )
        path = store.beside
        book = None
        if receipts is not False and path is not None:
            place = (
                default_book(path)
                if receipts is True
                else Path(in_users_folder(os.fspath(receipts), "receipts"))
            )
            book = ReceiptBook(place, read_only=read_only)
        try:
            engine = Engine(
                store,
                hooks=hooks,
                sinks=sinks,
                current_span=current_span,
                clock=clock,
                random=random,
                receipts=book,
                most_open_sessions=most_open_sessions,
                open_session_bytes=open_session_bytes,
            )
        except BaseException:
            await store.close()
            raise
        engine._opened = without_password(os.fspath(url))
        await engine._check_store()
        return engine

    return Opening(make)
