"""The one normal form of a message: its parts, of the same kinds in every dialect.

The log keeps messages as they were given, in any dialect: Anthropic blocks, OpenAI chat, OpenAI
Responses items (which have a ``type`` where others have a role), Amplifier rows, and the variants
of OpenAI chat that SWE-agent and mini-swe-agent write. This module and ``response_items`` alone
know them. Facts, shortening, search, traces, screens and conversions read parts, so all of them see
the same content, and a new dialect is a new reader here.

Invariants:

- Everything that has content is a part. A block of an unknown type is a part of kind ``other``.
- A part's ``value`` is the object at its ``place`` in the raw message, so a text can be changed in
  a copy of the message without knowing its dialect. Where the place is empty, the value is None, or
  an empty text for thinking. Reading copies and changes nothing.
- Reading never raises. A host may put any JSON anywhere, so a block's type is looked up only if it
  is a string, and a value of another type than its key should have becomes ``other``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec

from eventctx.messages import response_items as items
from eventctx.messages.facts import Dialect
from eventctx.messages.tool_rounds import BY_NAME

PartKind = Literal[
    "text", "thinking", "refusal", "image", "document", "call", "result", "hosted", "other"
]
"""``hosted``: a call that the provider answers itself, or its result; nothing waits for it."""

Place = tuple[str | int, ...]
"""The keys and indexes that lead from a message to a value in it."""

RESULT_ROLES: Final = ("tool", "function")

_TYPED_OUTPUTS: Final = ("shell_call_output", "computer_call_output", "tool_search_output")


class Part(msgspec.Struct, frozen=True, gc=False):
    """A piece of a message. ``value`` is the raw value at ``place``.

    The value of a text, a thinking part and a refusal is a string; of a call its arguments and of
    a result its content, unchanged; of all others the block. ``type`` is the block's own
    type, empty where it has none. ``ids`` are the ids of the call, or of the calls that a result
    answers: ``function:`` and the name where the dialect has no ids. ``name`` is the tool's.
    ``failed`` marks a result that is an error. ``dialect`` is set where a part shows the dialect of
    its message. ``signature`` is a thinking block's.
    """

    kind: PartKind
    place: Place
    value: Any
    type: str = ""
    ids: tuple[str, ...] = ()
    name: str | None = None
    failed: bool = False
    dialect: Dialect | None = None
    signature: str = ""


SEALED: Final = frozenset(("redacted_thinking", "encrypted_content", "compaction"))
"""Types of encrypted thinking: it counts, but cannot be read."""


def role_of(message: dict[str, Any]) -> str | None:
    """The role of a message, given or by its item type; None if it has neither.

    That of an item of an unknown type is ``item``.
    """
    role = message.get("role")
    if isinstance(role, str) and role:
        return role
    if not items.is_item(message):
        return None
    return items.describe(message).role


def read_parts(message: dict[str, Any], *, copies: bool = False) -> list[Part]:
    """The parts of a message, in the order in which a model is shown them.

    Amplifier rows hold every call and the thinking in two places; the second is read only with
    ``copies``. Never raises: an unknown item is one part of kind ``other``.
    """
    if isinstance(message.get("role"), str):
        return _read_row(message, copies)
    found: list[Part] = []
    if items.is_item(message):
        _read_item(message, found)
    elif message:
        found.append(Part("other", (), message))
    return found


def parts_of_result(part: Part) -> list[Part]:
    """The parts of a result's content; blocks of types that no result has are ``other``."""
    value = part.value
    if part.type in _TYPED_OUTPUTS and value is not None and not isinstance(value, str):
        return _parts_of_output(part)
    if not isinstance(value, list):
        return [] if value is None else [_read_bare(value, part.place)]
    found: list[Part] = []
    _read_blocks(value, part.place, _INNER_READERS, found)
    return found


def kind_of_block(block: Mapping[str, Any]) -> PartKind:
    """The kind of part that a block of a message's content is."""
    found: list[Part] = []
    _read_blocks([dict(block)], (), _READERS, found)
    return found[0].kind if found else "text"


# -- rows ----------------------------------------------------------------------------------------


_BESIDE: Final = frozenset(
    ("reasoning_content", "refusal", "tool_calls", "function_call", "thinking_block")
)


