"""pi's session JSONL: entries in a row (version 1) or in a tree (``id`` and ``parentId``).

The content of a line's message becomes our message (``pi_entries.py``); the rest of the line is
kept next to it. A compaction names the first entry that it keeps, by its index in the file or, in a
tree, by its id. Where an entry's parent is not the previous entry, the conversation went back to
that parent (``pi_entries.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from eventctx.importers.formats import pi_entries
from eventctx.importers.formats.pi_entries import Tree, TreeEntry
from eventctx.importers.source.document import stem
from eventctx.importers.source.items import (
    Branched,
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
    nanoseconds,
    not_understood,
    object_or_empty,
    parse_rows,
    text_or_none,
    without,
)
from eventctx.importers.source.naming import session_name
from eventctx.importers.source.values import decode, encode
from eventctx.log.usage import PI, read_usage, with_prompt
from eventctx.messages.facts_reader import read_facts

_KNOWN: Final = frozenset(
    ("session", "model_change", "thinking_level_change", "custom", "label", "session_info")
)
TYPES: Final = _KNOWN | {"message", "compaction", "branch_summary", "custom_message"}
"""Every known ``type`` of an entry."""


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is an entry of a session."""
    kind = value.get("type")
    if kind == "session":
        return "cwd" in value
    if kind in ("custom", "label", "session_info"):
        return "parentId" in value
    if kind == "message":
        # Other programs write this type, too, with the role in the line itself.
        return "timestamp" in value and isinstance(value.get("message"), dict)
    return text_or_none(kind) in TYPES and "timestamp" in value


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one session file. ``name`` is used where no line gives a session id."""
    conversation = _Conversation(name)
    try:
        yield from parse_rows(lines, decode, conversation.row, conversation.end())
    finally:
        conversation.tree.close()


class _Conversation:
    def __init__(self, name: str) -> None:
        self.name = stem(name)
        self.begun = False
        self.places = 0
        self.places_before: list[int] = []
        self.tree = Tree()
        self.broke_off: str | None = None

    def row(self, line: int, data: bytes, row: Any) -> Iterator[Item]:
        """The items of one line."""
        kind = row.get("type") if isinstance(row, dict) else None
        self.places_before.append(self.places)
        if not isinstance(kind, str):
            yield from self._begin(line, {})
            yield from not_understood(line, "untyped", data, "an entry without a type")
            return
        yield from self._begin(line, row if kind == "session" else {})
        if kind == "session":
            yield Raw(line, kind, data)
            return
        yield from self._place(line, row)
        time = nanoseconds(row.get("timestamp"))
        if kind == "message":
            yield from self._message(line, time, data, row)
        elif kind == "compaction":
            yield from self._compaction(line, time, data, row)
        elif kind in ("custom_message", "branch_summary"):
            yield from self._insert(line, time, data, row)
        else:
            yield Raw(line, kind, data, kind in _KNOWN)
            self._enter(row)

    def _begin(self, line: int, header: dict[str, Any]) -> Iterator[Item]:
        if self.begun:
            return
        self.begun = True
        session = text_or_none(header.get("id")) or self.name
        before = text_or_none(header.get("parentSession", header.get("branchedFrom")))
        parent = None
        if before:
            # It is a path: <time>_<id>.jsonl.
            parent = session_name(stem(before.replace("\\", "/").rpartition("/")[2]).split("_")[-1])
        yield Session(
            line, nanoseconds(header.get("timestamp")), session, parent=parent, link="branch"
        )

    # -- the tree --------------------------------------------------------------------------------

    def _place(self, line: int, row: dict[str, Any]) -> Iterator[Item]:
        """Go to the entry's parent, if the conversation is not already there."""
        entry, parent = row.get("id"), row.get("parentId")
        if not isinstance(entry, str) or "parentId" not in row or parent == self.tree.leaf:
            return
        if self.tree.known(entry):
            yield Warned(line, "an entry's id that another entry has already")
        if parent is not None and not self.tree.known(parent):
            if self.tree.leaf is not None:
                yield Warned(line, "the entry's parent is not in the file; file order is followed")
            return
        order, harness = self.tree.go_to(parent, self.places)
        self.places += sum(not isinstance(one, int) for one in order)
        yield Branched(line, nanoseconds(row.get("timestamp")), tuple(order), harness)

    def _enter(
        self,
        row: dict[str, Any],
        message: dict[str, Any] | None = None,
        by_harness: bool = False,
    ) -> None:
        """Remember the entry, and the message just yielded for it."""
        entry = self._entry(row)
        if entry is not None:
            entry.place = None if message is None else self.places - 1
            entry.by_harness = by_harness
            self.tree.add(entry, message)

    def _entry(self, row: dict[str, Any]) -> TreeEntry | None:
        """The line's entry in the tree; None in files of version 1, which have no tree."""
        entry, parent = row.get("id"), row.get("parentId")
        if not isinstance(entry, str) or "parentId" not in row:
            return None
        return TreeEntry(
            entry, parent if parent is None or self.tree.known(parent) else self.tree.leaf
        )

    # -- entries ---------------------------------------------------------------------------------

    def _message(
        self, line: int, time: int | None, data: bytes, row: dict[str, Any]
    ) -> Iterator[Item]:
        source = object_or_empty(row.get("message"))
        kind = f"message/{source.get('role')}"
        message = pi_entries.convert(source)
        if message is None:
            known = pi_entries.not_sent(source)
            yield Raw(line, kind, data, known)
            if not known:
                yield Warned(line, "a message of a role or a shape that is not known")
            elif source.get("role") == "assistant":
                yield from self._answer(line, time, source, None)
            self._enter(row)
            return
        if source.get("role") == "bashExecution":
            yield Raw(line, kind, data)
        else:
            rest = {**row, "message": without(source, "content")}
            yield Raw(line, f"{kind}.envelope", encode(rest))
        by_harness = pi_entries.by_harness(source)
        if source.get("role") == "assistant":
            yield from self._answer(line, time, source, message)
        else:
            facts = read_facts(message) if source.get("role") == "user" else None
            if facts is not None and facts.human:
                yield from self._failed(line, time)
                yield TurnBegan(line, time)
            yield MessageItem(line, time, message, by_harness=by_harness, facts=facts)
        self.places += 1
        self._enter(row, message, by_harness)

    def _answer(
        self, line: int, time: int | None, source: dict[str, Any], message: dict[str, Any] | None
    ) -> Iterator[Item]:
        reason = text_or_none(source.get("stopReason"))
        yield ModelCall(
            line,
            None,
            model=text_or_none(source.get("model")),
            provider=text_or_none(source.get("provider")),
            usage=with_prompt(read_usage(source.get("usage"), PI)),
            output_exact=text_or_none(source.get("stopReason")) not in pi_entries.BROKEN_OFF,
            finish_reason=reason,
            response_id=text_or_none(source.get("responseId")),
        )
        if message is not None:
            yield MessageItem(line, time, message)
        yield CallEnded(line, time)
        self.broke_off = None
        if reason == "aborted":
            yield TurnEnded(line, time, "cancelled")
        elif reason == "error":
            # pi may try again; only a person's next message shows that it did not.
            self.broke_off = text_or_none(source.get("errorMessage")) or "error"

    def _failed(self, line: int, time: int | None) -> Iterator[Item]:
        if self.broke_off is not None:
            yield TurnEnded(line, time, "error", self.broke_off)
            self.broke_off = None

    def _insert(
        self, line: int, time: int | None, data: bytes, row: dict[str, Any]
    ) -> Iterator[Item]:
        """A message that an extension or a change of branch inserted."""
        kind, field = row["type"], "content"
        if kind == "custom_message":
            message = pi_entries.convert({"role": "custom", "content": row.get("content")})
        else:
            field, summary = "summary", text_or_none(row.get("summary"))
            message = pi_entries.branch_summary_of(summary) if summary else None
        if message is None:
            empty = row.get(field) == ""
            yield Raw(line, kind, data, understood=empty)
            if not empty:
                yield Warned(line, f"a {kind} without {field}")
            self._enter(row)
            return
        yield Raw(line, f"{kind}.envelope", encode(without(row, field)))
        yield MessageItem(line, time, message, by_harness=True)
        self.places += 1
        self._enter(row, message, by_harness=True)

    def _compaction(
        self, line: int, time: int | None, data: bytes, row: dict[str, Any]
    ) -> Iterator[Item]:
        summary = text_or_none(row.get("summary"))
        if summary is None:
            problem = "a compaction without its summary"
            yield from not_understood(line, "compaction", data, problem)
            self._enter(row)
            return
        kept_from = self._kept_from(row)
        if kept_from is None:
            yield Warned(line, "the first message that the compaction keeps is not in the file")
        message = pi_entries.summary_of(summary)
        yield Raw(line, "compaction.envelope", encode(without(row, "summary")))
        trigger = "extension" if row.get("fromHook") is True else None
        before = count(row.get("tokensBefore")) or None
        yield CompactionItem(
            line, time, trigger, (message,), kept_from=kept_from, tokens_before=before
        )
        entry = self._entry(row)
        if entry is not None:
            entry.compacts, entry.first_kept = True, row.get("firstKeptEntryId")
            self.tree.add(entry, message)

    def _kept_from(self, row: dict[str, Any]) -> int | None:
        index = row.get("firstKeptEntryIndex")
        if "firstKeptEntryId" in row:
            return self.tree.kept_from(row["firstKeptEntryId"])
        if isinstance(index, int) and 0 <= index < len(self.places_before):
            return self.places_before[index]
        return None

    def end(self) -> Iterator[Item]:
        """Nothing but a missing session waits, because pi writes every entry whole."""
        if not self.begun:
            yield Waiting(1, "no line names the session yet")
