"""Strands' messages as rows of the log, and back.

A message is a role and content blocks of Bedrock's form, each a dict with one key that names its
kind. A block becomes one with a ``type`` and the same fields, of which those that the engine reads
have the names that it knows. Bytes are base64, as JSON has none.
"""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Hashable, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final

from eventctx.adapters.kit.host_list import plain_identity

Row = dict[str, Any]
Message = dict[str, Any]

_BYTES: Final = "__bytes_encoded__"
"""The mark of encoded bytes, as in the sessions that Strands writes itself."""

BLANK: Final = "[blank text]"
"""The text that Strands sends for an answer without one."""

_MEDIA: Final = ("image", "document", "audio", "video")
_HOOK: Final = {"source": "hook"}


def row_of(message: Message, *, by_program: bool = False) -> Row:
    """A message as a row, without its ``metadata``, which no model is sent.

    ``by_program``: its words in the user's role are not a person's. Values of a program that are no
    JSON become texts.
    """
    row: Row = {"role": message["role"], "content": [_block(one) for one in message["content"]]}
    if message.get("tracking_id"):
        row["tracking_id"] = str(message["tracking_id"])
    if by_program:
        row["metadata"] = dict(_HOOK)
    return row


def identity(row: Mapping[str, Any]) -> Hashable:
    """The identity of a row: without the tracking id, and whether a result is data or its JSON."""
    content = row["content"]
    if isinstance(content, list):
        content = [_without_forms(one) for one in content]
    return plain_identity({"role": row["role"], "content": content})


def _without_forms(block: Row) -> Row:
    inner = block.get("content")
    if block.get("type") != "tool_result" or not isinstance(inner, list):
        return block
    return {**block, "content": [{k: one[k] for k in one if k != "json"} for one in inner]}


# -- a block as one of the log -------------------------------------------------------------------


def _block(block: Mapping[str, Any]) -> Row:
    if len(block) != 1:
        return {"type": "blocks", "blocks": _plain(block)}
    ((kind, value),) = block.items()
    if kind == "text" and isinstance(value, str):
        return {"type": "text", "text": str(value)}
    if not isinstance(value, Mapping):
        return {"type": kind, kind: _plain(value)}
    if kind == "toolUse":
        fields = {"id" if k == "toolUseId" else str(k): _plain(v) for k, v in value.items()}
        return {"type": "tool_use", **fields}
    if kind == "toolResult":
        return _result(value)
    if kind == "reasoningContent":
        return _reasoning(value)
    if kind in _MEDIA:
        return {"type": kind, **_media(kind, value)}
    if kind == "guardContent" and isinstance(value.get("text"), Mapping) and len(value) == 1:
        guarded = _plain(value["text"])
        return {"type": "text", "guarded": True, **guarded}
    if kind == "citationsContent" and len(value.get("content") or ()) == 1:
        (said,) = value["content"]
        if list(said) == ["text"]:
            rest = {k: _plain(v) for k, v in value.items() if k != "content"}
            return {"type": "text", "text": str(said["text"]), "cited": rest}
    return {"type": kind, kind: _plain(value)}


def _result(value: Mapping[str, Any]) -> Row:
    rest = {k: _plain(v) for k, v in value.items() if k not in ("toolUseId", "content")}
    failed = {"is_error": True} if value.get("status") == "error" else {}
    content = [_inner(one) for one in value.get("content") or ()]
    return {
        "type": "tool_result",
        "tool_use_id": _plain(value.get("toolUseId")),
        "content": content,
        **rest,
        **failed,
    }


def _inner(block: Mapping[str, Any]) -> Row:
    """A piece of a result; data is its JSON, so that it can be read and shortened as a text."""
    if list(block) == ["json"]:
        text = json.dumps(_plain(block["json"]), ensure_ascii=False)
        return {"type": "text", "text": text, "json": True}
    return _block(block)


def _reasoning(value: Mapping[str, Any]) -> Row:
    inner = value.get("reasoningText")
    if list(value) == ["reasoningText"] and isinstance(inner, Mapping):
        rest = {k: _plain(v) for k, v in inner.items() if k != "text"}
        return {"type": "thinking", "thinking": str(inner.get("text", "")), **rest}
    sealed = value.get("redactedContent")
    if list(value) == ["redactedContent"] and isinstance(sealed, bytes):
        return {"type": "redacted_thinking", "data": _base64(sealed)}
    return {"type": "reasoningContent", "reasoningContent": _plain(value)}


def _media(kind: str, value: Mapping[str, Any]) -> Row:
    """A picture or a file: its bytes stand where the engine looks for their size."""
    rest = {k: _plain(v) for k, v in value.items() if k != "source"}
    source = value.get("source")
    if not isinstance(source, Mapping) or list(source) != ["bytes"]:
        return {"source": _plain(source), **rest}
    end = str(value.get("format", ""))
    named = mimetypes.guess_type(f"file.{end}")[0] or f"{kind}/{end}"
    data = _base64(bytes(source["bytes"]))
    return {"source": {"type": "base64", "media_type": named, "data": data}, **rest}


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")