def _read_row(message: dict[str, Any], copies: bool) -> list[Part]:
    found: list[Part] = []
    content = message.get("content")
    if message["role"] in RESULT_ROLES:
        call_id = message.get("tool_call_id")
        ids = (call_id,) if isinstance(call_id, str) else _answered_ids(message)
        found.append(Part("result", ("content",), content, "", ids, _text(message, "name")))
    elif isinstance(content, list):
        _read_blocks(content, ("content",), _READERS, found)
    elif content or isinstance(content, int | float | dict):
        found.append(_read_bare(content, ("content",)))
    elif "tools" in message and message.get("type") == "additional_tools":
        found.append(Part("other", ("tools",), message["tools"], "additional_tools"))
    if not _BESIDE.isdisjoint(message):
        _read_beside(message, found, copies)
    return found


def _read_beside(message: dict[str, Any], found: list[Part], copies: bool) -> None:
    """Read the parts of a row besides its content: reasoning comes before it, all else after it."""
    reasoning = message.get("reasoning_content")
    if reasoning and isinstance(reasoning, str):
        found.insert(0, Part("thinking", ("reasoning_content",), reasoning))
    refusal = message.get("refusal")
    if refusal and isinstance(refusal, str):
        found.append(Part("refusal", ("refusal",), refusal, "refusal"))
    calls = message.get("tool_calls")
    if calls and isinstance(calls, list):
        known = set() if copies else {part.ids for part in found if part.kind == "call"}
        for index, call in enumerate(calls):
            if isinstance(call, dict):
                part = _read_tool_call(call, index)
                if part.ids not in known:
                    found.append(part)
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        place = ("function_call", "arguments")
        found.append(_call(legacy, place, "", None, legacy.get("name")))
    sealed = message.get("thinking_block")
    if isinstance(sealed, dict) and (
        copies or not any(part.type in ("thinking", "redacted_thinking") for part in found)
    ):
        # Amplifier's second copy of the thinking, or the only one where the content is a text.
        kind = sealed.get("type")
        reader = _READERS.get(kind, _other) if isinstance(kind, str) else _other
        second = reader(str(kind), sealed, (), "thinking_block")
        if second is not None:
            found.insert(len(found) if copies else 0, second)


def _read_tool_call(call: dict[str, Any], index: int) -> Part:
    """A call of OpenAI chat (a function, or a custom tool) or of Amplifier."""
    call_id, function = call.get("id"), call.get("function")
    if isinstance(function, dict):
        place: Place = ("tool_calls", index, "function", "arguments")
        return _call(function, place, "", call_id, function.get("name"))
    custom = call.get("custom")
    if isinstance(custom, dict):
        place = ("tool_calls", index, "custom", "input")
        return _call(custom, place, "", call_id, custom.get("name"))
    place = ("tool_calls", index, "args" if "args" in call else "arguments")
    if "tool" in call:
        return _call(call, place, "", call_id, call.get("tool"), "amplifier")
    return _call(call, place, "", call_id, call.get("name"))


def _answered_ids(message: dict[str, Any]) -> tuple[str, ...]:
    """The ids of the calls that a row in a result's role answers without a single id."""
    several = message.get("tool_call_ids")
    if isinstance(several, list):
        return tuple([one for one in several if isinstance(one, str)])
    name, content = message.get("tool_name", message.get("name")), message.get("content")
    if not isinstance(name, str):
        return ()
    if isinstance(content, list):
        inner: list[Part] = []
        _read_blocks(content, (), _INNER_READERS, inner)
        if any(part.ids for part in inner):
            return ()  # its blocks have the ids
    return (f"{BY_NAME}{name}",)


# -- blocks --------------------------------------------------------------------------------------

Step = int | str
BlockReader = Callable[[str, dict[str, Any], Place, Step], Part | None]
"""Reads a block: its type, the block, the place of its list, and the step from there to it."""


def _read_blocks(
    blocks: list[Any], place: Place, readers: dict[str, BlockReader], found: list[Part]
) -> None:
    for index, block in enumerate(blocks):
        if isinstance(block, dict):
            kind = block.get("type")
            text = block.get("text") if kind == "text" else None
            if isinstance(text, str):  # most blocks by far
                found.append(Part("text", (*place, index, "text"), text, "text"))
            elif isinstance(kind, str):
                reader = readers.get(kind)
                if reader is None:
                    reader = _read_hosted_or_other if readers is _READERS else _other
                part = reader(kind, block, place, index)
                if part is not None:
                    found.append(part)
            else:
                found.append(Part("other", (*place, index), block))
        elif block is not None:
            found.append(_read_bare(block, (*place, index)))


