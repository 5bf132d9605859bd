"""Token estimates by kind of content, from facts alone; integer arithmetic, so they replay exactly.

Rates are characters per token, times ten. They differ by family of models: characters divided by
four is near enough for DeepSeek and a third too low for Claude, the unsafe direction. They were
fitted on large public sets and checked on others; `docs/explanation/tokens.md` has the tables.
Media cost what their provider's rule says (``MediaRates``). Where a user gives a tokenizer, it sees
a message once, when it is added; its count is stored with the facts, so a replay counts the same
without it, and only images, thinking and the cost of a call are still estimated.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.messages.facts import FIRST_WEIGHED, Detail, Facts, Medium
from eventctx.messages.parts import read_parts
from eventctx.messages.recall_text import text_of
from eventctx.messages.text_weight import MOST, MOST_NARROW, USUAL
from eventctx.text import pattern

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

# -- families of models ------------------------------------------------------------------------

FIRST_WITH_DIGITS: Final = 4
"""The first reader of facts that counts digits and spaces; facts of older ones have the usual."""

USUAL_DIGITS: Final = 3
USUAL_SPACES: Final = 5
"""Digits, and pairs of spaces, among 100 characters of a recorded session: 0.6 to 5.1, 0.3 to 8.1.
"""

MARKER_DIGITS: Final = 20
"""Digits and wide bytes, each, that the marker of a cut may bring into a text."""

CALL_BESIDE_WEIGHT: Final = 16
"""Tokens of a call beside its weighed text. With two messages 24: GPT-5.5 was charged 23 for a call
and its result, 73 for three of each."""

MARKER_WEIGHT: Final = 900
"""What the marker of a cut may weigh above the usual."""


class Estimator(msgspec.Struct, frozen=True):
    """Rates in tenths of a character per token; costs in tokens, of ``digit``, ``wide`` and
    ``spaces`` in hundredths of one.

    ``name`` goes into the log, so that estimates of different releases can be distinguished.
    ``digit`` is what a digit costs more than another character (most tokenizers give each digit a
    token of its own), ``wide`` what a byte beyond the first of a character does, ``spaces`` what a
    pair of spaces costs less (most make one token of a run of spaces). ``media`` are the provider's
    rules for images, documents and recordings. ``weighs`` says that texts count by their weight;
    the other rates are then for facts of readers that did not weigh them.
    """

    name: str = "by-kind-2"
    prose: int = 33
    arguments: int = 31
    outcome: int = 28
    thinking: int = 30
    per_call: int = 95
    per_message: int = 4
    digit: int = 0
    wide: int = 0
    spaces: int = 0
    media: MediaRates = CLAUDE
    weighs: bool = False

    def tokens(self, facts: Facts) -> int:
        """Tokens of one message in a request; at least one."""
        if facts.tokens:
            return (
                facts.tokens
                + facts.images
                + self.per_call * len(facts.calls)
                + self.per_message
                - (-facts.thinking * 10 // self.thinking)
                + (self.tokens_of_media(facts) if facts.media else 0)
            )
        return self.tokens_with(facts, facts.prose, facts.arguments, facts.outcome)

    def tokens_with(self, facts: Facts, prose: int, arguments: int, outcome: int) -> int:
        """Tokens of a message with these facts, but with other numbers of characters.

        Where these are fewer, the digits may all be among those that are left, and no spaces.
        """
        if self.weighs and facts.reader >= FIRST_WEIGHED:
            return self._weighed_tokens(facts, prose + arguments + outcome)
        # Negated floor divisions round up; written out, as this runs for every message.
        tokens = (
            facts.images
            + self.per_call * len(facts.calls)
            + self.per_message
            - (-prose * 10 // self.prose)
            - (-arguments * 10 // self.arguments)
            - (-outcome * 10 // self.outcome)
            - (-facts.thinking * 10 // self.thinking)
        )
        if self.digit or self.wide:
            left, whole = prose + arguments + outcome, facts.prose + facts.arguments + facts.outcome
            digits, spaces = facts.digits, facts.spaces
            if facts.reader < FIRST_WITH_DIGITS:
                digits, spaces = whole * USUAL_DIGITS // 100, whole * USUAL_SPACES // 100
            if left == whole:
                dense = digits * self.digit + facts.wide * self.wide - spaces * self.spaces
            else:
                digits = min(digits + MARKER_DIGITS, left)
                wide = min(facts.wide + MARKER_DIGITS, 3 * left)
                dense = digits * self.digit + wide * self.wide
            tokens -= -dense // 100
        return tokens + self.tokens_of_media(facts) if facts.media else tokens

    def _weighed_tokens(self, facts: Facts, left: int) -> int:
        """Tokens of a message of whose characters so many are left: the heaviest may be."""
        weight = facts.weight
        if left != facts.prose + facts.arguments + facts.outcome:
            markers = MARKER_WEIGHT * max(1, len(facts.results), len(facts.calls))
            wide = min(facts.wide + MARKER_DIGITS, left)
            most = left * MOST_NARROW + wide * (MOST - MOST_NARROW)
            weight = min(left * USUAL + facts.dense + markers, most)
        tokens = (
            facts.images
            + CALL_BESIDE_WEIGHT * len(facts.calls)
            + self.per_message
            - (-weight // 100)
            - (-facts.thinking * 10 // self.thinking)
        )
        return tokens + self.tokens_of_media(facts) if facts.media else tokens

    def tokens_of_media(self, facts: Facts) -> int:
        """Tokens of the images, documents and recordings of a message."""
        return sum([self.media.tokens(one) for one in facts.media])

    def tokens_of_json(self, characters: int) -> int:
        """Tokens of so many characters of JSON, such as tool definitions."""
        return -(-characters * 10 // self.arguments)


BY_KIND = Estimator()
"""For models of no known family: it counts more than every known family except claude-4.7."""

_GPT: Final = Estimator("gpt-3", 36, 32, 36, 36, 10, 4, 0, 25, 0, GPT, weighs=True)
_GEMINI: Final = Estimator("gemini-2", 33, 33, 33, 33, 10, 6, 153, 25, 60, GEMINI)

FAMILIES: Final = {
    "claude": Estimator("claude-2", 40, 32, 32, 34, 113, 3, 52, 25),
    "claude-4.7": Estimator("claude-4.7-2", 32, 26, 26, 27, 140, 4, 65, 31, 0, CLAUDE_LARGE),
    "gpt": _GPT,
    "gpt-tiles": msgspec.structs.replace(_GPT, name="gpt-tiles-3", media=GPT_TILES),
    "gpt-4o-mini": msgspec.structs.replace(_GPT, name="gpt-4o-mini-3", media=GPT_4O_MINI),
    "gpt-mini": msgspec.structs.replace(_GPT, name="gpt-mini-3", media=GPT_MINI),
    "gpt-nano": msgspec.structs.replace(_GPT, name="gpt-nano-3", media=GPT_NANO),
    "gemini": _GEMINI,
    "gemini-2.5": msgspec.structs.replace(_GEMINI, name="gemini-2.5-2", media=GEMINI_2),
    "deepseek": Estimator("deepseek-2", 38, 45, 38, 42, 76, 4, 73, 25, 44),
    "other": BY_KIND,
}
"""Estimators by family. From 4.7 on Claude has another tokenizer, with about 30 % more tokens. The
families of GPT and of Gemini differ by their rules for images alone."""

_CLAUDE: Final = pattern(r"claude|anthropic|\b(?:opus|sonnet|haiku|fable|mythos)\b")
_CLAUDE_VERSION: Final = pattern(
    r"(?:claude|opus|sonnet|haiku)[-.]?v?(\d)(?!\d)(?:[-.](\d{1,2})(?!\d))?"
)
_NEWER_CLAUDE: Final = (4, 7)
_PATTERNS: Final = (
    ("gemini-2.5", pattern(r"gemini-(?:1|2)\b|gemma")),
    ("gemini", pattern(r"gemini")),
    ("deepseek", pattern(r"deepseek")),
    ("gpt-4o-mini", pattern(r"gpt-4o-mini")),
    ("gpt-nano", pattern(r"gpt-\S*-nano")),
    ("gpt-mini", pattern(r"gpt-\S*-mini|\bo4-mini")),
    ("gpt-tiles", pattern(r"gpt-4|gpt-5(?:\.[0-3])?(?![\d.])|\bo[13](?:-|\b)")),
    ("gpt", pattern(r"gpt|codex|davinci|\bo[1345](?:-|\b)|\bopenai/")),
)


def family_of(model: str | None) -> str:
    """The family of a model by its name, in any provider's spelling; ``other`` if unknown."""
    if not model:
        return "other"
    name = model.lower()
    # Distillations carry the name of the model whose answers, not whose tokenizer, they learnt.
    if "distill" in name:
        return "other"
    if _CLAUDE.search(name):
        found = _CLAUDE_VERSION.search(name)
        if found is not None and (int(found[1]), int(found[2] or 0)) < _NEWER_CLAUDE:
            return "claude"
        return "claude-4.7"
    return next((family for family, pattern in _PATTERNS if pattern.search(name)), "other")


