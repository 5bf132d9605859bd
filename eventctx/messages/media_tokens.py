"""Tokens of images, documents and recordings, by the rules that providers publish.

Where a provider publishes a range or nothing, the figure is one that was measured; each says which.
``docs/explanation/tokens.md`` has the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final, NamedTuple

from eventctx.messages.facts import Detail, Medium

ImageRule = Callable[[int, int, Detail], int]
"""Tokens of an image of so many pixels by so many."""


class MediaRates(NamedTuple):
    """``image`` for images whose size is known, ``unknown`` tokens for others.

    ``page`` and ``second`` are tokens of a page of a PDF, with its image and its text, and of a
    second of sound.
    """

    image: ImageRule
    unknown: int
    page: int
    second: int

    def tokens(self, medium: Medium) -> int:
        """Tokens of a medium; at least one."""
        if medium.kind == "pages":
            return max(1, medium.amount * self.page)
        if medium.kind == "audio":
            return max(1, -(-medium.amount * self.second // 10))
        if medium.detail == "low" or (medium.amount and medium.height):
            return max(1, self.image(medium.amount, medium.height, medium.detail))
        return self.unknown


# -- Anthropic -----------------------------------------------------------------------------------


def _by_area(longest: int, most: int) -> ImageRule:
    """Anthropic's rule: width times height / 750 (https://docs.claude.com/en/docs/vision).

    Larger images are scaled down to ``longest`` pixels of an edge and ``most`` tokens. Their size
    is charged in patches of 28 by 28 pixels, which is 2 to 4 % less.
    """

    def rule(width: int, height: int, detail: Detail) -> int:
        if not width or not height:
            return most
        scale = min(1.0, longest / max(width, height))
        return min(most, math.ceil(width * scale * height * scale / 750))

    return rule


CLAUDE: Final = MediaRates(_by_area(1_568, 1_600), 1_600, 2_350, 32)
"""Published: 1,500 to 3,000 tokens of text a page, and its image
(https://docs.claude.com/en/docs/build-with-claude/pdf-support); "approximately 7,000 tokens" for
three pages. Measured: 2,115 a page of text, 2,278 with a table, 1,592 scanned
(https://huggingface.co/datasets/JOHNISKING/pdf-token-cost, Haiku 4.5). Sound is not accepted; it
counts as with Gemini."""

CLAUDE_LARGE: Final = MediaRates(_by_area(2_576, 4_784), 4_784, 2_500, 32)
"""From 4.7 on: images up to 2,576 pixels and 4,784 tokens (2,691 were measured for 1920 by 1080,
https://huggingface.co/datasets/JOHNISKING/image-token-cost); pages 2,324 to 2,481 (Opus 5.5)."""

# -- OpenAI --------------------------------------------------------------------------------------


def _by_tiles(base: int, tile: int) -> ImageRule:
    """OpenAI's tiles of 512 pixels, within 2,048 by 2,048 and a shorter side of 768
    (https://platform.openai.com/docs/guides/images-vision, "Calculating costs"): 765 tokens for
    1024 by 1024 with gpt-4o.
    """

    def rule(width: int, height: int, detail: Detail) -> int:
        if detail == "low" or not width or not height:
            return base
        scale = min(1.0, 2_048 / max(width, height))
        scale = min(scale, 768 / min(width, height))
        # Rounded as pixels are: 768.0000001 is no second row of tiles.
        across, down = (math.ceil(round(side * scale, 3) / 512) for side in (width, height))
        return base + tile * max(1, across) * max(1, down)

    return rule


def _by_patches(percent: int, most: int, most_high: int) -> ImageRule:
    """OpenAI's patches of 32 pixels, each ``percent`` hundredths of a token (same page).

    An image of more than ``most`` patches is scaled down, with detail ``high`` from ``most_high``.
    """

    def rule(width: int, height: int, detail: Detail) -> int:
        patches = math.ceil(width / 32) * math.ceil(height / 32)
        most_of_it = most_high if detail == "high" else most
        if detail == "low":
            most_of_it, patches = 256, patches or 256
        return -(-min(patches, most_of_it) * percent // 100)

    return rule


GPT_TILES: Final = MediaRates(_by_tiles(85, 170), 765, 1_700, 10)
"""gpt-4o, gpt-4.1, gpt-5 to 5.3 (70 and 140 there) and the o-series (75 and 150). A page is its
text and its image (https://platform.openai.com/docs/guides/pdf-files): 1,105 for the image of a
page, 600 for its text. Sound: one token for 100 ms
(https://platform.openai.com/docs/guides/realtime-costs)."""

GPT_4O_MINI: Final = MediaRates(_by_tiles(2_833, 5_667), 25_501, 37_500, 10)
"""gpt-4o-mini is charged 33 times the tokens for images (same page)."""

GPT_MINI: Final = MediaRates(_by_patches(172, 1_536, 1_536), 2_642, 3_250, 10)
"""Published multipliers: gpt-4.1-mini and gpt-5-mini 1.62 (1.2 was measured), o4-mini 1.72."""

GPT_NANO: Final = MediaRates(_by_patches(246, 1_536, 1_536), 3_779, 4_400, 10)

GPT: Final = MediaRates(_by_patches(120, 10_000, 2_500), 3_000, 2_450, 10)
"""gpt-5.4 and later, and those that are not known. Measured (image-token-cost, as above): 1.2 for
each patch, 2,500 patches at most with detail ``high`` and 10,000 without one."""

# -- Google --------------------------------------------------------------------------------------


def _by_768(width: int, height: int, detail: Detail) -> int:
    """Gemini up to 2.5: 258 tokens for each tile of 768 by 768, one for an image of up to 384."""
    if width <= 384 and height <= 384:
        return 258
    return 258 * math.ceil(width / 768) * math.ceil(height / 768)


GEMINI_2: Final = MediaRates(_by_768, 1_032, 258, 32)
"""https://ai.google.dev/gemini-api/docs/tokens: 258 a page, 32 tokens a second of sound."""

GEMINI: Final = MediaRates(lambda width, height, detail: 1_120, 1_120, 560, 32)
"""Gemini 3: 1,120 an image and 560 a page, by default
(https://ai.google.dev/gemini-api/docs/media-resolution)."""
