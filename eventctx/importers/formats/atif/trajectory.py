"""ATIF, the Agent Trajectory Interchange Format of Harbor (1.0 to 1.8): one document a trajectory.

A step becomes messages of its own (``steps.py``), one call of the model and its results.
``context_management`` with the boundary ``replace`` is a compaction: the step's observation, else
the next prompt, replaces what came before. In ``is_copied_context`` steps no model is called: they
happened in another trajectory. One that goes on in the file next to it (``X.cont-1.json``) is read
with that: the copied steps there are what its compaction left. Embedded subagents are sessions.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from eventctx.errors import MalformedTranscript
from eventctx.importers.formats.atif.files import CONTINUATIONS, continuations_of
from eventctx.importers.formats.atif.own import OwnSteps, is_ours, marks_of
from eventctx.importers.formats.atif.steps import (
    StepMessages,
    boundary_of,
    is_step,
    is_summary,
    links_of,
    messages_of,
    rest_of,
    results_of,
)
from eventctx.importers.source.document import envelope, read_document, read_object, stem
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
    Session,
    TurnBegan,
    Waiting,
    Warned,
    never,
)
from eventctx.importers.source.lines import (
    list_or_empty,
    nanoseconds,
    not_understood,
    object_or_empty,
    read_lines,
    text_of_content,
    text_or_none,
    without,
)
from eventctx.importers.source.values import encode
from eventctx.log.usage import ATIF, read_usage, with_prompt
from eventctx.messages.facts_reader import read_facts

_EMBEDDED: Final = "subagent_trajectories"


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one trajectory file, with those of the files in which it goes on."""
    document, repaired = read_object(lines, name, "steps")
    agent = object_or_empty(document.get("agent"))
    parent = text_or_none(object_or_empty(agent.get("extra")).get("parent_session_id"))
    yield from _Trajectory(document, _session_of(document, name), parent).items(ended, repaired)


def others(path: Path) -> list[Parser]:
    """A parser for each subagent whose trajectory is embedded in that of the file.

    Those in the files in which it goes on count, too.
    """
    try:
        data = path.read_bytes()
        if _EMBEDDED.encode() not in data and b".cont-" not in data:
            return []
        lines = list(read_lines(path))
        first = object_or_empty(read_document(lines, path.name).value)
    except (OSError, MalformedTranscript):
        return []  # a file that was followed may be gone, or half written
    found: list[Parser] = []
    session = _session_of(first, path.name)
    for document in (first, *continuations_of(path, lines)):
        _collect(document, session, found)
    return found


def _collect(document: dict[str, Any], session: str, found: list[Parser]) -> None:
    for number, one in enumerate(_embedded_in(document), 1):
        if not _is_trajectory(one):
            continue
        ours = text_or_none(marks_of(one).get("session")) if is_ours(one) else None
        trajectory = text_or_none(one.get("trajectory_id")) or str(number)
        name = ours or _embedded_name(session, trajectory)
        found.append(_embedded(one, name, session))
        _collect(one, name, found)


def _embedded_in(document: dict[str, Any]) -> list[Any]:
    return list_or_empty(document.get(_EMBEDDED))


def _is_trajectory(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("steps"), list)


