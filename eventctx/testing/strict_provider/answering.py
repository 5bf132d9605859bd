"""What a server is asked, what it answers, and how large both are in tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventctx.orchestrators.protocol import Usage
from eventctx.testing.script import Reply
from eventctx.testing.strict_provider.rule import Api

Json = dict[str, Any]

_CHARACTERS_A_TOKEN: Final = 3.5
_OF_MEDIA: Final = 5_000
"""Characters as which an image or a file counts: about 1,500 tokens, whatever its base64 is."""


class ApiRequest(msgspec.Struct, frozen=True):
    """A request as it came; ``number`` counts those that were answered, from 1."""

    api: Api
    path: str
    headers: Mapping[str, str]
    body: Json
    model: str
    streams: bool = False
    counts: bool = False
    number: int = 0

    @property
    def checked(self) -> Json:
        """The body with what the rules need to know of the address and the headers."""
        if self.api == "anthropic":
            betas = [one.strip() for one in self.headers.get("anthropic-beta", "").split(",")]
            return {**self.body, "anthropic_beta": betas}
        name = {"gemini": "model", "bedrock": "modelId"}.get(self.api)
        return {**self.body, name: self.model} if name else self.body


class ApiAnswer(msgspec.Struct, frozen=True):
    """An answer whole, and as the events of a stream."""

    body: Json
    events: Sequence[Json]


def count_tokens(*values: Any) -> int:
    """A plausible number: characters of the JSON divided by 3.5, media as one size."""
    return math.ceil(sum(_characters(value) for value in values) / _CHARACTERS_A_TOKEN)


def used_tokens(reply: Reply, request: ApiRequest, said: Any) -> Usage:
    """The script's usage, else one by the sizes of the request and of what was said."""
    if reply.usage is not None:
        return reply.usage
    prompt = count_tokens({k: v for k, v in request.body.items() if k not in _SETTINGS})
    thought = count_tokens(reply.thinking) if reply.thinking else 0
    return Usage(prompt=prompt, output=count_tokens(said), reasoning=thought)


_SETTINGS: Final = ("model", "stream", "max_tokens", "thinking", "metadata", "store")


def pieces_of(text: str) -> Iterator[str]:
    """A text in pieces of a few words, as a stream brings it."""
    words = text.split(" ")
    for begin in range(0, len(words), 4):
        piece = " ".join(words[begin : begin + 4])
        yield f" {piece}" if begin else piece


def _characters(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, Mapping):
        media = isinstance(value.get("data"), str) and len(value["data"]) > _OF_MEDIA
        if media:
            return _OF_MEDIA
        return sum(len(str(key)) + 4 + _characters(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return sum(_characters(one) + 1 for one in value)
    return 0 if value is None else len(str(value))
