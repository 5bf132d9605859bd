"""Tasks of Cline and Roo Code, and the sessions of Cline's newer releases: JSON documents.

A task is a folder. ``api_conversation_history.json`` has the messages, and is what is imported; the
files next to it (``source/companions.py``) tell of requests (``task.py``).

Cline's newer releases keep a session in ``ID.messages.json``, with usage in each answer, and the
messages that stand for the last compaction in ``ID.compaction.json``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from eventctx.errors import MalformedTranscript
from eventctx.importers.formats.cline.task import MARKS, Task, row_time
from eventctx.importers.source.companions import SCREEN, TASK, companions
from eventctx.importers.source.document import JsonDocument, envelope, read_document, stem
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
    Warned,
    never,
)
from eventctx.importers.source.lines import (
    MAX_BYTES,
    count,
    list_or_empty,
    nanoseconds,
    not_understood,
    object_or_empty,
    text_or_none,
    without,
)
from eventctx.importers.source.naming import session_name
from eventctx.importers.source.values import encode, read_value
from eventctx.log.usage import COPILOT, read_usage, with_prompt
from eventctx.messages.facts_reader import read_facts

_AGENTS: Final = ("lead", "subagent", "teammate")
_LOOKED_AT: Final = 50
_INPUT: Final = re.compile(r"<user_input\b[^>]*>(.*)</user_input>", re.DOTALL)


def is_document(value: Any) -> bool:
    """Whether a value is a task's messages with their marks, or a session of newer releases."""
    if isinstance(value, dict):
        own = isinstance(value.get("sessionId"), str) and isinstance(value.get("version"), int)
        return own and value.get("agent") in _AGENTS and isinstance(value.get("messages"), list)
    return isinstance(value, list) and any(map(_is_marked, value[:_LOOKED_AT]))


def _is_marked(row: Any) -> bool:
    """Whether a row has the marks of Cline's answers, or of Roo Code's compactions."""
    if not isinstance(row, dict) or row.get("role") not in ("user", "assistant"):
        return False
    model = object_or_empty(row.get("modelInfo"))
    if isinstance(row.get("metrics"), dict) and "modelId" in model and "providerId" in model:
        return True
    marks = ("condenseId", "truncationId", *MARKS)
    return type(row.get("ts")) is int and any(isinstance(row.get(key), str) for key in marks)


def is_task(path: Path) -> bool:
    """Whether a file has the messages of a task by its name; the rows of old ones do not tell."""
    return path.name == TASK


def with_companions(path: Path, lines: Iterable[FileLine]) -> Iterator[FileLine]:
    """The lines of a document, then a line of the number 0 for each file that tells of it, too."""
    yield from lines
    for file in companions(path):
        large = file.stat().st_size > MAX_BYTES
        yield FileLine(0, file.name.encode() + b"\n" + (b"" if large else file.read_bytes()))


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one task or session; ``name`` is that of a task's session."""
    own, beside, warnings = [], dict[str, Any](), list[Warned]()
    for line in lines:
        if line.number:
            own.append(line)
        elif line.data:
            file, _, data = line.data.partition(b"\n")
            try:
                beside[file.decode()] = read_value(data)[0]
            except ValueError as error:
                text = f"{file.decode()}: expected JSON, found {error}; what it tells is not known"
                warnings.append(Warned(0, text))
    document = read_document(own, name)
    if isinstance(document.value, list):
        found = Task(stem(name), document.value, beside).items(ended)
    elif isinstance(document.value, dict) and isinstance(document.value.get("messages"), list):
        found = _session_items(document.value, stem(name), beside)
    else:
        raise MalformedTranscript(
            f"{name}: expected a list of a task's messages, or a session with 'messages', found "
            f"{type(document.value).__name__}; name another format with --format"
        )
    yield from _with_document(found, document, beside, warnings)


def _with_document(
    found: Iterator[Item], document: JsonDocument, beside: dict[str, Any], warnings: list[Warned]
) -> Iterator[Item]:
    """The items, with what is wrong with the files, and what of them is in no message."""
    yield from (item for item in (next(found, None),) if item is not None)
    yield from warnings
    yield from document.repaired
    yield from found
    for file, value in beside.items():
        # The screen shows the same texts a second time; what it tells of requests was taken.
        if file != SCREEN and "source_message_count" not in object_or_empty(value):
            kind = "session.json" if isinstance(document.value, dict) else file
            yield Raw(0, kind, encode(value), volatile=True)
    if isinstance(document.value, dict):
        prompt = isinstance(document.value.get("system_prompt"), str)
        yield envelope(document.value, "messages", *(("system_prompt",) if prompt else ()))


