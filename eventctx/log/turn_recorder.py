"""The recorder of turns: which records a turn makes, in which order, with which ids.

    prompt:submit                          the turn's span, under the host's span if there is one
      plan:start … plan:end                under the turn
      provider:request                     under the turn, or under the plan that it is made in
        usage:reported                     on the call's span, before the end of the call or after
      provider:response | provider:error
      tool:pre … tool:post | tool:error    under the iteration's last model call, else the turn
    prompt:complete

An iteration is no span: it numbers the records inside. Everything but the turn itself may also be
recorded outside of a turn, without turn and iteration, and then has no parent.

Nothing here does any I/O. A recorder returns each record as an event and its ids, and the caller
appends it. The ``async with`` blocks of ``session/turns.py``, the reports of hosts
(``session/host_turns.py``) and the importers all record their turns with it.

Invariant: a span begins at most once and ends at most once, after its beginning and with the event
that belongs to it; ``TurnSpan`` raises TurnError otherwise. The caller ends what it began. What a
process left open gets a presumed end (``LOST``) from the next one to begin a turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from eventctx.errors import InvalidSetting, ProviderFailed, TurnError
from eventctx.log import events
from eventctx.log.arguments import check_optional_text, check_text, shown
from eventctx.log.events import Event, InputTransformation, Status, ToolUseClearing
from eventctx.log.ids import RecordIds
from eventctx.log.usage import Usage
from eventctx.text import pattern

# -- how a span ends -----------------------------------------------------------------------------

MAX_ERROR_CHARACTERS: Final = 2_000
"""Characters of an error's text that a record keeps."""


def fit_for_log(text: str, characters: int = MAX_ERROR_CHARACTERS) -> str:
    """The first ``characters`` of a text, fit for UTF-8 (file names may hold surrogates)."""
    return text[:characters].encode("utf-8", "backslashreplace").decode()


def words_of(error: BaseException | None, characters: int = MAX_ERROR_CHARACTERS) -> str:
    """The text of an error, short enough for the log, whatever its ``__str__`` does."""
    try:
        return fit_for_log(str(error), characters)
    except Exception:
        return "(it cannot be shown)"


def described(error: BaseException | None) -> str | None:
    """An error's type and text; None without one."""
    return None if error is None else f"{type(error).__name__}: {words_of(error)}"


def status_of(kind: type[BaseException] | None) -> Status:
    """The status of a span that an error of this kind ended; None for no error."""
    return "ok" if kind is None else failure_of(kind)


def failure_of(kind: type[BaseException]) -> Literal["error", "cancelled"]:
    """The status of a failed span: "cancelled" for a cancellation, else "error"."""
    import asyncio  # slow to load, and the readers of outcomes run no loop: folds, command help

    return "cancelled" if issubclass(kind, asyncio.CancelledError) else "error"


class SpanOutcome(msgspec.Struct, frozen=True):
    """How a span ended; ``error_type`` and ``message`` describe what made it fail."""

    status: Status = "ok"
    error_type: str | None = None
    message: str | None = None

    @property
    def error(self) -> str | None:
        """The type and the message in one text; None where nothing failed."""
        return self.message if self.error_type is None else f"{self.error_type}: {self.message}"


OK: Final = SpanOutcome()

LOST: Final = SpanOutcome(
    "lost",
    "ProcessEnded",
    "the process ended before this was recorded as ended; it may have done its work",
)
"""The presumed end of a span that a process left open."""


def outcome_of(error: BaseException | None) -> SpanOutcome:
    """The outcome of a span that this error ended; None for no error."""
    if error is None:
        return OK
    return SpanOutcome(failure_of(type(error)), _type_of(error), words_of(error))


def _type_of(error: BaseException) -> str:
    """The class of an error; of a failed model call the provider's own class, or its status."""
    if isinstance(error, ProviderFailed):
        if error.__cause__ is not None:
            return type(error.__cause__).__name__
        if error.status is not None:
            return str(error.status)
    return type(error).__name__


