"""A session's settings."""

from __future__ import annotations

from typing import Literal

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.policies.trigger import make_budget


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes are tokens, thresholds fractions of the budget of a request.

    ``on_overflow`` says what happens when what must stay exceeds the budget: ``raise``
    ContextOverflow, or ``send_floor``, which sends it all the same and records that. Without
    ``auto_compact`` a view is only compacted when it exceeds the budget.
    """

    max_tokens: int = 200_000
    compact_threshold: float = 0.92
    target_usage: float = 0.5
    auto_compact: bool = True
    on_overflow: Literal["raise", "send_floor"] = "raise"

    def __post_init__(self) -> None:
        if type(self.max_tokens) is not int or self.max_tokens < 1:
            raise InvalidSetting(f"max_tokens: expected a positive int, found {self.max_tokens!r}")
        for name in ("compact_threshold", "target_usage"):
            value = getattr(self, name)
            if type(value) not in (int, float):
                raise InvalidSetting(f"{name}: expected a number, found {value!r}")
        make_budget(self.max_tokens, self.compact_threshold, self.target_usage)
        if self.on_overflow not in ("raise", "send_floor"):
            raise InvalidSetting(
                f"on_overflow: expected 'raise' or 'send_floor', found {self.on_overflow!r}"
            )
        if type(self.auto_compact) is not bool:
            raise InvalidSetting(f"auto_compact: expected a bool, found {self.auto_compact!r}")
