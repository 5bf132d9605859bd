"""The structure of a session: what a stranger may see of it, to judge a compaction.

What stays is made anew from this table: numbers, standings, reason codes, sizes, times counted from
the beginning, and digests, which are salted and so give no text away. What goes are all texts and
all names that somebody chose: of the session, its files, links, models, tools, calls, and policies
that are not this library's. A field that this table does not know does not stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar, get_args

from eventctx.log.events import Break, CountedPart, Outcome, Trigger
from eventctx.log.plan import InsertionKind
from eventctx.policies.named import POLICIES
from eventctx.projections.cache_cost import CacheCost, CacheOutcome
from eventctx.projections.explain.view_diff import GROUPS
from eventctx.projections.presence import REASONS
from eventctx.projections.timeline.columns import KNOWN, Document
from eventctx.projections.timeline.document import FORMAT, KINDS, WHAT
from eventctx.projections.timeline.views import ExtraKind

T = TypeVar("T")
U = TypeVar("U")

SESSION: Final = "session"
"""The session's name in such a file."""

EPOCH: Final = 946_684_800_000
"""Where the first time is put, in milliseconds: 2000-01-01, so that nobody takes it for a date."""

_OTHER: Final = "other"
_HEX: Final = re.compile(r"[0-9a-f]*")

_MESSAGE_COLUMNS: Final = (
    *("position", "index", "kind", "tokens", "characters", "turn", "caller", "demands"),
)
_REQUEST_COLUMNS: Final = (
    *("position", "turn", "iteration", "known", "total", "estimated", "messages", "beside"),
    *("system", "tools", "cached", "budget", "entries", "keep", "add", "last", "plan", "model"),
    *("additions", "missing", "floor"),
)
_CHANGE_COLUMNS: Final = ("position", "first", "last", "what", "reason", "compaction", "into")
_EXTRA_NUMBERS: Final = ("group", "tokens", "number", "position", "index", "stands_for")
_INSERTED: Final[tuple[str, ...]] = get_args(InsertionKind)
_COMPACTION_NUMBERS: Final = (
    *("position", "turn", "iteration", "number", "before", "before_estimated", "after"),
    *("after_estimated", "recorded", "tokens_before", "tokens_after", "messages_before"),
    *("messages_after", "budget", "threshold", "target", "duration", "insertions"),
)
_CACHE_NUMBERS: Final = tuple([name for name in CacheCost.__struct_fields__ if name != "reported"])


def structure_of(document: Document) -> Document:
    """The document without any text and without any name that somebody chose."""
    names = _Names(document)
    messages, requests, changes = (document[name] for name in ("messages", "requests", "changes"))
    parent = document["parent"]
    return {
        "format": FORMAT,
        "session": SESSION,
        **_numbers(document, ("head", "after", "records")),
        "digest": _hex(document["digest"]),
        "mirror": None if document["mirror"] is None else "a file",
        "source_format": None,
        "parent": None
        if parent is None
        else {"session": names.session(parent["session"]), **_numbers(parent, ("at",))},
        "legends": {"kinds": KINDS, "known": KNOWN, "groups": GROUPS, "what": WHAT},
        "messages": {
            **_numbers(messages, ("first", *_MESSAGE_COLUMNS)),
            "time": names.times(messages["time"]),
        },
        "extras": [_extra(one, names) for one in document["extras"]],
        "requests": {
            **_numbers(requests, ("first", *_REQUEST_COLUMNS)),
            "time": names.times(requests["time"]),
            "breaks": [_breaks(one) for one in requests["breaks"]],
            "digest": [_hex(one) for one in requests["digest"]],
        },
        "models": [f"model {place}" for place, _ in enumerate(document["models"], 1)],
        "compactions": [_compaction(one, names) for one in document["compactions"]],
        "changes": _numbers(changes, _CHANGE_COLUMNS),
        "reasons": [_reason(one) for one in document["reasons"]],
        "turns": [_turn(one, names) for one in document["turns"]],
        "links": [_link(one, names) for one in document["links"]],
        "recounts": [_numbers(one, ("from", "tokens")) for one in document["recounts"]],
        "losses": [_loss(one) for one in document["losses"]],
        "calls": {names.call(call): int(number) for call, number in document["calls"].items()},
    }


