"""The texts of a trace with contents: messages in the form of the GenAI conventions.

The forms are those of the conventions' JSON schemas for input and output messages (parts ``text``,
``tool_call``, ``tool_call_response``, ``reasoning``; anything else is a part of its own type).
Texts pass through ``clean``, which redacts, and long ones are cut: a trace is no copy of the log.
Signatures, encrypted reasoning and the bytes of images stay out.

A request contains messages of long ago, so the bodies of messages are kept for the requests to
come (``Texts``). Bodies that the view no longer shows are dropped when they have grown past a
limit, and erased bodies at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, compress
from typing import Any, Final

import msgspec

from eventctx.log.events import Erased, PostCompact
from eventctx.log.plan import Plan
from eventctx.log.record import Record
from eventctx.messages.encoding import decode_body
from eventctx.messages.parts import (
    SEALED,
    Part,
    hosted_arguments,
    parts_of_result,
    read_parts,
    role_of,
)
from eventctx.messages.tool_definitions import definitions_in, in_genais_form
from eventctx.projections.flat import read
from eventctx.projections.trace import semconv as conv
from eventctx.projections.trace.attributes import Attributes
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.refs import InsertionRef, MessageRef
from eventctx.projections.view.render import addresses, render
from eventctx.projections.view.state import ViewState

Clean = Callable[[str], str]

MAX_PART: Final = 16_384
"""Characters of one text in a part; the rest is counted."""
MARGIN: Final = 512
"""Characters beyond it that are redacted too, so that no part of a secret is left by the cut."""
_DEPTH: Final = 24

_HIDDEN: Final = frozenset(("signature", "encrypted_content", "data", "file_data", "image_url"))


def genai_message(
    message: dict[str, Any], clean: Clean, *, summary: bool = False
) -> dict[str, Any]:
    """A message as ``{"role": …, "parts": […]}``; JSON values only, all of them new.

    ``summary``: a compaction made it, so that its texts are the state of the conversation.
    """
    parts = [
        _compacted(message if part.kind == "thinking" else part.value, clean)
        if part.type == _COMPACTED
        else _part(part, clean)
        for part in read_parts(message)
        if part.type != "encrypted_content"
    ]
    if summary:
        parts = [one | {"type": _COMPACTED} if one["type"] == "text" else one for one in parts]
    role = role_of(message) or "assistant"
    if role == "function" or (parts and all(one["type"] == "tool_call_response" for one in parts)):
        role = "tool"
    return {"role": role, "parts": parts}


def plain_text(value: object, clean: Clean) -> str:
    """A value as text: itself, the texts of a list of blocks, else compact JSON."""
    if isinstance(value, str):
        return _cut(value, clean)
    if isinstance(value, list) and value:
        inner = parts_of_result(Part("result", (), value))
        if len(inner) == len(value) and all(part.kind == "text" for part in inner):
            return _cut("\n".join([part.value for part in inner]), clean)
    return msgspec.json.encode(_clean_value(value, clean, _Room())).decode()


def _part(part: Part, clean: Clean) -> dict[str, Any]:
    value, call_id = part.value, part.ids[0] if part.ids else None
    match part.kind:
        case "text" | "refusal":
            return {"type": "text", "content": _cut(value, clean)}
        case "thinking" if part.type in SEALED:
            return {"type": part.type}
        case "thinking":
            return {"type": "reasoning", "content": _cut(value, clean)}
        case "call":
            return _call(call_id, part.name, value, clean)
        case "result":
            return _response(call_id, value, clean)
        case "hosted" if part.type.endswith("_tool_result"):
            return _response(call_id, value.get("content", value.get("output")), clean)
        case "hosted":
            return _call(call_id, part.name, hosted_arguments(part), clean)
        case "image" | "document":
            modality = part.type.removeprefix("input_").partition("_")[0]
            return {"type": "blob", "modality": modality}
        case _:
            return {"type": part.type or "unknown", "content": plain_text(value, clean)}


_COMPACTED: Final = "compaction"
"""The part of a message that stands for messages which it replaces."""


def _compacted(block: Mapping[str, Any], clean: Clean) -> dict[str, Any]:
    """A provider's own compaction: its id, and its summary where that can be read."""
    made: dict[str, Any] = {"type": _COMPACTED}
    if isinstance(block.get("id"), str):
        made["id"] = block["id"]
    if isinstance(block.get("content"), str):
        made["content"] = _cut(block["content"], clean)
    return made


def _call(call_id: object, name: object, arguments: object, clean: Clean) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "tool_call", "name": name if isinstance(name, str) else "?"}
    if isinstance(call_id, str):
        made["id"] = call_id
    made["arguments"] = plain_text("" if arguments is None else arguments, clean)
    return made


def _response(call_id: object, content: object, clean: Clean) -> dict[str, Any]:
    made: dict[str, Any] = {"type": "tool_call_response"}
    if isinstance(call_id, str):
        made["id"] = call_id
    made["response"] = plain_text("" if content is None else content, clean)
    return made


