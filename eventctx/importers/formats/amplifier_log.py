"""Amplifier's ``events.jsonl``: requests, answers, usage, tools and compactions, in order.

The conversation is read from the calls: the new messages of each ``llm:request``
(``amplifier_requests.py``) and the answer of each ``llm:response``. A prompt and tool results are
held back until a request contains them. If requests are logged without their messages, the events
``prompt:submit``, ``content_block:end`` and ``tool:post`` are used instead. Older releases log a
call in levels: ``llm:request`` and ``llm:response`` in short, then ``:debug``, which is cut, and
``:raw``, which is whole. One dialect of the format has ``type`` for ``event`` and shorter names in
its usage. All lines are kept; a request's line is kept without the parts that repeat the request
before it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from eventctx.importers.formats.amplifier_requests import RequestHistory, messages_of
from eventctx.importers.formats.amplifier_rows import (
    AmplifierRow,
    HeldResult,
    as_block,
    as_result,
    both_ends,
    ending_of,
    is_known,
    name_of,
    wire_answer,
)
from eventctx.importers.formats.provider_answers import answers
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
    not_understood,
    object_or_empty,
    parse_rows,
    text_or_none,
)
from eventctx.importers.source.values import decode, encode
from eventctx.log.events import Status
from eventctx.log.ids import agent_in
from eventctx.messages.facts import Dialect
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tool_results import failure_of_copy

_STATUS: Final[dict[str | None, tuple[Status, str | None]]] = {
    "cancelled": ("cancelled", None),
    "error": ("error", "error"),
    "failed": ("error", "failed"),
    "incomplete": ("error", "incomplete"),
}


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one log. ``name`` is used where no line gives a session id."""
    log = _Log(name)
    return parse_rows(lines, decode, log.row, log.end(ended))


