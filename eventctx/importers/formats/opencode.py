"""opencode's sessions: its storage, its database, and what ``opencode export`` writes.

All three are a head and messages with parts (``opencode_storage.py``). A line is a message, in the
order of their times; 0 is the head. opencode changes what it wrote: a result that it sends no more
stays, with the time of that, and a person's going back is a mark in the head until the next message
removes what came after. So a result is cleared before the first message after that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from eventctx.importers.formats import opencode_messages as build
from eventctx.importers.formats.opencode_storage import (
    UNREADABLE,
    is_database,
    session_ids,
    stored_lines,
)
from eventctx.importers.source.document import first_record, read_document, stem
from eventctx.importers.source.items import (
    CallEnded,
    CompactionItem,
    Ended,
    FileLine,
    Item,
    Linked,
    MessageItem,
    ModelCall,
    Parser,
    Raw,
    ResultsCleared,
    Session,
    TurnBegan,
    TurnEnded,
    Undone,
    Waiting,
    Warned,
    never,
)
from eventctx.importers.source.lines import (
    count,
    first_line,
    list_or_empty,
    not_understood,
    object_or_empty,
    text_or_none,
    without,
)
from eventctx.importers.source.values import encode, read_value
from eventctx.log.usage import form_of_opencode, read_usage, with_prompt
from eventctx.messages.facts_reader import read_facts

_ABORTED: Final = "MessageAbortedError"
_LAST: Final = 2**63
"""A time after all others, in nanoseconds."""

_NO_WORDS: Final = frozenset(("step-start", "reasoning"))


def is_head(value: dict[str, Any]) -> bool:
    """Whether an object is the head of a session, or an export."""
    if all(key in value for key in ("id", "projectID", "directory", "time")):
        return True
    info = value.get("info")
    own = isinstance(info, dict) and str(info.get("id")).startswith("ses")
    return own and isinstance(value.get("messages"), list)


def is_document(value: object) -> bool:
    """As ``is_head``, for the value of a whole file."""
    return isinstance(value, dict) and is_head(value)


def others(path: Path) -> list[Parser]:
    """A parser for each further session of a database."""
    if not is_database(path):
        return []
    return [partial(_parse_stored, path, own) for own in session_ids(path)[1:]]


def _parse_stored(
    path: Path, session: str, lines: Iterable[FileLine], name: str, ended: Ended
) -> Iterator[Item]:
    return parse(stored_lines(path, session), name, ended)


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one session. ``name`` is used where its head has no id."""
    first, lines = first_line(lines)
    row = None if first is None else first_record(first)
    if isinstance(row, dict) and isinstance(row.get("info"), dict) and "messages" not in row:
        rows = map(_value, lines)
        yield from _Session(object_or_empty(next(rows, None)), name, ended).items(rows, [])
        return
    document, repaired = read_document(lines, name)
    whole = object_or_empty(document)
    head = whole if isinstance(whole.get("info"), dict) else {"info": whole}
    messages = list_or_empty(whole.get("messages"))
    yield from _Session(head, name, ended).items(messages, repaired)


def _value(line: FileLine) -> Any:
    return read_value(line.data)[0]


