"""ADK's contents as rows of the log, and back.

A part becomes a block with its own fields; calls and results are named as the engine reads them.
ADK takes the ids that it made itself out of a request, so calls are paired with their results in
order, by name, and have ids in the log alone.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

from google.genai import types

from eventctx.adapters.kit.host_list import plain_identity
from eventctx.adapters.kit.recordable import recordable

Row = dict[str, Any]

_FUNCTIONS: Final = ("function_call", "function_response")
_IDS: Final = ("id", "tool_use_id")
_NATIVE_ID: Final = "native_id"
"""Where a block keeps the id that its part has in the request; most have none."""


def rows_of(contents: Sequence[types.Content]) -> list[Row]:
    """The rows of a request's contents, one each, in which calls have no ids yet."""
    return [_row(one) for one in contents]


def _row(content: types.Content) -> Row:
    role = "assistant" if content.role == "model" else "user"
    dumped = content.model_dump(mode="json", exclude_none=True).get("parts", [])
    return recordable({"role": role, "content": [_block(part) for part in dumped]})


def _block(part: dict[str, Any]) -> dict[str, Any]:
    rest = {k: v for k, v in part.items() if k not in ("text", *_FUNCTIONS)}
    if "function_call" in part:
        call = dict(part["function_call"])
        native = call.pop("id", None)
        block = {"name": call.pop("name", ""), "input": call.pop("args", {}), **_native(native)}
        return {"type": "tool_use", **block, **call, **rest}
    if "function_response" in part:
        answer = dict(part["function_response"])
        native, name = answer.pop("id", None), answer.pop("name", "")
        block = {"name": name, "content": answer.pop("response", {}), **_native(native)}
        return {"type": "tool_result", **block, **answer, **rest}
    if "text" in part:
        kind = "thinking" if part.get("thought") else "text"
        return {"type": kind, kind: part["text"], **rest}
    return part


def named(rows: Sequence[Row]) -> list[Row]:
    """The rows with the ids that they have in the log, if they are all that is in it."""
    ids = CallIds(())
    return [ids.named(row) for row in rows]


class CallIds:
    """Gives the calls of new rows ids in the log, and their results the same.

    An answer of the model closes what was called before it, as a crash may have left a call open.
    """

    def __init__(self, transcript: Sequence[Row]) -> None:
        self.messages = 0
        """Rows of the transcript that were named. Others may have added some since."""
        self._calls = 0
        self._open: dict[str, deque[str]] = defaultdict(deque)
        for row in transcript:
            self.named(row)

    def named(self, row: Row) -> Row:
        """The row with the ids of its calls and results."""
        self.messages += 1
        if row["role"] == "assistant":
            self._open.clear()
        if isinstance(row["content"], str):
            return row
        return {**row, "content": [self._named(block) for block in row["content"]]}

    def _named(self, block: dict[str, Any]) -> dict[str, Any]:
        kind, name, native = block.get("type"), block.get("name", ""), block.get(_NATIVE_ID)
        if kind == "tool_use":
            self._calls += 1
            made = native or f"call_{self._calls}"
            self._open[name].append(made)
            return {**block, "id": made}
        if kind == "tool_result":
            waiting = self._open[name]
            if native is None and waiting:
                return {**block, "tool_use_id": waiting.popleft()}
            if native is not None and native in waiting:
                waiting.remove(native)
            return {**block, "tool_use_id": native or f"unknown_{name}"}
        return block


def calls_in(row: Row) -> bool:
    """Whether a row calls a function."""
    content = row["content"]
    return isinstance(content, list) and any(one.get("type") == "tool_use" for one in content)


def _native(identifier: str | None) -> dict[str, str]:
    return {} if identifier is None else {_NATIVE_ID: identifier}


def identity(row: Mapping[str, Any]) -> Hashable:
    """The identity of a row, without the ids of its calls: a model's own come back without them."""
    content = row["content"]
    if isinstance(content, list):
        passing = (*_IDS, _NATIVE_ID)
        content = [{k: one[k] for k in one if k not in passing} for one in content]
    return plain_identity({"role": row["role"], "content": content})


