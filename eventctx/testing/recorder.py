"""A recorder of events: of an orchestrator's hooks, a hook registry, or an engine."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import msgspec

from eventctx.log.record import Record

Event = tuple[str, dict[str, Any]]


class Continue(msgspec.Struct, frozen=True):
    """The result of a hook that only observes, with the fields of Amplifier's ``HookResult``."""

    action: str = "continue"
    data: dict[str, Any] | None = None
    reason: str | None = None
    context_injection: str | None = None
    context_injection_role: str = "system"
    context_injections: tuple[Any, ...] = ()
    ephemeral: bool = False
    append_to_last_tool_result: bool = False
    suppress_output: bool = False
    user_message: str | None = None
    user_message_level: str = "info"
    user_message_source: str | None = None


GO_ON = Continue()


class EventRecorder:
    """Records ``(event, data)`` in three uses.

    As ``hooks`` of an orchestrator (``await recorder.emit(event, data)``), as a handler of a hook
    registry (``hooks.register(event, recorder)``, called with event and data), and as an observer
    of an engine (``engine.on("*", recorder)``, called with a ``Record``, whose payload becomes the
    data, with the ids of the record that are not null, and its ``position``). ``records`` are the
    records that it received. Data are copies.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.records: list[Record] = []

    async def emit(self, event: str, data: dict[str, Any] | None = None) -> Continue:
        """Record an event, as a hook registry's ``emit``."""
        self._note(event, data or {})
        return GO_ON

    def __call__(self, event: str | Record, data: dict[str, Any] | None = None) -> None:
        """Record an event with its data, or a record.

        Returns None, which a hook registry takes for "continue".
        """
        if isinstance(event, Record):
            self.records.append(event)
            self._note(event.type, _data_of(event))
        else:
            self._note(event, data or {})

    def _note(self, event: str, data: dict[str, Any]) -> None:
        self.events.append((event, copy.deepcopy(data)))

    # -- queries ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.events)

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    @property
    def names(self) -> list[str]:
        """The events' names, in order."""
        return [name for name, _ in self.events]

    def of(self, pattern: str) -> list[dict[str, Any]]:
        """The data of every event of this name, or of a family such as ``context:*``."""
        family = pattern[:-1] if pattern.endswith(":*") else None
        return [
            data
            for name, data in self.events
            if name == pattern or pattern == "*" or (family and name.startswith(family))
        ]

    def only(self, pattern: str) -> dict[str, Any]:
        """The data of the only event of this name. Raises AssertionError for none or several."""
        found = self.of(pattern)
        if len(found) != 1:
            raise AssertionError(f"expected one {pattern}, found {len(found)} in {self.names}")
        return found[0]

    def check_order(self, *names: str) -> None:
        """Raise AssertionError unless these events came in this order; others may lie between."""
        rest = iter(self.names)
        for name in names:
            if name not in rest:
                raise AssertionError(
                    f"expected {name} in the order {list(names)}, found {self.names}"
                )

    def clear(self) -> None:
        """Forget everything."""
        self.events.clear()
        self.records.clear()


def _data_of(record: Record) -> dict[str, Any]:
    payload = msgspec.json.decode(record.payload) if record.payload else {}
    ids = {
        "session_id": record.stream,
        "turn_id": record.turn_id,
        "span_id": record.span_id,
        "parent_span_id": record.parent_span_id,
        "iteration": record.iteration,
    }
    known = {name: value for name, value in ids.items() if value is not None}
    data = payload if isinstance(payload, dict) else {"payload": payload}
    data.pop("event", None)
    return {**data, **known, "position": record.position}
