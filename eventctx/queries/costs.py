"""The cost of reported tokens, by a table of prices with its date.

Invariant: a cost is a sum over counts that a provider reported, at the list price of the model that
it named. A model that the table does not name has no price, and no sum contains a guess.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.log.codec import decode_known
from eventctx.log.events import UsageReported
from eventctx.log.store import EventStore
from eventctx.log.usage import Usage
from eventctx.projections.cache_cost import CacheCost

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
    other input does, and writes that live an hour as other writes do.
    """

    input: _Dollars
    output: _Dollars
    cache_read: _Dollars | None = None
    cache_write: _Dollars | None = None
    cache_write_1h: _Dollars | None = None


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
    total: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        """The cost of both."""
        return Cost(
            self.input + other.input,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.output + other.output,
            self.total + other.total,
        )


class CallCosts(msgspec.Struct, frozen=True):
    """The cost of calls at the list prices of the day ``date``, in US dollars.

    ``by_model`` and ``total`` sum the calls of models that have a price; ``unpriced`` counts the
    calls of all others by the model's name ("" where it is not known).
    """

    date: str
    total: Cost
    by_model: dict[str, Cost]
    unpriced: dict[str, int]


class CompactionPrice(msgspec.Struct, frozen=True):
    """The price of a compaction in US dollars, and what it saves in ``requests`` requests.

    ``rewriting`` is what is written to the cache once more, less what reading it would have cost;
    ``calls`` that of the compaction's own calls, such as for a summary. ``net`` is what is left of
    ``saving``: below 0 where the compaction costs more than it saves.
    """

    requests: int
    rewriting: float
    calls: float
    saving: float
    net: float


class CompactionPrices(msgspec.Struct, frozen=True):
    """The price of a compaction as ``predicted``, and by what was ``reported`` until now.

    ``predicted`` is None where no growth is known, ``reported`` where no cached tokens are.
    """

    predicted: CompactionPrice | None
    reported: CompactionPrice | None


class SessionCosts(NamedTuple):
    """The costs of a session: of its requests, its turns, and the calls of its compactions.

    ``requests`` and ``compactions`` are by position, ``turns`` by turn id. A request or compaction
    without a price is in none. ``outputs`` are the tokens that answered each request; None where a
    report has no exact count.
    """

    calls: CallCosts | None
    requests: dict[int, Cost]
    compactions: dict[int, Cost]
    turns: dict[str, Cost]
    outputs: dict[int, int | None]


class CostSums:
    """Sums the costs of reported calls, one report after the other."""

    def __init__(self, table: PriceTable) -> None:
        self._table = table
        self._models: dict[str, Cost] = {}
        self._unpriced: Counter[str] = Counter()

    def take(self, event: UsageReported) -> Cost | None:
        """Take a report; return what its call cost, None where its model has no price."""
        name = event.model or ""
        cost = cost_of_call(self._table, event)
        if cost is None:
            self._unpriced[name] += 1
            return None
        self._models[name] = self._models.get(name, Cost()) + cost
        return cost

    def all(self) -> CallCosts:
        """The sums so far."""
        total = sum(self._models.values(), Cost())
        return CallCosts(self._table.date, total, dict(self._models), dict(self._unpriced))


async def session_costs(store: EventStore, session: str, table: PriceTable) -> SessionCosts:
    """The costs of the session's own calls. Raises StreamNotFound."""
    sums = CostSums(table)
    requests: dict[int, Cost] = {}
    compactions: dict[int, Cost] = {}
    turns: dict[str, Cost] = {}
    asked: dict[str, Cost] = {}
    outputs: dict[int, int | None] = {}
    info = await store.head(session)
    start = 0 if info is None or info.forked_at is None else info.forked_at + 1
    async for record in store.read(session, start=start, bodies=False):
        if record.type == "usage:reported":
            event: Any = decode_known(record)
            if event.prepared is not None:
                before = outputs.get(event.prepared, 0)
                exact = event.output_exact and before is not None
                outputs[event.prepared] = before + event.output if exact else None
            cost = sums.take(event)
            if cost is None:
                continue
            if event.prepared is not None:
                requests[event.prepared] = requests.get(event.prepared, Cost()) + cost
            if record.turn_id is not None:
                turns[record.turn_id] = turns.get(record.turn_id, Cost()) + cost
            if record.parent_span_id is not None:
                parent = record.parent_span_id
                asked[parent] = asked.get(parent, Cost()) + cost
        elif record.type == "context:post_compact" and record.span_id in asked:
            compactions[record.position] = asked[record.span_id]
    return SessionCosts(sums.all(), requests, compactions, turns, outputs)


def read_prices(path: Path | None = None) -> PriceTable:
    """Read the table at ``path``, or the bundled one. Raises InvalidSetting."""
    return _bundled() if path is None else _read(path)


def cost_of_call(table: PriceTable, event: UsageReported) -> Cost | None:
    """The cost of a reported call; None where the table does not name its model."""
    price = table.of(event.model)
    if price is None:
        return None
    output = event.output if event.output_exact else 0
    written = {"cache_write": event.cache_write, "cache_write_1h": event.cache_write_1h}
    return cost_of(price, Usage(event.prompt, output, event.cache_read, **written))


def dollars_of_call(event: UsageReported) -> float | None:
    """The cost of a reported call at the bundled prices; None where they do not name its model."""
    cost = cost_of_call(read_prices(), event)
    return None if cost is None else cost.total


def cost_of(price: Price, usage: Usage) -> Cost:
    """The cost of one call.

    ``usage.prompt`` includes cache reads and writes. What the provider does not count as a write
    that lives an hour costs as one that lives five minutes.
    """
    rates, read, write, hour = _rates(price, usage.prompt)
    plain = max(0, usage.prompt - usage.cache_read - usage.cache_write)
    for_hour = min(usage.cache_write_1h, usage.cache_write)
    parts = (
        plain * rates.input / PER,
        usage.cache_read * read / PER,
        ((usage.cache_write - for_hour) * write + for_hour * hour) / PER,
        usage.output * rates.output / PER,
    )
    return Cost(*parts, sum(parts))


def prices_of_compaction(price: Price, cost: CacheCost, calls: float) -> CompactionPrices:
    """The price of a compaction whose own calls cost ``calls`` US dollars."""
    _, read, write, hour = _rates(price, cost.held)
    more = (hour if cost.hour else write) - read

    def priced(requests: int, rewritten: int) -> CompactionPrice:
        rewriting, saving = rewritten * more / PER, requests * cost.saved * read / PER
        return CompactionPrice(requests, rewriting, calls, saving, saving - rewriting - calls)

    told, rewritten = cost.reported, cost.rewritten_by_report
    return CompactionPrices(
        None if cost.expected is None else priced(cost.expected, cost.rewritten),
        None if told is None or rewritten is None else priced(told.requests, rewritten),
    )


def _rates(price: Price, prompt: int) -> tuple[Rates, float, float, float]:
    """The rates of a prompt of this length, with those of cache reads and of both writes."""
    rates: Rates = price
    if price.above is not None and prompt > price.above.prompt:
        rates = price.above
    read = rates.input if rates.cache_read is None else rates.cache_read
    write = rates.input if rates.cache_write is None else rates.cache_write
    hour = write if rates.cache_write_1h is None else rates.cache_write_1h
    return rates, read, write, hour


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
