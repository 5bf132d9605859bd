"""From the parts of a streamed chat completion to the completion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

from eventctx.orchestrators.protocol import Chunk

_SHOWN: Final[dict[str, Literal["text", "thinking"]]] = {
    "reasoning_content": "thinking",
    "reasoning": "thinking",
    "content": "text",
    "refusal": "text",
}


class StreamedCompletion:
    """Takes the parts of one completion in order (``sdk_provider.AnswerCollector``).

    Arguments stay texts here, so there are no ``problems`` yet.
    """

    problems: Final[Mapping[str, str]] = {}

    def __init__(self) -> None:
        self._head: dict[str, Any] = {}
        self._message: dict[str, Any] = {}
        self._calls: dict[object, dict[str, Any]] = {}
        self._finish: str | None = None
        self._usage: dict[str, Any] | None = None
        self._block = -1
        self._kind: str | None = None

    @property
    def whole(self) -> bool:
        """Whether a part gave a reason to finish, which only the last part of a choice does."""
        return self._finish is not None

    @property
    def body(self) -> dict[str, Any]:
        """The completion, as far as it came."""
        message = dict(self._message)
        if self._calls:
            message["tool_calls"] = list(self._calls.values())
        choice = {"message": message, "finish_reason": self._finish}
        return {**self._head, "choices": [choice], "usage": self._usage}

    def take(self, part: dict[str, Any]) -> list[Chunk]:
        """Add a part, and return the chunks to show."""
        for key in ("id", "model"):
            if part.get(key):
                self._head.setdefault(key, part[key])
        if part.get("usage"):
            self._usage = part["usage"]
        shown: list[Chunk] = []
        for choice in part.get("choices") or ():
            # A part may name its choice; only one choice is requested.
            if choice.get("index", 0) == 0:
                shown += self._grow(choice.get("delta") or {})
                self._finish = choice.get("finish_reason") or self._finish
        return shown

    def _grow(self, delta: dict[str, Any]) -> Iterator[Chunk]:
        for key, value in delta.items():
            if key == "tool_calls":
                for call in value or ():
                    self._grow_call(call)
            elif isinstance(value, str) and key != "role":
                self._message[key] = (self._message.get(key) or "") + value
            elif isinstance(value, list):
                self._message[key] = [*self._message.get(key, ()), *value]
            elif value is not None or key not in self._message:
                self._message[key] = value
            if key in _SHOWN and value:
                yield self._chunk(_SHOWN[key], value)

    def _chunk(self, kind: Literal["text", "thinking"], text: str) -> Chunk:
        if kind != self._kind:
            self._kind = kind
            self._block += 1
        return Chunk(kind, text, self._block)

    def _grow_call(self, part: dict[str, Any]) -> None:
        """Add a part of a call.

        Only arguments come in pieces; some servers repeat name and id with each piece. A server
        that leaves ``index`` out sends whole calls.
        """
        place = part.get("index")
        call = self._calls.setdefault(part.get("id") if place is None else place, {})
        for key, value in part.items():
            if key == "function":
                function = call.setdefault("function", {"name": "", "arguments": ""})
                function["arguments"] += value.get("arguments") or ""
                function.update({k: v for k, v in value.items() if v and k != "arguments"})
            elif value is not None and key != "index":
                call[key] = value
