"""The reader of facts: from a message of any dialect, which it does not change, to its facts.

Policies, token counts and the order of a view are computed from facts alone, without the text.
Facts are stored beside the body with the reader's version and can be rebuilt.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidMessage
from eventctx.messages import response_items as items
from eventctx.messages.facts import READER, Dialect, Facts, Kind
from eventctx.messages.images import image_tokens
from eventctx.messages.parts import (
    RESULT_ROLES,
    SEALED,
    Part,
    parts_of_result,
    read_parts,
    role_of,
)
from eventctx.messages.speaker import is_of_harness

_SYSTEM_ROLES: Final = frozenset(("system", "developer"))
_ASSISTANT_ROLES: Final = frozenset(("assistant", "model"))

WEB_SEARCH_TOKENS: Final = 4_000
"""Tokens that a provider's own web search adds to the next prompt (2,200 to 6,100 were measured).

The finds are billed and are in no message.
"""

MARK_CHARACTERS: Final = 100
"""Characters of a text that de-duplication compares (context-simple's README)."""


def read_facts(message: dict[str, Any], *, by_harness: bool = False) -> Facts:
    """Read a message. Raises InvalidMessage when it has neither a role nor an item's type.

    ``by_harness`` says that a harness wrote it, as the event that adds it knows, whatever its text
    looks like.
    """
    role = message.get("role") or role_of(message)
    if not isinstance(role, str):
        raise _without_role(message)
    item = "" if message.get("role") else items.type_of(message)
    dialect = _dialect(message, item) if item or "type" in message else "chat"
    # Local names and one loop: this runs for every message that is added.
    prose = arguments = outcome = thinking = images = bound = 0
    by_person, first = False, None
    calls: dict[str, None] = {}
    results: dict[str, None] = {}
    for part in read_parts(message, copies=True):
        kind, value = part.kind, part.value
        if kind == "text" or kind == "refusal":
            prose += len(value)
            by_person = by_person or not is_of_harness(value)
            first = value if first is None else first
        elif kind == "call":
            dialect = part.dialect or dialect
            # An id that one answer uses twice is one call: an Amplifier row holds calls twice.
            if part.ids[0] not in calls:
                calls[part.ids[0]] = None
                arguments += len(part.name or "")
                free, fixed = _sizes_of_arguments(part) if item else (_size(value), 0)
                arguments, prose = arguments + free, prose + fixed
        elif kind == "result":
            if part.dialect is not None and dialect == "chat":
                dialect = part.dialect
            if isinstance(value, str):
                outcome += len(value)
                first = value if part.place == ("content",) else first
            else:
                characters, tokens, inner = _read_inside(part, results)
                fixed = characters - _cuttable(part, characters) if item else 0
                outcome, prose = outcome + characters - fixed, prose + fixed
                images += tokens
                dialect = inner if inner is not None and dialect == "chat" else dialect
            for call_id in part.ids:
                results[call_id] = None
        elif kind == "thinking":
            if part.place[0] == "thinking_block" and bound:
                continue  # Amplifier's second copy
            characters, signed = _read_thinking(part)
            thinking += characters
            bound += signed
        elif kind == "image":
            images += image_tokens(value)
        elif kind == "hosted" and not part.place:
            characters, tokens = _read_hosted(part)
            arguments, images = arguments + characters, images + tokens
        else:
            prose += _size(value)
    by_person = by_person or (images > 0 and first is None)
    human = role == "user" and by_person and not by_harness and not _from_hook(message)
    kind_of_row = _kind(role, human, bool(results))
    return Facts(
        READER,
        role,
        kind_of_row,
        dialect,
        tuple(calls) if calls else items.referenced(item, message),
        tuple(results) if results else (),
        prose,
        arguments,
        outcome,
        thinking,
        images,
        _mark(role, first or ""),
        human and (prose > 0 or not results),
        bound if kind_of_row == "assistant" else 0,
        item=item,
    )


def _dialect(message: dict[str, Any], item: str) -> Dialect:
    """The dialect of a message that has a type; its parts, which are read later, may correct it."""
    if item or not isinstance(message.get("role"), str):
        return "responses"
    listed = message["type"] == "message" and isinstance(message.get("content"), list)
    return "responses" if listed else "chat"


def _sizes_of_arguments(part: Part) -> tuple[int, int]:
    """Characters of an item's arguments: of what may be cut, and of what must stay as it is."""
    whole = _size(part.value)
    if not part.place:
        return 0, whole
    found = items.cuttable(part.type, part.value)
    if found is None:
        return whole, 0
    texts = [holder[key] for holder, key in found]
    return sum(map(len, texts)), whole - sum([_size([text]) - len('[""]') for text in texts])


def _cuttable(part: Part, whole: int) -> int:
    """Characters of the texts that may be cut in the output of an item of ``whole`` characters."""
    if not part.place:
        return 0
    found = items.cuttable(part.type, part.value)
    return whole if found is None else sum([len(holder[key]) for holder, key in found])


def _read_thinking(part: Part) -> tuple[int, int]:
    """Characters of a thinking part, and how many of them a provider binds."""
    # Encrypted reasoning is about three times as long as its text, four times in base64.
    characters = len(part.value) // 4 if part.type in SEALED else len(part.value)
    # A provider checks its signature even on a block without text, so at least 1 is bound.
    signed = part.type == "thinking" or part.type == "redacted_thinking"
    return characters, max(1, characters) if signed else 0


def _read_hosted(part: Part) -> tuple[int, int]:
    """Characters of an item of a provider's own call, and tokens of what it adds as no text."""
    left_out, tokens = ["type", "id"], 0
    if part.type == "web_search_call":
        tokens = WEB_SEARCH_TOKENS
    elif part.type == "image_generation_call" and isinstance(part.value.get("result"), str):
        left_out.append("result")
        tokens = image_tokens({"source": {"data": part.value["result"]}})
    return _size({k: v for k, v in part.value.items() if k not in left_out}), tokens


def _read_inside(result: Part, results: dict[str, None]) -> tuple[int, int, Dialect | None]:
    """Characters and tokens of images in a result, and the dialect of results inside it.

    The ids of those results are added to ``results``.
    """
    characters = tokens = 0
    dialect: Dialect | None = None
    for part in parts_of_result(result):
        if part.kind == "text":
            characters += len(part.value)
        elif part.kind == "image":
            tokens += image_tokens(part.value)
        elif part.kind == "result":
            results.update(dict.fromkeys(part.ids))
            more, images, _ = _read_inside(part, results)
            characters, tokens, dialect = characters + more, tokens + images, part.dialect
        else:
            characters += _size(part.value)
    return characters, tokens, dialect


def _without_role(message: dict[str, Any]) -> InvalidMessage:
    role, item = message.get("role"), message.get("type")
    found = "nothing" if role is None else repr(role)
    if isinstance(item, str):
        found += f" (type {item!r})"
    return InvalidMessage("$.role", found, "a role (system, user, …), or an item's type and none")


def _mark(role: str, text: str) -> bytes:
    source = f"{role}\0{text[:MARK_CHARACTERS]}".encode("utf-8", "surrogatepass")
    return blake2b(source, digest_size=8).digest()


def _kind(role: str, human: bool, answers: bool) -> Kind:
    if role == "user":
        return "result" if answers else "human" if human else "user"
    if role in _ASSISTANT_ROLES:
        return "assistant"
    if role in RESULT_ROLES:
        return "result"
    return "system" if role in _SYSTEM_ROLES else "other"


def _from_hook(message: dict[str, Any]) -> bool:
    metadata = message.get("metadata")
    return isinstance(metadata, dict) and metadata.get("source") == "hook"


def _size(value: object) -> int:
    """Characters of a value as compact JSON; of a text, its own."""
    if value is None:
        return 0
    if isinstance(value, str):
        return len(value)
    encoded = msgspec.json.encode(value)
    return len(encoded) if encoded.isascii() else len(encoded.decode())
