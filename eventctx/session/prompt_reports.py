"""What was expected of each request, against the prompt that its provider reports."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eventctx.log.events import Break, LossSuspected, RequestPrepared, UsageReported
from eventctx.projections.silent_loss import ReportedRequest, ShownMessages, suspect

MAX_EXPECTED: Final = 64
"""Requests whose report is waited for."""

_NOTHING: Final = ShownMessages((), {})


class PromptReports:
    """Compares each reported prompt with the estimate of its request, in the order of reports.

    It begins anew with the process: the first report after a start is only what the next ones are
    compared with. ``projections.timeline.silent_loss`` finds the same in the log afterwards, and
    says why.
    """

    def __init__(self) -> None:
        self._expected: dict[int, ReportedRequest] = {}
        self._last: ReportedRequest | None = None
        self._reports = 0
        self._turn: tuple[str | None, int] = (None, -1)

    def expect(self, position: int, event: RequestPrepared, turn_id: str | None, time: int) -> None:
        """Note a request that was prepared at ``position``."""
        if turn_id != self._turn[0]:
            self._turn = (turn_id, position)
        self._expected[position] = ReportedRequest(
            position=position,
            time=time,
            turn=turn_id,
            turn_from=self._turn[1],
            expected=event.tokens,
            prompt=0,
            cached=0,
            model=event.model,
            breaks=frozenset(event.breaks),
            reports=self._reports,
        )
        if len(self._expected) > MAX_EXPECTED:
            del self._expected[next(iter(self._expected))]

    def compare(
        self, usage: UsageReported, shown: Callable[[], ShownMessages | None]
    ) -> LossSuspected | None:
        """What is suspected of the request that ``usage`` is of; None where nothing is.

        ``shown`` gives the messages of the view, None where it is not in memory.
        """
        asked = None if usage.prepared is None else self._expected.pop(usage.prepared, None)
        if asked is None or usage.prompt <= 0:
            return None
        breaks: set[Break] = set(asked.breaks)
        for position in [one for one in self._expected if one < asked.position]:
            breaks |= self._expected.pop(position).breaks  # a request without a report
        now = asked._replace(
            prompt=usage.prompt,
            cached=usage.cache_read,
            model=usage.model or asked.model,
            breaks=frozenset(breaks),
        )
        before, self._last = self._last, now
        self._reports += 1
        # Nearly always nothing is missing, and the view need not be gone through.
        if before is None or suspect(before, now, lambda: _NOTHING) is None:
            return None
        view = shown()
        loss = None if view is None else suspect(before, now, lambda: view)
        if loss is None:
            return None
        return LossSuspected(
            prepared=loss.position,
            kind=loss.kind,
            tokens=loss.tokens,
            expected=loss.expected,
            found=loss.found,
            cause=loss.cause,
            messages=loss.messages,
        )
