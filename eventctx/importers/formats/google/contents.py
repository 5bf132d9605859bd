"""Google's contents (``role`` and ``parts``) as messages, as Gemini CLI and Qwen Code write them.

A part becomes a block with its own fields, as in the log of Google's ADK: a call and its result are
named as the engine reads them. Only a result's ``response`` changes its form: where it holds one
text, that text is the result, else its JSON.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import Any, Final, TypeGuard

from eventctx.importers.source.lines import text_or_none, without
from eventctx.importers.source.values import encode

_OUTCOMES: Final = ("output", "error")


class GoogleContents:
    """Makes messages of contents; calls that the file gives no id get one, by order and name."""

    def __init__(self) -> None:
        self._calls = 0
        self._open: dict[str, deque[str]] = defaultdict(deque)

    def message(self, role: str, parts: object) -> dict[str, Any] | None:
        """The message of some parts; None where they say nothing."""
        blocks = self.blocks(parts)
        return {"role": role, "content": blocks} if blocks else None

    def blocks(self, parts: object) -> list[Any]:
        """The blocks of a list of parts, of one part, or of a text."""
        listed = parts if isinstance(parts, list) else [parts]
        return [block for part in listed if (block := self._block(part)) is not None]

    def _block(self, part: Any) -> Any:
        if isinstance(part, str):
            return {"type": "text", "text": part} if part else None
        if not isinstance(part, dict):
            return part
        call, answer = part.get("functionCall"), part.get("functionResponse")
        media = part.get("inlineData")
        if _is_named(call):
            return self.call(call, without(part, "functionCall"))
        if _is_named(answer):
            return self._result(answer, without(part, "functionResponse"))
        if isinstance(part.get("text"), str):
            return _text(part)
        if isinstance(media, dict) and isinstance(media.get("data"), str):
            return {**_media(media), **without(part, "inlineData")}
        return part

    def call(self, call: dict[str, Any], rest: dict[str, Any] | None = None) -> dict[str, Any]:
        """The block of a call, from its ``id``, ``name`` and ``args``."""
        name = text_or_none(call.get("name")) or ""
        self._calls += 1
        call_id = text_or_none(call.get("id")) or f"call-{self._calls}"
        self._open[name].append(call_id)
        args = call.get("args")
        own = without(call, "id", "name") if args is None else without(call, "id", "name", "args")
        block = {
            "type": "tool_use",
            "id": call_id,
            "name": name,
            "input": {} if args is None else args,
        }
        return {**block, **own, **(rest or {})}

    def _result(self, answer: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
        name, call_id = answer["name"], answer.get("id")
        waiting = self._open[name]
        own = {} if waiting else {"name": name}  # its call has the name
        if call_id is None:
            call_id = waiting.popleft() if waiting else f"unknown-{name}"
        elif call_id in waiting:
            waiting.remove(call_id)
        else:
            own = {"name": name}
        response, more = answer.get("response"), self.blocks(answer.get("parts") or [])
        content: Any = _outcome_of(response)
        if more:
            content = [{"type": "text", "text": content}, *more]
        block = {"type": "tool_result", "tool_use_id": call_id, "content": content, **own}
        if isinstance(response, dict) and "error" in response and "output" not in response:
            block["is_error"] = True
        said = ("id", "name", "parts") if response is None else ("id", "name", "parts", "response")
        return {**block, **without(answer, *said), **rest}


def _is_named(value: Any) -> TypeGuard[dict[str, Any]]:
    """Whether a value has the form of a call or of a result; its id may be missing."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return False
    return value.get("id") is None or isinstance(value["id"], str)


def _text(part: dict[str, Any]) -> dict[str, Any] | None:
    rest = without(part, "text")
    kind = "text"
    if isinstance(rest.get("thought"), bool):
        kind = "thinking" if rest.pop("thought") else "text"
    return {"type": kind, kind: part["text"], **rest} if part["text"] or rest else None


def is_results(blocks: list[Any]) -> bool:
    """Whether blocks are results of tools, and what came with them."""
    return any(isinstance(one, dict) and one.get("type") == "tool_result" for one in blocks)


def calls_in(blocks: list[Any]) -> list[str]:
    """The ids of the calls among blocks."""
    return [one["id"] for one in blocks if isinstance(one, dict) and one.get("type") == "tool_use"]


def results_in(blocks: list[Any]) -> list[str]:
    """The ids of the calls whose results are among blocks."""
    results = [one for one in blocks if isinstance(one, dict) and one.get("type") == "tool_result"]
    return [one["tool_use_id"] for one in results]


def _outcome_of(response: Any) -> str:
    """The text of a result: of the one field that Google's tools use, else the whole as JSON."""
    if isinstance(response, str):
        return response
    if isinstance(response, dict) and len(response) == 1:
        (key,) = response
        if key in _OUTCOMES and isinstance(response[key], str):
            return str(response[key])
    return "" if response is None else encode(response).decode()


def _media(media: dict[str, Any]) -> dict[str, Any]:
    kind = text_or_none(media.get("mimeType")) or ""
    source = {"type": "base64", "media_type": kind, "data": media["data"]}
    about = without(media, "data") if kind != media.get("mimeType") else {}
    rest = {**without(media, "data", "mimeType"), **about}
    return {"type": "image" if kind.startswith("image/") else "document", "source": source, **rest}