# -- sessions of newer releases --------------------------------------------------------------------


def _session_items(document: dict[str, Any], name: str, beside: dict[str, Any]) -> Iterator[Item]:
    """The items of ``ID.messages.json``."""
    rows = list_or_empty(document.get("messages"))
    origin = object_or_empty(document.get("origin"))
    parent = text_or_none(origin.get("parentThreadId"))
    times = (time for row in rows if (time := row_time(row)) is not None)
    yield Session(
        0,
        next(times, nanoseconds(document.get("updated_at"))),
        session_name(text_or_none(document.get("sessionId")) or name),
        agent=text_or_none(origin.get("subagent")),
        parent=session_name(parent) if parent else None,
    )
    prompt = document.get("system_prompt")
    if isinstance(prompt, str) and prompt:
        yield MessageItem(0, None, {"role": "system", "content": prompt})
    states = [object_or_empty(one) for one in beside.values()]
    state = next((one for one in states if "source_message_count" in one), {})
    for number, row in enumerate(rows, 1):
        yield from _session_row(number, row)
        if state.get("source_message_count") == number:
            yield from _compacted(number, state)


def _session_row(line: int, row: Any) -> Iterator[Item]:
    source = object_or_empty(row)
    role, content = source.get("role"), source.get("content")
    if role not in ("user", "assistant") or not isinstance(content, str | list):
        yield from not_understood(line, "untyped", encode(row), "a row without role and content")
        return
    message, time = _sent(source), row_time(source)
    changed = message["content"] != content
    yield Raw(
        line,
        role if changed else f"{role}.envelope",
        encode(source if changed else without(source, "content")),
    )
    if role == "assistant":
        model, usage = object_or_empty(source.get("modelInfo")), source.get("metrics")
        yield ModelCall(
            line,
            None,
            model=text_or_none(model.get("id")),
            provider=text_or_none(model.get("provider")),
            usage=with_prompt(read_usage(usage, COPILOT)) if isinstance(usage, dict) else None,
        )
        yield MessageItem(line, time, message)
        yield CallEnded(line, time)
        return
    about = object_or_empty(source.get("metadata"))
    by_harness = about.get("displayRole") == "system" or "kind" in about
    facts = read_facts(message)
    if facts.human and not by_harness:
        yield TurnBegan(line, time)
    yield MessageItem(line, time, message, by_harness=by_harness, facts=facts)


def _sent(row: dict[str, Any]) -> dict[str, Any]:
    """A stored message as it is sent: prompts without their frame, files and results as texts."""
    content = row["content"]
    if isinstance(content, str):
        return {"role": row["role"], "content": _unframed(content)}
    return {"role": row["role"], "content": [_sent_block(block) for block in content]}


def _sent_block(block: Any) -> Any:
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text" and isinstance(block.get("text"), str):
        return {**block, "text": _unframed(block["text"])}
    if kind == "file" and isinstance(block.get("content"), str):
        text = f'<file_content path="{block.get("path")}">\n{block["content"]}\n</file_content>'
        return {"type": "text", "text": text}
    if kind == "tool_result":
        result = block.get("content")
        shown = isinstance(result, str) or (
            isinstance(result, list) and all("type" in object_or_empty(one) for one in result)
        )
        # A result is of any form; what is no block is sent as JSON.
        return block if shown else {**block, "content": encode(result).decode()}
    return block


def _unframed(text: str) -> str:
    found = _INPUT.fullmatch(text.strip())
    return text if found is None else found[1]


def _compacted(line: int, state: dict[str, Any]) -> Iterator[Item]:
    """The last compaction: its messages stand for all before. Earlier ones are in no file."""
    rows = list(map(object_or_empty, list_or_empty(state.get("messages"))))
    messages = [_sent(row) for row in rows if isinstance(row.get("content"), str | list)]
    messages = [one for one in messages if one["role"] in ("user", "assistant")]
    about = [object_or_empty(row.get("metadata")) for row in rows]
    yield Raw(line, "compaction.envelope", encode(without(state, "messages")))
    if messages:
        yield CompactionItem(
            line,
            nanoseconds(state.get("updated_at")),
            next((reason for one in about if (reason := text_or_none(one.get("reason")))), None),
            tuple(messages),
            tokens_before=next((n for one in about if (n := count(one.get("tokensBefore")))), None),
        )
