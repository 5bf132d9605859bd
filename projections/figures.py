"""The token figures of every request and compaction: one source for all screens, JSON and traces.

The provider's count comes first. Without one, a figure is our estimate and says so (``estimated``;
screens write ``~``). The messages of a view and all else that was sent (system prompt, tool
definitions) are two numbers with a sum. A compaction has the figures of the requests around it, so
that it never contradicts their rows.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import decode_known
from eventctx.log.events import Known, PostCompact, RequestPrepared, known_as
from eventctx.log.record import Record
from eventctx.messages.calibration import LEAST_FACTOR, MOST_FACTOR, Scale
from eventctx.messages.facts import decode_facts
from eventctx.projections.view.layout import Layout
from eventctx.projections.view.series import Series


class RequestFigures(msgspec.Struct, frozen=True):
    """Tokens of one request.

    ``total`` is ``reported``, the provider's count of the prompt; without one it is ``messages``
    plus ``beside``, and ``estimated``. ``messages`` is our estimate of the view's messages,
    ``beside`` the tokens of all else that was sent (None: not known; then ``total`` is too low).
    With a report, ``beside`` is the rest of it. ``estimate`` is the figure that was recorded when
    the request was made, before any report of it. ``system`` and ``tools`` are our estimates of
    the system prompt and the tool definitions where the log holds both. With a report, all parts
    share it out in proportion to their estimates, unless these are far off (their sum is less than
    half of it or more than twice): then they stay estimates. ``known`` is how the request is known.
    """

    total: int
    estimated: bool
    reported: int | None
    messages: int
    beside: int | None
    estimate: int
    system: int | None = None
    tools: int | None = None
    known: Known = "prepared"


class CompactionFigures(msgspec.Struct, frozen=True):
    """Tokens of the view before and after a compaction.

    ``before`` is the prompt that the provider reported for the request before it, ``after`` that of
    the first request after it. Where it reported none, or the transcript was changed in between, it
    is the estimate in the compaction's own record, and its flag is true: the messages that were
    added are the cause of a compaction of ours. For an imported one the request before it counts
    all the same, as only the answer is between the two. ``recorded`` is the size before it that an
    imported file names itself, as the other program counts.
    """

    before: int
    before_estimated: bool
    after: int
    after_estimated: bool
    recorded: int | None = None

    @property
    def taken_out(self) -> int:
        """Tokens that the compaction took out of the view."""
        return self.before - self.after

    @property
    def estimated(self) -> bool:
        """Whether either figure is an estimate."""
        return self.before_estimated or self.after_estimated


class LittleRoom(msgspec.Struct, frozen=True):
    """A budget of which only ``left`` tokens, less than a quarter, are for the conversation."""

    budget: int
    left: int

    @property
    def sentence(self) -> str:
        """What it means, and what to do."""
        return (
            f"a budget of {self.budget:,} tokens leaves {self.left:,} for the conversation; system "
            "messages, tools and reserves take the rest, so nearly every result of a tool is "
            "shortened, by a compaction: raise max_tokens or send less with each request"
        )


def little_room(budget: int, layout: Layout, scale: Scale) -> LittleRoom | None:
    """What system messages, and all that is sent besides, leave of a budget, if it is little."""
    prompts = [one.tokens for one in layout.insertions if one.kind == "system_prompt"]
    system = [ref.tokens for ref in layout.in_play() if ref.facts.kind == "system"]
    left = budget - scale.tokens(sum([*prompts, *system]))
    return LittleRoom(budget, max(0, left)) if left < budget // 4 else None


def of_request(
    event: RequestPrepared,
    prompt: int | None,
    *,
    system: int | None = None,
    tools: int | None = None,
) -> RequestFigures:
    """The figures of a request whose prompt the provider counted as ``prompt``, if it did.

    A count of 0 is no count: providers that report none are recorded so. ``system`` and ``tools``
    are the estimated tokens of those texts where the log holds them; both or none.
    """
    made = _sizes_of_request(-1, event, False)
    if system is not None and tools is not None:
        made = made._replace(beside=system + tools, system=system, tools=tools)
    return _request(made, prompt)


class RequestSizes(NamedTuple):
    """The sizes in a request's record; ``beside`` is None where that is not known.

    ``calibrated`` is whether a prompt had been reported before it was made. ``system`` and
    ``tools`` are there where the request was recorded as it was sent.
    """

    position: int
    estimate: int
    messages: int
    beside: int | None
    calibrated: bool
    system: int | None = None
    tools: int | None = None
    known: Known = "prepared"


class CompactionSizes(NamedTuple):
    """The sizes in a compaction's record, and the request before it, whose view it changes."""

    position: int
    before: int
    after: int
    recorded: int | None
    request: int | None


