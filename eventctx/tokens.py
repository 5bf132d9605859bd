"""Token estimates by kind of content, from facts alone; integer arithmetic, so they replay exactly.

The rates are characters per token, times ten, rounded to the safe side of what was measured on
recorded Claude sessions (prose 3.5 to 3.7, arguments 3.2, results 2.8 to 2.9, thinking 2.2 to
3.7); characters divided by four would be a third too low there. A tool call with its result has
a fixed cost of about 95 tokens on Claude.
"""

from __future__ import annotations

from typing import Final

import msgspec

from eventctx.messages import Facts


class Estimator(msgspec.Struct, frozen=True):
    """Rates in tenths of a character per token; costs in tokens.

    ``name`` goes into the log, so that an estimate can be told from one of another release.
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
        weighted = (
            _ceil(facts.prose * 10, self.prose)
            + _ceil(facts.arguments * 10, self.arguments)
            + _ceil(facts.outcome * 10, self.outcome)
            + _ceil(facts.thinking * 10, self.thinking)
        )
        return weighted + facts.images + self.per_call * len(facts.calls) + self.per_message


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)


BY_KIND = Estimator()
"""The estimator in use."""

SYNTHETIC_TOKENS: Final = 24
"""What a made-up result for an unanswered call takes in a view."""

OPENING_TOKENS: Final = 28
"""What the made-up first message of a view takes where the conversation has none."""
