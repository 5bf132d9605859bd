"""From the events of a streamed Anthropic message to the message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from eventctx.orchestrators.protocol import Chunk
from eventctx.orchestrators.providers.arguments import read_arguments


class StreamedMessage:
    """Takes the events of one message in order (``sdk_provider.AnswerCollector``)."""

    def __init__(self) -> None:
        self.body: dict[str, Any] = {}
        self.problems: dict[str, str] = {}
        self.whole = False
        self._inputs: dict[int, list[str]] = {}

    def take(self, event: dict[str, Any]) -> Iterator[Chunk]:
        """Add an event, and yield the chunks to show."""
        match event.get("type"):
            case "message_start":
                self.body = {**event["message"], "content": []}
            case "content_block_start":
                self.body["content"].append(dict(event["content_block"]))
                yield from self._shown(event["index"], event["content_block"])
            case "content_block_delta":
                yield from self._grow(event["index"], event["delta"])
            case "content_block_stop":
                self._close(event["index"])
            case "message_delta":
                self.body.update(event["delta"])
                counted = {k: v for k, v in event.get("usage", {}).items() if v is not None}
                self.body["usage"] = {**self.body.get("usage", {}), **counted}
                if "input_transformations" in event:
                    self.body["input_transformations"] = event["input_transformations"]
            case "message_stop":
                self.whole = True

    def _grow(self, index: int, delta: dict[str, Any]) -> Iterator[Chunk]:
        block = self.body["content"][index]
        match delta["type"]:
            case "input_json_delta":
                self._inputs.setdefault(index, []).append(delta["partial_json"])
                return
            case "citations_delta":
                block["citations"] = [*(block.get("citations") or ()), delta["citation"]]
                return
        # Other deltas, and those of later releases, continue the texts of the same names.
        for name, more in delta.items():
            if name != "type" and isinstance(more, str):
                block[name] = (block.get(name) or "") + more
        yield from self._shown(index, delta)

    def _shown(self, index: int, part: dict[str, Any]) -> Iterator[Chunk]:
        if text := part.get("text"):
            yield Chunk("text", text, index)
        elif thinking := part.get("thinking"):
            yield Chunk("thinking", thinking, index)

    def _close(self, index: int) -> None:
        pieces = self._inputs.pop(index, None)
        if pieces is None:
            return
        block = self.body["content"][index]
        block["input"], problem = read_arguments("".join(pieces))
        if problem is not None:
            self.problems[block["id"]] = problem