def _plain(value: Any) -> Any:
    """A value as JSON; of what is none, its text."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, bytes):
        return {_BYTES: True, "data": _base64(value)}
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value)


# -- back ----------------------------------------------------------------------------------------


def message_of(row: Row) -> Message:
    """A row as a message, also one that was shortened or inserted."""
    content = row["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    message: Message = {
        "role": "assistant" if row["role"] == "assistant" else "user",
        "content": [_native(one) for one in blocks],
    }
    if "tracking_id" in row:
        message["tracking_id"] = row["tracking_id"]
    return message


def _native(block: Row) -> dict[str, Any]:
    kind: str = block.get("type", "")
    rest = {k: _back(v) for k, v in block.items() if k != "type"}
    if kind == "text":
        if rest.pop("guarded", False):
            return {"guardContent": {"text": rest}}
        if "cited" in rest:
            return {"citationsContent": {**rest["cited"], "content": [{"text": rest["text"]}]}}
        return _text(rest)
    if kind == "tool_use":
        return {"toolUse": {"toolUseId" if k == "id" else k: v for k, v in rest.items()}}
    if kind == "tool_result":
        return {"toolResult": _native_result(block, rest)}
    if kind == "thinking":
        text = {"text": rest.pop("thinking")}
        return {"reasoningContent": {"reasoningText": {**text, **rest}}}
    if kind == "redacted_thinking":
        return {"reasoningContent": {"redactedContent": base64.b64decode(rest["data"])}}
    if kind in _MEDIA and "source" in block:
        return {kind: _native_media(rest)}
    if kind == "blocks":
        return rest["blocks"]  # type: ignore[no-any-return]
    return rest


def _text(fields: dict[str, Any]) -> dict[str, Any]:
    if fields.pop("json", False):
        try:
            return {"json": json.loads(fields["text"])}
        except (ValueError, RecursionError):
            pass  # it was shortened, or is nested too deeply
    return {"text": fields["text"]}


def _native_result(block: Row, rest: dict[str, Any]) -> dict[str, Any]:
    content = block.get("content")
    inner = content if isinstance(content, list) else [{"type": "text", "text": str(content)}]
    named = {k: v for k, v in rest.items() if k not in ("tool_use_id", "content", "is_error")}
    return {
        "toolUseId": rest["tool_use_id"],
        "status": "error" if rest.get("is_error") else "success",
        **named,
        "content": [_native(one) for one in inner],
    }


def _native_media(rest: dict[str, Any]) -> dict[str, Any]:
    source = rest["source"]
    if isinstance(source, dict) and source.get("type") == "base64":
        return {**rest, "source": {"bytes": base64.b64decode(source["data"])}}
    return rest


def _back(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get(_BYTES) is True:
            return base64.b64decode(value["data"])
        return {k: _back(v) for k, v in value.items()}
    return [_back(one) for one in value] if isinstance(value, list) else value


# -- an agent's list -----------------------------------------------------------------------------


class AgentRows:
    """The rows of the messages that an agent holds, each made once."""

    def __init__(self) -> None:
        self._made: dict[int, tuple[Message, Message, Row]] = {}
        self._by_program: dict[str, None] = {}

    def by_program(self, message: Message) -> None:
        """Note that the words of this message are the program's, before its row is made."""
        self._by_program[message.get("tracking_id", "")] = None

    def of(self, messages: Sequence[Message]) -> list[Row]:
        """The messages' rows; those of messages that are not among them are forgotten."""
        found: dict[int, tuple[Message, Message, Row]] = {}
        for one in messages:
            known = self._made.get(id(one))
            # Conversation managers and guardrails change messages in their place.
            if known is None or known[0] is not one or known[1] != one:
                by_program = one.get("tracking_id", "") in self._by_program
                known = (one, deepcopy(one), row_of(one, by_program=by_program))
            found[id(one)] = known
        self._made = found
        return [found[id(one)][2] for one in messages]


def messages_of(
    rows: Sequence[Row], sent: Sequence[Message], sent_rows: Sequence[Row]
) -> list[Message]:
    """Rows of a view as messages; those that the request holds are the request's own."""
    places: dict[Hashable, int] | None = None
    found: list[Message] = []
    start = 0
    for row in rows:
        # Views keep the order: mostly the next row is the next message, which costs no digest.
        place = next((at for at in range(start, len(sent)) if sent_rows[at] == row), None)
        if place is None:
            if places is None:
                places = {identity(one): at for at, one in enumerate(sent_rows)}
            place = places.get(identity(row))
        found.append(message_of(row) if place is None else sent[place])
        start = start if place is None else max(start, place + 1)
    return found


def sendable(messages: Sequence[Message]) -> list[Message]:
    """The messages of a view in the form that Bedrock accepts; most are the same objects.

    Its roles alternate strictly, where a view has a summary before a person's words, a result that
    was made up or came late in a row of its own, or words of a run without an answer. All
    results of an answer are in the next message, before any words. A text is not blank, an answer
    does not end with reasoning, and no message is empty.
    """
    found: list[Message] = []
    for message in messages:
        if found and found[-1]["role"] == message["role"]:
            found[-1] = {**found[-1], "content": [*found[-1]["content"], *message["content"]]}
        else:
            found.append(message)
    return [_sendable(one) for one in found]


def _sendable(message: Message) -> Message:
    content = [one for one in message["content"] if not _is_blank(one)]
    if message["role"] == "assistant":
        while content and "reasoningContent" in content[-1]:
            content.pop()
    else:
        content.sort(key=lambda one: "toolResult" not in one)
    content = content or [{"text": BLANK}]
    return message if content == message["content"] else {**message, "content": content}


def _is_blank(block: Mapping[str, Any]) -> bool:
    return list(block) == ["text"] and not str(block["text"]).strip()


def instructions_of(prompt: str | Sequence[Mapping[str, Any]] | None) -> str | None:
    """The text of a system prompt; None without any."""
    if prompt is None or isinstance(prompt, str):
        return None if not prompt else str(prompt)
    texts = [str(one["text"]) for one in prompt if "text" in one]
    return "\n".join(texts) or None


def tool_definitions(specs: Sequence[Mapping[str, Any]]) -> list[Row]:
    """The definitions of a request's tools, as the engine counts them."""
    return [
        {
            "name": one["name"],
            "description": str(one.get("description") or ""),
            "input_schema": _plain(one["inputSchema"].get("json", one["inputSchema"])),
        }
        for one in specs
    ]