def contents_of(
    rows: Sequence[Row], sent: Sequence[types.Content], sent_rows: Sequence[Row]
) -> list[types.Content]:
    """Rows of a view as contents; those that the request held are the request's own."""
    places: dict[Hashable, deque[int]] | None = None
    names = {
        one.get("id"): one["name"]
        for row in rows
        if isinstance(row["content"], list)
        for one in row["content"]
        if one.get("type") == "tool_use"
    }
    found = []
    start = 0
    for row in rows:
        # Views keep the order: mostly the next row is the next content, which costs no digest.
        place = next((at for at in range(start, len(sent)) if sent_rows[at] == row), None)
        if place is None:
            places = _by_identity(sent_rows) if places is None else places
            same = places.get(identity(row), deque())
            while same and place is None:
                place = at if (at := same.popleft()) >= start else None
        found.append(_content(row, names) if place is None else sent[place])
        start = start if place is None else place + 1
    return found


def _by_identity(rows: Sequence[Row]) -> dict[Hashable, deque[int]]:
    found: dict[Hashable, deque[int]] = defaultdict(deque)
    for place, row in enumerate(rows):
        found[identity(row)].append(place)
    return found


def _content(row: Row, names: Mapping[Any, str]) -> types.Content:
    role, content = "model" if row["role"] == "assistant" else "user", row["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return types.Content.model_validate(
        {"role": role, "parts": [_part(one, names) for one in blocks]}
    )


def _part(block: dict[str, Any], names: Mapping[Any, str]) -> dict[str, Any]:
    kind = block.get("type")
    rest = {k: v for k, v in block.items() if k not in ("type", "is_error", _NATIVE_ID, *_IDS)}
    identifier = {"id": block[_NATIVE_ID]} if _NATIVE_ID in block else {}
    if kind == "tool_use":
        call = {"name": rest.pop("name"), "args": rest.pop("input"), **identifier}
        return {"function_call": call, **rest}
    if kind == "tool_result":
        response = rest.pop("content", None)
        if not isinstance(response, dict):  # a shortened one may have become a text
            response = {"result": response}
        name = rest.pop("name", None) or names.get(block.get("tool_use_id"), "unknown")
        answer = {"name": name, "response": response, **identifier}
        return {"function_response": answer, **rest}
    if kind == "thinking":
        return {"text": rest.pop("thinking"), **rest}
    return rest


def joined(contents: Sequence[types.Content]) -> list[types.Content]:
    """The contents of a view in the turns that Gemini accepts; the others are the same objects.

    The API refuses a call turn that the next content does not answer whole, and one after the
    model's own words. A view has results that were made up, or came late, in contents of their own.
    """
    found: list[types.Content] = []
    for content in contents:
        before = found[-1] if found else None
        if before is not None and _is_one_turn(before, content):
            parts = [*(before.parts or ()), *(content.parts or ())]
            if content.role != "model":
                parts.sort(key=lambda part: part.function_response is None)
            found[-1] = types.Content(role=before.role, parts=parts)
        else:
            found.append(content)
    return found


def _is_one_turn(before: types.Content, content: types.Content) -> bool:
    if "model" in (before.role, content.role):
        return before.role == content.role and _has(content, "function_call")
    return _has(before, "function_response") and _has(content, "function_response")


def _has(content: types.Content, field: str) -> bool:
    return any(getattr(part, field) is not None for part in content.parts or ())


def instructions_of(config: types.GenerateContentConfig | None) -> str | None:
    """The texts of a request's system instruction; None without any."""
    given = None if config is None else config.system_instruction
    if given is None or isinstance(given, str):
        return given or None
    parts = given if isinstance(given, list) else getattr(given, "parts", None) or [given]
    texts = [one if isinstance(one, str) else getattr(one, "text", None) for one in parts]
    return "\n\n".join([one for one in texts if one]) or None


def tool_definitions(config: types.GenerateContentConfig | None) -> list[Row]:
    """The declarations of a request's functions; tools of Google's servers have none."""
    tools = (config.tools or []) if config is not None else []
    found = [one for tool in tools for one in getattr(tool, "function_declarations", None) or []]
    return [
        {
            "name": one.name,
            "description": one.description or "",
            "input_schema": one.parameters_json_schema
            or (
                one.parameters.model_dump(mode="json", exclude_none=True) if one.parameters else {}
            ),
        }
        for one in found
    ]