def _embedded(document: dict[str, Any], session: str, parent: str) -> Parser:
    def parse_one(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
        return _Trajectory(document, session, parent).items(ended, [])

    return parse_one


def _session_of(document: dict[str, Any], name: str) -> str:
    """The session's name: the trajectory's own id, since a run's may be that of several.

    Of an agent that names no session, Harbor's converters write ``unknown``.
    """
    ids = (document.get("trajectory_id"), document.get("session_id"))
    named = (one for one in ids if isinstance(one, str) and one not in ("", "unknown"))
    return next(named, stem(name))


def _embedded_name(session: str, trajectory: str) -> str:
    return f"{session}.agent-{trajectory}"


# -- steps ---------------------------------------------------------------------------------------


class _Trajectory:
    """The steps of a document, and of those in which it goes on, as one session."""

    def __init__(self, document: dict[str, Any], session: str, parent: str | None) -> None:
        self.document = document
        self.session = session
        self.parent = parent
        self.model = text_or_none(object_or_empty(document.get("agent")).get("model_name"))
        self.own = OwnSteps()
        self.line = 0
        self.begun = False
        self.places = 0
        self.in_view: dict[bytes, int] = {}
        self.system: set[int] = set()

    def items(self, ended: Ended, repaired: list[Raw]) -> Iterator[Item]:
        """All items."""
        documents = [self.document, *list_or_empty(self.document.get(CONTINUATIONS))]
        steps = [list_or_empty(object_or_empty(one).get("steps")) for one in documents]
        agent = text_or_none(object_or_empty(self.document.get("agent")).get("name"))
        times = (nanoseconds(object_or_empty(step).get("timestamp")) for step in steps[0])
        begin = next((time for time in times if time is not None), None)
        yield Session(0, begin, self.session, agent=agent, parent=self.parent)
        yield from repaired
        own = is_ours(self.document)
        for number, rows in enumerate(steps):
            if own:
                yield from self._ours(rows)
                continue
            # What a compaction left is in the next file, if there is one.
            yield from self._segment(rows, ended, goes_on=number + 1 < len(steps), first=not number)
        yield from self.own.end_compaction()
        yield from self._unread(documents[-1])
        for one in map(object_or_empty, documents):
            embedded = one.get(_EMBEDDED)
            if isinstance(embedded, list):
                odd = [sub for sub in embedded if not _is_trajectory(sub)]
                one = {**one, _EMBEDDED: odd} if odd else without(one, _EMBEDDED)
            yield envelope(one, "steps", CONTINUATIONS)

    def _ours(self, rows: list[Any]) -> Iterator[Item]:
        """The items of steps that eventctx exported."""
        for row in rows:
            yield from self.own.read(row)
        self.line = self.own.line

    def _unread(self, last: Any) -> Iterator[Item]:
        following = text_or_none(object_or_empty(last).get("continued_trajectory_ref"))
        if following:
            words = f"the trajectory goes on in {following}, which was not found next to this file"
            yield Warned(self.line, words)

    def _segment(
        self, rows: list[Any], ended: Ended, *, goes_on: bool, first: bool
    ) -> Iterator[Item]:
        """The items of one document's steps; of a later one, the copied steps come first."""
        start = 0
        if not first:
            copied = [bool(object_or_empty(row).get("is_copied_context")) for row in rows]
            start = copied.index(False) if False in copied else len(copied)
            yield from self._compaction(rows[:start], self.line + start)
        boundaries = [place for place, row in enumerate(rows) if boundary_of(row) == "replace"]
        last = boundaries[-1] if boundaries else -1
        place = start
        while place < len(rows):
            self.line += 1
            row = rows[place]
            if boundary_of(row) == "replace":
                taken = yield from self._replace(row, rows[place + 1 :], ended, goes_on=goes_on)
                if taken is None:
                    return
                place += taken
            elif is_summary(row) and self.places:
                self.line -= 1
                yield from self._compaction([row], self.line + 1)
            else:
                yield from self._step(row, before_boundary=place < last)
            place += 1

    def _compaction(
        self, rows: list[Any], line: int, told: tuple[dict[str, Any], ...] = ()
    ) -> Iterator[Item]:
        """A compaction that leaves the messages of these rows, after those that it was told."""
        left = list(told)
        time = None
        for row in rows:
            self.line += 1
            yield rest_of(self.line, row)
            own, results = messages_of(row) if is_step(row) else StepMessages(None, [])
            left += [] if own is None else [own]
            left += [message for message, _ in results]
            time = nanoseconds(object_or_empty(row).get("timestamp")) or time
        kept = self._stay(left)
        if not kept:
            yield CompactionItem(line, time, None, tuple(left))
            return
        gone = frozenset(range(self.places)) - set(kept) - self.system
        messages = tuple(left[len(kept) :])
        if gone or messages:
            yield CompactionItem(line, time, None, messages, forgotten=gone, before=self.places)

    def _stay(self, left: list[dict[str, Any]]) -> list[int]:
        """The places of messages that are still there, and begin what a compaction left."""
        kept: list[int] = []
        for message in left:
            place = self.in_view.get(_digest(message))
            if place is None or (kept and place < kept[-1]):
                break
            kept.append(place)
        self.in_view = {data: place for data, place in self.in_view.items() if place in kept}
        return kept

    def _message(self, item: MessageItem) -> MessageItem:
        self.in_view[_digest(item.message)] = self.places
        if item.message["role"] == "system":
            self.system.add(self.places)
        self.places += 1
        return item

    def _replace(
        self, row: dict[str, Any], following: list[Any], ended: Ended, *, goes_on: bool
    ) -> Generator[Item, None, int | None]:
        """The items of a boundary; returns the number of further steps taken, None at the end."""
        line = self.line
        yield Raw(line, "boundary", encode(row))
        yield from self._links(line, row)
        told = [text_of_content(one.get("content")) for one in results_of(row)]
        texts = "\n".join([one for one in told if one])
        if texts:
            yield from self._compaction([], line, ({"role": "user", "content": texts},))
            return 0
        if goes_on and not following:
            return 0
        if not following and not ended():
            yield Waiting(line, "the step that a compaction goes on with is not written yet")
            return None
        copied = [bool(object_or_empty(row).get("is_copied_context")) for row in following]
        left = copied.index(False) if False in copied else len(copied)
        # Without copies of what it left, the next prompt is what it left.
        left = left or int(
            object_or_empty(following[0] if following else 0).get("source") == "user"
        )
        yield from self._compaction(following[:left], line + left)
        return left

    def _step(self, row: Any, *, before_boundary: bool) -> Iterator[Item]:
        line = self.line
        if not is_step(row):
            yield from not_understood(line, "step", encode(row), "a step without a known source")
            return
        yield rest_of(line, row)
        time = nanoseconds(row.get("timestamp"))
        own, results = messages_of(row)
        calls = row["source"] == "agent" and row.get("llm_call_count") != 0
        if row.get("is_copied_context") is True:
            # A compaction marks the steps before it, too, which were called here.
            calls = calls and before_boundary and bool(row.get("metrics"))
        if calls:
            yield self._call(line, row)
        elif own is not None and own["role"] == "user" and read_facts(own).human:
            # Of copied prompts the first one alone begins a turn: the task that is worked on.
            if not (self.begun and row.get("is_copied_context") is True):
                yield TurnBegan(line, time)
            self.begun = True
        if own is not None:
            yield self._message(MessageItem(line, time, own))
        if calls:
            yield CallEnded(line, None)
        for message, failed in results:
            observes = message["role"] == "user"
            yield self._message(MessageItem(line, time, message, failed, observes, observes))
        yield from self._links(line, row)
        if (boundary := boundary_of(row)) is not None:
            words = f"a step changed the context ({boundary}), and the file does not say how"
            yield Warned(line, words)

    def _call(self, line: int, row: dict[str, Any]) -> ModelCall:
        # Of several calls the metrics are a sum, which is the size of no prompt.
        several = type(row.get("llm_call_count")) is int and row["llm_call_count"] > 1
        usage = None if several else with_prompt(read_usage(row.get("metrics"), ATIF))
        return ModelCall(line, None, text_or_none(row.get("model_name")) or self.model, usage=usage)

    def _links(self, line: int, row: dict[str, Any]) -> Iterator[Item]:
        """The trajectories of subagents that a step's results name."""
        time = nanoseconds(row.get("timestamp"))
        for ref, call in links_of(row):
            file = text_or_none(ref.get("trajectory_path"))
            own = text_or_none(ref.get("trajectory_id"))
            name = _embedded_name(self.session, own) if own and not file else None
            name = name or own or text_or_none(ref.get("session_id"))
            name = name or (stem(Path(file).name) if file else None)
            if name:
                yield Linked(line, time, name, call)


def _digest(message: dict[str, Any]) -> bytes:
    return blake2b(encode(message), digest_size=16).digest()
