"""The recorder of an import: a parser's items become turns, spans, requests and compactions.

Every record's id is derived from the source, the line, the type and the ordinal in that line, so a
second import makes the same records (``track.py``). The request view is folded record by record, so
each model call gets its reconstructed ``context:request_prepared``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from eventctx.importers.recording.compacted import (
    Compacted,
    plan_clearing,
    plan_clearing_thinking,
    plan_compaction,
    plan_undoing,
)
from eventctx.importers.recording.contents import (
    ImportCounts,
    RawParts,
    Stored,
    TranscriptSlots,
    Unstorable,
    content_of,
    contents_of,
)
from eventctx.importers.recording.recorded_requests import NotedMessages, RecordedRequests
from eventctx.importers.recording.spilled import SpilledView, UndoneCompactions, put_in
from eventctx.importers.recording.track import NO_IDS, Content, LineIds, Track
from eventctx.importers.recording.turns import FileTurns
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
    ThinkingCleared,
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
from eventctx.log.turn_recorder import OK, SpanOutcome
from eventctx.messages import calibration
from eventctx.messages.calibration import Scale
from eventctx.messages.facts import Facts
from eventctx.messages.parts import call_names, failed_results, read_parts
from eventctx.messages.speaker import interrupts
from eventctx.messages.tool_results import observes
from eventctx.projections.trace.identity import SpanIds
from eventctx.projections.view import request_view
from eventctx.projections.view.request_view import ViewState
from eventctx.version import __version__


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
        folder: str | None = None,
        call_id: str | None = None,
        call_span: SpanIds | None = None,
        has_requests: bool = False,
        undoes_compactions: bool = False,
    ) -> None:
        """``has_requests`` and ``undoes_compactions`` as in the table of formats."""
        self.counts = ImportCounts()
        self.raw = RawParts(track, key, source, imported_at)
        self._track = track
        self._key = key
        self._source = source
        self._format = format
        self._imported_at = imported_at
        self._folder = folder
        self._call_id = call_id
        self._call_span = call_span or (None, None)
        self._view = request_view.initial()
        self._long = SpilledView()
        self._undone = UndoneCompactions()
        self._ids = LineIds(key, track.stream)
        self._agent: str | None = None
        self._turns = FileTurns(self._ids, self._put)
        self._action = ""
        self._places = TranscriptSlots()
        self.requests = RecordedRequests(records=has_requests)
        self._noted = NotedMessages(self.requests, track)
        self._compactions: list[int] = []
        # Of formats that cannot take a compaction back nothing need be kept for that.
        self._undoes_compactions = undoes_compactions
        self._resent = 0
        track.observe = self._observe
        self._steps: dict[type[Any], Callable[[Any], Any]] = {
            Session: self._session,
            TurnBegan: self._turn_began,
            TurnEnded: self._turn_ended,
            TurnMeasured: self._turns.measured,
            MessageItem: self._message,
            ModelCall: self._model_call,
            RecordedContent: self._sent_content,
            RecordedRequest: self._sent_request,
            CallEnded: self._turns.call_ended,
            CompactionItem: self._compaction,
            Undone: self._taken_back,
            ResultsCleared: self._cleared,
            ThinkingCleared: self._thinking_cleared,
            Branched: self._branched,
            Linked: self._linked,
            Raw: self._raw,
            Warned: self._warned,
            Waiting: self._waiting,
        }

    def _observe(self, record: Record) -> None:
        self._view = self._long.spill(request_view.evolve(self._view, record))

    async def feed(self, item: Item) -> None:
        """Record one item."""
        self._ids.line = item.line
        await self._turns.pass_over_end(self._track)
        await self._steps[type(item)](item)
        if self._track.next is not None:
            await self.raw.match()

    async def end(self, closed: bool) -> None:
        """End the import. A ``closed`` file grows no more, so its last turn is ended too."""
        self._ids.return_to_last()
        if closed:
            await self._turns.end(None, OK)
        await self.raw.end()
        if self.raw.changed is not None:
            words = "the file was written anew since it was imported; its messages are the same"
            self.counts.warn(Warned(self.raw.changed, f"{words}, and what changed is kept"))
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
        self._turns.saw(time)
        new_id = new_id or self._ids.for_record(type(event), ids)
        return await self._track.put(event, new_id, self._ids.line, time, ids, data)

    # -- session and turns -----------------------------------------------------------------------

    async def _session(self, item: Session) -> None:
        self._agent = item.agent
        await self._put(
            events.SessionStart(
                library=f"eventctx {__version__}",
                source=self._source,
                format=self._format,
                imported_at=self._imported_at,
                folder=self._folder,
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
        self.counts.turns += 1
        await self._turns.begin(item, self.counts.turns, self._agent, self._track)

    async def _turn_ended(self, item: TurnEnded) -> None:
        await self._turns.end(item.time, SpanOutcome(item.status, message=item.error))

    # -- model calls -----------------------------------------------------------------------------

    async def _model_call(self, item: ModelCall) -> None:
        await self._turns.end_call(None)
        self.counts.calls += 1
        self._turns.new_cycle()
        ids = self._turns.child(events.RequestPrepared)
        await self.raw.match(needed=True)
        time = self.requests.time_of(item.sent) if item.time is None else item.time
        prepared = await self._put(self._prepared(item), time, ids)
        await self._turns.call(item, prepared, time)

    def _prepared(self, item: ModelCall) -> events.RequestPrepared:
        """The event of a request, for a record at the track's position."""
        view = request_view.with_model(self._view, item.model)
        wire = None
        if item.sent is not None:
            found = self.requests.form(item.sent, self._track.position, view.estimator)
            wire = None if isinstance(found, str) else found
            if isinstance(found, str):
                words = f"the request {item.sent:.12} stays reconstructed: {found}"
                self.counts.warn(Warned(item.line, words))
        beside = 0 if wire is None else wire.tokens - view.layout.tokens
        # A transcript holds no budget but the model's window.
        return request_view.prepare_request(
            view,
            scale=self._scale(view, beside),
            model=item.model,
            budget=item.context_window,
            reconstructed=True,
            wire=wire,
        )

    async def _sent_content(self, item: RecordedContent) -> None:
        await self._noted.read_back()
        if self.requests.holds(item):
            return
        numbers, injected = self.requests.carries(item)
        event = events.RequestContent(
            kind=item.kind,
            digest="" if item.kind == "message" else item.digest.hex(),
            numbers=numbers,
            injected=injected,
        )
        content = Content(encode(item.value), b"")
        record = await self._put(event, item.time, self._turns.ids, (content,))
        self.requests.stored(item, record, len(injected))

    async def _sent_request(self, item: RecordedRequest) -> None:
        await self._noted.read_back()
        self.requests.remember(item)

    def _scale(self, view: ViewState, beside: int) -> Scale:
        """The scale of the next request; with what is sent again after the first compaction."""
        scale = calibration.scale(view.calibration, beside)
        known = len(self._compactions) != 1 or any(
            one.position > self._compactions[0] for one in view.calibration.readings
        )
        if known or beside:  # a request that the file holds as it was sent hides nothing
            return scale
        return scale._replace(reserve=scale.reserve + self._resent)

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
        answer_ids = self._turns.answer_ids
        ids = (answer_ids if facts.kind == "assistant" else None) or self._turns.ids
        number = self._view.next_number
        added = events.MessageAdded(
            origin="harness" if by_harness else None, observation=observation
        )
        self._action = facts.action
        record = await self._put(added, item.time, ids, (content,))
        self._noted.add(number, record, 0, item.message)
        if facts.calls and answer_ids is not None:
            self._turns.announce(facts.calls, call_names(item.message))
        elif facts.role == "user" and not facts.results and interrupts(read_parts(item.message)):
            self._turns.interrupted = True

    async def _not_stored(self, *found: Unstorable) -> None:
        for one in found:
            await self._raw(one.raw)
            await self._warned(one.warning)

    async def _results(self, item: MessageItem, facts: Facts) -> None:
        failed = set(facts.results) if item.failed else failed_results(item.message)
        for call_id in facts.results:
            if call_id in self.counts.links.values():
                self.counts.answered.add(call_id)
            await self._turns.tool_ended(call_id, item.time, failed=call_id in failed)

    # -- compaction ------------------------------------------------------------------------------

    async def _compaction(self, item: CompactionItem) -> None:
        await self._turns.end_call(None)
        self.counts.compactions += 1
        self.counts.last_compaction = item.time or self.counts.last_compaction
        stored, unstorable = contents_of(item.line, item.messages)
        shorter, too = contents_of(item.line, tuple([one for _, one in item.shortened]))
        await self._not_stored(*unstorable, *too)
        step = plan_compaction(
            self._view,
            item,
            stored,
            self._format,
            self._places,
            self._compactions,
            () if too else shorter,
        )
        self._resent = item.resent
        before = self._view.layout.refs
        record = await self._planned(step, item.time, item.asked)
        if self._undoes_compactions:
            after = {ref.number for ref in self._view.layout.refs}
            put = put_in(step.plan.insertions, step.contents)
            self._undone.keep(len(self._compactions), record.position, before, after, put)
        self._compactions.append(record.position)
        if not unstorable:
            for index, message in enumerate(item.messages):
                self._noted.add(None, record, index, message)

    async def _planned(
        self, step: Compacted, time: int | None, asked: ModelCall | None = None
    ) -> Record:
        """Record a plan, and the call for it; returns the record that carries the plan."""
        ids = self._turns.child(events.PreCompact)
        await self._put(step.before(), time, ids)
        if asked is not None and asked.usage is not None:
            counts = msgspec.structs.asdict(asked.usage)
            reported = events.UsageReported(**counts, model=asked.model)
            span = self._ids.new_span(events.UsageReported)
            await self._put(reported, time, ids.child(span))
        await self.raw.match(needed=True)
        event = step.after(self._track.stream, self._track.position)
        return await self._put(event, time, ids, tuple(step.contents))

    async def _taken_back(self, item: Undone) -> None:
        await self._turns.end_call(None)
        back, undone, again = self._undone.undo(item.compactions)
        if back:
            # All return first, so that the plan says of each why it is not in view.
            await self._put(events.Restored(messages=tuple(back)), item.time)
        step = plan_undoing(self._view, item, self._format, self._places, undone, again)
        if step is not None:
            record = await self._planned(step, item.time)
            if undone:
                self._undone.stands_at(record.position)

    async def _cleared(self, item: ResultsCleared) -> None:
        await self._turns.end_call(None)
        self.counts.compactions += 1
        stored, unstorable = contents_of(item.line, item.messages)
        await self._not_stored(*unstorable)
        if not unstorable:
            step = plan_clearing(self._view, item, stored, self._format, self._places)
            await self._planned(step, item.time)

    async def _thinking_cleared(self, item: ThinkingCleared) -> None:
        await self._turns.end_call(None)
        self.counts.compactions += 1
        step = plan_clearing_thinking(self._view, item, self._format, self._places)
        await self._planned(step, item.time)

    async def _branched(self, item: Branched) -> None:
        await self._turns.end_call(None)
        event, contents, unstorable = self._places.branched(item)
        await self._not_stored(*unstorable)
        latest = self._turns.latest
        await self._put(event, item.time, self._turns.ids, contents)
        self._turns.latest = (
            latest  # the person went back: what comes next says if the turn went on
        )

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
