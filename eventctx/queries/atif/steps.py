"""The steps of a session: its records, in order, become a trajectory's steps one by one.

A step of the agent is an answer of the model with the results of its calls; every other message is
a step of its own. Only the step that may still get results is held, so a session of any length
takes the memory of its largest step, and of the timeline (numbers, no texts).

Where the context is replaced (a compaction, a set, a clear), a system step with ATIF's mark
``context_management`` says so, and the messages that are in view after it follow as steps with
``is_copied_context``. At ``SPLIT``, between the two, the trajectory may go on in another file.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from typing import Any, Final, Literal

import msgspec

from eventctx.log.codec import decode_known, stored_harness_bodies
from eventctx.log.events import PostCompact, takes_back
from eventctx.log.integrity import check_bodies
from eventctx.log.record import Record
from eventctx.log.store import Address, EventStore, StreamInfo
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import decode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.projections import figures
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.render import addresses, render
from eventctx.queries.atif.calls import CallStory, RequestFacts, metrics_of, survey
from eventctx.queries.atif.contents import message_of, text_of
from eventctx.queries.atif.draft import LoggedMessage, StepDraft
from eventctx.queries.atif.grouping import StepGroups
from eventctx.queries.key_frames import timeline_at

SPLIT: Final = "split"
"""Here the trajectory may go on in another document."""

Step = StepDraft | Literal["split"]

_BATCH: Final = 64
"""Copied messages that are held at once."""


class SessionSteps:
    """Makes the steps of one session. ``refs`` are references to subagents, by call."""

    def __init__(
        self,
        store: EventStore,
        info: StreamInfo,
        now: TimelineState,
        refs: dict[str | None, list[dict[str, Any]]],
    ) -> None:
        self._store = store
        self._info = info
        self._without_call = refs.get(None, [])
        self._own_from = now.audit.own_from
        self._requests = RequestFacts(now)
        self._groups = StepGroups(
            self._requests,
            {call: found for call, found in refs.items() if call is not None},
            figures.read(now.audit.sizes).file.undated,
            inherited=self._own_from >= 0,
        )
        self._next = 0
        self._compacting: str | None = None
        self._asked: list[dict[str, Any]] = []
        self._contents: list[dict[str, Any]] = []
        self._reads: dict[str, Callable[[Record], Iterator[StepDraft]]] = {
            "prompt:submit": self._began,
            "context:message_added": self._added,
            "context:request_prepared": self._prepared,
            "provider:request": self._called,
            "provider:response": self._told,
            "provider:error": self._told,
            "usage:reported": self._told,
            "tool:error": self._tool_failed,
            "context:request_content": self._content,
            "context:system_prompt_set": self._prompt_set,
            "context:pre_compact": self._compaction_began,
        }

    async def all(self) -> AsyncIterator[Step]:
        """All steps, in order. Raises StreamNotFound, LogCorrupted."""
        stream = self._info.stream
        known = await survey(self._store, self._info)
        self._groups.unanswered, self._requests.erasures = known
        async for record in self._store.read(stream, stop=self._info.head):
            read = self._reads.get(record.type)
            if read is not None:
                for draft in read(record):
                    yield draft
            elif record.type in _REPLACING:
                async for step in self._replaced(record):
                    yield step
            if record.position == self._own_from:
                for draft in self._groups.end_call():
                    yield draft
                self._groups.inherited = False
        for draft in self._groups.end_call():
            yield draft
        if self._without_call:
            draft = self._groups.draft("system", None)
            draft.text.add("Subagents of this session")
            draft.other["refs"] = {None: self._without_call}
            yield draft

    def _began(self, record: Record) -> Iterator[StepDraft]:
        yield from self._groups.end_call()
        event: Any = decode_known(record)
        self._groups.turn = event.number

    # -- messages --------------------------------------------------------------------------------

    def _added(self, record: Record) -> Iterator[StepDraft]:
        yield from self._message(record, 0, self._next)
        self._next += 1

    def _message(self, record: Record, index: int, number: int) -> Iterator[StepDraft]:
        """The steps that are complete now that a message comes."""
        body = record.bodies[index]
        check_bodies(record.stream, [(Address(record.position, index), body)])
        facts = decode_facts(body.facts)
        about: dict[str, Any] = {}
        origins = stored_harness_bodies(record.type, record.payload)
        if index in origins.harness:
            about["origin"] = "observation" if index in origins.observations else "harness"
        message = message_of(body, facts)
        if body.data is None:
            about["erased"] = True
        stored = LoggedMessage(number, record.position, message, about)
        yield from self._groups.take(stored, facts, record.time)

    # -- calls -----------------------------------------------------------------------------------

    def _prepared(self, record: Record) -> Iterator[StepDraft]:
        yield from self._groups.end_call()
        call = self._groups.call = CallStory(decode_known(record), record, self._groups.turn)
        call.contents, self._contents = self._contents, []

    def _called(self, record: Record) -> Iterator[StepDraft]:
        event: Any = decode_known(record)
        call = self._groups.call
        if call is None or call.answered or event.prepared not in (None, call.position):
            yield from self._groups.end_call()
            call = self._groups.call = CallStory(None, record, self._groups.turn)
        call.take(record)

    def _told(self, record: Record) -> Iterator[StepDraft]:
        call = self._groups.call
        if self._groups.inherited:
            return
        if self._compacting is not None and record.parent_span_id == self._compacting:
            if record.type == "usage:reported":
                event: Any = decode_known(record)
                self._asked.append({"model_name": event.model, "metrics": metrics_of(event)})
            return
        if call is not None and not call.written and call.take(record):
            return
        if record.type == "usage:reported":
            event = decode_known(record)
            yield from self._late_usage(event.model, metrics_of(event), record.time)

    def _late_usage(
        self, model_name: str | None, metrics: dict[str, Any], time: int
    ) -> Iterator[StepDraft]:
        """A report of a call whose step is written, or of a call of which the log holds no more."""
        yield from self._groups.flush()
        draft = self._groups.draft("system", time)
        draft.text.add("Tokens of a call that is in no other step")
        draft.extra |= {"metrics": metrics, "model_name": model_name}
        yield draft

    def _compaction_began(self, record: Record) -> Iterator[StepDraft]:
        self._compacting = record.span_id
        yield from ()

    def _tool_failed(self, record: Record) -> Iterator[StepDraft]:
        event: Any = decode_known(record)
        if self._groups.open is not None and event.call_id is not None:
            self._groups.open.failed.add(event.call_id)
        yield from ()

    # -- what else was sent ------------------------------------------------------------------------

    def _content(self, record: Record) -> Iterator[StepDraft]:
        event: Any = decode_known(record)
        body = record.bodies[0]
        if event.kind == "system":
            yield from self._groups.flush()
            draft = self._groups.draft("system", record.time)
            draft.text.add(text_of(body))
            draft.extra["content"] = {"kind": "system", "position": record.position}
            draft.extra["content"]["digest"] = event.digest
            yield draft
            return
        one: dict[str, Any] = {"kind": event.kind, "position": record.position}
        if event.digest:
            one["digest"] = event.digest
        if event.numbers:
            one["numbers"] = list(event.numbers)
        if event.kind != "tools":  # the document has them
            one["value"] = None if body.data is None else decode_body(body.data)
        self._contents.append(one)

    def _prompt_set(self, record: Record) -> Iterator[StepDraft]:
        yield from self._groups.flush()
        for body in record.bodies:
            draft = self._groups.draft("system", record.time)
            draft.text.add(text_of(body))
            draft.extra["content"] = {"kind": "system_prompt", "position": record.position}
            yield draft

    # -- a context that is replaced ----------------------------------------------------------------

    async def _replaced(self, record: Record) -> AsyncIterator[Step]:
        event: Any = decode_known(record)
        if isinstance(event, PostCompact):
            asked, self._asked, self._compacting = self._asked, [], None
            if event.outcome != "applied" or event.plan is None:
                for one in asked:
                    for draft in self._late_usage(**one, time=record.time):
                        yield draft
                return
            for draft in self._groups.end_call():
                yield draft
            yield self._compacted(event, record, asked)
            yield SPLIT
            state = await timeline_at(self._store, self._info.stream, record.position)
            async for draft in self._copies(state.view.layout.entries()):
                yield draft
        else:
            async for step in self._set(event, record):
                yield step

    def _boundary(self, record: Record, what: str, text: str) -> StepDraft:
        draft = self._groups.draft("system", record.time)
        draft.text.add(text)
        draft.other["extra"] = {"context_management": {"type": what, "boundary": "replace"}}
        return draft

    def _compacted(
        self, event: PostCompact, record: Record, asked: list[dict[str, Any]]
    ) -> StepDraft:
        back = takes_back(event)
        sizes = f"{event.tokens_before:,} to {event.tokens_after:,} tokens"
        text = "Messages were taken back" if back else f"The context was compacted: {sizes}"
        draft = self._boundary(record, "taken_back" if back else "compaction", text)
        names = (
            *("trigger", "strategy", "strategy_version", "requested_by", "fallback"),
            *("tokens_before", "tokens_after", "tokens_recorded"),
            *("messages_before", "messages_after", "budget", "threshold", "target", "duration"),
        )
        facts = {name: getattr(event, name) for name in names}
        assert event.plan is not None  # noqa: S101 - tells the type checker
        draft.extra["compaction"] = {
            "position": record.position,
            **{name: value for name, value in facts.items() if value is not None},
            "plan": msgspec.to_builtins(event.plan),
        }
        if asked:
            draft.extra["compaction"]["asked"] = asked
        return draft

    async def _copies(self, entries: list[Entry]) -> AsyncIterator[StepDraft]:
        """Steps of what is in view, as copies."""
        waiting = iter(entries)
        while some := list(islice(waiting, _BATCH)):
            places = addresses(some)
            bodies = await self._store.bodies(self._info.stream, places)
            check_bodies(self._info.stream, zip(places, bodies, strict=True))
            texts = {
                (at.position, at.index): body.data for at, body in zip(places, bodies, strict=True)
            }
            for entry, message in zip(some, render(some, texts), strict=True):
                copy, facts = _copy_of(entry, message), read_facts(message)
                for draft in self._groups.take(copy, facts, None, copied=True):
                    yield draft
        for draft in self._groups.flush():
            yield draft

    async def _set(self, event: Any, record: Record) -> AsyncIterator[Step]:
        """The steps of a list that took the place of the transcript, or of an empty one."""
        order = [] if record.type == "context:cleared" else list(event.order)
        fresh = [number for run in order for number in range(run[0], run[1] + 1)]
        known = [number for number in fresh if number < self._next]
        before = await timeline_at(self._store, self._info.stream, record.position - 1)
        listed, since = before.changes.listed, before.changes.listed_to
        had = [number for first, last in listed for number in range(first, last + 1)]
        had += range(since, len(before.changes.origins))
        for draft in self._groups.end_call():
            yield draft
        replaces = known != had or fresh[: len(had)] != had
        if replaces:
            what = "cleared" if record.type == "context:cleared" else "messages_set"
            draft = self._boundary(record, what, "The host replaced the conversation")
            draft.extra["set"] = {"position": record.position, "messages": len(fresh)}
            yield draft
            yield SPLIT
        index = 0
        start = 0 if replaces else len(had)
        for number in fresh[start:]:
            if number < self._next:
                async for draft in self._again(before, number):
                    yield draft
                continue
            for draft in self._message(record, index, number):
                yield draft
            index += 1
        for draft in self._groups.flush():
            yield draft
        self._next += len(fresh) - len(known)

    async def _again(self, before: TimelineState, number: int) -> AsyncIterator[StepDraft]:
        """A message that stays in the conversation, as a copy."""
        ref = before.changes.origins[number].ref
        (body,) = await self._store.bodies(self._info.stream, [Address(ref.position, ref.index)])
        facts = decode_facts(body.facts)
        about = {"as": "whole"}
        stored = LoggedMessage(number, ref.position, message_of(body, facts), about)
        for draft in self._groups.take(stored, facts, None, copied=True):
            yield draft


_REPLACING: Final = ("context:post_compact", "context:messages_set", "context:cleared")


def _copy_of(entry: Entry, message: dict[str, Any]) -> LoggedMessage:
    ref = entry.ref
    if isinstance(ref, InsertionRef):
        about: dict[str, Any] = {"as": ref.kind}
        if ref.stands_for:
            about["stands_for"] = [list(run) for run in ref.stands_for]
        return LoggedMessage(-1, ref.position, message, about)
    if not isinstance(ref, MessageRef) or entry.kind != "message":
        return LoggedMessage(-1, -1, message, {"as": entry.kind})
    how = "shortened" if ref.shortened else "stripped" if ref.stripped else "partial"
    whole = not ref.shortened and not ref.stripped and not entry.omit
    return LoggedMessage(ref.number, ref.position, message, {"as": "whole" if whole else how})
