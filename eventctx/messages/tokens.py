"""Token estimates by kind of content, from facts alone; integer arithmetic, so they replay exactly.

Rates are characters per token, times ten. They differ by family of models: characters divided by
four is near enough for DeepSeek and a third too low for Claude, the unsafe direction. They were
fitted on large public sets and checked on others; `docs/explanation/tokens.md` has the tables.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eventctx.messages.facts import Facts
from eventctx.messages.media_tokens import (
    CLAUDE,
    CLAUDE_LARGE,
    GEMINI,
    GEMINI_2,
    GPT,
    GPT_4O_MINI,
    GPT_MINI,
    GPT_NANO,
    GPT_TILES,
    MediaRates,
)
from eventctx.text import pattern

FIRST_WITH_DIGITS: Final = 4
"""The first reader of facts that counts digits and spaces; facts of older ones have the usual."""

USUAL_DIGITS: Final = 3
USUAL_SPACES: Final = 5
"""Digits, and pairs of spaces, among 100 characters of a recorded session: 0.6 to 5.1, 0.3 to 8.1.
"""

MARKER_DIGITS: Final = 20
"""Digits and wide bytes, each, that the marker of a cut may bring into a text."""


class Estimator(msgspec.Struct, frozen=True):
    """Rates in tenths of a character per token; costs in tokens, of ``digit``, ``wide`` and
    ``spaces`` in hundredths of one.

    ``name`` goes into the log, so that estimates of different releases can be distinguished.
    ``digit`` is what a digit costs more than another character (most tokenizers give each digit a
    token of its own), ``wide`` what a byte beyond the first of a character does, ``spaces`` what a
    pair of spaces costs less (most make one token of a run of spaces). ``media`` are the provider's
    rules for images, documents and recordings.
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

    def tokens_of_media(self, facts: Facts) -> int:
        """Tokens of the images, documents and recordings of a message."""
        return sum([self.media.tokens(one) for one in facts.media])

    def tokens_of_json(self, characters: int) -> int:
        """Tokens of so many characters of JSON, such as tool definitions."""
        return -(-characters * 10 // self.arguments)


BY_KIND = Estimator()
"""For models of no known family: it counts more than every known family except claude-4.7."""

_GPT: Final = Estimator("gpt-2", 36, 32, 36, 36, 10, 4, 0, 25, 0, GPT)
_GEMINI: Final = Estimator("gemini-2", 33, 33, 33, 33, 10, 6, 153, 25, 60, GEMINI)

FAMILIES: Final = {
    "claude": Estimator("claude-2", 40, 32, 32, 34, 113, 3, 52, 25),
    "claude-4.7": Estimator("claude-4.7-2", 32, 26, 26, 27, 140, 4, 65, 31, 0, CLAUDE_LARGE),
    "gpt": _GPT,
    "gpt-tiles": msgspec.structs.replace(_GPT, name="gpt-tiles-2", media=GPT_TILES),
    "gpt-4o-mini": msgspec.structs.replace(_GPT, name="gpt-4o-mini-2", media=GPT_4O_MINI),
    "gpt-mini": msgspec.structs.replace(_GPT, name="gpt-mini-2", media=GPT_MINI),
    "gpt-nano": msgspec.structs.replace(_GPT, name="gpt-nano-2", media=GPT_NANO),
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
    name = (model or "").lower()
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
