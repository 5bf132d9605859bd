"""Codex rollouts: ``response_item`` lines are what the model sees; ``event_msg`` lines repeat them.

A message that only an event has is taken from there (``codex_events.py``).

The items of OpenAI's Responses API are kept as they are, one message each. A model call begins at
the first item that the model wrote. It ends at its ``token_count`` (the order is calls, count,
outputs) or at the next item sent to the model, whichever comes first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from eventctx.importers.formats.codex_events import SPOKEN, EventMessages, Turns
from eventctx.importers.formats.codex_rows import (
    EVENTS,
    NOT_SENT,
    TYPES,
    CopiedHistory,
    HistoryBase,
    RolloutRow,
    base_of,
    by_harness,
    continued_name,
    decode_kind,
    decode_row,
    envelope_of,
    origin_of,
    replacement_of,
    value_and_encoding,
    value_of,
)
from eventctx.importers.source.document import stem
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    Ended,
    FileLine,
    Item,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Waiting,
    Warned,
    never,
)
from eventctx.importers.source.lines import (
    count,
    item_facts_or_none,
    nanoseconds,
    not_understood,
    object_or_empty,
    parse_rows,
    text_or_none,
    without,
)
from eventctx.importers.source.values import BROKEN
from eventctx.log.usage import CODEX, Usage, read_usage
from eventctx.messages.facts_reader import read_facts


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one rollout. ``name`` is used where no line gives a session id."""
    rollout = _Rollout(name)
    items = parse_rows(lines, decode_row, rollout.row, rollout.end(ended))
    return map(rollout.turns.see, items)


