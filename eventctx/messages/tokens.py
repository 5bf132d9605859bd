"""Token estimates by kind of content, from facts alone; integer arithmetic, so they replay exactly.

Rates are characters per token, times ten. They differ by family of models: characters divided by
four is near enough for DeepSeek and a third too low for Claude, the unsafe direction. They were
fitted on large public sets and checked on others; `docs/explanation/tokens.md` has the tables.
"""

from __future__ import annotations

import re
from typing import Final

import msgspec

from eventctx.messages.facts import Facts


class Estimator(msgspec.Struct, frozen=True):
    """Rates in tenths of a character per token; costs in tokens.

    ``name`` goes into the log, so that estimates of different releases can be distinguished.
    """

    name: str = "by-kind-1"
    prose: int = 33
    arguments: int = 31
    outcome: int = 28
    thinking: int = 30
    per_call: int = 95
    per_message: int = 4

    def tokens(self, facts: Facts) -> int:
        """Tokens of one message in a request; at least one."""
        if facts.tokens:
            return (
                facts.tokens
                + facts.images
                + self.per_call * len(facts.calls)
                + self.per_message
                - (-facts.thinking * 10 // self.thinking)
            )
        return self.tokens_with(facts, facts.prose, facts.arguments, facts.outcome)

    def tokens_with(self, facts: Facts, prose: int, arguments: int, outcome: int) -> int:
        """Tokens of a message with these facts, but with other numbers of characters."""
        # Negated floor divisions round up; written out, as this runs for every message.
        return (
            facts.images
            + self.per_call * len(facts.calls)
            + self.per_message
            - (-prose * 10 // self.prose)
            - (-arguments * 10 // self.arguments)
            - (-outcome * 10 // self.outcome)
            - (-facts.thinking * 10 // self.thinking)
        )

    def tokens_of_json(self, characters: int) -> int:
        """Tokens of so many characters of JSON, such as tool definitions."""
        return -(-characters * 10 // self.arguments)


BY_KIND = Estimator()
"""For models of no known family: it counts more than every known family except claude-4.7."""

FAMILIES: Final = {
    "claude": Estimator("claude-1", 36, 33, 29, 25, 85, 3),
    "claude-4.7": Estimator("claude-4.7-1", 28, 27, 24, 20, 105, 4),
    "gpt": Estimator("gpt-1", 36, 32, 36, 36, 10, 4),
    "gemini": Estimator("gemini-1", 36, 35, 35, 35, 10, 6),
    "deepseek": Estimator("deepseek-1", 39, 40, 41, 45, 52, 4),
    "other": BY_KIND,
}
"""Estimators by family. From 4.7 on Claude has another tokenizer, with about 30 % more tokens."""

_CLAUDE: Final = re.compile(r"claude|anthropic|\b(?:opus|sonnet|haiku|fable|mythos)\b")
_CLAUDE_VERSION: Final = re.compile(
    r"(?:claude|opus|sonnet|haiku)[-.]?v?(\d)(?!\d)(?:[-.](\d{1,2})(?!\d))?"
)
_NEWER_CLAUDE: Final = (4, 7)
_PATTERNS: Final = (
    ("gemini", re.compile(r"gemini|gemma")),
    ("deepseek", re.compile(r"deepseek")),
    ("gpt", re.compile(r"gpt|codex|davinci|\bo[1345](?:-|\b)|\bopenai/")),
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
"""Tokens of a synthetic result for an unanswered call in a view."""

OPENING_TOKENS: Final = 28
"""Tokens of the synthetic first message of a view, where the conversation has no own."""
