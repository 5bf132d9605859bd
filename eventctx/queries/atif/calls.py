"""A model call as a step of ATIF says it: its metrics, and how much of its request is known.

ATIF has no field for what the model was sent. So a step says it in ``extra`` under our name: the
view, as the first ``keep`` entries of the view of the request before and then the entries ``add``;
its digest; and whether the log holds the request exactly (``exact``).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from eventctx.log.codec import decode_known
from eventctx.log.events import Known, RequestPrepared, UsageReported, known_as
from eventctx.log.naming import request_name
from eventctx.log.record import Record
from eventctx.log.store import EventStore, StreamInfo
from eventctx.messages.facts import decode_facts
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.views import OtherEntry
from eventctx.queries.atif.draft import StepDraft


class CallStory:
    """A request, and what the log says of its answer so far."""

    def __init__(
        self, event: RequestPrepared | None, record: Record, turn: int | None = None
    ) -> None:
        self.event = event
        self.turn = None if record.turn_id is None else turn
        self.position = None if event is None else record.position
        self.record = record
        self.model = None if event is None else event.model
        self.provider: str | None = None
        self.finish_reason: str | None = None
        self.response_id: str | None = None
        self.error: str | None = None
        self.usage: UsageReported | None = None
        self.contents: list[dict[str, Any]] = []
        self.answered = False
        self.written = False

    @property
    def known(self) -> Known | None:
        """How the request is known; None where the log has none."""
        return None if self.event is None else known_as(self.event)

    def take(self, record: Record) -> bool:
        """Take what a record says of the answer; False where it is of another call."""
        event: Any = decode_known(record)
        match record.type:
            case "provider:request":
                self.model = event.model or self.model
                self.provider = event.provider or self.provider
            case "provider:response":
                self.model = event.model or self.model
                self.provider = event.provider or self.provider
                self.finish_reason = event.finish_reason or self.finish_reason
                self.response_id = event.response_id or self.response_id
            case "provider:error":
                self.error = f"{event.error_type}: {event.message}".removesuffix(": ")
            case "usage:reported":
                if self.usage is not None or event.prepared not in (None, self.position):
                    return False
                self.usage = event
                self.model = event.model or self.model
        return True


def metrics_of(usage: UsageReported) -> dict[str, Any]:
    """A report in the fields that ATIF has for it, and in their ``extra``."""
    extra: dict[str, Any] = {
        name: count
        for name, count in (
            ("cache_creation_input_tokens", usage.cache_write),
            ("cache_creation_1h_input_tokens", usage.cache_write_1h),
            ("reasoning_tokens", usage.reasoning),
        )
        if count
    }
    if not usage.output_exact:
        extra["output_exact"] = False
    found: dict[str, Any] = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.output,
        "cached_tokens": usage.cache_read,
    }
    return {**found, "extra": extra} if extra else found


_AS_PREPARED: Final = (0, 0, None)
"""A host's report of a request to which it added nothing, and of which it left out nothing."""


