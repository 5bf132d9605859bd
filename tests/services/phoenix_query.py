"""Reading spans back from Phoenix, over its REST API.

The behaviour of Phoenix 20.26.1, found by trying:

- an export is answered before it is stored; exports are stored in order (by HTTP, the spans of one
  request in theirs). A span whose id it has is ignored, changed or not;
- the resource is dropped, ``service.name`` too, but for ``openinference.project.name``, the
  project; without it spans are in project ``default``. A session is one of all projects;
- links are dropped, kind and scope too; times are rounded to microseconds, by way of a float;
- attributes are nested where they are kept, and flat again in this answer. Next to ours stand
  those of OpenInference that it makes of ``gen_ai.*``: ``llm.*``, ``tool.*``, ``input.*``, ...;
- tokens of a trace and a session are those of its LLM spans; an AGENT's own are not added.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import quote, urlencode
from urllib.request import ProxyHandler, build_opener

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PAGE = 1_000


class SeenEvent(NamedTuple):
    """A span event as Phoenix answers it; ``time_us`` since 1970."""

    time_us: int
    name: str
    attributes: dict[str, Any]


class SeenSpan(NamedTuple):
    """A span as Phoenix answers it; times in microseconds since 1970, ids in lowercase hex.

    ``kind`` is OpenInference's (``LLM``, ``TOOL``, ``AGENT``, ``UNKNOWN``, ...), ``status``
    ``UNSET``, ``OK`` or ``ERROR``; ``attributes`` are ours and those that Phoenix adds.
    """

    trace_id: str
    span_id: str
    parent_span_id: str | None
    name: str
    kind: str
    start_us: int
    end_us: int
    status: str
    message: str
    attributes: dict[str, Any]
    events: tuple[SeenEvent, ...]


class Tokens(NamedTuple):
    """The tokens that Phoenix counts for a trace or a session."""

    prompt: int
    completion: int
    total: int


class SeenSession(NamedTuple):
    """A session as Phoenix groups it; ``traces`` are their ids, by start."""

    session: str
    traces: tuple[str, ...]
    tokens: Tokens


class PhoenixQuery:
    """The REST API at ``base`` (``http://127.0.0.1:6006``), each call within ``seconds``.

    Errors are urllib's; that a project or session is not there is no error.
    """

    def __init__(self, base: str, seconds: float = 60.0) -> None:
        self._base = base
        self._seconds = seconds
        self._open = build_opener(ProxyHandler({})).open

    def spans(self, project: str) -> tuple[SeenSpan, ...]:
        """All spans of a project, by start and id; none if there is no such project."""
        raw = self._pages(f"/v1/projects/{quote(project, safe='')}/spans")
        return tuple(sorted(map(_span, raw), key=lambda one: (one.start_us, one.span_id)))

    def tokens(self, project: str) -> dict[str, Tokens]:
        """The tokens of each trace of a project, by trace id."""
        raw = self._pages(f"/v1/projects/{quote(project, safe='')}/traces")
        return {one["trace_id"]: _tokens(one) for one in raw}

    def session(self, name: str) -> SeenSession | None:
        """A session by its name, or None if Phoenix has none of that name."""
        answer = self._get(f"/v1/sessions/{quote(name, safe='')}")
        if answer is None:
            return None
        found = answer["data"]
        traces = sorted(found["traces"], key=lambda one: str(one["start_time"]))
        return SeenSession(
            found["session_id"], tuple(one["trace_id"] for one in traces), _tokens(found)
        )

    def _pages(self, path: str) -> Iterator[dict[str, Any]]:
        query: dict[str, Any] = {"limit": _PAGE}
        while answer := self._get(f"{path}?{urlencode(query)}"):
            yield from answer["data"]
            if not (cursor := answer["next_cursor"]):
                return
            query["cursor"] = cursor

    def _get(self, path: str) -> Any:
        try:
            with self._open(self._base + path, timeout=self._seconds) as answer:
                return json.load(answer)
        except HTTPError as error:
            with error:
                if error.code == 404:
                    return None
            raise


def _span(raw: dict[str, Any]) -> SeenSpan:
    events = [
        SeenEvent(_us(one["timestamp"]), one["name"], dict(one["attributes"]))
        for one in raw["events"]
    ]
    return SeenSpan(
        trace_id=raw["context"]["trace_id"],
        span_id=raw["context"]["span_id"],
        parent_span_id=raw["parent_id"],
        name=raw["name"],
        kind=raw["span_kind"],
        start_us=_us(raw["start_time"]),
        end_us=_us(raw["end_time"]),
        status=raw["status_code"],
        message=raw["status_message"],
        attributes=dict(raw["attributes"]),
        events=tuple(events),
    )


def _tokens(raw: dict[str, Any]) -> Tokens:
    return Tokens(
        raw["token_count_prompt"], raw["token_count_completion"], raw["token_count_total"]
    )


def _us(time: str) -> int:
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1)