# -- what a turn records -------------------------------------------------------------------------

NewSpanId = Callable[[type[Event]], str]
"""Makes the id of a span from the type of the event that begins it."""


class SpanRecord(NamedTuple):
    """A record to append: its event, and its place in the session."""

    event: Event
    ids: RecordIds


class CallSettings(NamedTuple):
    """What a request says next to its model; the fields are those of ``provider:request``."""

    stream: bool = False
    max_tokens: int | None = None
    server: str | None = None
    port: int | None = None
    clears: ToolUseClearing | None = None


def read_settings(
    *,
    stream: object = None,
    max_tokens: object = None,
    url: object = None,
    managed: object = None,
) -> CallSettings:
    """The settings as a host has them, of any type; what cannot be read is not known.

    ``url`` is the address of the API, of which only host and port are kept. ``managed`` is the
    ``context_management`` of a request to Anthropic's API.
    """
    most = max_tokens if type(max_tokens) is int and 0 < max_tokens < 2**63 else None
    return CallSettings(stream is True, most, *_server_of(url), _read_clearing(managed))


_CLEARS_TOOL_USES: Final = "clear_tool_uses_20250919"


def _read_clearing(managed: object) -> ToolUseClearing | None:
    """The one edit that clears tool uses; None without one, or for one that cannot be read."""
    edits = _mappings(managed.get("edits") if isinstance(managed, Mapping) else None)
    found = [one for one in edits if one.get("type") == _CLEARS_TOOL_USES]
    if len(found) != 1:
        return None
    keep = found[0].get("keep")
    given = {
        "keep": keep.get("value") if isinstance(keep, Mapping) else 3,
        "exclude": found[0].get("exclude_tools") or (),
        "inputs": found[0].get("clear_tool_inputs") or False,
    }
    try:
        return msgspec.convert(given, ToolUseClearing)
    except msgspec.ValidationError:
        return None


_PORTS: Final = {"http": 80, "https": 443}


def _server_of(url: object) -> tuple[str | None, int | None]:
    from urllib.parse import urlsplit  # slow to load, and most readers of the log need none

    try:
        parts = urlsplit("" if url is None else str(url))
        return parts.hostname, parts.port or _PORTS.get(parts.scheme)
    except ValueError:  # no address
        return None, None


class ModelRequest(msgspec.Struct):
    """A model call. Its fields are set as they become known.

    ``prepared`` is the position of the request that it sends; ``output_exact`` is false for a
    ``usage`` that was counted before the answer was complete. ``answered_by`` is the provider where
    only the answer names it.
    """

    model: str | None = None
    provider: str | None = None
    prepared: int | None = None
    usage: Usage | None = None
    output_exact: bool = True
    finish_reason: str | None = None
    response_id: str | None = None
    answered_by: str | None = None
    transformed: tuple[InputTransformation, ...] = ()
    settings: CallSettings = CallSettings()


Operation = events.PromptSubmit | events.PlanStart | ModelRequest | events.ToolPre
"""The operation of a span: the event that begins it, or a model call, whose fields come later."""

_WORDS: Final[dict[type, str]] = {
    events.PromptSubmit: "turn",
    events.PlanStart: "planning phase",
    ModelRequest: "model call",
    events.ToolPre: "tool call",
}


def read_transformed(reported: object, managed: object = None) -> tuple[InputTransformation, ...]:
    """What an answer of Anthropic's API says that it changed; none for anything else.

    ``reported`` are its ``input_transformations``, ``managed`` is its ``context_management``, whose
    edits count what they cleared.
    """
    edits = managed.get("applied_edits") if isinstance(managed, Mapping) else None
    dropped = [
        InputTransformation(str(one.get("type")), str(one["path"]), str(one.get("reason", "")))
        for one in _mappings(reported)
        if "path" in one
    ]
    cleared = [
        InputTransformation(str(one.get("type")), "messages", _counted(one))
        for one in _mappings(edits)
    ]
    return (*dropped, *cleared)