class _Names:
    """Other names for sessions and calls, and times from the beginning on."""

    def __init__(self, document: Document) -> None:
        self._sessions: dict[str, str] = {}
        self._calls: dict[str, str] = {}
        known = [*document["messages"]["time"], *document["requests"]["time"]]
        self._began = min([one for one in known if one > 0], default=0)

    def session(self, name: str) -> str:
        return self._sessions.setdefault(name, f"session {len(self._sessions) + 1}")

    def call(self, call: str) -> str:
        return self._calls.setdefault(call, f"call {len(self._calls) + 1}")

    def times(self, times: Iterable[int]) -> list[int]:
        return [self.time(one) for one in times]

    def time(self, time: int) -> int:
        return time - self._began + EPOCH if time > 0 else 0


def _extra(extra: Document, names: _Names) -> Document:
    # Next to digests, a mark holds ids of calls and an insertion's kind as they are.
    is_told = (
        extra.get("call") or extra.get("omit") or extra.get("name", "") not in ("", *_INSERTED)
    )
    made: Document = {
        "kind": _one_of(get_args(ExtraKind))(extra["kind"]),
        "mark": "" if is_told else _hex(extra["mark"]),
    }
    made |= _numbers(extra, _EXTRA_NUMBERS)
    if "name" in extra:
        made["name"] = _one_of(_INSERTED)(extra["name"])
    if "call" in extra:
        made["call"] = names.call(extra["call"])
    if "omit" in extra:
        made["omit"] = [names.call(one) for one in extra["omit"]]
    return made


def _compaction(compaction: Document, names: _Names) -> Document:
    return {
        **_numbers(compaction, _COMPACTION_NUMBERS),
        "time": names.time(compaction["time"]),
        "outcome": _one_of(get_args(Outcome))(compaction["outcome"]),
        "trigger": _one_of(get_args(Trigger))(compaction["trigger"]),
        "strategy": _one_of(POLICIES)(compaction["strategy"]),
        "fallback": _optional(_one_of(POLICIES), compaction.get("fallback")),
        "error": None if compaction.get("error") is None else "left out",
        "requested_by": None if compaction.get("requested_by") is None else "left out",
        "cache": _optional(_cache, compaction.get("cache")),
    }


def _cache(cost: Document) -> Document:
    told = cost["reported"]
    return {
        **_numbers(cost, _CACHE_NUMBERS),
        "reported": None if told is None else _numbers(told, CacheOutcome.__struct_fields__),
    }


def _reason(reason: Document) -> Document:
    code = _one_of(REASONS)(reason["code"])
    # The sentence is this library's own, made from the code and the message's kind.
    return {"code": code, "rule": reason["rule"] if code in REASONS else ""}


def _turn(turn: Document, names: _Names) -> Document:
    return {
        **_numbers(turn, ("number", "first", "last")),
        "turn_id": f"turn {turn['number']}",
        "time": names.time(turn["time"]),
    }


def _link(link: Document, names: _Names) -> Document:
    return {
        **_numbers(link, ("position",)),
        "session": names.session(link["session"]),
        "relation": _one_of(("parent", "child"))(link["relation"]),
        "kind": _one_of(("subagent", "branch", "transcript"))(link["kind"]),
        "call_id": _optional(names.call, link["call_id"]),
    }


def _loss(loss: Document) -> Document:
    # The sentence is this library's own, made from numbers.
    return {
        **_numbers(loss, ("position", "tokens")),
        "kind": _one_of(get_args(CountedPart))(loss["kind"]),
        "words": loss["words"],
    }


def _breaks(codes: str) -> str:
    known = _one_of(get_args(Break))
    return ",".join([known(one) for one in codes.split(",")]) if codes else ""


def _one_of(known: Iterable[str]) -> Callable[[str], str]:
    codes = frozenset(known)
    return lambda code: code if code in codes else _OTHER


def _optional(change: Callable[[T], U], value: T | None) -> U | None:
    return None if value is None else change(value)


def _hex(text: str) -> str:
    return text if _HEX.fullmatch(text) else ""


def _numbers(fields: Mapping[str, Any], names: Iterable[str]) -> Document:
    """Those fields that are there, which have to be numbers, or lists of them to any depth."""
    return {name: _checked(name, fields[name]) for name in names if name in fields}


def _checked(name: str, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_checked(name, one) for one in value]
    if value is None or isinstance(value, int | float):
        return value
    raise TypeError(f"{name}: expected numbers, found {type(value).__name__}")
