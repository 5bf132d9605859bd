"""An open session, and the cache of open sessions that hold state in memory.

An ``OpenSession`` is the parts that a session's command handlers share: the aggregate (folded
state), the append queue (the way to the store), the bodies and the transcript lines in memory.
Invariant: the heavy parts may be evicted whenever nothing is under way, and the next command that
needs them loads them again, so no command handler notices. ``memory`` keeps what no store knows.

``SessionCache`` evicts the least recently used sessions while they are more than ``most`` or hold
more than ``most_bytes``. It passes over a session with something under way, and never evicts the
one used last. So the bounds are goals: many sessions in use at once may exceed them.

``PromptReports`` compares the prompt that a provider reports with the estimate of its request.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple
from weakref import ref

from eventctx.log.events import Break, LossSuspected, RequestPrepared, UsageReported
from eventctx.log.store import EventStore
from eventctx.messages.thinking import ThinkingSetting
from eventctx.messages.tokens import Tokenizer, family_of
from eventctx.messages.vocabulary import vocabulary_of
from eventctx.policies.constraints import AtLeastOne, check_value
from eventctx.projections.silent_loss import ReportedRequest, ShownMessages, suspect
from eventctx.projections.view.request_view import tools_of
from eventctx.session.aggregate import Aggregate
from eventctx.session.append_queue import AppendQueue
from eventctx.session.contents import BodyCache, TranscriptLines
from eventctx.session.scope import Drafts

MAX_EXPECTED: Final = 64
"""Requests whose report is waited for."""

_NOTHING: Final = ShownMessages((), {})


class PromptReports:
    """Compares each reported prompt with the estimate of its request, in the order of reports.

    It begins anew with the process: the first report after a start is only what the next ones are
    compared with. ``projections.silent_loss`` finds the same in the log afterwards, and says why.
    """

    def __init__(self) -> None:
        self._expected: dict[int, ReportedRequest] = {}
        self._last: ReportedRequest | None = None
        self._reports = 0
        self._turn: tuple[str | None, int] = (None, -1)

    def expect(self, position: int, event: RequestPrepared, turn_id: str | None, time: int) -> None:
        """Note a request that was prepared at ``position``."""
        if turn_id != self._turn[0]:
            self._turn = (turn_id, position)
        self._expected[position] = ReportedRequest(
            position=position,
            time=time,
            turn=turn_id,
            turn_from=self._turn[1],
            expected=event.tokens,
            prompt=0,
            cached=0,
            model=event.model,
            breaks=frozenset(event.breaks),
            reports=self._reports,
            tools=tools_of(event),
            tools_counted=event.wire is not None,
        )
        # Requests of several threads may come here at once; a list of keys is made in one step.
        for oldest in list(self._expected)[:-MAX_EXPECTED]:
            self._expected.pop(oldest, None)

    def note_untold(self, position: int, added: int) -> None:
        """Note that a host added messages to a request, of which it tells no text."""
        asked = self._expected.get(position)
        if asked is not None:
            self._expected[position] = asked._replace(untold=added)

    def compare(
        self, usage: UsageReported, shown: Callable[[], ShownMessages | None]
    ) -> LossSuspected | None:
        """Return the loss that is suspected of the request of ``usage``; None where none is.

        ``shown`` gives the messages of the view, None where it is not in memory.
        """
        asked = None if usage.prepared is None else self._expected.pop(usage.prepared, None)
        if asked is None or usage.prompt <= 0:
            return None
        breaks: set[Break] = set(asked.breaks)
        for position in [one for one in list(self._expected) if one < asked.position]:
            skipped = self._expected.pop(position, None)  # a request without a report
            breaks |= frozenset() if skipped is None else skipped.breaks
        now = asked._replace(
            prompt=usage.prompt,
            cached=usage.cache_read,
            model=usage.model or asked.model,
            breaks=frozenset(breaks),
        )
        before, self._last = self._last, now
        self._reports += 1
        # Nearly always nothing is missing, and the view need not be gone through.
        if before is None or suspect(before, now, lambda: _NOTHING) is None:
            return None
        view = shown()
        loss = None if view is None else suspect(before, now, lambda: view)
        if loss is None:
            return None
        return LossSuspected(
            prepared=loss.position,
            kind=loss.kind,
            tokens=loss.tokens,
            expected=loss.expected,
            found=loss.found,
            cause=loss.cause,
            messages=loss.messages,
        )


EMPTY_BYTES = 6_000
"""Memory of a session that holds no view; measured on CPython 3.11."""


MAX_NOTED: Final = 256
"""Iterations whose last request is noted, and requests and answers whose usage is."""


class LeftOpen(NamedTuple):
    """The ids of the spans that were open in the log when position ``head`` was its last."""

    spans: frozenset[str] = frozenset()
    head: int = -1


@dataclass(slots=True)
class SessionMemory:
    """Facts about a session that are in no store, and that its handlers share.

    ``prepared`` are the positions of the last requests by turn and iteration, ``additions`` the
    places of a host's additions by their SHA-256, ``usage_of`` the requests (by position) and
    answers (by id) whose usage was reported, ``overflowed_at`` is the position of the record
    of the last overflow, -1 for none. ``reports`` compare prompts with what was expected.
    ``ending`` are the ends under way of compactions that an error stopped, ``background`` stops
    those that wait for a model while requests go on. ``left_open`` is what
    was open when the session was first loaded, until a turn begins. ``recallable``: a tool was made
    with which the agent reads messages again. ``judged_budget`` is the last budget of which it was
    found how much the system messages leave; 0 for none.
    """

    prepared: dict[tuple[str | None, int | None], int] = field(default_factory=dict)
    additions: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    usage_of: dict[int | str, None] = field(default_factory=dict)
    overflowed_at: int = -1
    reports: PromptReports = field(default_factory=PromptReports)
    ending: set[asyncio.Future[None]] = field(default_factory=set)
    background: set[Callable[[], Awaitable[None]]] = field(default_factory=set)
    left_open: LeftOpen = field(default_factory=LeftOpen)
    recallable: bool = False
    judged_budget: int = 0


@dataclass(slots=True, eq=False, weakref_slot=True)
class OpenSession:
    """One session in this process. Made by ``repository``.

    ``random(n)`` returns n bytes; ``stopwatch`` returns nanoseconds, and only differences between
    them mean anything. ``tokenizer`` counts the texts of messages that are added from here on.
    ``thinking`` is the session's setting. ``vocabulary`` counts them exactly for ``model``, the
    last one that a request was for.
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
    model: str | None = None
    vocabulary: Tokenizer | None = None
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
        """Whether a session made anew from the store would behave otherwise."""
        memory = self.memory
        return bool(
            self.drafts.held is not None
            or memory.additions
            or memory.overflowed_at >= 0
            or memory.ending
            or memory.background
            or memory.left_open.spans
        )

    def note_request(self, position: int, event: RequestPrepared, time: int) -> None:
        """Note the request at ``position``: the last one prepared in the present iteration."""
        if event.model is not None and event.model != self.model:
            self.note_model(event.model)
        scope, prepared = self.drafts.scope, self.memory.prepared
        self.memory.reports.expect(position, event, scope.turn_id, time)
        prepared.pop((scope.turn_id, scope.iteration), None)
        prepared[scope.turn_id, scope.iteration] = position
        if len(prepared) > MAX_NOTED:
            del prepared[next(iter(prepared))]

    def note_model(self, model: str | None) -> None:
        """Note for which model texts are counted from here on."""
        self.model = model
        if self.tokenizer is None:
            self.vocabulary = vocabulary_of(family_of(model), model)

    def grown(self) -> None:
        """Note that bodies or lines were read from the store, and take memory now."""
        self.appends.used()

    def evict(self) -> bool:
        """Drop what can be loaded again and return True; return False while anything is under way.

        Waits for nothing, so that no cancellation can leave a session half evicted.
        """
        if self.memory.ending or self.memory.background or not self.appends.evict():
            return False
        self.lines.evict()
        return True

    def renew(self) -> None:
        """Forget all contents, and where additions were stored, since some of it was destroyed."""
        self.appends.renew()
        self.lines.evict()
        self.memory.additions.clear()

    async def close(self) -> None:
        """Wait for appends and compactions under way; end those in the background.

        Raises what kept one from being written.
        """
        for stop in list(self.memory.background):
            await stop()
        while self.memory.ending:
            await asyncio.wait(self.memory.ending)
        await self.appends.flush()


