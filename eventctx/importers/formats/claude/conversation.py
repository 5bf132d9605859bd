"""A Claude Code session, line by line: answers from their lines, and what joins or leaves it.

An assistant message is put together by its ``id``, not by adjacency. Results and meta rows between
its lines are held back until it is complete, so that the transcript has calls before results. It
is complete when a later line proves it (``answer.py``); without a proof it waits at the end of the
file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, Literal

from eventctx.importers.formats.claude import requests
from eventctx.importers.formats.claude.answer import AnswerLines, ProviderEdits
from eventctx.importers.formats.claude.cleared import INSTEAD, ClearedPlaces, replacements_in
from eventctx.importers.formats.claude.route import KeptLines, Route
from eventctx.importers.formats.claude.rows import (
    KNOWN_KINDS,
    Boundary,
    ClaudeRow,
    agent_in,
    boundary_of,
    envelope_of,
    in_nanoseconds,
    read_message,
    source_of,
    time_of,
    value_of,
)
from eventctx.importers.formats.claude.waiting import (
    QUEUED_COMMAND,
    LineOrder,
    MessageQueue,
    OwnSession,
    WaitingRow,
)
from eventctx.importers.source.document import stem
from eventctx.importers.source.items import (
    CompactionItem,
    Ended,
    Item,
    Linked,
    MessageItem,
    Raw,
    ResultsCleared,
    Session,
    TurnBegan,
    TurnMeasured,
    Undone,
    Waiting,
    Warned,
)
from eventctx.importers.source.lines import (
    count,
    facts_or_none,
    list_or_empty,
    not_understood,
    object_or_empty,
    text_or_none,
)
from eventctx.importers.source.naming import words_in
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import read_parts
from eventctx.messages.speaker import interrupts

RESENT: Final = 10_000
"""Tokens that the program sends with the summary of its first compaction, and does not write to
the file: files that were read last (five at most), and reminders. Fitted on recorded sessions, see
docs/explanation/tokens.md; later compactions are judged by the first."""

_SYNTHETIC: Final = "<synthetic>"

_NAMED: Final = ("user", "assistant", "system")

_ENDS_TURN: Final = frozenset(("turn_duration", "stop_hook_summary", "compact_boundary"))

# The first lines may lack a session id; a file names its session soon or never.
_LINES_WITHOUT_SESSION: Final = 1000


class ClaudeConversation:
    """The state from line to line; of the file it keeps the graph of its lines alone."""

    def __init__(self, name: str, agent: str | None = None) -> None:
        """``agent``: the subagent whose lines are read, where they are in the main file."""
        self.name = name
        self.agent = agent
        self.session: str | None = None
        self.waited = 0
        self.sidechain: bool | None = None
        self.open: AnswerLines | None = None
        self.last_id: object = None
        self.ids: set[int] = set()
        self.said: set[int] = set()
        self.route = Route()
        self.results = ClearedPlaces()
        self.edits = ProviderEdits(self.results)
        self.named = OwnSession("" if agent else name)
        self.order = LineOrder(self.route.knows)
        self.boundary = Boundary()
        self.linked: set[str] = set()
        self.queue = MessageQueue()
        self.line = 0

    # -- the session's name ----------------------------------------------------------------------

    def row(self, line: int, data: bytes, row: ClaudeRow) -> Iterable[Item]:
        """The items of one line, and of those that waited for it."""
        for named in self.named.take(WaitingRow(line, data, row)):
            for one in self.order.take(named):
                yield from self._place(self._row(*one))

    def _place(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, whose messages the route takes in their order."""
        for item in items:
            if isinstance(item, MessageItem):
                message = item.message
                answer = message["role"] == "assistant" and message.get("model") != _SYNTHETIC
                human = item.facts is not None and item.facts.human
                place = self.route.place(item.line, message, spoken=answer or human)
                self.results.add(place, message)
                if human:
                    self.results.begin_turn()
            elif isinstance(item, CompactionItem):
                self.results.forget(item.forgotten)
            elif isinstance(item, Undone):
                self.results.undo(item.places, item.compactions)
            yield item

    def _row(self, line: int, data: bytes, row: ClaudeRow) -> Iterable[Item]:
        """The items of one line; the session is the first item as soon as a line names it."""
        if self.session is not None:
            return self._items(line, data, row)
        if row.type in ("user", "assistant"):
            self.sidechain = bool(row.isSidechain)
        self.waited += 1
        spoken = self.sidechain is not None
        first: list[Session] = []
        named = self.named.own or row.sessionId
        if named and (spoken or row.isSidechain is not None):
            agent = self.agent or (row.agentId if row.isSidechain else None)
            first = [self._begin(time_of(row), named, agent, source_of(row))]
        elif self.waited >= _LINES_WITHOUT_SESSION or spoken:
            first = [self._begin(time_of(row), row.sessionId or stem(self.name), None)]
        return (*first, *self._items(line, data, row))

    def _begin(
        self, time: int | None, session: str, agent: str | None, source: str | None = None
    ) -> Session:
        self.session = session
        if self.sidechain is None:
            self.sidechain = agent is not None
        if agent is None:
            link: Literal["subagent", "branch"] = "branch" if source else "subagent"
            return Session(1, time, session, parent=source, link=link)
        return Session(1, time, f"{session}.agent-{agent}", agent=agent, parent=session)

    # -- lines -----------------------------------------------------------------------------------

    def _items(self, line: int, data: bytes, row: ClaudeRow) -> Iterable[Item]:
        kind, self.line = row.type, line
        if kind == "progress":
            return self._progress(line, data, row)
        if row.isSidechain and self.sidechain is False:
            return (Raw(line, "sidechain", data),)
        # The program may name two boundaries alike, but no two other lines.
        named = kind in _NAMED and row.subtype != "compact_boundary"
        if named and self.route.knows(row.uuid) and not self._says_new(row):
            return self._repetition(line, data, row)
        if kind in ("user", "assistant"):
            return self._speech(line, data, row)
        self.route.enter(
            row.uuid,
            row.parentUuid,
            line,
            api_error=row.subtype == "api_error",
            root=row.subtype == "compact_boundary",
        )
        if kind in requests.KINDS:
            return self._request(line, data, row)
        if kind in ("queue-operation", "attachment"):
            return self._queue_line(line, data, row)
        if kind == "content-replacement":
            return chain((Raw(line, kind, data),), self._replace(line, row, data))
        if kind != "system":
            return (Raw(line, kind or "untyped", data, kind in KNOWN_KINDS),)
        return self._system(line, data, row)

    def _says_new(self, row: ClaudeRow) -> bool:
        """Whether a person says in a line what no line of its name says; that may not be hidden."""
        if row.type != "user" or row.by_harness or row.isCompactSummary:
            return False
        message = value_of(bytes(row.message))
        facts = facts_or_none(message)
        return facts is not None and facts.human and _said_in(row, message) not in self.said

    def _repetition(self, line: int, data: bytes, row: ClaudeRow) -> Iterable[Item]:
        """A line that was written again; while its answer is open, its usage may have grown."""
        self.route.note_repetition(row.uuid)
        message = object_or_empty(value_of(bytes(row.message)))
        if row.type == "assistant" and self.open is not None and self.open.id == message.get("id"):
            self.open.count_again(message)
        return (Raw(line, f"{row.type}.repeated", data),)

    def _request(self, line: int, data: bytes, row: ClaudeRow) -> Iterable[Item]:
        (whole, value), items = requests.request_items(line, time_of(row), row.type, data)
        if not whole:
            return items
        envelope = envelope_of(whole, value) if value else None
        kind = row.type if envelope is None else f"{row.type}.envelope"
        raw = Raw(line, kind, whole if envelope is None else envelope)
        # What a request sends was in the conversation before it.
        items = [*self._deliver(line), *items]
        if self.open is None:
            return (raw, *items)
        self.open.held += items
        return (raw,)

    def _progress(self, line: int, data: bytes, row: ClaudeRow) -> Iterable[Item]:
        raw = Raw(line, "progress", data)
        if not self.route.knows(row.uuid):
            # What hooks report is between an answer and the next prompt.
            self.route.enter(row.uuid, row.parentUuid, line)
        return (raw, *self._linked(line, row, agent_in(row.data).agentId, row.parentToolUseID))

    def _linked(
        self, line: int, row: ClaudeRow, agent: str | None, call_id: str | None
    ) -> Iterator[Linked]:
        """The link to a subagent that is named for the first time."""
        if agent and agent not in self.linked and row.sessionId:
            self.linked.add(agent)
            yield Linked(line, time_of(row), f"{row.sessionId}.agent-{agent}", call_id)

    def _queue_line(self, line: int, data: bytes, row: ClaudeRow) -> Iterable[Item]:
        if row.type == "queue-operation":
            self.queue.operation(line, time_of(row), object_or_empty(value_of(data)))
            return (Raw(line, row.type, data),)
        attachment = object_or_empty(value_of(bytes(row.attachment)))
        kind = text_or_none(attachment.get("type"))
        if kind == QUEUED_COMMAND:
            self.queue.attachment(line, time_of(row), attachment)
        return (Raw(line, f"attachment/{kind}", data, understood=kind is not None),)

    def _deliver(self, line: int) -> Iterator[Item]:
        """The queued messages that the model sees from here on, after what was open."""
        for one in self.queue.take():
            yield MessageItem(line, one.time, one.message, by_harness=one.by_harness)

    def _system(self, line: int, data: bytes, row: ClaudeRow) -> Iterable[Item]:
        kind = f"system/{row.subtype}"
        raw = Raw(line, kind, data, kind in KNOWN_KINDS)
        if row.subtype == "compact_boundary":
            self.boundary = boundary_of(row)
        if row.subtype == "turn_duration":
            took = in_nanoseconds(row.durationMs)
            # The program may go on by itself, after a background task for one, so no turn ends.
            measured = () if took is None else (TurnMeasured(line, time_of(row), took),)
            return (raw, *self._close(), *self._deliver(line), *measured)
        if row.subtype in _ENDS_TURN:
            return (raw, *self._close(), *self._deliver(line))
        if row.subtype == "microcompact_boundary":
            return chain((raw,), self._microcompact(line, row))
        if row.retractedMessageUuids:
            return chain((raw,), self._retract(line, row))
        return (raw,)

    def _microcompact(self, line: int, row: ClaudeRow) -> Iterator[Item]:
        yield from self._close()
        yield from self._deliver(line)
        facts = object_or_empty(row.microcompactMetadata)
        how = "microcompact:manual" if facts.get("trigger") == "manual" else "microcompact"
        named = list_or_empty(facts.get("compactedToolIds"))
        sent = {one: INSTEAD for one in named if isinstance(one, str)}
        tokens = count(facts.get("preTokens"))
        yield from self._send_instead(line, time_of(row), how, sent, tokens)

    def _replace(self, line: int, row: ClaudeRow, data: bytes) -> Iterator[Item]:
        if sent := replacements_in(value_of(data)):
            yield from self._close()
            yield from self._deliver(line)
            yield from self._send_instead(line, time_of(row), "content-replacement", sent)

    def _send_instead(
        self, line: int, time: int | None, how: str, sent: dict[str, str], tokens: int = 0
    ) -> Iterator[Item]:
        """The step that sends other texts for results; with its size also if none is known.

        A file may begin after the results.
        """
        found = self.results.clear(sent)
        if found.places or (sent and tokens):
            yield ResultsCleared(line, time, how, *found, tokens_before=tokens or None)

    def _retract(self, line: int, row: ClaudeRow) -> Iterator[Item]:
        """The answers that the program took out of the conversation, after a refusal."""
        yield from self._close()
        named = list_or_empty(row.retractedMessageUuids)
        if places := self.route.of(named):
            yield Undone(line, time_of(row), places)

    def _speech(self, line: int, data: bytes, row: ClaudeRow) -> Iterable[Item]:
        sliced = bytes(row.message)
        message, encoded, repaired = read_message(sliced)
        if not isinstance(message, dict) or message.get("role") != row.type:
            problem = f"{row.type} line without a message of that role"
            return not_understood(line, row.type, data, problem)
        if row.isApiErrorMessage:
            # Claude Code shows it to the user and removes it before the next request.
            self.route.enter(row.uuid, row.parentUuid, line, api_error=True)
            return (Raw(line, "assistant.api_error", data),)
        if repaired:
            kept = (Raw(line, f"{row.type}.repaired", data), Warned(line, repaired))
            return chain(kept, self._message(line, row, message))
        envelope = envelope_of(data, sliced)
        kind = f"{row.type}.envelope" if envelope is not None else row.type
        raw = Raw(line, kind, data if envelope is None else envelope)
        # Lazily: what came before must be in the conversation when the rest is asked for.
        return chain((raw,), self._message(line, row, message, encoded))

    def _message(
        self, line: int, row: ClaudeRow, message: dict[str, Any], data: bytes | None = None
    ) -> Iterable[Item]:
        time = time_of(row)
        if row.type == "assistant":
            return self._assistant(line, time, row, message, data)
        if row.isCompactSummary:
            return self._summary(line, time, row, message)
        return self._user_line(line, time, row, message, data)

    def _summary(
        self, line: int, time: int | None, row: ClaudeRow, message: dict[str, Any]
    ) -> Iterator[Item]:
        """The items of a compaction; what it keeps is told before it, by the boundary."""
        yield from self._close()
        yield from self._deliver(line)
        told, self.boundary = self.boundary, Boundary()
        kept = self.route.named(told.kept)
        if not told.kept and told.segment is not None:
            kept = self.route.between(*told.segment)
        behind = KeptLines() if told.kept_first else kept
        self.route.note_summary(row.uuid, row.parentUuid, line, behind)
        stays = bool(kept.places or kept.summaries)
        yield CompactionItem(
            line,
            time,
            told.trigger,
            (message,),
            forgotten=self.route.others(kept.places) if stays else None,
            before=self.route.count if stays and told.kept_first else None,
            standing=kept.summaries,
            tokens_before=told.tokens,
            resent=RESENT,
            took=told.took,
        )

    def _user_line(
        self,
        line: int,
        time: int | None,
        row: ClaudeRow,
        message: dict[str, Any],
        data: bytes | None,
    ) -> Iterator[Item]:
        """The items of a ``user`` line: a person's, a harness's, or results of tools."""
        self.queue.note_spoken(message)
        facts = None if row.by_harness else read_facts(message)
        item = MessageItem(line, time, message, by_harness=row.by_harness, facts=facts, data=data)
        parts = read_parts(message)
        answers = any(part.kind == "result" for part in parts)
        stopped = interrupts(parts)
        prompt = not (answers or stopped or row.isMeta)
        human = facts is not None and facts.human
        if human:
            self.said.add(_said_in(row, message))
        if human or (prompt and self.route.leaves_turn(row.parentUuid)):
            yield from self._close()
            yield from self._deliver(line)
        if human and not answers:
            # Results belong to the turn of their calls.
            self.queue.begin_turn()
            yield TurnBegan(line, time)
        if prompt and self.open is None:
            left = self.route.left_by(row.parentUuid)
            if left.places:
                yield Undone(line, time, *left)
        agent = agent_in(row.toolUseResult)
        links = list(self._linked(line, row, agent.agentId, _answered_call(message)))
        # What is said to be over is known to be when its result comes.
        items: list[Item] = [item, *links] if agent.runs else [*links, item]
        if self.open is None:
            yield from items
        else:
            self.open.held += items
            if stopped:
                yield from self._close()
        self.route.enter(row.uuid, row.parentUuid, line, message=True, prompt=prompt)

    def _assistant(
        self,
        line: int,
        time: int | None,
        row: ClaudeRow,
        message: dict[str, Any],
        data: bytes | None,
    ) -> Iterator[Item]:
        """The items of a line of an answer. It belongs to the answer's first line on the route."""
        answer_id = message.get("id")
        named = answer_id is not None
        if named and self.open is not None and self.open.id == answer_id:
            self.route.enter(row.uuid, row.parentUuid, self.open.line, message=True)
            yield from self.open.join(line, time, message)
            if self.open.complete:
                yield from self._close()
            return
        self.route.enter(row.uuid, row.parentUuid, line, message=True)
        yield from self._close()
        if message.get("model") == _SYNTHETIC or (named and answer_id == self.last_id):
            # More lines of a message that looked complete are kept, but are no second call.
            yield MessageItem(line, time, message)
            return
        yield from self._deliver(line)
        self.open = AnswerLines(line, time, message, text_or_none(row.requestRef), data)
        known = isinstance(answer_id, str) and hash(answer_id) in self.ids
        self.open.copied = known or source_of(row) is not None
        if self.open.complete:
            yield from self._close()

    def _close(self) -> Iterator[Item]:
        answer, self.open = self.open, None
        if answer is None:
            return
        yield from self.edits.items(answer.line, answer.message)
        self.last_id = answer.id
        if isinstance(answer.id, str):
            self.ids.add(hash(answer.id))
        yield from answer.items()

    # -- the end ---------------------------------------------------------------------------------

    def end(self, ended: Ended) -> Iterator[Item]:
        """The items left at the end of the file."""
        unnamed = self.named.first
        if unnamed is not None and not ended():
            yield Waiting(unnamed.line, "no line names the file's own session yet")
            return
        for named in self.named.rest():
            for one in self.order.take(named):
                yield from self._place(self._row(*one))
        if self.session is None:
            if not ended():
                yield Waiting(1, "no line names the session yet")
            elif self.waited:
                yield self._begin(None, stem(self.name), None)
        waits = self.order.first
        if waits is not None and not ended():
            yield Waiting(waits.line, "the line that it follows is not written yet")
            return
        for one in self.order.rest():
            yield from self._place(self._row(*one))
        first = self.queue.first
        if self.open is not None and not ended():
            yield Waiting(self.open.line, "the last answer may still grow")
        elif first is not None and not ended():
            yield Waiting(first.line, "the model has not answered a queued message yet")
        else:
            yield from self._close()
            yield from self._deliver(self.line)


def _said_in(row: ClaudeRow, message: dict[str, Any]) -> int:
    return hash((text_or_none(row.uuid), words_in(message.get("content"))))


def _answered_call(message: dict[str, Any]) -> str | None:
    """The call whose result is the first one in a message."""
    blocks = map(object_or_empty, list_or_empty(message.get("content")))
    found = (text_or_none(one.get("tool_use_id")) for one in blocks)
    return next((one for one in found if one), None)