class _Log:
    def __init__(self, name: str) -> None:
        self.name = stem(name)
        self.begun = False
        self.line = 0
        self.in_turn = False
        self.calling = False
        self.sent = RequestHistory()
        self.prompt: tuple[int, int | None, str] | None = None
        self.results: dict[str, HeldResult] = {}
        self.failed: set[str] = set()
        self.expected = False
        self.asked: AmplifierRow | None = None
        self.ending: CallEnded | None = None
        self.levels: set[str | None] = set()
        self.answering: tuple[str | None, str | None] = (None, None)
        self.blocks: list[dict[str, Any]] = []
        self.begun_at = 0
        self.block_time: int | None = None
        self.dialect: Dialect = "amplifier"
        self.compaction: AmplifierRow | None = None
        self.gone: frozenset[int] = frozenset()
        self.steps: dict[str, Callable[[AmplifierRow], Iterator[Item]]] = {
            "prompt:submit": self._prompt,
            "provider:request": self._expect,
            "llm:request": self._ask,
            "llm:response": self._response,
            "llm:response:raw": self._response,
            "content_block:end": self._block,
            "tool:post": self._result,
            "tool:error": self._result,
            "context:compaction": self._compaction,
            "prompt:complete": self._turn_ended,
            "orchestrator:complete": self._turn_ended,
            "session:end": self._session_ended,
        }

    def row(self, line: int, data: bytes, row: Any) -> Iterator[Item]:
        """The items of one line."""
        name = name_of(row) if isinstance(row, dict) else None
        self.line = line
        if not self.begun:
            self.begun = True
            yield self._begin(line, row if isinstance(row, dict) else {})
        if name is None:
            yield from not_understood(line, "untyped", data, "a line without an event")
            return
        found = AmplifierRow(line, row)
        if not name.startswith("llm:request:"):
            yield from self._sent_in_short()
        if not name.startswith(("llm:response", "content_block:")):
            yield from self._answer_items()
            self.levels.clear()
        if self._is_request(name, found):
            # Its own step keeps it, without the parts that it repeats.
            self.asked = None
            yield from self._request(found)
            return
        yield Raw(line, name, data, is_known(name))
        step = self.steps.get(name)
        if step is not None:
            yield from step(found)

    def _begin(self, line: int, row: dict[str, Any]) -> Session:
        found = AmplifierRow(line, row)
        session = text_or_none(row.get("session_id", found.data.get("session_id"))) or self.name
        parent = text_or_none(found.data.get("parent_id")) or None
        return Session(line, found.time, session, agent=agent_in(session), parent=parent)

    # -- turns -----------------------------------------------------------------------------------

    def _prompt(self, found: AmplifierRow) -> Iterator[Item]:
        prompt = text_or_none(found.data.get("prompt"))
        if prompt:
            yield from self._held(found.line)
            self.prompt = (found.line, found.time, prompt)

    def _turn_ended(self, found: AmplifierRow) -> Iterator[Item]:
        if self.in_turn:
            self.in_turn = False
            status = text_or_none(found.row.get("status", found.data.get("status")))
            yield TurnEnded(found.line, found.time, *_STATUS.get(status, ("ok", None)))

    def _session_ended(self, found: AmplifierRow) -> Iterator[Item]:
        # A turn that ended has an event of its own; one that is open here was broken off.
        if self.in_turn:
            self.in_turn = False
            yield TurnEnded(found.line, found.time, "cancelled")

    # -- requests --------------------------------------------------------------------------------

    def _is_request(self, name: str, found: AmplifierRow) -> bool:
        """Whether a line holds a request whole that no line before it held."""
        if name == "llm:request:raw" and self.calling and self.asked is None:
            return False
        whole = name in ("llm:request", "llm:request:raw")
        return whole and messages_of(found.request) is not None

    def _ask(self, found: AmplifierRow) -> Iterator[Item]:
        """A request in short; the next lines may hold it whole."""
        self.asked = found
        return iter(())

    def _sent_in_short(self) -> Iterator[Item]:
        asked, self.asked = self.asked, None
        if asked is not None:
            yield from self._request(asked)

    def _request(self, found: AmplifierRow) -> Iterator[Item]:
        line, time = found.line, found.time
        sent = self.sent.take(line, found.request)
        if sent is None:
            yield from self._held(line)
            yield from self._compact(line, None)
        else:
            # Its messages are the held-back ones, in the form in which they were sent.
            self.prompt, self.results = None, {}
            key = found.request_key
            data = sent.rest if key is None else {**found.data, key: sent.rest}
            row = {**found.row, "data": data} if "data" in found.row else data
            yield Raw(line, "llm:request.rest", encode(row))
            for message in sent.new:
                yield from self._add(line, time, message)
            yield from self._compact(line, sent.missing)
        self.calling = self.expected = True
        model = text_or_none(found.data.get("model")) or text_or_none(found.request.get("model"))
        yield ModelCall(line, time, model, text_or_none(found.data.get("provider")))

    def _add(self, line: int, time: int | None, message: dict[str, Any]) -> Iterator[Item]:
        """A message that is not an answer."""
        facts = read_facts(message)
        if facts.role == "user" and facts.human:
            self.in_turn = True
            yield TurnBegan(line, time)
        failed = bool(self.failed.intersection(facts.results))
        yield MessageItem(line, time, message, failed, facts=facts)
        self.sent.add(message)

    def _held(self, line: int) -> Iterator[Item]:
        """The held-back prompt and results, as the events have them."""
        prompt, self.prompt = self.prompt, None
        results, self.results = self.results, {}
        for call_id, result in results.items():
            yield from self._add(line, result.time, as_result(call_id, result, self.dialect))
        if prompt is not None:
            yield from self._add(line, prompt[1], {"role": "user", "content": prompt[2]})

    # -- answers ---------------------------------------------------------------------------------

    def _response(self, found: AmplifierRow) -> Iterator[Item]:
        level = name_of(found.row)
        if level in self.levels:
            # The answer to another call, without an event between them.
            yield from self._answer_items()
            self.levels.clear()
        again = bool(self.levels) and self.ending is None
        self.levels.add(level)
        wire = wire_answer(found.data)
        ending = ending_of(found, wire)
        if again:
            # The level before had the answer. Usage that it did not have is recorded.
            yield ending
            return
        self.ending = both_ends(self.ending, ending)
        model = text_or_none(found.data.get("model")) or text_or_none(wire.get("model"))
        self.answering = (model or self.answering[0], text_or_none(found.data.get("provider")))
        messages = answers(wire)
        if messages:
            # The blocks streamed before are parts of this answer.
            self.blocks = []
            yield from self._answer_items(messages)

    def _expect(self, found: AmplifierRow) -> Iterator[Item]:
        """A request goes out. Its content follows in ``llm:request``, if that is logged."""
        self.expected = True
        return iter(())

    def _block(self, found: AmplifierRow) -> Iterator[Item]:
        block = found.data.get("block")
        if (self.expected or self.ending is not None) and isinstance(block, dict):
            if not self.blocks:
                self.begun_at = found.line
            self.blocks.append(as_block(block))
            self.block_time = found.time
        return iter(())

    def _answer_items(self, messages: list[dict[str, Any]] | None = None) -> Iterator[Item]:
        """The answer, if one is complete, with the end of its call."""
        ending, self.ending = self.ending, None
        blocks, self.blocks = self.blocks, []
        if ending is None:
            if not blocks:
                return
            ending = CallEnded(self.begun_at, self.block_time)
        line, time = ending.line, ending.time
        if not self.calling:
            yield from self._held(line)
            yield ModelCall(line, None, *self.answering)
        self.calling = self.expected = False
        self.answering = (None, None)
        if messages is None:
            messages = [{"role": "assistant", "content": blocks}] if blocks else []
        for message in messages:
            yield MessageItem(line, time, message)
            self.sent.add(message)
            self.dialect = read_facts(message).dialect
        yield ending

    # -- tools and compactions -------------------------------------------------------------------

    def _result(self, found: AmplifierRow) -> Iterator[Item]:
        call_id = text_or_none(found.data.get("tool_call_id"))
        result = found.data.get("result", found.data.get("error"))
        if call_id is None:
            return
        failed = failure_of_copy(result) or object_or_empty(result).get("error")
        if name_of(found.row) == "tool:error" or failed:
            self.failed.add(call_id)
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        name = text_or_none(found.data.get("tool_name"))
        self.results.setdefault(call_id, HeldResult(found.line, found.time, text, name))
        yield from ()

    def _compaction(self, found: AmplifierRow) -> Iterator[Item]:
        yield from self._compact(found.line, None)
        self.compaction = found

    def _compact(self, line: int, missing: frozenset[int] | None) -> Iterator[Item]:
        """The compaction announced before, by the messages that the next request leaves out."""
        found, self.compaction = self.compaction, None
        if missing is not None:
            back, left_out = len(self.gone - missing), len(missing - self.gone)
            self.gone = missing
            if back:
                yield Warned(line, f"{back} messages that were left out before were sent again")
            if left_out and found is None:
                yield Warned(line, f"{left_out} messages were left out, and nothing says why")
        if found is None:
            return
        trigger = text_or_none(found.data.get("trigger"))
        after = count(found.data.get("after_messages"))
        if missing is not None:
            yield CompactionItem(line, found.time, trigger, (), forgotten=missing)
        elif after:
            # It counts the remaining messages, and the oldest ones go first.
            kept_from = max(0, self.sent.places - after)
            yield CompactionItem(line, found.time, trigger, (), kept_from=kept_from)
        else:
            yield CompactionItem(line, found.time, trigger, (), forgotten=frozenset())

    # -- the end ---------------------------------------------------------------------------------

    def end(self, ended: Ended) -> Iterator[Item]:
        """The items that no later line completed."""
        if not self.begun:
            yield Waiting(1, "no line names the session yet")
        waits = self._waiting()
        if waits is None:
            return
        if not ended():
            yield Waiting(*waits)
            return
        yield from self._sent_in_short()
        yield from self._answer_items()
        yield from self._held(self.line)
        yield from self._compact(self.line, None)

    def _waiting(self) -> tuple[int, str] | None:
        if self.ending is not None or self.blocks:
            line = self.ending.line if self.ending is not None else self.begun_at
            return line, "the last answer may still get more blocks"
        if self.asked is not None:
            return self.asked.line, "a request whose messages may follow"
        if self.results:
            return next(iter(self.results.values())).line, "results that no request has sent yet"
        if self.prompt is not None:
            return self.prompt[0], "a prompt that no request has sent yet"
        if self.compaction is not None:
            return self.compaction.line, "a compaction that no request shows yet"
        return None