class _Rollout:
    def __init__(self, name: str) -> None:
        self.name = stem(name)
        self.begun = False
        self.base: HistoryBase | None = None
        self.calling = False
        self.model: str | None = None
        self.provider: str | None = None
        self.window: int | None = None
        self.total: object = None
        self.events = EventMessages()
        self.turns = Turns()
        self.copied = CopiedHistory()
        self.line = 0

    def row(self, line: int, data: bytes, row: RolloutRow) -> Iterable[Item]:
        """The items of one line."""
        self.line = line
        time = nanoseconds(row.timestamp)
        self.copied.see(row, time)
        if row.type == "session_meta":
            told = self._without_base(line, row) if self.begun else ()
            return chain(told, self._meta(line, time, data, row))
        begin: list[Item] = [] if self.begun else [self._begin(line, time, self.name)]
        return chain(begin, self._without_base(line, row), self._items(line, time, data, row))

    def _begin(
        self, line: int, time: int | None, session: str, about: dict[str, Any] | None = None
    ) -> Session:
        self.begun = True
        parent, link, agent = origin_of(about or {})
        self.copied.begin(session, time, forked=parent is not None, base=self.base)
        if self.base is not None and parent is None:
            parent, link = self.base.thread, "branch"
            if parent == session:
                session = continued_name(session, self.name, self.base)
        return Session(line, time, session, agent, parent, link)

    def _without_base(self, line: int, row: RolloutRow) -> Iterator[Item]:
        """Say what is missing, if the line after the head is not one of its base."""
        base, self.base = self.base, None
        found = base is not None and type(row.ordinal) is int and row.ordinal < base.end
        if base is not None and not found:
            missing = f"the lines before ordinal {base.end} are missing: they are in another file"
            yield Warned(line, f"{missing} of thread {base.thread}, which is not with this one")

    def _meta(self, line: int, time: int | None, data: bytes, row: RolloutRow) -> Iterator[Item]:
        payload, repaired = value_of(row.payload)
        if not isinstance(payload, dict):
            yield Raw(line, "session_meta", data, understood=False)
            return
        again = self.begun
        if not again:
            session = text_or_none(payload.get("id"))
            self.base = base_of(payload)
            yield self._begin(line, time, self.name if session is None else session, payload)
            self.provider = text_or_none(payload.get("model_provider"))
        base = payload.get("base_instructions")
        text = object_or_empty(base).get("text")
        if again or not isinstance(text, str) or not text:
            # A resumed rollout repeats its head.
            yield Raw(line, "session_meta", data)
            return
        rest = {**payload, "base_instructions": {**(base or {}), "text": None}}
        yield Raw(line, "session_meta", data if repaired else envelope_of(data, rest))
        yield MessageItem(line, time, {"role": "system", "content": text})

    def _items(self, line: int, time: int | None, data: bytes, row: RolloutRow) -> Iterable[Item]:
        if row.type == "response_item":
            return self._response_item(line, time, data, row)
        if row.type == "event_msg":
            return self._event(line, time, data, row)
        if row.type == "compacted":
            return self._compaction(line, time, data, row)
        if row.type == "turn_context":
            payload, _ = value_of(row.payload)
            model = text_or_none(object_or_empty(payload).get("model"))
            self.model = self.model if model is None else model
        return (Raw(line, row.type or "untyped", data, row.type in TYPES),)

    def _response_item(
        self, line: int, time: int | None, data: bytes, row: RolloutRow
    ) -> Iterator[Item]:
        payload, encoded, repaired = value_and_encoding(row.payload)
        item = text_or_none(object_or_empty(payload).get("type"))
        kind = f"response_item/{item}"
        if item in NOT_SENT:
            yield Raw(line, kind, data)
            return
        facts = item_facts_or_none(payload)
        if facts is None:
            yield Raw(line, kind, data, understood=False)
            return
        if repaired:
            yield Raw(line, f"{kind}.repaired", data)
            yield Warned(line, repaired)
        else:
            yield Raw(line, "response_item.envelope", envelope_of(data, None))
        harness = by_harness(payload)
        spoken = item == "message" and facts.human and not harness
        if spoken or (item == "message" and facts.role == "assistant"):
            self.events.item(payload)
        if item != "reasoning":
            yield from self._flush_events(line)
        if facts.kind == "assistant":
            yield from self._call(line)
        else:
            yield from self._close(line, time)
            if spoken:
                yield TurnBegan(line, time)
        yield MessageItem(line, time, payload, by_harness=harness, facts=facts, data=encoded)

    def _call(self, line: int) -> Iterator[Item]:
        if not self.calling and not self.copied.now:
            self.calling = True
            yield ModelCall(line, None, self.model, self.provider, context_window=self.window)

    def _flush_events(self, line: int) -> Iterator[Item]:
        """The messages that only events have, now that their items cannot follow."""
        for one in self.events.take():
            if one.role == "assistant":
                yield from self._call(line)
            else:
                yield from self._close(line, one.time)
                if read_facts(one.message).human:
                    yield TurnBegan(line, one.time)
            yield MessageItem(line, one.time, one.message)

    def _close(self, line: int, time: int | None, usage: Usage | None = None) -> Iterator[Item]:
        if self.calling or (usage is not None and not self.copied.now):
            self.calling = False
            yield CallEnded(line, time, usage)

    def _event(self, line: int, time: int | None, data: bytes, row: RolloutRow) -> Iterator[Item]:
        sliced = bytes(row.payload)
        try:
            event = decode_kind(sliced).type
        except BROKEN:
            event = ""
        yield Raw(line, f"event_msg/{event}", data, event in EVENTS)
        if event in SPOKEN:
            payload, _ = value_of(row.payload)
            self.events.event(line, time, event, payload)
        elif event == "token_count":
            payload, _ = value_of(row.payload)
            usage = self._count(object_or_empty(payload).get("info"))
            if usage is not None:
                if self.events.answered:
                    yield from self._flush_events(line)
                yield from self._close(line, time, usage)
        elif event == "thread_rolled_back":
            yield from self._flush_events(line)
            self.events.end_turn()
            yield from self._close(line, time)
            payload, _ = value_of(row.payload)
            number = count(object_or_empty(payload).get("num_turns"))
            yield from self.turns.take_back(line, time, number)
        elif event == "task_started":
            self.turns.begin()
            payload, _ = value_of(row.payload)
            self.window = count(object_or_empty(payload).get("model_context_window")) or self.window
        elif event in ("task_complete", "turn_aborted"):
            yield from self._flush_events(line)
            self.events.end_turn()
            self.turns.end()
            yield from self._close(line, time)
            yield TurnEnded(line, time, "ok" if event == "task_complete" else "cancelled")

    def _count(self, info: object) -> Usage | None:
        """This call's tokens; ``total_token_usage`` is a running sum and no context size.

        Codex counts again when its rate limits changed: the sum is the same, and no call ended.
        """
        if not isinstance(info, dict):
            return None
        self.window = count(info.get("model_context_window")) or self.window
        before, self.total = self.total, info.get("total_token_usage")
        if before is not None and before == self.total:
            return None
        return read_usage(info.get("last_token_usage"), CODEX)

    def _compaction(
        self, line: int, time: int | None, data: bytes, row: RolloutRow
    ) -> Iterator[Item]:
        yield from self._flush_events(line)
        yield from self._close(line, None)  # an answer ended before the compaction began
        payload, repaired = value_of(row.payload)
        history = object_or_empty(payload).get("replacement_history")
        messages = replacement_of(history, payload)
        if not messages:
            problem = "compacted line without a history that can be read"
            yield from not_understood(line, "compacted", data, problem)
            return
        rest = without(payload, "replacement_history")
        whole = repaired or not isinstance(history, list) or len(history) != len(messages)
        yield Raw(line, "compacted", data if whole else envelope_of(data, rest))
        yield CompactionItem(line, time, None, tuple(messages))

    def end(self, ended: Ended) -> Iterator[Item]:
        """The messages that only events have; an item of theirs may still come."""
        first = self.events.first
        if not self.begun:
            yield Waiting(1, "no line names the session yet")
        elif ended():
            yield from self._flush_events(self.line)
        elif first is not None:
            yield Waiting(first.line, "an item with the same words may follow")
