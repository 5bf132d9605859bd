"""Rules about images: their number, their sides, and the size of all of them together.

Source: Anthropic's limits of a request with images, and its errors ("At least one of the image
dimensions exceed max allowed size for many-image requests: 2000 pixels").
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from eventctx.messages.media import image_medium
from eventctx.projections.view.sendable.rows import Block, RowChange, Rows, kind_of, with_content

MOST_IMAGES: Final = 100
MANY_IMAGES: Final = 20
MOST_SIDE: Final = 8_000
MOST_SIDE_OF_MANY: Final = 2_000
MOST_CHARACTERS: Final = (5 << 20) * 4 // 3
"""Characters of base64 of one image: 5 MB, the lowest of the limits that errors have named."""

MOST_TOGETHER: Final = 28 << 20
"""Characters of base64 of all images: of the 32 MB of a request the rest is for its texts."""

BATCH: Final = 25
"""Images that are left out together where there are too many, so that a new image does not change
the beginning of every request."""


class _Image(NamedTuple):
    """An image: its row, its block (in a message or a result), and its characters."""

    place: int
    block: Block
    characters: int


def limit_images(rows: Rows) -> list[RowChange]:
    """Put a text in the place of images that are too large, and of the oldest that are too many."""
    found = list(_images(rows))
    side = MOST_SIDE_OF_MANY if len(found) > MANY_IMAGES else MOST_SIDE
    left_out = {id(one.block): text for one in found if (text := _too_large(one, side))}
    kept = [one for one in found if id(one.block) not in left_out]
    for one in kept[: _too_many(kept)]:
        left_out[id(one.block)] = "[An image is left out: the request has too many.]"
    changes = []
    for place in sorted({one.place for one in found if id(one.block) in left_out}):
        row = rows[place]
        assert row is not None  # noqa: S101 - it has an image
        rows[place] = with_content(row, _replaced(row["content"], left_out))
        changes.append(RowChange(place, "image_over_limit"))
    return changes


def _images(rows: Rows) -> Iterator[_Image]:
    for place, row in enumerate(rows):
        content = None if row is None else row.get("content")
        for block in content if isinstance(content, list) else ():
            kind = kind_of(block)
            if kind == "image":
                yield _Image(place, block, _characters(block))
            elif kind == "tool_result" and isinstance(block.get("content"), list):
                for inner in block["content"]:
                    if kind_of(inner) == "image":
                        yield _Image(place, inner, _characters(inner))


def _characters(block: Block) -> int:
    source = block.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    return len(data) if isinstance(data, str) else 0


def _too_large(one: _Image, side: int) -> str:
    """The text for an image that no request may hold; empty for one that may be sent."""
    if one.characters > MOST_CHARACTERS:
        megabytes = (one.characters * 3 // 4) >> 20
        return f"[An image of {megabytes} MB is left out: too large for a request.]"
    size = image_medium(one.block)
    if max(size.amount, size.height) <= side:
        return ""
    return (
        f"[An image of {size.amount} × {size.height} pixels is left out: a request like this has "
        f"none over {side}.]"
    )


def _too_many(images: list[_Image]) -> int:
    """How many of the oldest images are left out, in whole batches."""
    surplus = max(0, len(images) - MOST_IMAGES)
    together = sum([one.characters for one in images])
    taken = 0
    while taken < len(images) and (taken < surplus or together > MOST_TOGETHER):
        batch = images[taken : taken + BATCH]
        together -= sum([one.characters for one in batch])
        taken += len(batch)
    return taken


def _replaced(content: list[Any], texts: dict[int, str]) -> list[Any]:
    """The blocks with texts in the place of the images whose identity ``texts`` has."""
    made: list[Any] = []
    for block in content:
        text = texts.get(id(block))
        if text is not None:
            made.append({"type": "text", "text": text})
        elif kind_of(block) == "tool_result" and isinstance(block.get("content"), list):
            made.append(with_content(block, _replaced(block["content"], texts)))
        else:
            made.append(block)
    return made