class _Session:
    """``shown`` are the places of the messages that are sent now, ``places`` those of an id."""

    def __init__(self, head: dict[str, Any], name: str, ended: Ended) -> None:
        self.about = object_or_empty(head.get("info"))
        self.head = without(head, "messages") if isinstance(head.get("messages"), list) else head
        self.name = stem(name)
        self.ended = ended
        self.next = 0
        self.shown: list[int] = []
        self.places: dict[str, int] = {}
        self.clearing: list[tuple[int, int, str, list[Any]]] = []
        self.asked: tuple[int, dict[str, Any], list[Any]] | None = None
        self.tokens = self.latest = 0

    def items(self, rows: Iterable[Any], repaired: list[Raw]) -> Iterator[Item]:
        """The items of the session. The last message waits for the next one, or for its end."""
        created = object_or_empty(self.about.get("time")).get("created")
        parent = text_or_none(self.about.get("parentID"))
        own = text_or_none(self.about.get("id")) or self.name
        agent = text_or_none(self.about.get("agent")) or "subagent"
        yield Session(0, build.milliseconds(created), own, agent if parent else None, parent=parent)
        yield from repaired
        yield Raw(0, "document", encode(self.head), volatile=True)
        yield from _unreadable(0, self.head)
        number, waiting = 0, list[Any]()  # of the rows at most the last
        for number, row in enumerate(rows, 1):
            for last in waiting:
                yield from self._row(number - 1, last)
            waiting = [row]
        for last in waiting:
            if self.ended() or _is_complete(last):
                yield from self._row(number, last)
            else:
                yield Waiting(number, "the last message may still change")
        yield from self._end(number)

    def _end(self, number: int) -> Iterator[Item]:
        """What is marked in the head alone, and may still be taken back."""
        if self.asked is not None and self.ended():
            yield from self._ask_in_vain()
        if self.ended():
            yield from self._clear(number + 1, _LAST)
        revert = object_or_empty(self.about.get("revert"))
        place = self.places.get(str(revert.get("messageID")))
        if place is None:
            return
        gone = frozenset(one for one in self.shown if one >= place)
        if gone and self.ended():
            yield Undone(number + 1, None, gone)
        elif gone:
            yield Waiting(number, "going back to an earlier message may still be undone")

    # -- messages --------------------------------------------------------------------------------

    def _row(self, line: int, row: Any) -> Iterator[Item]:
        info = object_or_empty(object_or_empty(row).get("info"))
        listed = list_or_empty(object_or_empty(row).get("parts"))
        parts = [part for part in listed if isinstance(part, dict)]
        yield from _unreadable(line, object_or_empty(row))
        if text_or_none(info.get("role")) not in ("user", "assistant"):
            yield from not_understood(line, "message", encode(row), "a message without a role")
            return
        whole = info.get("summary") is True or not listed
        own = row if whole else {**row, "parts": [build.rest_of(part) for part in listed]}
        yield Raw(line, "message.envelope", encode(own), volatile=True)
        for part in [one for one in parts if text_or_none(one.get("type")) not in build.KNOWN]:
            kind = text_or_none(part.get("type")) or "untyped"
            yield Raw(line, f"part/{kind}", encode(part), understood=False, volatile=True)
        if not parts and _never_answered(info):
            return
        if not parts and not info.get("error"):
            yield Warned(line, "the parts of the message are missing")
        self.places[str(info.get("id"))] = self.next
        time = build.milliseconds(object_or_empty(info.get("time")).get("created"))
        yield from self._clear(line, self._before(info, time or 0))
        self.latest = time or self.latest
        if info["role"] == "user":
            yield from self._user(line, time, info, parts)
        else:
            yield from self._assistant(line, info, parts)

    def _before(self, info: dict[str, Any], time: int) -> int:
        """The time up to which results were cleared when the request of a message was made.

        The next prompt may be sent while opencode clears results. A prompt that did not become
        smaller had all that the message before it found.
        """
        smaller = info["role"] == "user" or _prompt_of(info) < self.tokens
        return time if smaller else min(time, self.latest)

    def _say(
        self, line: int, time: int | None, role: str, blocks: list[Any], by_harness: bool = False
    ) -> Iterator[Item]:
        if blocks:
            self.shown.append(self.next)
            self.next += 1
            message = {"role": role, "content": blocks}
            yield MessageItem(line, time, message, by_harness=by_harness)

    def _user(
        self, line: int, time: int | None, info: dict[str, Any], parts: list[dict[str, Any]]
    ) -> Iterator[Item]:
        yield from self._ask_in_vain()
        if any(part.get("type") == "compaction" for part in parts):
            self.asked = line, info, parts
            return
        blocks, person = build.told(parts)
        if person and read_facts({"role": "user", "content": blocks}).human:
            yield TurnBegan(line, time)
        yield from self._say(line, time, "user", blocks, by_harness=not person)

    def _ask_in_vain(self) -> Iterator[Item]:
        """The question for a summary that never came stays in the conversation."""
        asked, self.asked = self.asked, None
        if asked is not None:
            line, info, parts = asked
            self.places[str(info.get("id"))] = self.next
            yield from self._say(line, None, "user", build.told(parts)[0], by_harness=True)

    def _assistant(
        self, line: int, info: dict[str, Any], parts: list[dict[str, Any]]
    ) -> Iterator[Item]:
        times, error = object_or_empty(info.get("time")), object_or_empty(info.get("error"))
        ended = build.milliseconds(times.get("completed"))
        if info.get("summary") is True and info.get("finish") and not error:
            yield from self._summary(line, ended, info, parts)
            return
        yield from self._ask_in_vain()
        first = self.next
        for step in build.steps_of(parts):
            yield _call(line, info, step)
            yield from self._say(line, ended, "assistant", step.blocks)
            yield CallEnded(line, ended)
            yield from self._results(line, ended, step)
        yield from _links(line, ended, parts)
        self.tokens = _prompt_of(info)
        if error:
            yield from self._failed(line, ended, error, parts, first)

    def _results(self, line: int, time: int | None, step: build.AnswerStep) -> Iterator[Item]:
        if not step.results:
            return
        for call, at in step.cleared.items():
            self.clearing.append((at, self.next, call, step.results))
        yield from self._say(line, time, "user", step.results)

    def _failed(
        self,
        line: int,
        time: int | None,
        error: dict[str, Any],
        parts: list[dict[str, Any]],
        first: int,
    ) -> Iterator[Item]:
        """An answer that was broken off; it is sent again only where it says something."""
        aborted = error.get("name") == _ABORTED
        says = any(text_or_none(part.get("type")) not in _NO_WORDS for part in parts)
        gone = frozenset(one for one in self.shown if one >= first)
        if gone and not (aborted and says):
            self.shown = [one for one in self.shown if one < first]
            yield Undone(line, time, gone)
        if aborted:
            yield TurnEnded(line, time, "cancelled")
            return
        why = text_or_none(object_or_empty(error.get("data")).get("message"))
        yield TurnEnded(line, time, "error", why or text_or_none(error.get("name")) or "error")

    # -- compactions -----------------------------------------------------------------------------

    def _summary(
        self, line: int, time: int | None, info: dict[str, Any], parts: list[dict[str, Any]]
    ) -> Iterator[Item]:
        """A summary, with the question for it, in place of all before it but a kept tail."""
        asked, self.asked = self.asked, None
        steps = list(build.steps_of(parts))
        step = steps[-1]._replace(blocks=[block for one in steps for block in one.blocks])
        messages = [{"role": "assistant", "content": step.blocks}]
        part: dict[str, Any] = {}
        if asked is not None:
            messages.insert(0, {"role": "user", "content": build.told(asked[2])[0]})
            part = next(one for one in asked[2] if one.get("type") == "compaction")
        trigger = None if "auto" not in part else "auto" if part["auto"] is True else "manual"
        kept = self.places.get(str(part.get("tail_start_id")))
        yield CompactionItem(
            line,
            time,
            trigger,
            tuple(messages),
            kept_from=kept,
            tokens_before=self.tokens or None,
            # It is sent a text about the conversation, since release 1.18.
            asked=_call(line, info, step),
        )
        self.shown = [one for one in self.shown if kept is not None and one >= kept]

    def _clear(self, line: int, time: int) -> Iterator[Item]:
        """The results that were cleared before a time."""
        due = [one for one in self.clearing if one[0] < time]
        self.clearing = [one for one in self.clearing if one not in due]
        calls: dict[int, set[str]] = {}
        results: dict[int, list[Any]] = {}
        for _, place, call, whole in due:
            if place in self.shown:
                calls.setdefault(place, set()).add(call)
                results[place] = whole
        if calls:
            places = tuple(sorted(calls))
            shorter = [build.cleared(results[place], calls[place]) for place in places]
            messages = tuple([{"role": "user", "content": one} for one in shorter])
            yield ResultsCleared(line, max(one[0] for one in due), "prune", places, messages)


