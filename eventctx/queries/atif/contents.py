"""The content of a field of a step: texts, and images between them.

ATIF names four types of images, by a path or a URL. An image in a message becomes a ``data:`` URL.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from eventctx.log.record import Body
from eventctx.messages.encoding import decode_body
from eventctx.messages.facts import Facts
from eventctx.messages.parts import Place, read_parts
from eventctx.projections.view.render import ERASED
from eventctx.queries.atif.verbatim import Piece, Source, compact, piece

_BETWEEN: Final = "\n\n"

_IMAGES: Final = ("image/jpeg", "image/png", "image/gif", "image/webp")
"""The types of images that ATIF names."""

_SUFFIXES: Final = {
    "jpg": "image/jpeg",
    "jpeg": "image/jpeg",
    "png": "image/png",
    "gif": "image/gif",
    "webp": "image/webp",
}

_DATA_URL: Final = re.compile(r"data:([\w/+.-]+);base64,")


class ItemAt(NamedTuple):
    """A value of a message at ``place``, which is item ``item`` of a content."""

    place: Place
    content: FieldContent
    item: int
    way: str = ""


class FieldContent:
    """The texts and images of a field, at ``source`` in the step.

    Texts alone become one text with a blank line between them, all else a list of parts.
    """

    def __init__(self, *source: str | int) -> None:
        self._source: Source = list(source)
        self._items: list[str | dict[str, Any]] = []

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: str | dict[str, Any], *, again: bool = True) -> int:
        """Add a text or an image; returns its number. Without ``again`` only if it is not there."""
        if not again and item in self._items:
            return self._items.index(item)
        self._items.append(item)
        return len(self._items) - 1

    def value(self) -> str | list[dict[str, Any]]:
        """The field's value."""
        texts = [one for one in self._items if isinstance(one, str)]
        if len(texts) == len(self._items):
            return _BETWEEN.join(texts)
        return [
            {"type": "text", "text": one} if isinstance(one, str) else one for one in self._items
        ]

    def piece(self, at: ItemAt, *ahead: str) -> Piece:
        """The piece of one of its items."""
        source, own = [*ahead, *self._source], self._items[at.item]
        if at.way:
            # A value that is no text is the only item of its content.
            return piece(at.place, source, at.way)
        if isinstance(own, dict):
            path = own["source"]["path"]
            inline = _DATA_URL.match(path) if at.place[-1] == "data" else None
            start = 0 if inline is None else inline.end()
            return piece(at.place, [*source, at.item, "source", "path"], start, len(path))
        if any(isinstance(one, dict) for one in self._items):
            return piece(at.place, [*source, at.item, "text"])
        if len(self._items) == 1:
            return piece(at.place, source)
        start = sum([len(str(one)) + len(_BETWEEN) for one in self._items[: at.item]])
        return piece(at.place, source, start, start + len(own))


def image_of(block: Any) -> tuple[Place, str, str] | None:
    """An image: the place of its data or URL in its block, its type, and its path."""
    if not isinstance(block, dict):
        return None
    source, linked = block.get("source"), block.get("image_url")
    if isinstance(source, dict) and isinstance(source.get("data"), str):
        kind = source.get("media_type")
        if kind not in _IMAGES:
            return None
        return ("source", "data"), kind, f"data:{kind};base64,{source['data']}"
    for place, url in (
        (("source", "url"), source.get("url") if isinstance(source, dict) else None),
        (("image_url", "url"), linked.get("url") if isinstance(linked, dict) else None),
        (("image_url",), linked),
        (("url",), block.get("url")),
    ):
        if isinstance(url, str):
            kind = _type_of(url)
            return None if kind is None else (place, kind, url)
    data, kind = block.get("data"), block.get("mimeType", block.get("media_type"))
    if isinstance(data, str) and kind in _IMAGES:
        return ("data",), kind, f"data:{kind};base64,{data}"
    return None


def _type_of(url: str) -> str | None:
    """The type of the image at a URL; None where the URL does not say one that ATIF names."""
    inline = _DATA_URL.match(url)
    if inline is not None:
        return inline[1] if inline[1] in _IMAGES else None
    return _SUFFIXES.get(url.partition("?")[0].rpartition(".")[2].lower())


# -- stored contents -------------------------------------------------------------------------------


def message_of(body: Body, facts: Facts) -> dict[str, Any]:
    """The message in a body; of an erased one, its role and a mark."""
    if body.data is not None:
        message: dict[str, Any] = decode_body(body.data)
        return message
    if facts.results:
        return {"role": "tool", "tool_call_id": facts.results[0], "content": ERASED}
    return {"role": "user" if facts.role == "item" else facts.role, "content": ERASED}


def text_of(body: Body) -> str:
    """The text in a body: of a message, of a list of blocks, or the JSON of anything else."""
    if body.data is None:
        return ERASED
    value = decode_body(body.data)
    content = value.get("content", value) if isinstance(value, dict) else value
    if isinstance(content, str):
        return content
    row = {"role": "system", "content": content}
    texts = [part.value for part in read_parts(row) if part.kind == "text"]
    return "\n\n".join(texts) if texts else compact(value)
