"""Reading traces back from Jaeger, over its query API; and waiting until a condition holds.

The behaviour of Jaeger 1.76.0, found by trying:

- a search sees the last two days unless it has ``start``; ``lookback`` is the UI's, it is ignored;
- a value in ``tags`` is a string always: ``{"compacted": true}`` is answered with 400, and
  ``{"compacted": "true"}`` finds the boolean. All of them must be on one span (or its events, or
  its resource). ``error``, ``span.kind`` and ``otel.*`` are made by the answer, and not found;
- the order of spans differs from call to call, events come sorted by name; times are cut to
  microseconds (``/api/v3/traces/{id}`` has nanoseconds);
- a span sent twice is answered once; a *changed* span of the same id is answered next to the first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, urlencode

from tests.services.process import direct

_T = TypeVar("_T")


SeenSpan = SimpleNamespace
"""A span as Jaeger answers it; times in microseconds, ids in lowercase hex.

``tags`` are the attributes next to what Jaeger makes of the rest of a span: ``span.kind``,
``otel.scope.name``, ``otel.scope.version``, and of an error ``error``, ``otel.status_code``,
``otel.status_description``. ``links`` are (trace id, span id) pairs.
"""


class JaegerQuery(NamedTuple):
    """The query API at ``base`` (``http://127.0.0.1:16686``), each call within ``seconds``."""

    base: str
    seconds: float = 60.0

    def spans(self, trace_id: str) -> tuple[SeenSpan, ...]:
        """The trace's spans by start and id; none if Jaeger does not have the trace."""
        try:
            (trace,) = self._get(f"/api/traces/{trace_id}")["data"]
        except HTTPError as error:
            with error:
                if error.code == 404:
                    return ()
            raise
        found = [_span(raw, trace["processes"][raw["processID"]]) for raw in trace["spans"]]
        return tuple(sorted(found, key=lambda one: (one.start_us, one.span_id, repr(one))))

    def find(
        self, service: str, tags: Mapping[str, str], operation: str | None = None
    ) -> list[dict[str, Any]]:
        """The traces of all time with a span of this service, name and tags, the newest first."""
        query: dict[str, Any] = {"service": service, "start": 0, "limit": 100}
        query["end"] = 9_000_000_000_000_000  # the year 2255; it counts nanoseconds in 64 bits
        query |= {"tags": json.dumps(tags)} | ({"operation": operation} if operation else {})
        return self._get(f"/api/traces?{urlencode(query)}")["data"] or []

    def operations(self, service: str) -> list[str]:
        return sorted(
            self._get(f"/api/services/{quote(service, safe='')}/operations")["data"] or []
        )

    def _get(self, path: str) -> Any:
        with direct.open(self.base + path, timeout=self.seconds) as answer:
            text = answer.read()
        # A path that it does not know is answered with the UI's page and 200; and `/api/v3`
        # answers JSON as text/plain, so the type does not tell.
        if text.lstrip().startswith(b"<"):
            raise ValueError(f"{path}: expected JSON, found a page: use the release that we build")
        return json.loads(text)


def wait_for(condition: Callable[[], _T], seconds: float = 60.0, what: str = "") -> _T:
    """The result of ``condition()`` as soon as it is true; it is called every 20 ms.

    Raises TimeoutError.
    """
    until = time.monotonic() + seconds
    while not (answer := condition()):
        if time.monotonic() >= until:
            raise TimeoutError(f"waited {seconds:g} s for {what or condition}; last: {answer!r}")
        time.sleep(0.02)
    return answer


def _span(raw: Mapping[str, Any], process: Mapping[str, Any]) -> SeenSpan:
    kinds: dict[str, list[tuple[str, str]]] = {"CHILD_OF": [], "FOLLOWS_FROM": []}
    for one in raw["references"] or []:
        kinds[one["refType"]].append((one["traceID"], one["spanID"]))
    events = []
    for entry in raw["logs"] or []:
        fields = _values(entry["fields"])
        name = fields.pop("event", "")
        events.append(SeenSpan(time_us=entry["timestamp"], name=name, attributes=fields))
    return SeenSpan(
        trace_id=raw["traceID"],
        span_id=raw["spanID"],
        parent_span_id=kinds["CHILD_OF"][0][1] if kinds["CHILD_OF"] else None,
        name=raw["operationName"],
        service=process["serviceName"],
        start_us=raw["startTime"],
        duration_us=raw["duration"],
        tags=_values(raw["tags"]),
        events=tuple(sorted(events, key=lambda one: (one.time_us, one.name))),
        links=tuple(sorted(kinds["FOLLOWS_FROM"])),
        resource=_values(process.get("tags") or []),
        warnings=tuple(raw["warnings"] or ()),
    )


def _values(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    """Jaeger writes a whole number beyond 2**53 as a string of type int64."""
    return {
        one["key"]: int(one["value"]) if one["type"] == "int64" else one["value"] for one in pairs
    }