def _read_bare(value: Any, place: Place) -> Part:
    """A value without a type: a text, or ``other``."""
    return Part("text" if isinstance(value, str) else "other", place, value)


def _make_block_reader(kind: PartKind) -> BlockReader:
    """Make a reader of blocks that are a part as a whole."""
    return lambda type_, block, place, step: Part(kind, (*place, step), block, type_)


def _make_text_reader(kind: PartKind, *keys: str) -> BlockReader:
    """Make a reader of blocks with a text under one of ``keys``."""

    def read(type_: str, block: dict[str, Any], place: Place, step: Step) -> Part | None:
        key = next((one for one in keys if one in block), keys[0])
        text = block.get(key)
        if kind == "thinking":  # a signed block without text is a part too
            text, signed = text if isinstance(text, str) else "", block.get("signature")
            signature = signed if isinstance(signed, str) else ""
            return Part(kind, (*place, step, key), text, type_, signature=signature)
        if isinstance(text, str):
            return Part(kind, (*place, step, key), text, type_)
        return None if text is None else Part("other", (*place, step), block, type_)

    return read


def _call_block(kind: str, block: dict[str, Any], place: Place, step: Step) -> Part:
    key = "arguments" if "input" not in block and "arguments" in block else "input"
    dialect: Dialect = "anthropic" if kind == "tool_use" else "amplifier"
    call_id, name = block.get("id"), block.get("name")
    if not isinstance(call_id, str) or not isinstance(name, str):
        return _call(block, (*place, step, key), kind, call_id, name, dialect)
    return Part("call", (*place, step, key), block.get(key), kind, (call_id,), name, False, dialect)


def _result_block(kind: str, block: dict[str, Any], place: Place, step: Step) -> Part:
    key = "content" if "content" in block else "output"
    anthropic = "tool_use_id" in block
    call_id = block.get("tool_use_id" if anthropic else "tool_call_id")
    return Part(
        "result",
        (*place, step, key),
        block.get(key),
        kind,
        (call_id,) if isinstance(call_id, str) else (),
        None,
        block.get("is_error") is True,
        "anthropic" if anthropic else "amplifier",
    )


def _read_hosted_or_other(kind: str, block: dict[str, Any], place: Place, step: Step) -> Part:
    # For example server_tool_use, mcp_tool_use, web_search_tool_result.
    if kind.endswith(("_tool_use", "_tool_result")):
        call_id = block.get("id", block.get("tool_use_id"))
        ids = (call_id,) if isinstance(call_id, str) else ()
        return Part("hosted", (*place, step), block, kind, ids, _text(block, "name"))
    return Part("other", (*place, step), block, kind)


def _call(
    holder: dict[str, Any],
    place: Place,
    kind: str,
    call_id: object,
    name: object,
    dialect: Dialect | None = None,
) -> Part:
    return Part(
        "call",
        place,
        holder.get(str(place[-1])),
        kind,
        (call_id if isinstance(call_id, str) else f"{BY_NAME}{name}",),
        name if isinstance(name, str) else None,
        False,
        dialect,
    )


def _text(holder: dict[str, Any], key: str) -> str | None:
    value = holder.get(key)
    return value if isinstance(value, str) else None


_other: Final = _make_block_reader("other")

_INNER_READERS: Final[dict[str, BlockReader]] = {
    **dict.fromkeys(("text", "input_text", "output_text"), _make_text_reader("text", "text")),
    **dict.fromkeys(("image", "image_url", "input_image"), _make_block_reader("image")),
    "tool_result": _result_block,
}
"""The blocks that are read inside a result; all others are data that a tool gave."""

_READERS: Final[dict[str, BlockReader]] = {
    **_INNER_READERS,
    **dict.fromkeys(
        ("document", "file", "input_file", "input_audio", "audio"), _make_block_reader("document")
    ),
    **dict.fromkeys(("thinking", "reasoning"), _make_text_reader("thinking", "thinking", "text")),
    "redacted_thinking": _make_text_reader("thinking", "data"),
    "refusal": _make_text_reader("refusal", "refusal", "text"),
    **dict.fromkeys(("tool_use", "tool_call"), _call_block),
}

