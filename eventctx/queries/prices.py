"""What reported tokens cost, by a table of prices with its date.

Invariant: a cost is a sum over counts that a provider reported, at the list price of the model that
it named. A model that the table does not name has no price, and no sum contains a guess.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log.usage import Usage

BUNDLED: Final = Path(__file__).with_name("prices.json")
"""List prices as the providers' pages state them, without discounts for batches or time of day."""

PER: Final = 1_000_000
"""Tokens for which a price is given."""

_Dollars = Annotated[float, msgspec.Meta(ge=0)]

_PREFIXES: Final = re.compile(r"^(?:.*/)?(?:(?:us|eu|apac|global)\.)?(?:anthropic\.)?")
_SUFFIXES: Final = re.compile(
    r"(?:-v\d+(?::\d+)?|@\d{8}|@default|-latest|-preview(?:-\d\d-\d{4})?|-\d{8}|-\d{4}-\d\d-\d\d)$"
)


class Rates(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """US dollars for a million tokens. Without a rate of their own, cache reads and writes cost as
    other input does.
    """

    input: _Dollars
    output: _Dollars
    cache_read: _Dollars | None = None
    cache_write: _Dollars | None = None


class LongRates(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Rates of a request whose prompt has more than ``prompt`` tokens."""

    prompt: Annotated[int, msgspec.Meta(gt=0)]


class Price(Rates, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rates of a model, and those ``above`` a length of the prompt."""

    above: LongRates | None = None


class PriceTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prices by model name. ``date`` is the day (ISO 8601) on which they were looked up."""

    date: str
    models: Mapping[str, Price]

    def of(self, model: str | None) -> Price | None:
        """The price of ``model``; None where the table does not name it.

        A name is looked up as it is, then without what gateways put around it: a path before it
        (``litellm_proxy/``), a cloud's prefix (``us.anthropic.``), a date or version after it.
        """
        if not model:
            return None
        bare = _PREFIXES.sub("", model.lower())
        for name in (model, bare, _SUFFIXES.sub("", _SUFFIXES.sub("", bare))):
            if name in self.models:
                return self.models[name]
        return None


class Cost(msgspec.Struct, frozen=True):
    """US dollars. ``input`` is the prompt without what the cache served or took."""

    input: float = 0.0
    cache_read: float = 0.0
    cache_write: float = 0.0
    output: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all four."""
        return self.input + self.cache_read + self.cache_write + self.output

    def __add__(self, other: Cost) -> Cost:
        """The cost of both."""
        return Cost(
            self.input + other.input,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.output + other.output,
        )


def read_prices(path: Path | None = None) -> PriceTable:
    """Read the table at ``path``, or the bundled one. Raises InvalidSetting."""
    return _bundled() if path is None else _read(path)


def cost_of(price: Price, usage: Usage) -> Cost:
    """The cost of one call.

    ``usage.prompt`` includes cache reads and writes. A cache write costs as one that lives five
    minutes: providers do not report in one count how long it lives.
    """
    rates: Rates = price
    if price.above is not None and usage.prompt > price.above.prompt:
        rates = price.above
    plain = max(0, usage.prompt - usage.cache_read - usage.cache_write)
    read = rates.input if rates.cache_read is None else rates.cache_read
    write = rates.input if rates.cache_write is None else rates.cache_write
    return Cost(
        plain * rates.input / PER,
        usage.cache_read * read / PER,
        usage.cache_write * write / PER,
        usage.output * rates.output / PER,
    )


@cache
def _bundled() -> PriceTable:
    return _read(BUNDLED)


def _read(path: Path) -> PriceTable:
    expected = f"prices: expected a file such as {BUNDLED.name} of this package at {path}"
    try:
        return msgspec.json.decode(path.read_bytes(), type=PriceTable)
    except OSError as error:
        raise InvalidSetting(f"{expected}, found none: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise InvalidSetting(f"{expected}, found: {error}") from error
