"""From a parser's items to records: turns, iterations, spans, requests, and compactions.

Every record's id is made of the source, the line and its ordinal there, so a second import makes
the same records (``track.py``). The request view is folded along, which gives each model call its
reconstructed ``context:request_prepared``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from eventctx.errors import InvalidMessage
from eventctx.importers.recording.compacted import Compacted
from eventctx.importers.recording.counts import ImportCounts
from eventctx.importers.recording.places import Places
from eventctx.importers.recording.raw import RawParts
from eventctx.importers.recording.track import NO_IDS, Content, RecordIds, Track
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
    Session,
    TurnBegan,
    TurnEnded,
    Waiting,
    Warned,
)
from eventctx.importers.source.naming import event_id
from eventctx.log import events
from eventctx.log.ids import derive_span_id
from eventctx.log.record import Record
from eventctx.log.usage import Usage
from eventctx.messages.encoding import encode_message
from eventctx.messages.facts import Facts, encode_facts
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.part_queries import call_names, failed_results
from eventctx.projections.view import request_view
from eventctx.version import __version__


class _Call:
    """A model call: its ids, and the tool calls of its answer that were not announced yet."""

    def __init__(self, item: ModelCall, ids: RecordIds, prepared: int) -> None:
        self.item = item
        self.ids = ids
        self.prepared = prepared
        self.usage = item.usage
        self.output_exact = item.output_exact
        self.finish_reason = item.finish_reason
        self.response_id = item.response_id
        self.tools: dict[str, str] = {}


class Recorder:
    """Takes items in order; ``end`` closes the import."""

    def __init__(
        self,
        track: Track,
        *,
        key: str,
        source: str,
        format: str,  # noqa: A002 - the word of the command line and of the record
        imported_at: int,
        call_id: str | None = None,
    ) -> None:
        self.counts = ImportCounts()
        self.raw = RawParts(track, key, source, imported_at)
        self._track = track
        self._key = key
        self._source = source
        self._format = format
        self._imported_at = imported_at
        self._call_id = call_id
        self._view = request_view.initial()
        self._line = -1
        self._ordinals: dict[str, int] = {}
        self._agent: str | None = None
        self._turn = NO_IDS
        self._iteration = 0
        self._interrupted = False
        self._call: _Call | None = None
        self._last_call: _Call | None = None
        self._tools: dict[str, tuple[str, RecordIds]] = {}
        self._places = Places()
        self._compactions: list[int] = []
        track.observe = self._observe
        self._steps: dict[type[Any], Callable[[Any], Any]] = {
            Session: self._session,
            TurnBegan: self._turn_began,
            TurnEnded: self._turn_ended,
            MessageItem: self._message,
            ModelCall: self._model_call,
            CallEnded: self._call_ended,
            CompactionItem: self._compaction,
            Branched: self._branched,
            Linked: self._linked,
            Raw: self._raw,
            Warned: self._warned,
            Waiting: self._waiting,
        }

    def _observe(self, record: Record) -> None:
        self._view = request_view.evolve(self._view, record)

    async def feed(self, item: Item) -> None:
        """Record one item."""
        await self._steps[type(item)](item)
        await self.raw.match()

    async def end(self, closed: bool) -> None:
        """The file is over; ``closed`` says that it grows no more, so its last turn is over too."""
        if closed:
            await self._end_turn(self._line, None)
        await self.raw.end()
        await self._track.flush()

    # -- ids -------------------------------------------------------------------------------------

    def _id(self, event: type[events.Event], line: int) -> bytes:
        """The id of the next record of this type from this line."""
        if line != self._line:
            self._line = line
            self._ordinals.clear()
        kind = str(event.__struct_config__.tag)
        ordinal = self._ordinals.get(kind, 0)
        self._ordinals[kind] = ordinal + 1
        return event_id(self._key, line, kind, ordinal)

    async def _put(
        self,
        event: events.Event,
        line: int,
        time: int | None,
        ids: RecordIds = NO_IDS,
        data: tuple[Content, ...] = (),
        new_id: bytes | None = None,
    ) -> Record:
        await self.raw.match(needed=True)
        new_id = new_id or self._id(type(event), line)
        return await self._track.put(event, new_id, line, time, ids, data)

    def _span(self, new_id: bytes) -> str:
        return derive_span_id(self._track.stream, new_id)

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
            item.line,
            item.time if item.time is not None else self._imported_at,
        )
        known = any(record.type == "session:linked" for record in self._track.aside)
        if item.parent is not None and self._track.next is None and not known:
            link = events.SessionLinked(
                session=item.parent, relation="parent", call_id=self._call_id
            )
            new_id = event_id(self._key, item.line, "session:linked", item.parent)
            await self._put(link, item.line, item.time, new_id=new_id)

    async def _turn_began(self, item: TurnBegan) -> None:
        await self._end_turn(item.line, item.time)
        self.counts.turns += 1
        number = self.counts.turns
        new_id = self._id(events.PromptSubmit, item.line)
        self._turn = RecordIds(f"turn-{number:04d}", self._span(new_id))
        self._iteration = 0
        self._interrupted = False
        event = events.PromptSubmit(number=number, agent=self._agent)
        await self._put(event, item.line, item.time, self._turn, new_id=new_id)

    async def _turn_ended(self, item: TurnEnded) -> None:
        await self._end_turn(item.line, item.time, item.status, item.error)

    async def _end_turn(
        self,
        line: int,
        time: int | None,
        status: events.Status = "ok",
        error: str | None = None,
    ) -> None:
        await self._end_call(line, None)
        if self._turn.turn_id is None:
            return
        if status == "ok" and self._interrupted:
            status = "cancelled"
        await self._put(events.PromptComplete(status=status, error=error), line, time, self._turn)
        self._turn = NO_IDS
        self._iteration = 0

    # -- model calls -----------------------------------------------------------------------------

    async def _model_call(self, item: ModelCall) -> None:
        await self._end_call(item.line, None)
        self.counts.calls += 1
        self._interrupted = False
        turn_id, turn_span = self._turn.turn_id, self._turn.span_id
        iteration: int | None = None
        if turn_id is not None:
            self._iteration += 1
            iteration = self._iteration
        new_id = self._id(events.RequestPrepared, item.line)
        ids = RecordIds(turn_id, self._span(new_id), turn_span, iteration)
        # The model's window is the only budget that a transcript tells.
        event = request_view.prepared(
            self._view, model=item.model, budget=item.context_window, reconstructed=True
        )
        prepared = await self._put(event, item.line, item.time, ids, new_id=new_id)
        new_id = self._id(events.ProviderRequest, item.line)
        ids = RecordIds(turn_id, self._span(new_id), turn_span, iteration)
        request = events.ProviderRequest(
            model=item.model, provider=item.provider, prepared=prepared.position
        )
        await self._put(request, item.line, item.time, ids, new_id=new_id)
        self._call = self._last_call = _Call(item, ids, prepared.position)

    async def _call_ended(self, item: CallEnded) -> None:
        call = self._call
        if call is not None:
            if item.usage is not None:
                call.usage, call.output_exact = item.usage, True
            call.finish_reason = item.finish_reason or call.finish_reason
            call.response_id = item.response_id or call.response_id
            await self._end_call(item.line, item.time)
            return
        last = self._last_call
        if item.usage is not None and last is not None and last.usage is None:
            # Counted after the answer was already over; a repeated count is not taken again.
            last.usage, last.output_exact = item.usage, True
            await self._usage(last, item.line, item.time)

    async def _end_call(self, line: int, time: int | None) -> None:
        call, self._call = self._call, None
        if call is None:
            return
        response = events.ProviderResponse(
            model=call.item.model,
            response_id=call.response_id,
            finish_reason=call.finish_reason,
        )
        await self._put(response, line, time, call.ids)
        if call.usage is not None:
            await self._usage(call, line, time)
        for call_id, name in call.tools.items():
            new_id = self._id(events.ToolPre, line)
            turn_id, parent, _, iteration = call.ids
            ids = RecordIds(turn_id, self._span(new_id), parent, iteration)
            event = events.ToolPre(name=name, call_id=call_id)
            await self._put(event, line, time, ids, new_id=new_id)
            self._tools[call_id] = (name, ids)

    async def _usage(self, call: _Call, line: int, time: int | None) -> None:
        usage = call.usage or Usage()
        event = events.UsageReported(
            **msgspec.structs.asdict(usage),
            model=call.item.model,
            prepared=call.prepared,
            output_exact=call.output_exact,
        )
        await self._put(event, line, time, call.ids)

    # -- messages --------------------------------------------------------------------------------

    async def _message(self, item: MessageItem) -> None:
        try:
            data = encode_message(item.message)
            facts = read_facts(item.message)
        except InvalidMessage as error:
            self._places.took(stored=False)
            raw = Raw(item.line, "unstorable", msgspec.json.encode(item.message), understood=False)
            await self._raw(raw)
            await self._warned(Warned(item.line, str(error)))
            return
        self._places.took(stored=True)
        self.counts.messages += 1
        if facts.results:
            await self._results(item, facts)
        answers = facts.kind == "assistant" and self._call is not None
        ids = self._call.ids if answers and self._call else self._turn
        content = Content(data, encode_facts(facts))
        await self._put(events.MessageAdded(), item.line, item.time, ids, (content,))
        if facts.calls and self._call is not None:
            names = call_names(item.message)
            tools = {call_id: names.get(call_id, "unknown") for call_id in facts.calls}
            self._call.tools.update(tools)
        elif facts.role == "user" and not facts.results and harness.interrupts(item.message):
            self._interrupted = True

    async def _results(self, item: MessageItem, facts: Facts) -> None:
        failed = set(facts.results) if item.failed else failed_results(item.message)
        for call_id in facts.results:
            if call_id in self.counts.links.values():
                self.counts.answered.add(call_id)
            name, ids = self._tools.pop(call_id, ("", NO_IDS))
            if not name:
                continue
            event: events.Event
            if call_id in failed:
                event = events.ToolError(name=name, error_type="ToolError", call_id=call_id)
            else:
                event = events.ToolPost(name=name, call_id=call_id)
            await self._put(event, item.line, item.time, ids)

    # -- compaction ------------------------------------------------------------------------------

    async def _compaction(self, item: CompactionItem) -> None:
        await self._end_call(item.line, None)
        self.counts.compactions += 1
        self.counts.last_compaction = item.time or self.counts.last_compaction
        step = Compacted(self._view, item, self._format, self._places, self._compactions)
        new_id = self._id(events.PreCompact, item.line)
        turn_id, turn_span = self._turn.turn_id, self._turn.span_id
        ids = RecordIds(turn_id, self._span(new_id), turn_span, self._iteration or None)
        await self._put(step.before(), item.line, item.time, ids, new_id=new_id)
        await self.raw.match(needed=True)
        self._compactions.append(self._track.position)
        event = step.after(self._track.stream, self._track.position)
        await self._put(event, item.line, item.time, ids, tuple(step.contents))

    async def _branched(self, item: Branched) -> None:
        await self._end_call(item.line, None)
        event, contents = self._places.branched(item)
        await self._put(event, item.line, item.time, self._turn, contents)

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
