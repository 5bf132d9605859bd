"""Gemini CLI's chats: one JSON document, or in later releases JSONL.

A record of the JSONL is written again, with the same ``id``, when the answer's tokens are known and
when its tools have ended: the last one counts, except where it would hide a person's words. So an
answer waits for the next record. A person's message waits for the answer to it, because records
without a model that a new history follows (``$set`` with ``messages``) are that history's, such as
the summary of a compression (``history.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventctx.importers.formats.google.contents import (
    GoogleContents,
    calls_in,
    is_results,
    results_in,
)
from eventctx.importers.formats.google.gemini_records import (
    SCREEN,
    TYPES,
    answer_blocks,
    envelope_of,
    is_by_program,
    is_head,
    is_media,
    messages_of,
    said_in,
    says_more,
    tools_ended_at,
    tools_of,
)
from eventctx.importers.formats.google.history import History
from eventctx.importers.source.document import first_record, read_object, stem
from eventctx.importers.source.items import (
    CallEnded,
    Ended,
    FileLine,
    Item,
    Linked,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    Waiting,
    Warned,
    never,
)
from eventctx.importers.source.lines import (
    first_line,
    list_or_empty,
    nanoseconds,
    not_understood,
    object_or_empty,
    parse_rows,
    session_first,
    text_or_none,
    without,
)
from eventctx.importers.source.naming import RecordNames
from eventctx.importers.source.values import decode, encode
from eventctx.log.usage import GEMINI_CLI, read_usage, with_prompt
from eventctx.messages.facts_reader import read_facts

_FAILED: Final = frozenset(("error", "cancelled"))


def called(path: Path) -> str:
    """The name of a file; of a subagent's, with the folder, which is called as its parent is."""
    folder = path.resolve().parent
    return f"{folder.name}/{path.name}" if folder.parent.name == "chats" else path.name