SYNTHETIC_TOKENS: Final = 24
"""Tokens of a synthetic result for an unanswered call, as renderer 1 worded it."""

UNANSWERED_TOKENS: Final = 60
"""Tokens of one as it is worded today, without the answer that it may show."""

OPENING_TOKENS: Final = 28
"""Tokens of the synthetic first message of a view, where the conversation has no own."""


# -- a user's own tokenizer ---------------------------------------------------------------------

Tokenizer = Callable[[str], int]
"""The number of tokens of a text."""

_MOST_TOKENS: Final = 10**12  # as of a reported count, ``log.usage.MOST_TOKENS``

_log = logging.getLogger("eventctx")


def count_with_tokenizer(
    facts: Facts, message: dict[str, Any], tokenizer: Tokenizer | None
) -> Facts:
    """The facts with the tokens that ``tokenizer`` counts in the message's texts.

    When a tokenizer raises, that is logged, and the estimate is used, as it is when the tokenizer
    returns no positive int, or an absurd one: a count must not end an agent's turn.
    """
    if tokenizer is None:
        return facts
    try:
        tokens = tokenizer("\n".join([text_of(message), *_plain_documents(message)]))
    except Exception as error:
        _log.warning("the tokenizer raised %s: %s", type(error).__name__, error)
        return facts
    if type(tokens) is not int or not 1 <= tokens <= _MOST_TOKENS:
        return facts
    return msgspec.structs.replace(facts, tokens=tokens)