def _unreadable(line: int, row: dict[str, Any]) -> Iterator[Item]:
    """The files of a line that are no JSON."""
    for file, text in object_or_empty(row.get(UNREADABLE)).items():
        yield Raw(line, "unreadable", str(text).encode(), understood=False)
        yield Warned(line, f"{file} is not readable as JSON")


def _is_complete(row: Any) -> bool:
    """Whether a message is an answer that will not change any more."""
    info = object_or_empty(object_or_empty(row).get("info"))
    parts = [
        one for one in list_or_empty(object_or_empty(row).get("parts")) if isinstance(one, dict)
    ]
    completed = object_or_empty(info.get("time")).get("completed")
    return info.get("role") == "assistant" and bool(completed) and not build.is_running(parts)


def _never_answered(info: dict[str, Any]) -> bool:
    """Whether a message is of a call that ended before anything came, as a crash leaves it."""
    completed = object_or_empty(info.get("time")).get("completed")
    return info["role"] == "assistant" and not completed and not _prompt_of(info)


def _call(line: int, info: dict[str, Any], step: build.AnswerStep) -> ModelCall:
    tokens = object_or_empty(step.finish.get("tokens") or info.get("tokens"))
    return ModelCall(
        line,
        None,
        text_or_none(info.get("modelID")),
        text_or_none(info.get("providerID")),
        usage=with_prompt(read_usage(tokens, form_of_opencode(tokens))),
        finish_reason=text_or_none(step.finish.get("reason") or info.get("finish")),
    )


def _prompt_of(info: dict[str, Any]) -> int:
    tokens = object_or_empty(info.get("tokens"))
    usage = read_usage(tokens, form_of_opencode(tokens))
    return count(usage.prompt) if usage is not None else 0


def _links(line: int, time: int | None, parts: list[dict[str, Any]]) -> Iterator[Item]:
    """The sessions of the agents that calls started."""
    for part in parts:
        metadata = object_or_empty(object_or_empty(part.get("state")).get("metadata"))
        session = metadata.get("sessionId", metadata.get("sessionID"))
        if part.get("type") == "tool" and isinstance(session, str) and session:
            yield Linked(line, time, session, text_or_none(part.get("callID")))