def passed_over(path: Path) -> str | None:
    """The reason not to import a chat that goes on in a file of JSONL, in a search."""
    if path.suffix == ".json" and path.name.startswith("session-"):
        later = path.with_suffix(".jsonl")
        if later.is_file():
            return f"its session goes on in {later.name}, which begins with what is in it"
    return None


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one chat. ``name`` is used where no line gives a session id."""
    first, lines = first_line(lines)
    chat = _Chat(name)
    if first is None or first_record(first) is not None or not _begins_document(first):
        yield from parse_rows(lines, decode, chat.row, chat.end(ended))
        return
    document, repaired = read_object(lines, stem(name), "messages")
    yield from session_first(_document(chat, document, repaired, ended))


def _document(
    chat: _Chat, document: dict[str, Any], repaired: list[Raw], ended: Ended
) -> Iterator[Item]:
    chat.head = 0, document
    yield from repaired
    for number, record in enumerate(document["messages"], 1):
        yield from chat.record(number, encode(record), record)
    yield from chat.end(ended)
    yield Raw(0, "document", encode(without(document, "messages")), volatile=True)


def _begins_document(line: FileLine) -> bool:
    """Whether a line without a whole record is the first one of a document of many lines."""
    text = line.data.strip()
    return text.startswith(b"{") and text.endswith((b"{", b"[", b","))


class _Held(NamedTuple):
    line: int
    record: dict[str, Any]


class _Chat:
    """``held`` are records whose items wait, by name; ``places`` where the message of a name is."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.head: tuple[int, dict[str, Any]] = (1, {})
        self.begun = False
        self.history = History()
        self.contents = GoogleContents()
        self.held: dict[str, _Held] = {}
        self.places: dict[str, int] = {}
        self.names = RecordNames()
        self.answered: set[str] = set()
        self.anew: tuple[int, dict[str, Any]] | None = None
        self.calling = self.expects_calls = False
        self.line = 0

    # -- the session -----------------------------------------------------------------------------

    def begin(self) -> Iterator[Item]:
        """The session, at its first message; before that a file may be one that goes on elsewhere.

        A subagent's file has the id of its parent in it, or as its folder's name.
        """
        if self.begun:
            return
        self.begun = True
        line, head = self.head
        folder, _, file = self.name.rpartition("/")
        own = text_or_none(head.get("sessionId")) or stem(file)
        started = text_or_none(head.get("startTime"))
        parent = None
        if head.get("kind") == "subagent":
            parent = folder or own
            if stem(file) != own:
                digits = "".join(filter(str.isdigit, started or stem(file)))
                parent, own = own, f"{own}.agent-{digits}"
        agent = "subagent" if parent else None
        yield Session(line, nanoseconds(started), own, agent, parent)

    # -- lines -----------------------------------------------------------------------------------

    def row(self, line: int, data: bytes, row: Any) -> Iterator[Item]:
        """The items of one line of JSONL."""
        self.line = line
        if isinstance(row, dict) and "id" not in row and is_head(row):
            self.head = self.head if self.head[1] else (line, row)
            yield Raw(line, "head", encode(without(row, "messages")))
            for record in list_or_empty(row.get("messages")):
                yield from self.record(line, encode(record), record)
            return
        if isinstance(row, dict) and "$rewindTo" in row:
            yield Raw(line, "$rewindTo", data)
            yield from self._go_on()
            yield from self._flush(line)
            at = self.places.get(str(row["$rewindTo"]), 0)
            yield from self.history.cut(line, None, at)
        elif isinstance(row, dict) and isinstance(row.get("$set"), dict):
            update = row["$set"]
            yield Raw(line, "$set", data)
            if isinstance(update.get("messages"), list):
                # A resumed session first writes its beginning alone, and then the whole again.
                self.anew = line, update
        else:
            yield from self.record(line, data, row)

    def record(self, line: int, data: bytes, row: Any) -> Iterator[Item]:
        """The items of a record; those of a message wait for the next one."""
        self.line = line
        kind, own = object_or_empty(row).get("type"), object_or_empty(row).get("id")
        if not isinstance(kind, str) or kind not in TYPES or not isinstance(own, str):
            name = kind if isinstance(kind, str) and kind else "untyped"
            yield from not_understood(line, name, data, "a record of a type that is not known")
            return
        own = self._name_of(row)
        if kind in SCREEN and not is_media(row.get("content")):
            # What the program showed, and never sent.
            yield Raw(line, kind, data)
            self.places.setdefault(own, self.history.next)
            return
        if own in self.places and own not in self.held:
            yield Raw(line, f"{kind}.changed", data)
            yield Warned(line, "a message changed after the next one was written")
            return
        yield from self.begin()
        yield from self._go_on()
        if own not in self.held:
            answers = kind == "gemini" and row.get("model") is not None
            yield from self._flush(line, only_answers=not answers)
        elif says_more(self.held[own].record, row):
            yield Raw(line, f"{kind}.before", encode(self.held[own].record))
        last = next(reversed(self.held.values())).record if self.held else {}
        yield Raw(line, f"{kind}.envelope", encode(envelope_of(row, last)))
        self.held[own] = _Held(line, row)

    def _name_of(self, record: dict[str, Any]) -> str:
        return self.names.name_of(str(record.get("id")), said_in(record))

    def end(self, ended: Ended) -> Iterator[Item]:
        """The records that wait, if nothing will be written to the file any more."""
        if not self.begun:
            yield Waiting(1, "there is no message in the chat yet")
        elif ended():
            yield from self._go_on()
            yield from self._flush(self.line)
            yield from self._close(self.line)
        elif self.held or self.anew is not None:
            waits = [held.line for held in self.held.values()] or [self.line]
            yield Waiting(waits[0], "the last messages may still change")

    # -- messages --------------------------------------------------------------------------------

    def _flush(self, line: int, *, only_answers: bool = False) -> Iterator[Item]:
        """The items of what waits; of a model's answers alone, or of all."""
        for own, held in list(self.held.items()):
            if only_answers and held.record.get("model") is None:
                break  # what comes after it must wait, too
            del self.held[own]
            yield from self._message(own, held.line, held.record)

    def _message(self, own: str, line: int, record: dict[str, Any]) -> Iterator[Item]:
        time = nanoseconds(record.get("timestamp"))
        self.places[own] = self.history.next
        if record.get("type") == "gemini":
            yield from self._answer(line, time, record)
        else:
            yield from self._user(line, time, record)

    def _user(self, line: int, time: int | None, record: dict[str, Any]) -> Iterator[Item]:
        message = self.contents.message("user", record.get("content"))
        if message is None:
            return
        blocks = message["content"]
        if is_results(blocks):
            # The records of the calls hold the same results.
            if not self.answered.issuperset(results_in(blocks)):
                yield from self._results(line, time, blocks)
            return
        yield from self._close(line)
        by_program = record["type"] != "user" or is_by_program(blocks)
        facts = read_facts(message)
        if facts.human and not by_program:
            yield TurnBegan(line, time)
        self.history.add(message)
        yield MessageItem(line, time, message, by_harness=by_program)

    def _answer(self, line: int, time: int | None, record: dict[str, Any]) -> Iterator[Item]:
        blocks = answer_blocks(self.contents, record)
        usage = with_prompt(read_usage(record.get("tokens"), GEMINI_CLI))
        # Calls that the program wrote after a note on the screen are a record of their own.
        rest = usage is None and not record.get("content") and not record.get("thoughts")
        if not (rest and self.expects_calls and calls_in(blocks)):
            yield from self._close(line)
            if record.get("model") is not None or usage is not None:
                self.calling = True
                model = text_or_none(record.get("model"))
                yield ModelCall(line, None, model, usage=usage)
        if blocks:
            message = {"role": "assistant", "content": blocks}
            self.history.add(message)
            yield MessageItem(line, time, message)
        self.expects_calls = self.calling and not calls_in(blocks)
        results = [one for call in tools_of(record) for one in self._result(call)]
        for call in tools_of(record):
            if isinstance(call.get("agentId"), str):
                yield Linked(line, time, call["agentId"], text_or_none(call.get("id")))
        if results:
            yield from self._results(line, tools_ended_at(record) or time, results)

    def _results(self, line: int, time: int | None, blocks: list[Any]) -> Iterator[Item]:
        yield from self._close(line)
        self.answered.update(results_in(blocks))
        message = {"role": "user", "content": blocks}
        self.history.add(message)
        yield MessageItem(line, time, message)

    def _result(self, call: dict[str, Any]) -> list[Any]:
        """The blocks of a call's result; none where it has none yet."""
        result = call.get("result")
        if isinstance(result, str):
            about = {"id": call.get("id"), "name": call.get("name")}
            result = {"functionResponse": {**about, "response": {"output": result}}}
        blocks = self.contents.blocks(result) if result else []
        if text_or_none(call.get("status")) in _FAILED:
            blocks = [{**one, "is_error": True} if is_results([one]) else one for one in blocks]
        return blocks

    def _close(self, line: int) -> Iterator[Item]:
        if self.calling:
            self.calling = False
            yield CallEnded(line, None)

    # -- a history anew --------------------------------------------------------------------------

    def _go_on(self) -> Iterator[Item]:
        """Go on with the last history that the program wrote, if there is a new one."""
        anew, self.anew = self.anew, None
        if anew is not None:
            yield from self._rebuild(*anew)

    def _rebuild(self, line: int, update: dict[str, Any]) -> Iterator[Item]:
        records = [object_or_empty(one) for one in update["messages"]]
        if not self.history.now and not self.history.next:
            # The beginning: these are the first messages, those that wait among them.
            for record in records:
                if isinstance(record.get("id"), str) and record.get("type") in ("user", "gemini"):
                    own = self._name_of(record)
                    self.held.pop(own, None)
                    yield from self._message(own, line, record)
            return
        listed = {self._name_of(one) for one in records}
        for own in [own for own, one in self.held.items() if one.record.get("model") is not None]:
            answer = self.held.pop(own)
            yield from self._message(own, answer.line, answer.record)
        again = {own: self.held.pop(own) for own in list(self.held) if own in listed}
        yield from self._flush(line)
        yield from self._close(line)
        owners, messages = messages_of(records, self._name_of)
        rebuilt = self.history.rebuild(line, nanoseconds(update.get("lastUpdated")), messages)
        yield from rebuilt.items
        for own, place in zip(owners, rebuilt.places, strict=True):
            self.places.setdefault(own, self.history.next if place is None else place)
        for index in rebuilt.added:
            held = again.get(owners[index])
            by_program = held is None and is_by_program(messages[index]["content"])
            yield from self._added(line, held, messages[index], by_program)

    def _added(
        self, line: int, held: _Held | None, message: dict[str, Any], by_program: bool
    ) -> Iterator[Item]:
        """A message at the end of a new history."""
        time = None if held is None else nanoseconds(held.record.get("timestamp"))
        spoken = message["role"] == "user" and not by_program
        if spoken and read_facts(message).human:
            yield TurnBegan(line, time)
        self.answered.update(results_in(message["content"]))
        self.history.add(message)
        yield MessageItem(line, time, message, by_harness=by_program)
