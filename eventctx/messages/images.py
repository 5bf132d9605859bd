"""The size of an image in pixels, from its header, whatever its encoding."""

from __future__ import annotations

import base64
import binascii
import io
from typing import Any, Final

from eventctx.messages.facts import Detail, Medium

MOST_PIXELS: Final = 1 << 16
"""Pixels of an edge; formats can say more, providers refuse 8,000."""

# Enough for the headers of PNG, GIF and WebP, and for JPEGs with large embedded profiles.
_HEADER_CHARACTERS: Final = 262_144

_DETAILS: Final[dict[Any, Detail]] = {"low": "low", "high": "high", "original": "original"}


def image_medium(block: dict[str, Any]) -> Medium:
    """The size of an image block of any dialect; 0 times 0 where it cannot be read (a URL, an id).

    With the ``detail`` that OpenAI's blocks ask for; ``auto`` and none are empty.
    """
    link = block.get("image_url")
    asked = link.get("detail") if isinstance(link, dict) else block.get("detail")
    detail = _DETAILS.get(asked, "") if isinstance(asked, str) else ""
    data = _base64_of(block)
    if data is None:
        return Medium("image", detail=detail)
    # Imported here: it loads urllib and the http client, a fifth of the engine's start.
    import imagesize  # type: ignore[import-untyped]

    try:
        header = base64.b64decode(data[:_HEADER_CHARACTERS], validate=False)
        width, height = imagesize.get(io.BytesIO(header))
    except (binascii.Error, ValueError, IndexError):
        return Medium("image", detail=detail)
    if not (0 < width <= MOST_PIXELS and 0 < height <= MOST_PIXELS):
        return Medium("image", detail=detail)
    return Medium("image", int(width), int(height), detail)


def _base64_of(block: dict[str, Any]) -> str | None:
    source = block.get("source")
    data = source.get("data") if isinstance(source, dict) else block.get("data")
    if isinstance(data, str):
        return data
    url = block.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    if isinstance(url, str) and url.startswith("data:"):
        _, _, encoded = url.partition(",")
        return encoded
    return None
