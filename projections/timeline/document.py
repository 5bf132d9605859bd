"""The timeline as a document of columns, for a page that derives every view itself.

A document is numbers, ids and codes, and holds no text of a message. It may continue another one:
columns only grow, and values that changed since (a request whose tokens were reported later) are in
``updated``. ``docs/reference/inspect.md`` lists the columns; the page reads them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final, get_args

import msgspec

from eventctx.messages.facts import Facts, Kind
from eventctx.messages.tokens import FAMILIES
from eventctx.messages.tool_rounds import answers_to
from eventctx.projections import numbering
from eventctx.projections.explain.changes import Origin, What
from eventctx.projections.explain.view_diff import GROUPS
from eventctx.projections.presence import describe_loss
from eventctx.projections.timeline.columns import (
    KNOWN,
    MILLISECOND,
    CompactionColumns,
    Document,
    requests,
    updated_requests,
)
from eventctx.projections.timeline.fold import TimelineState, initial
from eventctx.projections.timeline.losses import suspected_losses
from eventctx.projections.timeline.views import OtherEntry, mark_of
from eventctx.projections.view.entries import Entry
from eventctx.projections.view.series import Series

FORMAT: Final = 1
KINDS: Final[tuple[str, ...]] = get_args(Kind)
WHAT: Final[tuple[str, ...]] = get_args(What)


def document(state: TimelineState, session: str, *, since: TimelineState | None = None) -> Document:
    """The columns of a session; with ``since``, an earlier state of it, only what came after."""
    before = initial() if since is None else since
    provenance = state.extras.provenance
    found: Document = {
        "format": FORMAT,
        "session": session,
        "head": state.position,
        "digest": state.digest.hex(),
        "after": -1 if since is None else since.position,
        "records": state.position + 1,
        "mirror": provenance.source,
        "source_format": provenance.format,
        "parent": None
        if provenance.parent is None
        else {"session": provenance.parent[0], "at": provenance.parent[1]},
    }
    if since is not None:
        # A reader of the earlier document checks with it that both are of the same log.
        found["after_digest"] = since.digest.hex()
    if since is None:
        found["legends"] = {"kinds": KINDS, "known": KNOWN, "groups": GROUPS, "what": WHAT}
    compactions = CompactionColumns(state)
    found["messages"] = _messages(state, len(before.changes.origins))
    found["extras"] = [_extra(one) for one in state.views.extras[len(before.views.extras) :]]
    found["requests"] = requests(state, compactions, len(before.views.shown))
    found["models"] = state.extras.models[len(before.extras.models) :]
    found["compactions"] = compactions.rows(len(before.audit.compactions))
    found["changes"] = _changes(state, compactions, len(before.runs.runs))
    found["reasons"] = [one._asdict() for one in state.runs.reasons[len(before.runs.reasons) :]]
    found["turns"] = _turns(state, since)
    found["links"] = [one._asdict() for one in state.extras.links[len(before.extras.links) :]]
    found["calls"] = _calls(state, before)
    found["recounts"] = _recounts(state, len(before.recounts))
    found["losses"] = _losses(state)
    if since is not None:
        found["updated"] = {
            "requests": updated_requests(state, since),
            "compactions": compactions.updated(since),
        }
    return found


def marks(state: TimelineState) -> list[bytes]:
    """The part of a view's digest that each whole message gives, by its number."""
    return [mark_of(Entry("message", one.ref)) for one in state.changes.origins]


# -- messages ------------------------------------------------------------------------------------


