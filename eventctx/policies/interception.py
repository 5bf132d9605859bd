"""The interface of an interceptor of compactions: the payload that it gets, and its answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from eventctx.log.events import PreCompact


class CompactionAsked(msgspec.Struct, frozen=True):
    """A compaction that is about to begin in ``session``.

    ``event`` is the ``context:pre_compact`` as it will be recorded, with these ids in its record;
    ``numbers`` are the messages in view, in order.
    """

    session: str
    event: PreCompact
    numbers: tuple[int, ...]
    turn_id: str | None = None
    span_id: str | None = None
    parent_span_id: str | None = None
    iteration: int | None = None


class Verdict(msgspec.Struct, frozen=True):
    """An interceptor's answer: what to keep in this compaction, or a veto with its reason.

    ``pins`` are messages that stay in view, ``texts`` the host's own words that the compacted view
    gets, marked as no person's. The texts of all interceptors may take a tenth of the target; what
    is more is left out. A veto is overruled when the view exceeds the budget: the request must fit.
    """

    pins: tuple[int, ...] = ()
    veto: str | None = None
    texts: tuple[str, ...] = ()


NO_OBJECTION = Verdict()

Intercept = Callable[[CompactionAsked], Awaitable[Verdict]]
"""A function that calls every interceptor in order and joins their verdicts."""
