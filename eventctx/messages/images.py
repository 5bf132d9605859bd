"""The tokens of an image: from its size in pixels, never from the length of its encoding."""

from __future__ import annotations

import base64
import binascii
import io
import math
from typing import Any, Final

PIXELS_PER_TOKEN: Final = 750
"""Anthropic's documented rule, width x height / 750; OpenAI's tiles come out lower."""

LONGEST_EDGE: Final = 1568
"""Larger images are scaled down to this edge by the provider before they are counted."""

DEFAULT_TOKENS: Final = 1600
"""The documented maximum; also assumed where the size cannot be read (a URL, a file id)."""

# Enough for the headers of PNG, GIF and WebP, and for JPEGs with large embedded profiles.
_HEADER_CHARACTERS: Final = 262_144


def image_tokens(block: dict[str, Any]) -> int:
    """Tokens of an image block of any dialect."""
    data = _base64_of(block)
    if data is None:
        return DEFAULT_TOKENS
    # Imported here: it loads urllib and the http client, a fifth of the engine's start.
    import imagesize  # type: ignore[import-untyped]

    try:
        header = base64.b64decode(data[:_HEADER_CHARACTERS], validate=False)
        width, height = imagesize.get(io.BytesIO(header))
    except (binascii.Error, ValueError, IndexError):
        return DEFAULT_TOKENS
    if width <= 0 or height <= 0:
        return DEFAULT_TOKENS
    scale = min(1.0, LONGEST_EDGE / max(width, height))
    pixels = float(width * scale * height * scale)
    return min(DEFAULT_TOKENS, math.ceil(pixels / PIXELS_PER_TOKEN))


def _base64_of(block: dict[str, Any]) -> str | None:
    source = block.get("source")
    if isinstance(source, dict):
        data = source.get("data")
        return data if isinstance(data, str) else None
    url = block.get("image_url")
    if isinstance(url, dict):
        url = url.get("url")
    if isinstance(url, str) and url.startswith("data:"):
        _, _, encoded = url.partition(",")
        return encoded
    return None