class ImportedFile(NamedTuple):
    """The facts about an imported session's file.

    ``format`` is None for a session that was not imported. ``system``: the transcript has a system
    prompt. ``requests``: the file holds requests, and the importer read the messages from them.
    ``beside``: it holds all else that was sent, which is kept raw. ``undated`` is the
    time of records for which the file has none: that of the import.
    """

    format: str | None = None
    system: bool = False
    requests: bool = False
    beside: bool = False
    undated: int | None = None


class FiguresState(msgspec.Struct, frozen=True, gc=False):
    """The fold's state.

    ``reports`` are pairs of a request's position and its reported prompt, ``firsts`` pairs of a
    compaction's position and that of the first request after it. ``last`` is the last request, None
    once the view changed in another way than by an added message; ``grown`` whether messages were
    added since; ``waiting`` the compaction whose first request has yet to come.
    """

    requests: Series[RequestSizes]
    reports: Series[tuple[int, int]]
    compactions: Series[CompactionSizes]
    firsts: Series[tuple[int, int]]
    last: int | None = None
    grown: bool = False
    waiting: int | None = None
    file: ImportedFile = ImportedFile()


class _Placed(Protocol):
    @property
    def position(self) -> int: ...


P = TypeVar("P", bound=_Placed)
V = TypeVar("V")


