"""A session's settings, by the names that the specifications use for them."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.policies.trigger import make_budget

ALIASES: Final = {
    "compaction_threshold": "compact_threshold",
    "compaction_strategy": "policy",
    "target": "target_usage",
}
"""Other names of settings: the context contract's, context-persistent's, and plain ones."""


class UnknownSetting(UserWarning):
    """A setting that nothing reads; the session works without it."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes are tokens, thresholds fractions of the budget of a request, times seconds.

    ``max_tokens`` caps every budget; without it (None) a provider's window is used whole, and
    ``max_tokens_fallback`` where nobody says how large that is.
    ``on_overflow`` says what happens when what must stay exceeds the budget: ``raise``
    ContextOverflow, or ``send_floor``, which sends it all the same and records that. Without
    ``auto_compact`` a view is only compacted when it exceeds the budget. ``reserve_tokens`` are
    kept for what is sent beside the messages (system prompt, tool definitions), until a provider
    reported how much that is. With ``export_on_compact`` the transcript is written to the folder
    ``storage_path`` whenever a compaction was applied. ``adviser_timeout`` is the longest that a
    summarizer or scorer may take.
    """

    max_tokens: int | None = 200_000
    max_tokens_fallback: int = 200_000
    compact_threshold: float = 0.92
    target_usage: float = 0.5
    auto_compact: bool = True
    on_overflow: Literal["raise", "send_floor"] = "raise"
    reserve_tokens: int = 0
    export_on_compact: bool = False
    storage_path: str = ".eventctx/exports"
    adviser_timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            _check_positive("max_tokens", self.max_tokens)
        _check_positive("max_tokens_fallback", self.max_tokens_fallback)
        for name in ("compact_threshold", "target_usage", "adviser_timeout"):
            value = getattr(self, name)
            if type(value) not in (int, float):
                raise InvalidSetting(f"{name}: expected a number, found {value!r}")
        make_budget(self.limit, self.compact_threshold, self.target_usage)
        if self.on_overflow not in ("raise", "send_floor"):
            raise InvalidSetting(
                f"on_overflow: expected 'raise' or 'send_floor', found {self.on_overflow!r}"
            )
        for name in ("auto_compact", "export_on_compact"):
            if type(getattr(self, name)) is not bool:
                raise InvalidSetting(f"{name}: expected a bool, found {getattr(self, name)!r}")
        if type(self.reserve_tokens) is not int or self.reserve_tokens < 0:
            raise InvalidSetting(
                f"reserve_tokens: expected an int from 0, found {self.reserve_tokens!r}"
            )
        if not isinstance(self.storage_path, str) or not self.storage_path:
            raise InvalidSetting(f"storage_path: expected a path, found {self.storage_path!r}")
        if not self.adviser_timeout > 0:
            raise InvalidSetting(
                f"adviser_timeout: expected more than 0 s, found {self.adviser_timeout!r}"
            )

    @property
    def limit(self) -> int:
        """The budget of a request of which neither the caller nor a provider says anything."""
        return self.max_tokens_fallback if self.max_tokens is None else self.max_tokens


def _check_positive(name: str, value: object) -> None:
    if type(value) is not int or value < 1:
        raise InvalidSetting(f"{name}: expected a positive int, found {value!r}")


NAMES: Final = tuple(field.name for field in msgspec.structs.fields(Settings))
"""The names of a session's own settings."""


def by_own_name(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under their own names. Raises InvalidSetting when one is given under two."""
    named: dict[str, Any] = {}
    for name, value in given.items():
        own = ALIASES.get(name, name)
        if own in named and named[own] != value:
            raise InvalidSetting(f"{own}: expected one value, found {named[own]!r} and {value!r}")
        named[own] = value
    return named


def warn_of_unknown(names: Iterable[str], known: Iterable[str], stacklevel: int = 3) -> None:
    """Warn of every setting that nothing reads, with the nearest name that something does."""
    candidates = sorted({*known, *ALIASES, *NAMES})
    for name in names:
        near = difflib.get_close_matches(name, candidates, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        warnings.warn(
            f"setting {name!r} is unknown and has no effect{hint}", UnknownSetting, stacklevel
        )
