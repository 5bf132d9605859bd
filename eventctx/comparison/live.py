"""A run whose messages come one by one, as of an agent that acts on what it is shown."""

from __future__ import annotations

from typing import Any

from eventctx.comparison.played import PlayedRequest, stand_in
from eventctx.comparison.recording import Recording
from eventctx.comparison.simulator import TARGET, THRESHOLD, SimulatedRun
from eventctx.policies.policy import Policy
from eventctx.policies.trigger import make_budget
from eventctx.projections.view import request_view
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.render import places, render
from eventctx.projections.view.sendable.sending import sent_rows


class LiveRun(SimulatedRun):
    """A run under way: messages are added, and requests are made between them.

    Without a policy or a budget nothing is ever compacted. Questions that need a model are answered
    as in ``play``. Raises InvalidSetting.
    """

    def __init__(
        self,
        policy: Policy | None,
        budget: int | None,
        *,
        target: float = TARGET,
        threshold: float = THRESHOLD,
    ) -> None:
        limits = None if budget is None else make_budget(budget, threshold, target)
        super().__init__(Recording(()), policy, limits, None, None)

    def add(self, message: dict[str, Any]) -> None:
        """Add a message. Raises InvalidMessage."""
        self._add(self._recording.add(message))

    def request(self) -> PlayedRequest:
        """Make a request of all messages, after a compaction where one is due."""
        before = len(self._recording)
        self._view = request_view.with_model(self._view, self._model)
        asking = self._compact_if_due(before)
        try:
            asked = next(asking)
            while True:
                asked = asking.send(stand_in(asked))
        except StopIteration:
            pass
        self._note(before)
        return self._requests[-1]

    def rows(self) -> list[dict[str, Any]]:
        """The messages of the last request, as they would be sent."""
        texts = {place: self._data(place) for place in places(self._shown)}
        return sent_rows(self._shown, texts)

    def last(self) -> dict[str, Any]:
        """The last message of the last request that is no insertion."""
        entry = next(one for one in reversed(self._shown) if isinstance(one.ref, MessageRef))
        return render([entry], {place: self._data(place) for place in places([entry])})[0]