def _cut(text: str, clean: Clean) -> str:
    """The beginning of a text, redacted; the rest is not read, however long it is."""
    # Clean first: a secret that is cut in two is no longer recognised, and half of it would leave.
    begin, kept = clean(text[: MAX_PART + MARGIN]), MAX_PART
    if len(text) <= MAX_PART + MARGIN:
        text = begin
        if len(text) <= MAX_PART:
            return text
    else:
        kept = min(MAX_PART, max(0, len(begin) - MARGIN))
    return f"{begin[:kept]}… [{len(text) - kept:,} characters more]"


class _Room:
    """How many characters of a nested value may still be shown."""

    def __init__(self) -> None:
        self.left = MAX_PART


def _clean_value(value: object, clean: Clean, room: _Room, depth: int = 0) -> object:
    room.left -= len(value) if isinstance(value, str) else 1
    if isinstance(value, str):
        return _cut(value, clean)
    if depth > _DEPTH:
        return "…"
    if isinstance(value, list):
        items: list[object] = []
        for item in value:
            if room.left <= 0:
                items.append(f"… [{len(value) - len(items):,} items more]")
                break
            items.append(_clean_value(item, clean, room, depth + 1))
        return items
    if isinstance(value, dict):
        fields: dict[str, object] = {}
        for key, item in value.items():
            if room.left <= 0:
                fields["…"] = f"[{len(value) - len(fields):,} fields more]"
                break
            room.left -= len(str(key))
            hidden = key in _HIDDEN
            name = _cut(str(key), clean)
            fields[name] = "…" if hidden else _clean_value(item, clean, room, depth + 1)
        return fields
    return value


# -- lists of messages as one attribute ----------------------------------------------------------

MAX_CONTENT: Final = 262_144
"""Most characters of one attribute; beyond it, the oldest messages are left out."""


def to_json(value: object) -> str:
    """A value as compact JSON."""
    return msgspec.json.encode(value).decode()


def array(texts: Iterable[str]) -> str:
    """A JSON array of values that are JSON already."""
    return f"[{','.join(texts)}]"


def text_message(role: str, words: str) -> dict[str, Any]:
    """A message of one text in the form of the conventions."""
    return {"role": role, "parts": [{"type": "text", "content": words}]}


def newest(texts: Sequence[str]) -> list[str]:
    """The last messages, in JSON, that fit into one attribute; one more tells of those left out."""
    kept, size = len(texts), 0
    while kept > 0 and size + len(texts[kept - 1]) <= MAX_CONTENT:
        kept -= 1
        size += len(texts[kept])
    if not kept:
        return list(texts)
    words = f"[{kept} earlier messages are left out of this span; they are in the log]"
    return [to_json(text_message("system", words)), *texts[kept:]]


NOT_KEPT: Final = to_json(text_message("user", "[a message left out of this span; the log has it]"))
"""Stands for a message whose text was dropped while it was out of view."""


# -- definitions of tools ------------------------------------------------------------------------

_LISTS: Final = 128  # most names of lists that are kept


class Tools(msgspec.Struct, frozen=True):
    """Definitions of tools: what the last ones say, by tool; lists as JSON, by ``tools_of``."""

    described: dict[str, str] = {}
    of_requests: dict[str, str] = {}

    def after(self, names: Iterable[str], body: object, clean: Clean) -> Tools:
        """With the definitions of a body, whose list has these names."""
        forms = [in_genais_form(one) for one in definitions_in(body)]
        words = {form["name"]: form.get("description") for form in forms}
        texts = [plain_text(form, clean) for form in forms]
        kept = array(compress(texts, (size <= MAX_CONTENT for size in accumulate(map(len, texts)))))
        known = self.of_requests | dict.fromkeys(names, kept)
        return Tools(
            {name: _cut(said, clean) for name, said in words.items() if isinstance(said, str)},
            dict(list(known.items())[-_LISTS:]),
        )

    def without(self, event: Erased) -> Tools:
        """Without any, if one of their bodies is among those that the event lists as erased."""
        gone = any(f"{at}.{index}" in self.of_requests for at, index in event.bodies)
        return Tools() if gone else self


# -- bodies kept for later requests --------------------------------------------------------------

MAX_KEPT: Final = 8 * 2**20
"""Bytes of bodies above which those out of view are dropped; more if the view itself is larger."""


class Texts(msgspec.Struct, frozen=True):
    """The texts kept of one stream.

    ``bodies`` are by position and index, None for an erased one; ``made`` are messages in the
    conventions' form, as JSON, by entry of a view. Entries of both are only added, never changed,
    so several ``Texts`` may share the dicts. ``size`` is that of the bodies in bytes; above
    ``limit``, bodies out of view are dropped.
    """

    bodies: dict[tuple[int, int], bytes | None]
    made: dict[Entry, str]
    size: int = 0
    limit: int = MAX_KEPT


