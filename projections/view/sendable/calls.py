"""Rules about calls and results: one form, a server tool's pairs, results first.

``layout.py`` has put the results of each call after it, and made up those that are missing. These
rules correct faults inside of a row, and of an answer that is several rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from eventctx.projections.view.sendable.rows import (
    SERVER_CALLS,
    RowChange,
    Rows,
    blocks_of,
    id_of,
    is_only_results,
    is_server_result,
    kind_of,
    runs,
    with_content,
)


def in_one_form(rows: Rows) -> list[RowChange]:
    """Keep one of two forms of the same calls in a row: that of their results.

    A list in a host's own form (LangChain's) does not count as a second form: the host converts it.
    """
    changes = []
    answered = [row.get("tool_call_id") for row in rows if row and row.get("role") == "tool"]
    by_tool_rows = {one for one in answered if isinstance(one, str)}
    for place, row in enumerate(rows):
        calls = row.get("tool_calls") if row is not None else None
        if row is None or not isinstance(calls, list):
            continue
        used = {id_of(one) for one in blocks_of(row) if kind_of(one) == "tool_use"}
        both = used.intersection([id_of(one) for one in calls if _has_function(one)]) - {""}
        if not both:
            continue
        if both <= by_tool_rows:
            content = [one for one in blocks_of(row) if kind_of(one) != "tool_use"]
            rows[place] = with_content(row, content or None)
        else:
            left = [one for one in calls if id_of(one) not in both]
            made = {key: value for key, value in row.items() if key != "tool_calls"}
            rows[place] = {**made, "tool_calls": left} if left else made
        changes.append(RowChange(place, "call_in_two_forms", _texts(both)))
    return changes


def _has_function(call: Any) -> bool:
    return isinstance(call, dict) and "function" in call


# -- server tools --------------------------------------------------------------------------------


def pair_server_tools(rows: Rows) -> list[RowChange]:
    """Leave out a server tool's call without a result in its answer, and a result without a call.

    An answer may be several rows: one that ended in ``pause_turn`` goes on in the next, and one
    whose program calls a tool of the client goes on after that tool's result. A call that is still
    open stays in the last answer, which goes on.
    """
    open_calls: dict[str, _Place] = {}
    kept: dict[_Place, str] = {}
    for place, row in enumerate(rows):
        if row is None or row.get("role") in ("system", "developer"):
            continue
        if row.get("role") != "assistant":
            if not is_only_results(row):
                open_calls.clear()
            continue
        for index, block in enumerate(blocks_of(row)):
            kind = kind_of(block)
            if kind in SERVER_CALLS:
                open_calls[str(block.get("id"))] = (place, index)
            elif is_server_result(kind):
                call = open_calls.pop(str(block.get("tool_use_id")), None)
                if call is not None:
                    kept[call] = kept[place, index] = _new_id(block["tool_use_id"], kept)
    for own, call in open_calls.items():
        if _goes_on(rows, call[0]):
            kept[call] = _new_id(own, kept)
    return _with_pairs_alone(rows, kept)


_Place = tuple[int, int]
"""The place of a row, and that of a block in it."""


def _new_id(wanted: str, kept: Mapping[_Place, str]) -> str:
    """The id itself, or, where another pair has it, one with a number after it."""
    taken = set(kept.values())
    names = (wanted if count == 1 else f"{wanted}_{count}" for count in itertools.count(1))
    return next(name for name in names if name not in taken)


def _goes_on(rows: Rows, place: int) -> bool:
    """Whether the answer with an open call at ``place`` is the one that the request goes on with.

    If a later row of the model exists, the model went on without the result.
    """
    row = rows[place]
    for later in rows[place + 1 :]:
        if later is not None and later.get("role") == "assistant":
            return row is not None and any(kind_of(one) == "tool_use" for one in blocks_of(row))
    return True


def _with_pairs_alone(rows: Rows, kept: Mapping[_Place, str]) -> list[RowChange]:
    """Leave out the blocks of server tools that are not ``kept``, and give the others their ids."""
    changes = []
    for place, row in enumerate(rows):
        content: list[Any] = []
        renamed: list[str] = []
        left_out: list[str] = []
        for index, block in enumerate([] if row is None else blocks_of(row)):
            kind = kind_of(block)
            if not (kind in SERVER_CALLS or is_server_result(kind)):
                content.append(block)
                continue
            key = "id" if kind in SERVER_CALLS else "tool_use_id"
            own, new = str(block.get(key)), kept.get((place, index))
            if new is None:
                left_out.append(own)
            else:
                content.append(block if new == own else {**block, key: new})
                renamed += [own] if new != own else []
        if row is None or not (left_out or renamed):
            continue
        rows[place] = with_content(row, content)
        if left_out:
            changes.append(RowChange(place, "server_tool_unpaired", tuple(left_out)))
        if renamed:
            changes.append(RowChange(place, "call_id_used_twice", tuple(renamed)))
    return changes


# -- order ---------------------------------------------------------------------------------------


def put_results_first(rows: Rows) -> list[RowChange]:
    """Put the results of a message before all else in it; a message may be several rows."""
    changes = []
    for run in runs(rows, "user"):
        holding = [place for place in run if _results_in(rows, place)]
        if not holding or _is_in_order(rows, run):
            continue
        first = holding[0]
        results = [block for place in holding for block in _results_in(rows, place)]
        for place in holding:
            row = rows[place]
            assert row is not None  # noqa: S101 - it has results
            words = [block for block in blocks_of(row) if kind_of(block) != "tool_result"]
            content = [*results, *words] if place == first else words
            if content != row["content"]:
                rows[place] = with_content(row, content)
                changes.append(RowChange(place, "results_first"))
    return changes


def _results_in(rows: Rows, place: int) -> list[Any]:
    row = rows[place]
    found = [] if row is None else blocks_of(row)
    return [block for block in found if kind_of(block) == "tool_result"]


def _is_in_order(rows: Rows, run: list[int]) -> bool:
    """Whether no result of these rows comes after anything else."""
    words = False
    for place in run:
        row = rows[place]
        for block in [] if row is None else blocks_of(row) or [row]:
            result = block is not row and kind_of(block) == "tool_result"
            if result and words:
                return False
            words = words or not result
    return True


def _texts(ids: Iterable[Any]) -> tuple[str, ...]:
    return tuple(sorted([one for one in ids if isinstance(one, str)]))
