"""How many tokens a request may have: from the call, the provider, or the session's settings."""

from __future__ import annotations

import inspect
from typing import Any, Final

from eventctx.errors import InvalidSetting

SAFETY_MARGIN: Final = 1_000
"""Tokens kept free below a provider's window (context contract 2.1.0, ``_calculate_budget``)."""


async def resolve(
    token_budget: int | None, provider: object, max_tokens: int | None, fallback: int
) -> int:
    """The budget in tokens.

    An explicit ``token_budget`` wins, then the provider's context window less its largest answer
    and a margin, then ``max_tokens``, which also caps both, then ``fallback``. Raises
    InvalidSetting for a budget that is no positive int; what a provider says wrongly is not used.
    """
    if token_budget is not None:
        if type(token_budget) is not int or token_budget < 1:
            raise InvalidSetting(f"token_budget: expected a positive int, found {token_budget!r}")
        return token_budget if max_tokens is None else min(token_budget, max_tokens)
    window = await _window(provider) if provider is not None else None
    limits = [limit for limit in (window, max_tokens) if limit is not None]
    return min(limits, default=fallback)


async def _window(provider: object) -> int | None:
    """Context window less output and margin, as the provider tells; None if it does not."""
    for method in ("get_model_info", "get_info"):
        ask = getattr(provider, method, None)
        if not callable(ask):
            continue
        try:
            info = ask()
            if inspect.isawaitable(info):
                info = await info
        except Exception:  # noqa: S112 - a provider's bug must not end an agent's turn
            continue
        for source in (info, _field(info, "defaults")):
            context, output = _field(source, "context_window"), _field(source, "max_output_tokens")
            if _positive(context) and _positive(output):
                left = int(context) - int(output) - SAFETY_MARGIN
                if left > 0:
                    return left
    return None


def _field(source: object, name: str) -> Any:
    if isinstance(source, dict):
        return source.get(name)
    return getattr(source, name, None)


def _positive(value: object) -> bool:
    return type(value) is int and value > 0