def _mappings(listed: object) -> list[Mapping[str, Any]]:
    return [one for one in listed if isinstance(one, Mapping)] if isinstance(listed, list) else []


def _counted(edit: Mapping[str, Any]) -> str:
    """The numbers of an edit in words: ``3 cleared tool uses, 5,000 cleared input tokens``."""
    counts = [(name, value) for name, value in edit.items() if type(value) is int]
    return ", ".join([f"{value:,} {name.replace('_', ' ')}" for name, value in counts])


def count_cleared_uses(transformed: Iterable[InputTransformation]) -> int:
    """How many tool uses an answer says that its API cleared; 0 for none."""
    edits = [one.reason for one in transformed if one.kind == _CLEARS_TOOL_USES]
    counts = [_USES.search(one) for one in edits]
    return sum([int(one[1].replace(",", "")) for one in counts if one is not None])


_USES: Final = pattern(r"([\d,]+) cleared tool uses")


def beginning_of(of: Operation) -> Event:
    """Return the event with which an operation begins."""
    if isinstance(of, ModelRequest):
        return events.ProviderRequest(
            model=of.model, provider=of.provider, prepared=of.prepared, **of.settings._asdict()
        )
    return of


def end_of(of: Operation, outcome: SpanOutcome) -> Event:
    """Return the event with which an operation ends."""
    status, failed = outcome.status, outcome.error_type or "Error"
    if isinstance(of, events.PromptSubmit):
        return events.PromptComplete(status=status, error=outcome.error)
    if isinstance(of, events.PlanStart):
        return events.PlanEnd(status=status, error=outcome.error)
    if isinstance(of, ModelRequest):
        if status != "ok":
            message = outcome.message or ""
            return events.ProviderError(error_type=failed, message=message, status=status)
        return events.ProviderResponse(
            model=of.model,
            response_id=of.response_id,
            finish_reason=of.finish_reason,
            provider=of.answered_by,
            transformed=of.transformed,
        )
    if status != "ok":
        message = outcome.message or ""
        return events.ToolError(
            name=of.name, call_id=of.call_id, error_type=failed, message=message, status=status
        )
    return events.ToolPost(name=of.name, call_id=of.call_id)


Of_co = TypeVar("Of_co", bound=Operation, covariant=True)
Made = TypeVar("Made", bound=Operation)


class TurnSpan(Generic[Of_co]):
    """One operation of a turn, which begins once and ends once. Raises TurnError otherwise."""

    def __init__(self, ids: RecordIds, of: Of_co) -> None:
        self.ids = ids
        self.of = of
        self.began = False
        self.ended = False
        self.beginning = False
        """Whether the record of its beginning is on its way to the disk."""

    @contextmanager
    def beginning_on_disk(self) -> Iterator[None]:
        """Around the append of its beginning, which no other request may bring, too."""
        self.beginning = True
        try:
            yield
        finally:
            self.beginning = False

    def begun(self) -> None:
        """Note that a caller recorded its beginning together with other records."""
        self.began = True

    def enter(self) -> None:
        """Note that the span begins, for a caller that makes its first record itself."""
        if self.began:
            what = _WORDS[type(self.of)]
            raise TurnError(
                f"this {what} has begun already, and its span id can be used only once: "
                f"make a new {what} for every `async with`"
            )
        self.began = True

    def begin(self) -> SpanRecord:
        """Return the record of the beginning."""
        self.enter()
        return SpanRecord(beginning_of(self.of), self.ids)

    def end(self, outcome: SpanOutcome = OK) -> SpanRecord:
        """Return the record of the end."""
        if self.ended or not self.began:
            found = "has ended already" if self.ended else "has not begun"
            raise TurnError(
                f"this {_WORDS[type(self.of)]} {found}: end it once, after it has begun"
            )
        self.ended = True
        return SpanRecord(end_of(self.of, outcome), self.ids)