def _messages(state: TimelineState, first: int) -> Document:
    origins = state.changes.origins[first:]
    turns = _turn_numbers(state, origins)
    return {
        "first": first,
        "position": [one.ref.position for one in origins],
        "index": [one.ref.index for one in origins],
        "kind": [KINDS.index(one.ref.facts.kind) for one in origins],
        "tokens": [one.ref.tokens for one in origins],
        "characters": [_characters(one.ref.facts) for one in origins],
        "time": [one.time // MILLISECOND for one in origins],
        "turn": turns,
        "caller": callers(state.changes.origins, first),
        "demands": [one.ref.facts.demands for one in origins],
    }


def _characters(facts: Facts) -> int:
    return facts.prose + facts.arguments + facts.outcome + facts.thinking


def _turn_numbers(state: TimelineState, origins: Iterable[Origin]) -> list[int]:
    # A turn id may be used again; the last turn of that name counts, as everywhere.
    known = {one.turn_id: one.number for one in state.changes.time.began}
    return [-1 if one.turn_id is None else known.get(one.turn_id, -1) for one in origins]


def _extra(extra: OtherEntry) -> Document:
    found: Document = msgspec.to_builtins(extra, builtin_types=(bytes,))
    found["group"] = GROUPS.index(extra.group)
    found["mark"] = extra.mark.hex()
    return found


def _calls(state: TimelineState, before: TimelineState) -> dict[str, int]:
    """The messages with the calls that links and extras name which came after ``before``."""
    links = state.extras.links[len(before.extras.links) :]
    wanted = {one.call_id for one in links if one.call_id is not None}
    for extra in state.views.extras[len(before.views.extras) :]:
        wanted.update(extra.omit, [extra.call] if extra.call else ())
    return with_calls(state.changes.origins, wanted)


def _recounts(state: TimelineState, first: int) -> list[Document]:
    """Tokens of all messages, once more for each other family of models that was called."""
    origins = state.changes.origins
    return [
        {
            "from": one.first,
            "tokens": [
                FAMILIES[one.family].tokens(origin.ref.facts) for origin in origins[: one.messages]
            ],
        }
        for one in state.recounts[first:]
    ]


def _losses(state: TimelineState) -> list[Document]:
    """All losses that are suspected so far: a report may come after the document of its request."""
    names = {row.position: row.name for row in state.audit.requests}
    return [
        {
            "position": one.position,
            "kind": one.kind,
            "tokens": one.tokens,
            "words": describe_loss(one, names[one.position]),
        }
        for one in suspected_losses(state)
    ]


def _changes(state: TimelineState, compactions: CompactionColumns, first: int) -> Document:
    runs = state.runs.runs[first:]
    return {
        "position": [run.position for run in runs],
        "first": [run.first for run in runs],
        "last": [run.last for run in runs],
        "what": [WHAT.index(run.what) for run in runs],
        "reason": [run.reason for run in runs],
        "compaction": [compactions.place(run.position) for run in runs],
        "into": [run.into for run in runs],
    }


def _turns(state: TimelineState, before: TimelineState | None) -> list[Document]:
    own = [one for one in numbering.turns(state.changes.time) if one.first > state.audit.own_from]
    if before is not None:
        known = {(one.number, one.first): one for one in numbering.turns(before.changes.time)}
        own = [one for one in own if known.get((one.number, one.first)) != one]
    return [{**one._asdict(), "time": one.time // MILLISECOND} for one in own]


def callers(origins: Series[Origin], first: int = 0) -> list[int]:
    """For every message from ``first``: the last message before it with a call that it answers.

    -1 for a message that answers no call, or one that was never added.
    """
    fresh = origins[first:]
    wanted = {call for one in fresh for call in one.ref.facts.results}
    made = {answer for one in fresh for call in one.ref.facts.calls for answer in answers_to(call)}
    last = with_calls(origins.first(first), wanted - made)
    found: list[int] = []
    for number, one in enumerate(fresh, first):
        facts = one.ref.facts
        found.append(max([last.get(call, -1) for call in facts.results], default=-1))
        for call in facts.calls:
            last.update(dict.fromkeys(answers_to(call), number))
    return found


def with_calls(origins: Series[Origin], wanted: Collection[str]) -> dict[str, int]:
    """The last message with a call that each of these ids of results answers.

    The search is from the end, where they mostly are; a call that was never made costs a search
    through all messages.
    """
    missing = set(wanted)
    found: dict[str, int] = {}
    for number in range(len(origins) - 1, -1, -1):
        if not missing:
            break
        for call in origins[number].ref.facts.calls:
            for answer in missing.intersection(answers_to(call)):
                found[answer] = number
                missing.discard(answer)
    return found
