"""A timeline's document, cut to the requests of some turns and the messages that there were then.

Numbers keep their meaning: messages before the cut stay as rows of figures, so that a message is
named as everywhere else, and a standing still has its reason. Their contents are in the file only
where a request of these turns shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from eventctx.errors import InvalidSetting
from eventctx.projections.timeline import views
from eventctx.projections.timeline.columns import Document


class HeldContents(NamedTuple):
    """The contents that a file holds: message numbers, and places among the extras."""

    numbers: frozenset[int]
    extras: frozenset[int]


def everything(document: Document) -> HeldContents:
    """The contents of a whole session."""
    numbers = range(len(document["messages"]["position"]))
    return HeldContents(frozenset(numbers), frozenset(range(len(document["extras"]))))


def cut_to_turns(document: Document, first: int, last: int) -> tuple[Document, HeldContents]:
    """The document of turns ``first`` to ``last``, and what their requests show.

    Raises InvalidSetting where no request belongs to these turns.
    """
    requests = document["requests"]
    chosen = [place for place, turn in enumerate(requests["turn"]) if first <= turn <= last]
    if not chosen:
        raise InvalidSetting(f"turn: {_turns_with_requests(requests['turn'], first, last)}")
    shown = _views(requests, chosen)
    turns = document["messages"]["turn"]
    own = [number for number, turn in enumerate(turns) if first <= turn <= last]
    messages = max([requests["last"][chosen[-1]], *own]) + 1
    end = max(
        requests["position"][chosen[-1]],
        document["messages"]["position"][messages - 1] if messages else -1,
    )
    ids = {one for view in shown for one in view}
    compactions = [one for one in document["compactions"] if one["position"] <= end]
    inserted = [one for compaction in compactions for one in compaction["insertions"]]
    extras = max([-one for one in (*ids, *inserted) if one < 0], default=0)
    held = HeldContents(
        frozenset(own) | {one for one in ids if one >= 0},
        frozenset(-1 - one for one in ids if one < 0),
    )
    made = {
        **document,
        "messages": _columns(document["messages"], range(messages)),
        "extras": document["extras"][:extras],
        "requests": {**_columns(requests, chosen), **_differences(shown)},
        "compactions": compactions,
        "changes": _columns_until(document["changes"], end),
        "turns": [one for one in document["turns"] if one["first"] <= end],
        "links": [one for one in document["links"] if one["position"] <= end],
        "recounts": [
            {
                "from": sum(place < one["from"] for place in chosen),
                "tokens": one["tokens"][:messages],
            }
            for one in document["recounts"]
        ],
        "losses": [one for one in document["losses"] if one["position"] <= end],
        "calls": {call: one for call, one in document["calls"].items() if one < messages},
    }
    return made, held


def _turns_with_requests(turns: Sequence[int], first: int, last: int) -> str:
    wanted = f"turn {first}" if first == last else f"turns {first} to {last}"
    known = sorted({turn for turn in turns if turn >= 0})
    if not known:
        return f"no request of this session belongs to a turn, found {wanted}"
    return f"expected one from {known[0]} to {known[-1]} with a request, found {wanted}"


def _views(requests: Document, chosen: Sequence[int]) -> list[list[int]]:
    """The entry ids of the chosen requests' views."""
    wanted = set(chosen)
    found: list[list[int]] = []
    view: list[int] = []
    for place in range(chosen[-1] + 1):
        del view[requests["keep"][place] :]
        view.extend(views.ids_of(requests["add"][place]))
        if place in wanted:
            found.append(list(view))
    return found


def _differences(chosen: Sequence[Sequence[int]]) -> Document:
    """The columns of what each view keeps of the one before it, and what it adds."""
    keep = [views.same_at_start(*pair) for pair in pairwise(((), *chosen))]
    add = [list(views.runs_of(view[same:])) for view, same in zip(chosen, keep, strict=True)]
    return {"keep": keep, "add": add}


def _columns(columns: Document, rows: Sequence[int]) -> Document:
    made = {
        name: [column[row] for row in rows] if isinstance(column, list) else column
        for name, column in columns.items()
    }
    return {**made, "first": 0} if "first" in columns else made


def _columns_until(changes: Document, end: int) -> Document:
    kept = [place for place, position in enumerate(changes["position"]) if position <= end]
    return _columns(changes, kept)
