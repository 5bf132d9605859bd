"""A step of ATIF under construction: the parts of its messages, each in the field made for it.

ATIF has one text (or a list of texts, images and sounds), one reasoning, calls with an object of
arguments, and results. A part that has no field there (sealed reasoning, a document, a block of an
unknown type) stays in the shape of its message (``verbatim``), and is counted in ``left_in_shape``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from eventctx.messages.encoding import MAX_DEPTH, decode_json
from eventctx.messages.parts import SEALED, Part, Place, parts_of_result, read_parts
from eventctx.queries.atif.contents import FieldContent, ItemAt, image_of
from eventctx.queries.atif.verbatim import (
    PREVIOUS,
    VALUE,
    Piece,
    Source,
    compact,
    piece,
    take_out,
    way_of,
)

StepKind = Literal["system", "user", "agent"]


class DraftedResult(NamedTuple):
    """A result: the call that it answers, if it says so, and its content."""

    call: str | None
    content: FieldContent
    failed: bool


class LoggedMessage(NamedTuple):
    """A message of the log: its number, the position of its record, and what it is about itself."""

    number: int
    position: int
    message: dict[str, Any]
    about: dict[str, Any]


class StepDraft:
    """A step that messages are added to. ``extra`` is what it will say under our name."""

    def __init__(self, source: StepKind, time: str | None = None) -> None:
        self.source = source
        self.time = time
        self.text = FieldContent("message")
        self.reasoning = FieldContent("reasoning_content")
        self.calls: list[dict[str, Any]] = []
        self.results: list[DraftedResult] = []
        self.failed: set[str] = set()
        self.extra: dict[str, Any] = {}
        self.other: dict[str, Any] = {}
        self.left_in_shape: Counter[str] = Counter()
        self.messages: list[dict[str, Any]] = []
        self._waiting: list[tuple[LoggedMessage, list[ItemAt | Piece], bool]] = []

    # -- messages --------------------------------------------------------------------------------

    def add(self, stored: LoggedMessage) -> None:
        """Add a whole message."""
        places: list[ItemAt | Piece] = []
        for part in read_parts(stored.message, copies=True):
            places += self._part(part)
        self._waiting.append((stored, places, False))

    def add_results(self, stored: LoggedMessage) -> list[ItemAt | Piece]:
        """Add the results of a message whose other parts are for the next step."""
        found: list[ItemAt | Piece] = []
        for part in read_parts(stored.message, copies=True):
            if part.kind == "result":
                found += self._part(part)
        return found

    def add_words(self, stored: LoggedMessage, results: list[ItemAt | Piece]) -> None:
        """Add the parts of a message that are no results; these are in the step before."""
        places: list[ItemAt | Piece] = []
        for part in read_parts(stored.message, copies=True):
            if part.kind != "result":
                places += self._part(part)
        self._waiting.append((stored, results, True))
        self._waiting.append((stored, places, False))

    def add_observation(self, stored: LoggedMessage) -> None:
        """Add a message that is the result of an action in the model's text."""
        places: list[ItemAt | Piece] = []
        content = self._new_result(None, failed=False)
        for part in read_parts(stored.message, copies=True):
            if part.kind == "text":
                places.append(ItemAt(part.place, content, content.add(part.value)))
            elif part.kind == "image":
                places += self._image(part, content)
            else:
                self.left_in_shape[part.type or part.kind] += 1
        self._waiting.append((stored, places, False))

    def ids(self) -> set[str]:
        """The ids of its calls."""
        return {call["tool_call_id"] for call in self.calls}

    def _part(self, part: Part) -> list[ItemAt | Piece]:
        match part.kind:
            case "text" | "refusal":
                return [ItemAt(part.place, self.text, self.text.add(part.value))]
            case "thinking" if self.source == "agent" and part.value and part.type not in SEALED:
                return [ItemAt(part.place, self.reasoning, self._thought(part.value))]
            case "call" if self.source == "agent":
                return self._call(part)
            case "result":
                return self._result(part)
            case "image":
                return self._image(part, self.text)
        if part.kind != "thinking" or part.value:
            self.left_in_shape[part.type or part.kind] += 1
        return []

    def _thought(self, text: str) -> int:
        """The number of a thought; one that a message holds twice is one."""
        return self.reasoning.add(text, again=False)

    # -- calls -----------------------------------------------------------------------------------

    def _call(self, part: Part) -> list[ItemAt | Piece]:
        call = part.ids[0] if part.ids else ""
        number = len(self.calls)
        arguments, pieces = _arguments(part.place, part.value, number)
        for at, one in enumerate(self.calls):
            if one["tool_call_id"] == call and one["arguments"] == arguments:
                return [*_arguments(part.place, part.value, at)[1]]
        name = part.name or part.type or "unknown"
        self.calls.append({"tool_call_id": call, "function_name": name, "arguments": arguments})
        return [*pieces]

    def _new_result(self, call: str | None, *, failed: bool) -> FieldContent:
        content = FieldContent("observation", "results", len(self.results), "content")
        self.results.append(DraftedResult(call, content, failed))
        return content

    def _result(self, part: Part) -> list[ItemAt | Piece]:
        # One result of several calls names none of them: ATIF takes one id.
        content = self._new_result(part.ids[0] if len(part.ids) == 1 else None, failed=part.failed)
        if isinstance(part.value, str):
            return [ItemAt(part.place, content, content.add(part.value))]
        if part.value is None:
            return []
        parts = parts_of_result(part)
        if not part.place or any(one.kind not in ("text", "image") for one in parts):
            item = content.add(compact(part.value))
            return [ItemAt(part.place, content, item, VALUE)] if part.place else []
        places: list[ItemAt | Piece] = []
        for one in parts:
            if one.kind == "text":
                places.append(ItemAt(one.place, content, content.add(one.value)))
            else:
                places += self._image(one, content)
        return places

    def _image(self, part: Part, content: FieldContent) -> list[ItemAt | Piece]:
        found = image_of(part.value)
        if found is None:
            self.left_in_shape["image"] += 1
            content.add("[image]")
            return []
        place, kind, path = found
        item = content.add({"type": "image", "source": {"media_type": kind, "path": path}})
        return [ItemAt((*part.place, *place), content, item)]

    # -- the step --------------------------------------------------------------------------------

    def step(self, number: int) -> dict[str, Any]:
        """The step as JSON."""
        found: dict[str, Any] = {"step_id": number}
        if self.time is not None:
            found["timestamp"] = self.time
        found["source"] = self.source
        found |= {key: value for key, value in self.other.items() if key == "model_name"}
        found["message"] = self.text.value()
        if len(self.reasoning):
            found["reasoning_content"] = self.reasoning.value()
        if self.calls:
            found["tool_calls"] = self.calls
        results = [self._result_of(one) for one in self.results] + self._refs_alone()
        if results:
            found["observation"] = {"results": results}
        found |= {key: value for key, value in self.other.items() if key not in _PLACED}
        messages = [*self.messages, *self._shapes()]
        own = {**self.extra, "messages": messages}
        found["extra"] = {**self.other.get("extra", {}), "eventctx": own}
        return found

    def _result_of(self, result: DraftedResult) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if result.call is not None:
            found["source_call_id"] = result.call
        found["content"] = result.content.value()
        refs = self.other.get("refs", {}).get(result.call)
        if refs:
            found["subagent_trajectory_ref"] = refs
        if result.failed or result.call in self.failed:
            found["extra"] = {"is_error": True}
        return found

    def _refs_alone(self) -> list[dict[str, Any]]:
        """The subagents of calls that have no result, and of no call."""
        answered = {one.call for one in self.results}
        found = []
        for call, refs in self.other.get("refs", {}).items():
            if call not in answered or call is None:
                named = {} if call is None else {"source_call_id": call}
                found.append({**named, "subagent_trajectory_ref": refs})
        return found

    def _shapes(self) -> Iterable[dict[str, Any]]:
        ahead: list[Piece] = []
        for stored, places, before in self._waiting:
            pieces = [one if isinstance(one, list) else one.content.piece(one) for one in places]
            if before:
                ahead = [[place, [PREVIOUS, *source], *how] for place, source, *how in pieces]
                continue
            pieces, ahead = [*ahead, *pieces], []
            yield {
                "number": stored.number,
                "position": stored.position,
                **stored.about,
                "shape": take_out(stored.message, pieces),
                "from": pieces,
            }


_PLACED: Final = ("model_name", "extra", "refs")


def _arguments(place: Place, value: Any, number: int) -> tuple[dict[str, Any], list[Piece]]:
    """The object of a call's arguments, and the pieces that it holds of the message."""
    source: Source = ["tool_calls", number, "arguments"]
    if not place:
        return ({} if value is None else {"input": value}), []
    if isinstance(value, dict):
        return value, [piece(place, source)]
    if value is None:
        return {}, []
    if not isinstance(value, str):
        return {"input": value}, [piece(place, [*source, "input"])]
    try:
        given = decode_json(value, MAX_DEPTH)
    except msgspec.DecodeError:
        given = None
    if not isinstance(given, dict):
        return {"input": value}, [piece(place, [*source, "input"])]
    way = way_of(value, given)
    return given, [] if way is None else [piece(place, source, way)]