def usage_record(call: TurnSpan[ModelRequest]) -> SpanRecord:
    """Return the record of the tokens that a model call used."""
    reported = events.UsageReported(
        **msgspec.structs.asdict(call.of.usage or Usage()),
        model=call.of.model,
        prepared=call.of.prepared,
        output_exact=call.of.output_exact,
    )
    return SpanRecord(reported, call.ids)


class IterationRecorder:
    """Makes the spans inside of an iteration, of a planning phase, or outside of both.

    ``ids`` are those of the records inside: the number of the iteration, and the span around it.
    """

    def __init__(self, ids: RecordIds, new_span_id: NewSpanId) -> None:
        self.ids = ids
        self._new_span_id = new_span_id
        self._last_call: str | None = None

    def plan(self, name: str | None = None) -> TurnSpan[events.PlanStart]:
        """Make a planning phase. Raises InvalidSetting."""
        check_optional_text("plan", name)
        return self._span(events.PlanStart(name=name), self.ids.span_id)

    def inside(self, plan: TurnSpan[events.PlanStart]) -> IterationRecorder:
        """Make the recorder of the calls in a planning phase."""
        return IterationRecorder(plan.ids, self._new_span_id)

    def model_call(
        self, model: str | None = None, provider: str | None = None
    ) -> TurnSpan[ModelRequest]:
        """Make a model call. Raises InvalidSetting."""
        check_optional_text("model", model)
        check_optional_text("provider", provider)
        call = self._span(ModelRequest(model, provider), self.ids.span_id)
        self._last_call = call.ids.span_id
        return call

    def tool_call(self, name: str, call_id: str | None = None) -> TurnSpan[events.ToolPre]:
        """Make a tool call, under the last model call, which requested it.

        Raises InvalidSetting.
        """
        check_text("tool", name)
        check_optional_text("call_id", call_id)
        tool = events.ToolPre(name=name, call_id=call_id)
        return self._span(tool, self._last_call or self.ids.span_id)

    def _span(self, of: Made, parent: str | None) -> TurnSpan[Made]:
        span_id = self._new_span_id(type(beginning_of(of)))
        ids = RecordIds(self.ids.turn_id, span_id, parent, self.ids.iteration)
        return TurnSpan(ids, of)


_UNNUMBERED: Final = events.PromptSubmit(number=0)


class TurnRecorder:
    """Records one turn. Without a ``turn_id`` it makes the spans outside of any turn.

    ``begins`` is the turn's first event, for callers that take that from the recorder too.
    """

    def __init__(
        self,
        new_span_id: NewSpanId,
        turn_id: str | None = None,
        begins: events.PromptSubmit = _UNNUMBERED,
    ) -> None:
        span_id = None if turn_id is None else new_span_id(events.PromptSubmit)
        self.span = TurnSpan(RecordIds(turn_id, span_id), begins)
        self._new_span_id = new_span_id
        self._iterations = 0

    @property
    def ids(self) -> RecordIds:
        """The ids of records that are in the turn and in no iteration."""
        return self.span.ids

    def enter(self, parent: str | None = None) -> None:
        """Note that the turn begins, under a host's span if there is one."""
        self.span.enter()
        self.span.ids = self.span.ids._replace(parent_span_id=parent)

    def outside(self) -> IterationRecorder:
        """Make the recorder of calls before the first iteration."""
        return IterationRecorder(self.ids, self._new_span_id)

    def iteration(self, number: int | None = None) -> IterationRecorder:
        """Begin the next iteration, numbered from 1, or the one with a given ``number``.

        Raises InvalidSetting for a number that no record can hold.
        """
        if number is not None and (type(number) is not int or not 0 <= number < 2**31):
            raise InvalidSetting(f"iteration: expected an int from 0, found {shown(number)}")
        self._iterations = self._iterations + 1 if number is None else number
        counted = None if self.ids.turn_id is None else self._iterations
        return IterationRecorder(self.ids._replace(iteration=counted), self._new_span_id)