class ByPosition(Mapping[int, V], Generic[P, V]):
    """Values of items by their position; each is computed when it is asked for.

    ``items`` are in the order of their positions.
    """

    def __init__(self, items: Series[P], known: Callable[[P], V]) -> None:
        self._items = items
        self._known = known

    def __getitem__(self, position: int) -> V:
        place = bisect_left(self._items, position, key=_position)
        if place == len(self._items) or self._items[place].position != position:
            raise KeyError(position)
        return self._known(self._items[place])

    def __iter__(self) -> Iterator[int]:
        return (one.position for one in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def all(self) -> dict[int, V]:
        """All values at once, which is much cheaper than one after the other."""
        return {one.position: self._known(one) for one in self._items}


def _position(item: _Placed) -> int:
    return item.position


class Figures:
    """The figures of a session by position: of its requests, and of its applied compactions.

    ``file`` are the facts about an imported file.
    """

    def __init__(self, state: FiguresState) -> None:
        self._state = state
        self.file = state.file
        self.requests = ByPosition(state.requests, self._request)
        self.compactions = ByPosition(state.compactions, self._compaction)

    @cached_property
    def _reports(self) -> dict[int, int]:
        return dict(self._state.reports)

    @cached_property
    def _firsts(self) -> dict[int, int]:
        return dict(self._state.firsts)

    def reported(self) -> Iterator[tuple[RequestSizes, int | None]]:
        """Each request's own record, with the provider's count of its prompt."""
        reports = self._reports
        return ((made, reports.get(made.position) or None) for made in self._state.requests)

    def _request(self, made: RequestSizes) -> RequestFigures:
        return _request(made, self._reports.get(made.position))

    def _compaction(self, one: CompactionSizes) -> CompactionFigures:
        before = None if one.request is None else self.requests.get(one.request)
        after = self.requests.get(self._firsts.get(one.position, -1))
        return CompactionFigures(
            *_report_or(before, one.before), *_report_or(after, one.after), one.recorded
        )


CHANGES: Final = frozenset(
    (
        *("context:messages_set", "context:cleared", "context:restored"),
        *("context:erased", "context:system_prompt_set", "session:fork"),
    )
)
"""Records after which the last request's size says nothing of the view."""

_FOLDED: Final = CHANGES.union(
    (
        *("context:request_prepared", "usage:reported", "context:post_compact"),
        *("session:start", "import:raw", "context:message_added"),
    )
)
"""Records that change the figures."""


def initial() -> FiguresState:
    """The figures of an empty stream."""
    return FiguresState(Series(), Series(), Series(), Series())


def evolve(state: FiguresState, record: Record) -> FiguresState:
    """The figures after ``record``."""
    if record.type not in _FOLDED:
        return state  # most records
    match record.type:
        case "context:request_prepared":
            event: Any = decode_known(record)
            made = _sizes_of_request(record.position, event, bool(state.reports))
            firsts = state.firsts
            if state.waiting is not None and event.plan == state.waiting:
                firsts = firsts.append((state.waiting, record.position))
            return replace(
                state,
                requests=state.requests.append(made),
                firsts=firsts,
                last=record.position,
                grown=False,
                waiting=None,
            )
        case "usage:reported":
            usage: Any = decode_known(record)
            if usage.prepared is not None and usage.prompt > 0:
                reports = state.reports.append((usage.prepared, usage.prompt))
                return replace(state, reports=reports)
        case "context:post_compact":
            ended: Any = decode_known(record)
            if ended.outcome == "applied":
                return _add_compaction(state, ended, record.position)
        case "session:start" | "import:raw":
            return replace(state, file=_file(state.file, record))
        case "context:message_added":
            file = _with_message(state.file, record)
            if state.grown and file is state.file:
                return state
            return replace(state, grown=True, file=file)
        case kind if kind in CHANGES:
            return replace(state, last=None, waiting=None)
    return state


def read(state: FiguresState) -> Figures:
    """The figures of all requests and compactions so far."""
    return Figures(state)


def of_next_compaction(state: FiguresState, before: int, after: int) -> CompactionFigures:
    """The figures of a compaction made now that estimates these sizes itself."""
    unchanged = None if state.grown else state.last
    last = dict(state.reports).get(-1 if unchanged is None else unchanged)
    return CompactionFigures(
        before if last is None else last, last is None, after, after_estimated=True
    )


_WITH_REQUESTS: Final = frozenset(("exchange", "llm:request.rest", "llm:request:raw.rest"))
"""Kinds of raw parts that are the rest of a request whose messages were imported."""

_WITH_TOOLS: Final = frozenset(("SystemPromptEvent", "SystemPromptEvent.envelope"))
"""Kinds of raw parts with tool definitions."""


def _file(file: ImportedFile, record: Record) -> ImportedFile:
    event: Any = decode_known(record)
    if record.type == "session:start":
        undated = event.imported_at if event.imported_at == record.time else None
        return file._replace(format=event.format, undated=undated)
    requests = file.requests or not _WITH_REQUESTS.isdisjoint(event.kinds)
    beside = file.beside or requests or not _WITH_TOOLS.isdisjoint(event.kinds)
    return file._replace(requests=requests, beside=beside)


def _with_message(file: ImportedFile, record: Record) -> ImportedFile:
    if file.format is None or file.system:
        return file
    facts = decode_facts(record.bodies[0].facts) if record.bodies else None
    if facts is None or facts.role not in ("system", "developer"):
        return file
    return file._replace(system=True)


def _sizes_of_request(position: int, event: RequestPrepared, calibrated: bool) -> RequestSizes:
    if (wire := event.wire) is not None:
        beside = wire.system_tokens + wire.tools_tokens
        return RequestSizes(
            position,
            event.tokens,
            wire.message_tokens,
            beside,
            calibrated,
            wire.system_tokens,
            wire.tools_tokens,
            "observed",
        )
    # Below 0 the reserve corrects a count of the messages that is too high; nothing else was sent.
    rest: int | None = max(0, event.reserve)
    if event.reconstructed and event.reserve == 0 and event.factor == 1.0:
        rest = None
    return RequestSizes(
        position,
        event.tokens,
        event.tokens - max(0, event.reserve),
        rest,
        calibrated,
        known=known_as(event),
    )


def _request(made: RequestSizes, prompt: int | None) -> RequestFigures:
    messages, beside, system, tools = made.messages, made.beside, made.system, made.tools
    reported = prompt or None
    if reported is None:
        total = messages + (beside or 0)
    elif system is not None and tools is not None:
        total, whole = reported, max(1, messages + system + tools)
        # A count that is far off is of something else: a test server's, or a placeholder.
        if LEAST_FACTOR <= reported / whole <= MOST_FACTOR:
            system, tools = system * reported // whole, tools * reported // whole
            messages = reported - system - tools
        beside = system + tools
    else:
        # The count includes all messages, so an estimate of them beyond it is too high.
        messages = min(messages, reported)
        total, beside = reported, reported - messages
    return RequestFigures(
        total,
        reported is None,
        reported,
        messages,
        beside,
        made.estimate,
        system,
        tools,
        made.known,
    )


def _add_compaction(state: FiguresState, event: PostCompact, position: int) -> FiguresState:
    last = None if state.grown and event.trigger != "imported" else state.last
    made = CompactionSizes(
        position, event.tokens_before, event.tokens_after, event.tokens_recorded, last
    )
    return replace(state, compactions=state.compactions.append(made), last=None, waiting=position)


def _report_or(request: RequestFigures | None, estimate: int) -> tuple[int, bool]:
    if request is None or request.reported is None:
        return estimate, True
    return request.reported, False