class RequestFacts:
    """The requests of a session, as its whole timeline has them.

    ``erasures`` are positions of erasures, each with the first number that it emptied.
    """

    def __init__(self, now: TimelineState) -> None:
        self.erasures: list[tuple[int, int]] = []
        self._now = now
        self._places = {row.position: place for place, row in enumerate(now.audit.requests)}
        self._sent = dict(now.audit.sent)

    def describe(self, call: CallStory) -> dict[str, Any]:
        """What is known of a call's request, as JSON."""
        found: dict[str, Any] = {
            key: value
            for key, value in (
                ("provider", call.provider),
                ("response_id", call.response_id),
                ("finish_reason", call.finish_reason),
                ("error", call.error),
            )
            if value is not None
        }
        if call.event is None or call.position is None:
            return {"known": None, "exact": False, **found}
        event = call.event
        found |= {
            "request": request_name(call.turn, call.record.iteration, call.position),
            "position": call.position,
            "known": call.known,
            "exact": self.is_exact(call),
            "digest": event.digest,
            "tokens": event.tokens,
        }
        if event.wire is not None:
            found["sent"] = {"digest": event.wire.digest, "form": msgspec.to_builtins(event.wire)}
        for name in ("budget", "plan"):
            if getattr(event, name) is not None:
                found[name] = getattr(event, name)
        if event.breaks:
            found["breaks"] = list(event.breaks)
        if call.contents:
            found["contents"] = call.contents
        return found | self._view(call.position)

    def is_exact(self, call: CallStory) -> bool:
        """Whether the log holds the request as it was sent; of a prepared one, its messages.

        One that was made before an erasure, and may have held what went, is not held any more.
        """
        event, position = call.event, call.position
        if event is None or position is None or call.known == "reconstructed":
            return False
        if any(position < at and first <= event.last_message for at, first in self.erasures):
            return False
        _, missing, untold = self._sent.get(position, _AS_PREPARED)
        return call.known == "observed" or (missing, untold) == (0, None)

    def _view(self, position: int) -> dict[str, Any]:
        place = self._places.get(position)
        if place is None:
            return {}
        shown = self._now.views.shown[place]
        sent = self._sent.get(position, _AS_PREPARED)
        found: dict[str, Any] = {"view": {"keep": shown.keep, "add": self._entries(shown.add)}}
        if sent != _AS_PREPARED:
            found["host"] = dict(zip(("added", "missing", "untold"), sent, strict=True))
        return found

    def _entries(self, ids: tuple[int, ...]) -> list[Any]:
        """Runs of message numbers, and what else was in view."""
        pairs = zip(ids[::2], ids[1::2], strict=True)
        return [
            [first, last] if first >= 0 else _other(self._now.views.extras[-1 - first])
            for first, last in pairs
        ]


def _other(entry: OtherEntry) -> dict[str, Any]:
    found: dict[str, Any] = {"as": entry.name or entry.kind}
    for name in ("number", "position", "index"):
        if getattr(entry, name) is not None:
            found[name] = getattr(entry, name)
    if entry.stands_for:
        found["stands_for"] = [list(run) for run in entry.stands_for]
    if entry.call:
        found["call"] = entry.call
    return found


def finish(draft: StepDraft, call: CallStory, requests: RequestFacts) -> None:
    """Let an agent's step say what is known of its call."""
    if call.model is not None:
        draft.other["model_name"] = call.model
    if call.usage is not None:
        draft.other["metrics"] = metrics_of(call.usage)
    draft.other["llm_call_count"] = 1
    draft.extra["request"] = requests.describe(call)


def unanswered(call: CallStory, time: str | None, requests: RequestFacts) -> StepDraft:
    """The system step of a request that no message answers."""
    draft = StepDraft("system", time)
    why = f": {call.error}" if call.error else ""
    draft.text.add(f"A request to the model got no answer that is in the conversation{why}")
    draft.extra["request"] = requests.describe(call)
    draft.extra["model_name"] = call.model
    if call.usage is not None:
        draft.extra["metrics"] = metrics_of(call.usage)
    return draft


_ENDING: Final = frozenset(
    ("prompt:submit", "context:messages_set", "context:cleared", "session:fork")
)
"""Types of records after which no message answers an earlier request."""


class LogSurvey(NamedTuple):
    """What the steps of a session depend on, and only later records tell.

    ``unanswered`` are the positions of the requests that no message answers, so that the step of
    each is written in its place. ``erasures`` as in ``RequestFacts``.
    """

    unanswered: frozenset[int]
    erasures: list[tuple[int, int]]


async def survey(store: EventStore, info: StreamInfo) -> LogSurvey:
    """Read the log once without contents, ahead of the steps."""
    found: set[int] = set()
    erasures: list[tuple[int, int]] = []
    waiting: int | None = None
    async for record in store.read(info.stream, stop=info.head, bodies=False):
        kind = record.type
        if kind == "context:message_added" and waiting is not None:
            if decode_facts(record.bodies[0].facts).kind == "assistant":
                waiting = None
        elif kind == "context:erased":
            erased: Any = decode_known(record)
            erasures.append((record.position, min(erased.numbers, default=0)))
        elif kind == "context:request_prepared" or kind in _ENDING or _compacts(record):
            found |= set() if waiting is None else {waiting}
            waiting = record.position if kind == "context:request_prepared" else None
    return LogSurvey(frozenset(found if waiting is None else {*found, waiting}), erasures)


def _compacts(record: Record) -> bool:
    if record.type != "context:post_compact":
        return False
    event: Any = decode_known(record)
    return bool(event.outcome == "applied" and event.plan is not None)
