"""The choice of the provider to ask from those of the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from eventctx.errors import InvalidSetting
from eventctx.orchestrators.protocol import Provider

PRIORITY = 100
"""The default rank of a provider; lower ranks come first, as in Amplifier's loops."""


class Chosen(NamedTuple):
    """The provider under its host's name; ``given`` is the host's own object, for the budget."""

    name: str
    provider: Provider
    given: Any


def choose(providers: Any, wanted: str | None) -> Chosen:
    """The provider ``wanted``, else the first by its ``priority``.

    An Amplifier provider (``complete(ChatRequest)``) is wrapped. Raises InvalidSetting.
    """
    if not isinstance(providers, Mapping) or not providers:
        raise InvalidSetting(
            f"providers: expected a mapping of names to at least one provider, found {providers!r}"
        )
    if wanted is not None and wanted not in providers:
        raise InvalidSetting(
            f"provider: expected one of {sorted(map(str, providers))}, found {wanted!r}"
        )
    names = [wanted] if wanted is not None else sorted(providers, key=lambda n: _rank(providers[n]))
    given = providers[names[0]]
    for method in ("complete", *(("definitions",) if hasattr(given, "result_message") else ())):
        if isinstance(given, type) or not callable(getattr(given, method, None)):
            raise InvalidSetting(
                f"provider {names[0]!r}: expected an object with a {method}() method, "
                f"found {given!r}"
            )
    model = getattr(given, "model", None)
    if callable(getattr(given, "result_message", None)):
        if model is not None and not isinstance(model, str):
            raise InvalidSetting(f"provider {names[0]!r}: expected a model's name, found {model!r}")
        return Chosen(str(names[0]), given, given)
    from eventctx.orchestrators.providers.amplifier import AmplifierProvider

    return Chosen(str(names[0]), AmplifierProvider(given, str(names[0])), given)


def _rank(provider: Any) -> float:
    priority = getattr(provider, "priority", None)
    config = getattr(provider, "config", None)
    if priority is None and isinstance(config, Mapping):
        priority = config.get("priority")
    return priority if isinstance(priority, int | float) else PRIORITY
