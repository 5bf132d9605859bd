"""Tokens that providers reported, summed per model; only a stream's own records count."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from eventctx.log.codec import decode_known
from eventctx.log.record import Record


class UsageTotals(msgspec.Struct, frozen=True):
    """Sums over calls, in tokens. ``prompt`` includes cache reads and writes.

    ``largest_prompt`` is that of one call. ``output`` sums only exact counts; ``inexact_outputs``
    is the number of calls whose output count is a placeholder.
    """

    calls: int = 0
    prompt: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    reasoning: int = 0
    largest_prompt: int = 0
    inexact_outputs: int = 0


class UsageState(msgspec.Struct, frozen=True, gc=False):
    """Usage so far by model name ("" if the model is not known)."""

    position: int
    models: Mapping[str, UsageTotals]

    @property
    def total(self) -> UsageTotals:
        """All models together."""
        total = UsageTotals()
        for usage in self.models.values():
            total = _sum(total, usage)
        return total


def initial() -> UsageState:
    """The usage of an empty stream."""
    return UsageState(-1, MappingProxyType({}))


def evolve(state: UsageState, record: Record) -> UsageState:
    """The usage after ``record``."""
    if record.type == "session:fork":
        return UsageState(record.position, MappingProxyType({}))
    if record.type != "usage:reported":
        return replace(state, position=record.position)
    event: Any = decode_known(record)
    one = UsageTotals(
        1,
        event.prompt,
        event.output if event.output_exact else 0,
        event.cache_read,
        event.cache_write,
        event.reasoning,
        event.prompt,
        0 if event.output_exact else 1,
    )
    model = event.model or ""
    models = {**state.models, model: _sum(state.models.get(model, UsageTotals()), one)}
    return UsageState(record.position, MappingProxyType(models))


def _sum(left: UsageTotals, right: UsageTotals) -> UsageTotals:
    return UsageTotals(
        left.calls + right.calls,
        left.prompt + right.prompt,
        left.output + right.output,
        left.cache_read + right.cache_read,
        left.cache_write + right.cache_write,
        left.reasoning + right.reasoning,
        max(left.largest_prompt, right.largest_prompt),
        left.inexact_outputs + right.inexact_outputs,
    )
