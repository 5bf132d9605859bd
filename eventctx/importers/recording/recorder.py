"""The recorder of an import: a parser's items become turns, spans, requests and compactions.

Every record's id is derived from the source, the line, the type and the ordinal in that line, so a
second import makes the same records (``track.py``). The request view is folded record by record, so
each model call gets its reconstructed ``context:request_prepared``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from eventctx.importers.recording.compacted import Compacted, cleared, compacted, taken_back
from eventctx.importers.recording.contents import (
    Stored,
    Unstorable,
    content_of,
    contents_of,
)
from eventctx.importers.recording.counts import ImportCounts
from eventctx.importers.recording.line_ids import LineIds
from eventctx.importers.recording.long_view import LongView
from eventctx.importers.recording.noted import NotedMessages
from eventctx.importers.recording.places import Places
from eventctx.importers.recording.raw import RawParts
from eventctx.importers.recording.track import NO_IDS, Content, Track
from eventctx.importers.recording.undone import UndoneCompactions, put_in
from eventctx.importers.recording.wires import Wires
from eventctx.importers.source import harness
from eventctx.importers.source.items import (
    Branched,
    CallEnded,
    CompactionItem,
    Item,
    Linked,
    MessageItem,
    ModelCall,
    Raw,
    RecordedContent,
    RecordedRequest,
    ResultsCleared,
    Session,
    TurnBegan,
    TurnEnded,
    TurnMeasured,
    Undone,
    Waiting,
    Warned,
)
from eventctx.importers.source.naming import event_id
from eventctx.importers.source.values import encode
from eventctx.log import events
from eventctx.log.ids import RecordIds
from eventctx.log.record import Record
from eventctx.log.turn_recorder import (
    OK,
    ModelRequest,
    SpanOutcome,
    SpanRecord,
    TurnRecorder,
    TurnSpan,
    usage_record,
)
from eventctx.messages import calibration
from eventctx.messages.calibration import Scale
from eventctx.messages.facts import Facts
from eventctx.messages.observations import observes
from eventctx.messages.part_queries import call_names, failed_results
from eventctx.projections.trace.identity import SpanIds
from eventctx.projections.view import request_view
from eventctx.projections.view.request_view import ViewState
from eventctx.version import __version__

_RECORDS_REQUESTS: Final = ("claude-code", "cassette", "tape")

_TURN_ENDS: Final = "prompt:complete"

_UNDOES_COMPACTIONS: Final = ("codex",)
"""Formats that can take a compaction back; of others nothing need be kept for that."""

_TOOL_FAILED: Final = SpanOutcome("error", "ToolError")


class Recorder:
    """Takes items in order; ``end`` ends the import, ``close`` is called after errors, too."""

    def __init__(
        self,
        track: Track,
        *,
        key: str,
        source: str,
        format: str,  # noqa: A002 - the word of the command line and of the record
        imported_at: int,
        call_id: str | None = None,
        call_span: SpanIds | None = None,
    ) -> None:
        self.counts = ImportCounts()
        self.raw = RawParts(track, key, source, imported_at)
        self._track = track
        self._key = key
        self._source = source
        self._format = format
        self._imported_at = imported_at
        self._call_id = call_id
        self._call_span = call_span or (None, None)
        self._view = request_view.initial()
        self._long = LongView()
        self._undone = UndoneCompactions()
        self._ids = LineIds(key, track.stream)
        self._agent: str | None = None
        self._turn = TurnRecorder(self._ids.new_span)
        self._cycle = self._turn.outside()
        self._interrupted = False
        self._ended: str | None = None
        self._action = ""
        self._began: int | None = None
        self._latest: int | None = None
        self._call: TurnSpan[ModelRequest] | None = None
        self._last_call: TurnSpan[ModelRequest] | None = None
        self._announced: dict[str, str] = {}
        self._tools: dict[str, TurnSpan[events.ToolPre]] = {}
        self._places = Places()
        self.wires = Wires(records=format in _RECORDS_REQUESTS)
        self._noted = NotedMessages(self.wires, track)
        self._compactions: list[int] = []
        self._resent = 0
        track.observe = self._observe
        self._steps: dict[type[Any], Callable[[Any], Any]] = {
            Session: self._session,
            TurnBegan: self._turn_began,
            TurnEnded: self._turn_ended,
            TurnMeasured: self._turn_measured,
            MessageItem: self._message,
            ModelCall: self._model_call,
            RecordedContent: self._sent_content,
            RecordedRequest: self._sent_request,
            CallEnded: self._call_ended,
            CompactionItem: self._compaction,
            Undone: self._taken_back,
            ResultsCleared: self._cleared,
            Branched: self._branched,
            Linked: self._linked,
            Raw: self._raw,
            Warned: self._warned,
            Waiting: self._waiting,
        }

    def _observe(self, record: Record) -> None:
        self._view = self._long.kept(request_view.evolve(self._view, record))

    async def feed(self, item: Item) -> None:
        """Record one item."""
        self._ids.line = item.line
        await self._pass_over_end()
        await self._steps[type(item)](item)
        if self._track.next is not None:
            await self.raw.match()

    async def _pass_over_end(self) -> None:
        """Pass over the end that an import gave the turn, as complete, where the file has grown.

        The turn is not ended again, whether it goes on or not.
        """
        stored = self._track.next
        if stored is None or stored.type != _TURN_ENDS or self._turn.ids.turn_id is None:
            return
        if stored.id == self._ids.at_end(events.PromptComplete):
            await self._end_call(None)
            await self._track.pass_over()
            self._ended = self._turn.ids.turn_id

    async def end(self, closed: bool) -> None:
        """End the import. A ``closed`` file grows no more, so its last turn is ended too."""
        self._ids.return_to_last()
        if closed:
            await self._end_turn(None, OK)
        await self.raw.end()
        await self._track.flush()

    def close(self) -> None:
        """Give back what the recorder set aside on disk. It takes no item after that."""
        self._long.close()
        self._undone.close()

    # -- records ---------------------------------------------------------------------------------

    async def _put(
        self,
        event: events.Event,
        time: int | None,
        ids: RecordIds = NO_IDS,
        data: tuple[Content, ...] = (),
        new_id: bytes | None = None,
    ) -> Record:
        if self._track.next is not None:
            await self.raw.match(needed=True)
        if time is not None and self._latest is not None:
            self._latest = max(self._latest, time)
        new_id = new_id or self._ids.for_record(type(event), ids)
        return await self._track.put(event, new_id, self._ids.line, time, ids, data)

    async def _record(self, made: SpanRecord, time: int | None) -> None:
        await self._put(made.event, time, made.ids)

    # -- session and turns -----------------------------------------------------------------------

    async def _session(self, item: Session) -> None:
        self._agent = item.agent
        await self._put(
            events.SessionStart(
                library=f"eventctx {__version__}",
                source=self._source,
                format=self._format,
                imported_at=self._imported_at,
            ),
            item.time,
        )
        known = any(record.type == "session:linked" for record in self._track.aside)
        if item.parent is not None and self._track.next is None and not known:
            trace_id, span_id = self._call_span
            link = events.SessionLinked(
                session=item.parent,
                relation="parent",
                kind=item.link,
                call_id=self._call_id,
                trace_id=trace_id,
                span_id=span_id,
            )
            new_id = event_id(self._key, item.line, "session:linked", item.parent)
            await self._put(link, None, new_id=new_id)

    async def _turn_began(self, item: TurnBegan) -> None:
        # A file that does not say when a turn ended knows only its last record.
        await self._end_turn(None, OK)
        self.counts.turns += 1
        number = self.counts.turns
        begins = events.PromptSubmit(number=number, agent=self._agent)
        self._in_turn(TurnRecorder(self._ids.new_span, f"turn-{number:04d}", begins))
        self._interrupted = False
        self._began = self._latest = None
        await self._record(self._turn.span.begin(), item.time)
        self._began = self._latest = self._track.time

    def _in_turn(self, turn: TurnRecorder) -> None:
        self._turn, self._cycle = turn, turn.outside()

    async def _turn_ended(self, item: TurnEnded) -> None:
        await self._end_turn(item.time, SpanOutcome(item.status, message=item.error))

    async def _turn_measured(self, item: TurnMeasured) -> None:
        await self._end_call(None)
        if self._turn.ids.turn_id is None:
            return
        # The file has the line's time, too, but the turn took just as long as it says.
        began, self._began = self._began, None
        time = item.time if began is None else began + item.duration
        measured = events.PromptMeasured(duration=item.duration)
        await self._put(measured, self._not_before(time), self._turn.ids)

    def _not_before(self, time: int | None) -> int | None:
        """No time in a turn is later than its end, whatever the clock of its program did."""
        return max([one for one in (time, self._latest) if one is not None], default=None)

    async def _end_turn(self, time: int | None, outcome: SpanOutcome) -> None:
        await self._end_call(None)
        if self._turn.ids.turn_id is None:
            return
        if outcome.status == "ok" and self._interrupted:
            outcome = msgspec.structs.replace(outcome, status="cancelled")
        if self._turn.ids.turn_id != self._ended:
            await self._record(self._turn.span.end(outcome), self._not_before(time))
        self._in_turn(TurnRecorder(self._ids.new_span))

    # -- model calls -----------------------------------------------------------------------------

    async def _model_call(self, item: ModelCall) -> None:
        await self._end_call(None)
        self.counts.calls += 1
        self._interrupted = False
        self._cycle = self._turn.iteration()
        ids = self._cycle.ids.child(self._ids.new_span(events.RequestPrepared))
        await self.raw.match(needed=True)
        prepared = await self._put(self._prepared(item), self._sent_at(item), ids)
        call = self._cycle.model_call(item.model, item.provider)
        call.of.prepared = prepared.position
        call.of.usage, call.of.output_exact = item.usage, item.output_exact
        call.of.finish_reason, call.of.response_id = item.finish_reason, item.response_id
        await self._record(call.begin(), self._sent_at(item))
        self._call = self._last_call = call

    def _prepared(self, item: ModelCall) -> events.RequestPrepared:
        """The event of a request, for a record at the track's position."""
        view = request_view.with_model(self._view, item.model)
        wire = None
        if item.sent is not None:
            found = self.wires.form(item.sent, self._track.position, view.estimator)
            wire = None if isinstance(found, str) else found
            if isinstance(found, str):
                words = f"the request {item.sent:.12} stays reconstructed: {found}"
                self.counts.warn(Warned(item.line, words))
        beside = 0 if wire is None else wire.tokens - view.layout.tokens
        # A transcript holds no budget but the model's window.
        return request_view.prepared(
            view,
            scale=self._scale(view, beside),
            model=item.model,
            budget=item.context_window,
            reconstructed=True,
            wire=wire,
        )

    def _sent_at(self, item: ModelCall) -> int | None:
        return self.wires.time_of(item.sent) if item.time is None else item.time

    async def _sent_content(self, item: RecordedContent) -> None:
        await self._noted.read_back()
        if self.wires.holds(item):
            return
        numbers, injected = self.wires.carries(item)
        event = events.RequestContent(
            kind=item.kind,
            digest="" if item.kind == "message" else item.digest.hex(),
            numbers=numbers,
            injected=injected,
        )
        content = Content(encode(item.value), b"")
        record = await self._put(event, item.time, self._turn.ids, (content,))
        self.wires.stored(item, record, len(injected))

    async def _sent_request(self, item: RecordedRequest) -> None:
        await self._noted.read_back()
        self.wires.remember(item)

    def _scale(self, view: ViewState, beside: int) -> Scale:
        """The scale of the next request; with what is sent again behind the first compaction."""
        scale = calibration.scale(view.calibration, beside)
        known = len(self._compactions) != 1 or any(
            one.position > self._compactions[0] for one in view.calibration.readings
        )
        if known or beside:  # a request that the file holds as it was sent hides nothing
            return scale
        return scale._replace(reserve=scale.reserve + self._resent)

    async def _call_ended(self, item: CallEnded) -> None:
        last = self._last_call
        if self._call is not None:
            call = self._call.of
            if item.usage is not None:
                call.usage, call.output_exact = item.usage, True
            call.finish_reason = item.finish_reason or call.finish_reason
            call.response_id = item.response_id or call.response_id
            await self._end_call(item.time)
        elif item.usage is not None and last is not None and last.of.usage is None:
            # The usage came after the end of the call; a repeated report is ignored.
            last.of.usage, last.of.output_exact = item.usage, True
            await self._record(usage_record(last), item.time)

    async def _end_call(self, time: int | None) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        await self._record(call.end(), time)
        if call.of.usage is not None:
            await self._record(usage_record(call), time)
        announced, self._announced = self._announced, {}
        for call_id, name in announced.items():
            self._tools[call_id] = tool = self._cycle.tool_call(name, call_id)
            await self._record(tool.begin(), time)

    # -- messages --------------------------------------------------------------------------------

    async def _message(self, item: MessageItem) -> None:
        message = item.message
        observation = item.observation or bool(
            self._action and not item.by_harness and observes(message, self._action)
        )
        by_harness = item.by_harness or observation
        # What the parser read is true of a message whose speaker the file does not name.
        facts = None if by_harness else item.facts
        found = content_of(
            item.line, message, facts, item.data, by_harness=by_harness, observation=observation
        )
        self._places.took(stored=isinstance(found, Stored))
        if isinstance(found, Unstorable):
            await self._not_stored(found)
            return
        content, facts = found
        self.counts.messages += 1
        if facts.results:
            await self._results(item, facts)
        answers = facts.kind == "assistant" and self._call is not None
        ids = self._call.ids if answers and self._call else self._turn.ids
        number = self._view.next_number
        added = events.MessageAdded(
            origin="harness" if by_harness else None, observation=observation
        )
        self._action = facts.action
        record = await self._put(added, item.time, ids, (content,))
        self._noted.add(number, record, 0, item.message)
        if facts.calls and self._call is not None:
            names = call_names(item.message)
            for call_id in facts.calls:
                self._announced[call_id] = names.get(call_id, "unknown")
        elif facts.role == "user" and not facts.results and harness.interrupts(item.message):
            self._interrupted = True

    async def _not_stored(self, *found: Unstorable) -> None:
        for one in found:
            await self._raw(one.raw)
            await self._warned(one.warning)

    async def _results(self, item: MessageItem, facts: Facts) -> None:
        failed = set(facts.results) if item.failed else failed_results(item.message)
        for call_id in facts.results:
            if call_id in self.counts.links.values():
                self.counts.answered.add(call_id)
            tool = self._tools.pop(call_id, None)
            if tool is not None:
                outcome = _TOOL_FAILED if call_id in failed else OK
                await self._record(tool.end(outcome), item.time)

    # -- compaction ------------------------------------------------------------------------------

    async def _compaction(self, item: CompactionItem) -> None:
        await self._end_call(None)
        self.counts.compactions += 1
        self.counts.last_compaction = item.time or self.counts.last_compaction
        stored, unstorable = contents_of(item.line, item.messages)
        await self._not_stored(*unstorable)
        step = compacted(self._view, item, stored, self._format, self._places, self._compactions)
        self._resent = item.resent
        before = self._view.layout.refs
        record = await self._planned(step, item.time)
        if self._format in _UNDOES_COMPACTIONS:
            after = {ref.number for ref in self._view.layout.refs}
            put = put_in(step.plan.insertions, step.contents)
            self._undone.keep(len(self._compactions), record.position, before, after, put)
        self._compactions.append(record.position)
        if not unstorable:
            for index, message in enumerate(item.messages):
                self._noted.add(None, record, index, message)

    async def _planned(self, step: Compacted, time: int | None) -> Record:
        """Record a plan; returns the record that carries it."""
        ids = self._cycle.ids.child(self._ids.new_span(events.PreCompact))
        await self._put(step.before(), time, ids)
        await self.raw.match(needed=True)
        event = step.after(self._track.stream, self._track.position)
        return await self._put(event, time, ids, tuple(step.contents))

    async def _taken_back(self, item: Undone) -> None:
        await self._end_call(None)
        back, undone, again = self._undone.undo(item.compactions)
        if back:
            # All return first, so that the plan says of each why it is not in view.
            await self._put(events.Restored(messages=tuple(back)), item.time)
        step = taken_back(self._view, item, self._format, self._places, undone, again)
        if step is not None:
            record = await self._planned(step, item.time)
            if undone:
                self._undone.stands_at(record.position)

    async def _cleared(self, item: ResultsCleared) -> None:
        await self._end_call(None)
        self.counts.compactions += 1
        stored, unstorable = contents_of(item.line, item.messages)
        await self._not_stored(*unstorable)
        if not unstorable:
            step = cleared(self._view, item, stored, self._format, self._places)
            await self._planned(step, item.time)

    async def _branched(self, item: Branched) -> None:
        await self._end_call(None)
        event, contents, unstorable = self._places.branched(item)
        await self._not_stored(*unstorable)
        latest = self._latest
        await self._put(event, item.time, self._turn.ids, contents)
        self._latest = latest  # the person went back: what comes next says if the turn went on

    # -- the rest --------------------------------------------------------------------------------

    async def _linked(self, item: Linked) -> None:
        self.counts.links.setdefault(item.session_id, item.call_id)

    async def _raw(self, item: Raw) -> None:
        if not item.understood:
            self.counts.unknown[item.kind] += 1
        await self.raw.add(item)

    async def _warned(self, item: Warned) -> None:
        self.counts.warn(item)

    async def _waiting(self, item: Waiting) -> None:
        self.counts.waiting.append(f"line {item.line}: {item.reason}")