def no_texts() -> Texts:
    """The texts of a stream without records."""
    return Texts({}, {})


def keep_bodies(texts: Texts, record: Record) -> Texts:
    """The texts with the bodies of ``record``, if it was read with its bodies."""
    grown = 0
    for index, body in enumerate(record.bodies):
        if body.data is not None or body.erased:
            texts.bodies[record.position, index] = body.data
            grown += len(body.data or b"")
    return msgspec.structs.replace(texts, size=texts.size + grown) if grown else texts


def forget_bodies(texts: Texts, view: ViewState) -> Texts:
    """The texts without those that ``view`` does not show, once they are above the limit."""
    if texts.size <= texts.limit:
        return texts
    entries = view.layout.entries()
    places = [(one.position, one.index) for one in addresses(entries)]
    bodies = {place: texts.bodies[place] for place in places if place in texts.bodies}
    made = {entry: texts.made[entry] for entry in entries if entry in texts.made}
    size = sum([len(data or b"") for data in bodies.values()])
    return Texts(bodies, made, size, max(MAX_KEPT, 2 * size))


def erase_bodies(texts: Texts, event: Erased) -> Texts:
    """The texts without the bodies that the event lists as erased."""
    gone = dict.fromkeys(event.bodies)
    bodies = texts.bodies | {place: None for place in gone if place in texts.bodies}
    made = {
        entry: text
        for entry, text in texts.made.items()
        if not any((one.position, one.index) in gone for one in addresses([entry]))
    }
    size = sum([len(data or b"") for data in bodies.values()])
    return Texts(bodies, made, size, texts.limit)


def message_of_entry(texts: Texts, entry: Entry, clean: Clean) -> str | None:
    """The message of an entry in the conventions' form, as JSON; None if its body is not kept.

    ``clean`` redacts a text.
    """
    known = texts.made.get(entry)
    if known is None:
        places = [(one.position, one.index) for one in addresses([entry])]
        if any(place not in texts.bodies for place in places):
            return None
        (message,) = render([entry], {place: texts.bodies[place] for place in places})
        summary = isinstance(entry.ref, InsertionRef) and entry.ref.kind == "summary"
        known = to_json(genai_message(message, clean, summary=summary))
        texts.made[entry] = known
    return known


# -- a compaction: what left the view is its input, what was put in its output -------------------

_GONE: Final = frozenset(("dropped", "summarised", "merged"))


def compaction_contents(view: ViewState, texts: Texts, record: Record, clean: Clean) -> Attributes:
    """The contents of the compaction that ``record`` ends; none if it was not applied.

    ``view`` and ``texts`` are those before ``record``. ``clean`` redacts a text.
    """
    event = read(record)
    if not isinstance(event, PostCompact) or event.plan is None:
        return {}
    found: Attributes = {}
    gone = _gone(event.plan)
    left = [entry for entry in view.layout.entries() if _leaves(entry, event.plan, gone)]
    shown = [message_of_entry(texts, entry, clean) for entry in left]
    if any(shown):
        found[conv.INPUT_MESSAGES] = array(newest([text or NOT_KEPT for text in shown]))
    put, summaries = _insertions(event.plan, texts, record, clean)
    if put:
        found[conv.OUTPUT_MESSAGES] = array(newest(put))
    if summaries:
        found[conv.COMPACTION_SUMMARY] = "\n".join(summaries)[:MAX_CONTENT]
    return found


def _gone(plan: Plan) -> list[range]:
    return [range(run.first, run.last + 1) for run in plan.runs if run.disposition in _GONE]


def _leaves(entry: Entry, plan: Plan, gone: list[range]) -> bool:
    """Whether an entry of the view before the plan is not in the view after it."""
    ref = entry.ref
    if entry.kind == "message" and isinstance(ref, MessageRef):
        return any(ref.number in numbers for numbers in gone)
    if entry.kind == "insertion" and isinstance(ref, InsertionRef):
        return all((one.at, one.body) != (ref.position, ref.index) for one in plan.insertions)
    return False


def _insertions(
    plan: Plan, texts: Texts, record: Record, clean: Clean
) -> tuple[list[str], list[str]]:
    """The messages that the plan puts in anew, and the plain texts of all its summaries."""
    put: list[str] = []
    summaries: list[str] = []
    for one in plan.insertions:
        data = _body(texts.bodies, record, one.at, one.body)
        if data is None:
            continue
        message = decode_body(data)
        if one.at is None:
            made = genai_message(message, clean, summary=one.kind == "summary")
            put.append(to_json({**made, "finish_reason": ""}))
        if one.kind == "summary":
            summaries.append(plain_text(message.get("content"), clean))
    return put, summaries


def _body(
    known: Mapping[tuple[int, int], bytes | None], record: Record, at: int | None, index: int
) -> bytes | None:
    if at is not None:
        return known.get((at, index))
    return record.bodies[index].data if index < len(record.bodies) else None