MOST_OPEN_SESSIONS: Final = 256
"""Sessions of one engine that are kept, by default."""

OPEN_SESSION_BYTES: Final = 64 * 2**20
"""About how much memory they may take together, by default."""

MOST_LOOKS: Final = 8
"""Sessions that one use looks at; so its cost is bounded, however many are under way."""

USES_BETWEEN: Final = 16
"""Uses of a session after which it is measured again; measuring takes 3 µs."""

GROWTH_BETWEEN: Final = 64 * 2**10
"""Bytes of bodies by which it may grow until then."""


class _Measured:
    """The memory of a session when it was measured, and its uses since."""

    __slots__ = ("bodies", "size", "uses")

    def __init__(self, session: OpenSession) -> None:
        self.size = session.bytes_held
        self.bodies = session.body_bytes
        self.uses = 0

    def is_outdated(self, session: OpenSession) -> bool:
        """Whether the session may hold far more by now."""
        return self.uses > USES_BETWEEN or session.body_bytes >= self.bodies + GROWTH_BETWEEN


class SessionCache:
    """The sessions that are kept, from the least to the most recently used.

    A session that would behave otherwise if it were made anew (``OpenSession.remembers``) is kept
    without its state. Every other evicted session lives only as long as a caller holds it. Safe to
    use from several threads.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        """Raises InvalidSetting, which names the bounds as ``Engine`` does."""
        self._most: int = check_value("most_open_sessions", most, AtLeastOne)
        self._most_bytes: int = check_value("open_session_bytes", most_bytes, AtLeastOne)
        # A collection of garbage within the lock may run code that uses a session.
        self._lock = threading.RLock()
        self._kept: OrderedDict[OpenSession, _Measured] = OrderedDict()
        self._total = 0
        self._remembering: set[OpenSession] = set()

    def usage_of(self, session: OpenSession) -> Callable[[], None]:
        """The usage callback of ``session``.

        It holds the session weakly, so that an unused one is freed at once, without a collection.
        """
        weak = ref(session)

        def used() -> None:
            found = weak()
            if found is not None:
                self.used(found)

        return used

    def used(self, session: OpenSession) -> None:
        """Note a use of ``session``, and evict others where the bounds ask for it."""
        with self._lock:
            kept = self._kept.get(session)
            if kept is not None:
                self._kept.move_to_end(session)
                kept.uses += 1
                if not kept.is_outdated(session):
                    return
            self._measure(session)
            self._remembering.discard(session)
            if self._exceeded():
                self._shrink(session)

    def _measure(self, session: OpenSession) -> None:
        measured, before = _Measured(session), self._kept.get(session)
        self._total += measured.size - (0 if before is None else before.size)
        self._kept[session] = measured

    def forget(self, session: OpenSession) -> None:
        """Drop a closed ``session``."""
        with self._lock:
            kept = self._kept.pop(session, None)
            self._total -= 0 if kept is None else kept.size
            self._remembering.discard(session)

    def _exceeded(self) -> bool:
        return len(self._kept) > self._most or self._total > self._most_bytes

    def _shrink(self, used: OpenSession) -> None:
        for session in list(islice(self._kept, MOST_LOOKS)):
            if session is used or not self._exceeded():
                return
            if session.evict():
                self._total -= self._kept.pop(session).size
                if session.remembers:
                    self._remembering.add(session)
            else:
                self._kept.move_to_end(session)

    def __len__(self) -> int:
        return len(self._kept)