def _plain_documents(message: dict[str, Any]) -> list[str]:
    """The texts of documents in plain text, which a search does not read: they lie in ``data``."""
    sources = [part.value.get("source") for part in read_parts(message) if part.kind == "document"]
    return [
        one["data"]
        for one in sources
        if isinstance(one, dict) and one.get("type") == "text" and isinstance(one.get("data"), str)
    ]


def tiktoken_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of an OpenAI model, by the ``tiktoken`` package (``eventctx[tiktoken]``).

    Raises InvalidSetting where the package or its vocabulary, which it downloads, is missing.
    """
    try:
        import tiktoken  # type: ignore[import-not-found,unused-ignore]
    except ImportError as error:
        raise InvalidSetting(
            "tokenizer: expected the package tiktoken; install eventctx[tiktoken]"
        ) from error
    try:
        encoding = tiktoken.encoding_for_model(model)
    except KeyError as error:
        raise InvalidSetting(f"tokenizer: tiktoken knows no model {model!r}") from error
    except Exception as error:
        raise InvalidSetting(
            f"tokenizer: tiktoken's vocabulary for {model!r} cannot be loaded "
            f"({type(error).__name__}); it is downloaded once and then kept by tiktoken"
        ) from error

    def tokens(text: str) -> int:
        # Special tokens in a message are text, not an instruction to the encoder.
        return len(encoding.encode_ordinary(text))

    return tokens
