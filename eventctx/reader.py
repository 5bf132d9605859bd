"""The reader: every question about the sessions of a store, and nothing that writes.

An answer is a fold of records, so a question needs the store and nothing else: no engine, no hooks,
no append queue, no session in memory. Invariant: a reader changes no byte of the store, and none of
the caches and receipts that are kept with it. Others may write meanwhile: each question reads the
records that are in the store by then.

``Engine`` inherits the questions. Before each of them it writes what its sessions hold back
(``_send``), so that its answers hold for all that was done in it. What answers a question is loaded
by the first such question (docs/decisions/0079-two-tiers-eight-floors.md).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import aclosing
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, Unpack, cast

from eventctx.aio import Opening
from eventctx.comparison.defaults import BUDGETS, LOSSES, PRICES, Prices, Progress
from eventctx.errors import InvalidSetting, NotOpened
from eventctx.hooks.hook_failures import HookFailures, Loss, LossListener
from eventctx.log.arguments import shown
from eventctx.log.ids import check_session_id, random_bytes
from eventctx.log.record import Record
from eventctx.log.store import EventStore, Receipt, StreamInfo
from eventctx.policies.advisers import Scorer, Summarizer
from eventctx.policies.constraints import Position, WaitSeconds, check_value
from eventctx.policies.policy import Policy, PolicyFunction
from eventctx.queries.receipts import ReceiptKeeper
from eventctx.stores.location import book_of, open_store, path_or_url
from eventctx.stores.read_only import ReadOnlyStore
from eventctx.stores.receipt_book import ReceiptBook

if TYPE_CHECKING:
    from eventctx.comparison.compare import Comparison
    from eventctx.log.naming import RequestName
    from eventctx.policies.named import PolicyName
    from eventctx.queries.atif.export import AtifExport
    from eventctx.queries.audit import Audit
    from eventctx.queries.copy_sessions import CopyTarget
    from eventctx.queries.copy_writing import CopyProgress, CopyResult
    from eventctx.queries.explain_answers import Explanation, ViewDiff
    from eventctx.queries.instructions import Instructions
    from eventctx.queries.lost.answers import Lost
    from eventctx.queries.records import Message
    from eventctx.queries.requests import RequestView
    from eventctx.queries.verification import Verification
    from eventctx.queries.verify import StoreVerification
    from eventctx.search.recall import Recall, Recalled
    from eventctx.session.erasure.destruction import ExpiredSession
    from eventctx.session.result import CompactionResult
    from eventctx.session.sessions import SessionOpening
    from eventctx.session.settings import SessionSettings, Settings


class CopyReceiver(Protocol):
    """Takes sessions of another store: an ``Engine``."""

    async def _copy_target(self) -> CopyTarget:
        """Write what is held back, and return the part that takes the copies."""
        ...


class Reader:
    """Every question about the sessions of a store. ``async with eventctx.read(path) as reader``.

    A ``Reader`` made of a store leaves it open, and may read it while an engine writes it;
    ``receipts`` is the book that ``verify`` compares sessions with. After ``close`` every question
    raises StoreUnavailable.
    """

    def __init__(self, store: EventStore, *, receipts: ReceiptBook | None = None) -> None:
        self.store: EventStore = cast(EventStore, ReadOnlyStore(store))
        self._receipts = ReceiptKeeper(store, receipts)
        self._recall: Recall | None = None
        self._clock: Callable[[], int] = time.time_ns
        self._random: Callable[[int], bytes] = random_bytes
        self._failures: HookFailures | None = None
        self._own: EventStore | None = None

    # -- sessions --------------------------------------------------------------------------------

    async def sessions(
        self, *, after: str | None = None, limit: int | None = None
    ) -> list[StreamInfo]:
        """Sessions in order of creation, without those that were deleted.

        With ``after`` those that were made after this one, with ``limit`` at most so many: the name
        of the last one is the next page's ``after``. Raises StreamNotFound, InvalidSetting.
        """
        check_value("limit", limit, Position | None)
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

    async def mirror_of(self, session: str) -> str | None:
        """The name of the file that an imported session mirrors; None for a session of ours.

        A mirror changes by import alone: ``fork`` it to go on. Raises StreamNotFound.
        """
        from eventctx.session.repository import mirror_of

        check_session_id(session)
        return await mirror_of(self.store, session)

    async def forks(self, session: str) -> list[str]:
        """The sessions that were forked from this one, and from those; the last made first.

        Raises StreamNotFound, InvalidSessionId.
        """
        from eventctx.session.erasure.destruction import forks_of

        check_session_id(session)
        return await forks_of(self.store, session)

    async def expired(self, before: int) -> list[ExpiredSession]:
        """The sessions whose last record is older than ``before``, in UTC nanoseconds.

        Their order is one in which they can be deleted: forks first.
        """
        from eventctx.session.erasure.destruction import expired

        return await expired(self.store, before)

    # -- views and requests ------------------------------------------------------------------------

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
        check_value("start", start, Position)
        check_value("stop", stop, Position | None)
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
        await self._send(session)
        return self.store

    async def _send(self, session: str | None = None) -> None:
        """Write what is held back in a session, or in all: a reader holds nothing back."""

    async def transcript(
        self, session: str, *, at: int | None = None, turn: int | None = None
    ) -> list[Message]:
        """The transcript as it was after position ``at``, or at the end of turn ``turn``; else now.

        Raises StreamNotFound, InvalidSetting.
        """
        from eventctx.queries.records import transcript_at
        from eventctx.queries.requests import position_of_turn

        if at is not None and turn is not None:
            raise InvalidSetting("transcript: expected at most one of at and turn, found both")
        store = await self._readable(session)
        if turn is not None:
            check_value("turn", turn, Position)
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
        """The request that the model was sent last, or last in a turn, or in one iteration.

        Or the one at the position of a ``context:request_prepared``, as the audit lists it. With
        ``allow_damage`` a request with edited messages is returned, as one that is not verified;
        without, it raises LogCorrupted. Raises StreamNotFound, InvalidSetting.
        """
        from eventctx.log.naming import RequestName
        from eventctx.queries.requests import find_request, request_at
        from eventctx.queries.view import last_request

        check_session_id(session)
        _check_request(turn, iteration, position)
        store = await self._readable(session)
        name = RequestName(turn, iteration, position)
        if name == RequestName():
            name = await last_request(store, session)
        found = await find_request(store, session, name)
        return await request_at(store, session, found.position, allow_damage=allow_damage)

    async def audit(self, session: str) -> Audit:
        """A row per request and per compaction. Raises StreamNotFound."""
        from eventctx.queries.audit import audit_session

        return await audit_session(await self._readable(session), session)

    async def timeline(self, session: str, *, after: int | None = None) -> dict[str, Any]:
        """A session at a glance, as columns of numbers, ids and codes without any text.

        With ``after`` only what continues the document whose ``head`` that position was. The
        columns are those of the timeline document in ``docs/reference/inspect.md``. Raises
        StreamNotFound, InvalidSetting.
        """
        from eventctx.queries.key_frames import key_frames, timeline_document

        check_value("after", after, Position | None)
        store = await self._readable(session)
        return await timeline_document(key_frames(store).at, session, after)

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
        from eventctx.log.naming import RequestName
        from eventctx.queries.explaining import why

        check_session_id(session)
        _check_request(turn, iteration, position)
        check_value("message number", number, Position)
        store = await self._readable(session)
        return await why(store, session, number, RequestName(turn, iteration, position))

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
        from eventctx.queries.explaining import difference

        check_session_id(session)
        one, other = _named(before, by), _named(after, by)
        store = await self._readable(session)
        return await difference(store, session, one, other)

    async def lost(
        self, session: str, *, compaction: int | None = None, turn: int | None = None
    ) -> Lost:
        """Items that are no longer in view now, in a turn's last request, or after a compaction.

        Instructions of a person, files, commands, decisions and results, each whole, shortened,
        in a summary, or gone. ``compaction`` counts the applied ones from 1. Raises
        StreamNotFound, InvalidSetting.
        """
        from eventctx.log.naming import RequestName
        from eventctx.queries.lost.reading import what_left

        check_session_id(session)
        check_value("compaction", compaction, Position | None)
        _check_request(turn, None, None)
        if compaction is not None and turn is not None:
            raise InvalidSetting("lost: expected at most one of compaction and turn, found both")
        store = await self._readable(session)
        return await what_left(store, session, compaction=compaction, selector=RequestName(turn))

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
        from eventctx.log.naming import RequestName
        from eventctx.queries.instruction_reading import instructions_of

        check_session_id(session)
        _check_request(turn, iteration, position)
        selector = RequestName(turn, iteration, position)
        return await instructions_of(await self._readable(session), session, selector)

    # -- search ------------------------------------------------------------------------------------

    def recaller(self) -> Recall:
        """The search over this store; its index is made by the first search."""
        if self._recall is None:
            from eventctx.search.documents import VERSION
            from eventctx.search.recall import Recall, text_index

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
        check_value("recall", query, str)
        if session is not None:
            check_session_id(session)
        return await self.recaller().search(query, session, limit)

    # -- proofs and copies -------------------------------------------------------------------------

    async def verify(
        self, session: str, receipt: Receipt | None = None, *, facts: bool = True
    ) -> Verification:
        """Recompute every digest of a session, and compare facts. Raises StreamNotFound.

        The session is compared with ``receipt``, and with its last one in the book of receipts.
        Without ``facts`` only the content that digests cover is checked, in half the time. Raises
        InvalidSetting for what is no receipt.
        """
        from eventctx.queries.verify import verify

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
        from eventctx.queries.verify import verify_store

        await self._send()
        receipts = await self._receipts.receipts()
        return await verify_store(self.store, receipts, facts=facts, began=began)

    async def verifications(
        self,
        *,
        facts: bool = True,
        began: Callable[[str, int, int], None] | None = None,
    ) -> AsyncIterator[Verification | str]:
        """The findings of ``verify_store``, one by one: each session, then problems of the store.

        Any number of sessions takes the same memory, but for their receipts.
        """
        from eventctx.queries.verify import verifications

        await self._send()
        receipts = await self._receipts.receipts()
        async for found in verifications(self.store, receipts, facts=facts, began=began):
            yield found

    @property
    def receipts_path(self) -> Path | None:
        """The path of the book of receipts; None if none is kept."""
        return None if self._receipts.book is None else self._receipts.book.path

    async def backup(self, path: str | os.PathLike[str]) -> StoreVerification:
        """Copy the store as it is now to a new file, and verify the copy whole.

        Reading and writing go on meanwhile. The copy is compared with the book of receipts, too;
        it stays where it is when something is found. Raises InvalidSetting (there is something at
        ``path``, or the store is no file), StoreFull, StoreReadOnly, StoreUnavailable.
        """
        from eventctx.queries.verify import back_up

        await self._send()
        # Read first: the copy holds every record that has a receipt by now.
        receipts = await self._receipts.receipts()
        return await back_up(self.store, Path(path), receipts)

    async def copy_to(
        self,
        target: CopyReceiver,
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
        from eventctx.queries.copy_sessions import copy_sessions

        if isinstance(sessions, str):
            raise InvalidSetting(
                f"sessions: expected a list of session ids, found {shown(sessions)}"
            )
        for session in sessions or ():
            check_session_id(session)
        if not hasattr(target, "_copy_target"):
            raise InvalidSetting(
                f"target: expected an engine, as `eventctx.open` gives it; found {shown(target)}"
            )
        await self._send()
        return await copy_sessions(self.store, await target._copy_target(), sessions, progress)

    async def export_atif(self, session: str, path: str | os.PathLike[str]) -> AtifExport:
        """Write a session as an ATIF 1.8 trajectory, for other programs that read trajectories.

        Where its context was replaced, the trajectory goes on in ``….cont-1.json`` next to
        ``path``. The answer says of how many requests the log knows exactly what was sent; so does
        each step, with all else that ATIF has no field for (``docs/reference/atif.md``). Raises
        StreamNotFound, LogCorrupted, OSError, and InvalidSetting for a path that cannot be written.
        """
        from eventctx.queries.atif.export import write_file

        check_session_id(session)
        await self._send()  # subagents are written, too
        return await write_file(self.store, session, Path(path))

    # -- what would be -----------------------------------------------------------------------------

    async def dry_run(
        self,
        session: str,
        *,
        policy: PolicyName | Policy | PolicyFunction | None = None,
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
        from eventctx.session.sessions import SessionOpening, dry_run
        from eventctx.session.settings import by_own_name, choose

        check_session_id(session)
        check_value("reason", reason, str | None)
        check_value("keep", keep, str | None)
        check_value("force", force, bool)
        made, chosen = choose(policy, settings)
        if policy is None and not settings:
            made, chosen = await self._chosen_for(session, SessionOpening(chosen, made))
        limit = made.limit if "max_tokens" in by_own_name(settings) else None
        cause = CompactionCause("manual", "caller", reason, keep)
        now = (self._clock, self._random)
        return await dry_run(
            self.store, session, chosen, made, *now, cause=cause, limit=limit, force=force
        )

    async def _chosen_for(self, session: str, unset: SessionOpening) -> tuple[Settings, Policy]:
        """The settings and policy of a session, as it was made; those of ``unset`` by default."""
        from eventctx.session.sessions import remembered_of

        return await remembered_of(self.store, session, unset, stacklevel=4)

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
        """The part of the needed context that each policy would have kept, and its cost.

        Plays every session as if live, in memory, with each budget in tokens (``50_000``,
        ``"50k"``); writes nothing and calls no model.

        ``policies`` are names, with settings after colons (``ladder:target_usage=0.3``), or
        objects; without any, all that need no function of yours. A policy that asks a summarizer or
        scorer gets yours. Only the part before a first compaction is used. ``losses`` is how many
        of the worst losses are listed for each policy and budget. ``progress`` is called with the
        runs that are done, and with all of them. Raises InvalidSetting and StreamNotFound.
        """
        from eventctx.comparison.compare import compare
        from eventctx.comparison.recording import recordings_of

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

    # -- the handle --------------------------------------------------------------------------------

    async def hook_failures(self) -> tuple[Loss, ...]:
        """How often hooks on this store failed so far, and how much they dropped.

        The counts are sums over all processes that used the store; those of other processes are at
        most about a second old. Raises StoreError.
        """
        failures = self._failures or HookFailures(self.store.cache_path, _no_hooks)
        return await asyncio.to_thread(failures.read)

    async def close(self) -> None:
        """End the search and the store that ``eventctx.read`` opened."""
        try:
            if self._recall is not None:
                await self._recall.close()
        finally:
            await self.store.close()
            if self._own is not None:
                await self._own.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


def _named(given: object, by: str) -> RequestName:
    """The request that a turn, a pair of turn and iteration, or a position means."""
    from eventctx.log.naming import RequestName

    if by not in ("turn", "position"):
        raise InvalidSetting(f"by: expected 'turn' or 'position', found {shown(by)}")
    if by == "position":
        return RequestName(position=check_value("position", given, Position))
    turn, iteration = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
    return RequestName(
        check_value("turn", turn, Position), check_value("iteration", iteration, Position | None)
    )


def _check_request(turn: int | None, iteration: int | None, position: int | None) -> None:
    for name, number in (("turn", turn), ("iteration", iteration), ("position", position)):
        check_value(name, number, Position | None)


def _no_hooks(place: Hashable, listener: LossListener) -> Callable[[], None]:
    """A registry without hooks: a reader has none that could fail."""
    return lambda: None


def read(
    store: EventStore | str | os.PathLike[str],
    *,
    lock_timeout: float = 5.0,
    receipts: bool | str | os.PathLike[str] = True,
) -> Opening[Reader]:
    """Open a store for questions: a path or a URL, as of ``eventctx.open``, or an open store.

    Nothing is written, neither to the store nor to a file that is kept with it; SQLite makes its
    two helper files where it finds none. A search uses a temporary index. A store that is given
    open stays open. ``receipts`` is as for ``eventctx.open``.

    Raises on entering: NotAStore, StoreTooNew, StoreUnavailable, InvalidSetting.
    """

    async def make() -> Reader:
        check_value("lock_timeout", lock_timeout, WaitSeconds)
        own = None
        if isinstance(store, str | os.PathLike):
            own = await open_store(
                path_or_url(store), create=False, lock_timeout=lock_timeout, read_only=True
            )
        asked = cast(EventStore, store) if own is None else own
        reader = Reader(asked, receipts=book_of(asked, receipts, read_only=True))
        reader._own = own
        await reader._receipts.check_store()
        return reader

    return Opening(make, partial(NotOpened, call="read"))