# -- items of OpenAI's Responses API -------------------------------------------------------------


def _read_item(message: dict[str, Any], found: list[Part]) -> None:
    item, what = items.type_of(message), items.describe(message)
    call_id = items.id_of(message)
    ids = (call_id,) if call_id is not None else ()
    if what.sort == "call" and what.keys:
        key = next((key for key in what.keys if key in message), what.keys[0])
        found.append(_call(message, (key,), item, call_id, message.get("name", item)))
    elif what.sort == "call":
        name = _text(message, "name") or item
        found.append(Part("call", (), message, item, ids, name))
    elif what.sort == "result":
        place: Place = what.keys
        value = message.get(what.keys[0]) if what.keys else message
        failed = items.has_failed(message)
        found.append(Part("result", place, value, item, ids, None, failed))
    elif what.sort == "thinking":
        _read_reasoning(item, message, found)
    elif what.sort == "hosted":
        name = _text(message, "name") or item
        own = _text(message, "id")
        found.append(Part("hosted", (), message, item, () if own is None else (own,), name))
    else:
        found.append(Part("other", (), message, item))


def _read_reasoning(item: str, message: dict[str, Any], found: list[Part]) -> None:
    for key in ("summary", "content"):
        texts = message.get(key)
        for index, block in enumerate(texts if isinstance(texts, list) else ()):
            text = block.get("text") if isinstance(block, dict) else None
            if isinstance(text, str):
                found.append(Part("thinking", (key, index, "text"), text, "reasoning"))
    sealed = message.get("encrypted_content")
    if isinstance(sealed, str):
        kind = "compaction" if item == "compaction" else "encrypted_content"
        found.append(Part("thinking", ("encrypted_content",), sealed, kind))


def _parts_of_output(part: Part) -> list[Part]:
    """The parts of a typed output of an item."""
    value, place = part.value, part.place
    if part.type == "computer_call_output":
        return [Part("image", place, value, "computer_screenshot")]
    if part.type != "shell_call_output" or not isinstance(value, list):
        return [Part("other", place, value, part.type)]
    found: list[Part] = []
    for index, chunk in enumerate(value):
        if not isinstance(chunk, dict):
            found.append(_read_bare(chunk, (*place, index)))
            continue
        for key, one in chunk.items():
            if key in ("stdout", "stderr") and isinstance(one, str):
                found += [Part("text", (*place, index, key), one)] if one else []
            else:
                found.append(Part("other", (*place, index, key), one))
    return found


# -- questions to the parts ----------------------------------------------------------------------


def words_of(message: dict[str, Any]) -> str:
    """The texts of a message, each on lines of its own, with a refusal of the model."""
    return "\n".join(
        [part.value for part in read_parts(message) if part.kind in ("text", "refusal")]
    )


def is_compaction(part: Part) -> bool:
    """Whether a part is Anthropic's block of a compaction; one without content has failed."""
    return part.type == "compaction" and bool(part.value.get("content"))


def brings_compaction(message: Any) -> bool:
    """Whether a message is, or has a block of, a provider's own compaction."""
    if not isinstance(message, Mapping):
        return False
    content = message.get("content")
    blocks = content if isinstance(content, list) else ()
    kinds = [one.get("type") for one in (message, *blocks) if isinstance(one, Mapping)]
    return "compaction" in kinds


def call_names(message: dict[str, Any]) -> dict[str, str]:
    """Names of the tools that a message calls, by call id; for activity events, not for views."""
    calls = [part for part in read_parts(message) if part.kind == "call" and part.name]
    return {part.ids[0]: part.name for part in reversed(calls) if part.name}


def failed_results(message: dict[str, Any]) -> set[str]:
    """Ids of the results in a message that the tool marked as errors."""
    return {one for part in read_parts(message) if part.failed for one in part.ids}


def hosted_arguments(part: Part) -> Any:
    """The arguments of a hosted call; all of its values where it holds more, such as a result."""
    block: dict[str, Any] = part.value
    given = [key for key in ("arguments", "input", "action") if key in block]
    if len(given) == 1 and "output" not in block:
        return block[given[0]]
    return {key: value for key, value in block.items() if key not in ("type", "id", "name")}
