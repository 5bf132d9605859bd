"""Rules about calls and results: one form, a server tool's pairs, results first, unique ids.

``layout.py`` has put the results of each call after it, and made up those that are missing. These
rules correct faults inside of a row, and of an answer that is several rows. A call whose id is
taken gets another one, and so does its result.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from eventctx.projections.view.sendable.rows import (
    CALLS,
    SERVER_CALLS,
    Row,
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


# -- ids, each used by one call and one result ---------------------------------------------------

_HAS_FORM: Final = re.compile(r"[a-zA-Z0-9_-]+").fullmatch
"""The form of an id in Anthropic's API."""

_ODD: Final = re.compile(r"[^a-zA-Z0-9_-]")


class _Ids:
    """The ids that a request has used so far.

    ``waiting`` has the new ids of the latest calls, until their results come.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._waiting: dict[str, list[str]] = {}

    def call(self, wanted: str, times: int, form: bool) -> list[str]:
        """The ids for as many calls with this one; ``form``: Anthropic's, whose ids have a form."""
        base = wanted if not form or _HAS_FORM(wanted) else _ODD.sub("_", wanted) or "call"
        names: list[str] = []
        count = 1
        while len(names) < times:
            new = base if count == 1 else f"{base}_{count}"
            count += 1
            if new not in self._taken:
                self._taken.add(new)
                names.append(new)
        self._waiting[wanted] = list(names)
        return names

    def waits(self, wanted: str) -> int:
        """How many of the last calls with this id have no result yet."""
        return len(self._waiting.get(wanted, ()))

    def again(self, wanted: str) -> str:
        """The id for one more call of the same answer."""
        waiting = self._waiting[wanted]
        (new,) = self.call(wanted, 1, form=False)
        self._waiting[wanted] = [*waiting, new]
        return new

    def result(self, of: str) -> str | None:
        """The id for a result of the last calls with this one; None for a result too many."""
        names = self._waiting.get(of)
        if names is None:
            return of
        return names.pop(0) if names else None


def rename_calls(rows: Rows) -> list[RowChange]:
    """Give a call whose id is taken another one, and its result too.

    If one answer uses an id twice, it needs two results; calls without one are left out. Of two
    results of one call the first stays.
    """
    ids = _Ids()
    changes: list[RowChange] = []
    if _uses_each_id_once(rows):
        return changes  # nearly all views
    for place, row in enumerate(rows):
        if row is None:
            continue
        touched: set[str] = set()
        if _answers(row):
            rows[place] = _with_results_renamed(row, ids, touched)
        else:
            rows[place] = _with_calls_renamed(row, rows[place + 1 :], ids, touched)
        if touched:
            changes.append(RowChange(place, "call_id_used_twice", tuple(sorted(touched))))
    return changes


def _uses_each_id_once(rows: Rows) -> bool:
    """Whether all ids of calls and of results are unique and valid."""
    calls: list[str] = []
    results: list[str] = []
    for row in rows:
        if row is None:
            continue
        content, listed = row.get("content"), row.get("tool_calls")
        if isinstance(content, list):
            for block in content:
                kind = block.get("type") if isinstance(block, dict) else None
                if kind == "tool_use" or (kind == "tool_call" and not listed):
                    calls.append(id_of(block))
                elif kind == "tool_result":
                    results.append(str(block.get("tool_use_id", block.get("tool_call_id"))))
        if listed and isinstance(listed, list):
            calls += [id_of(one) for one in listed]
        for key, found in (("call_id", calls), ("tool_call_id", results)):
            if key in row:
                found.append(f"{_answers(row)} {row[key]}")
    if len(set(calls)) < len(calls) or len(set(results)) < len(results):
        return False
    return all(" " in one or _HAS_FORM(one) for one in calls)


def _answers(row: Row) -> bool:
    """Whether a row may hold results of calls before it."""
    if row.get("role") is None:
        return str(row.get("type")).endswith(("_output", "_response"))
    return row.get("role") not in ("assistant", "model")


def _with_calls_renamed(
    row: Row, following: Sequence[Row | None], ids: _Ids, touched: set[str]
) -> Row | None:
    content, listed = row.get("content"), row.get("tool_calls")
    if row.get("role") is None:
        return _item_renamed(row, following, ids, touched)
    in_blocks = Counter([id_of(one) for one in blocks_of(row) if kind_of(one) in CALLS])
    in_list = Counter([id_of(one) for one in listed] if isinstance(listed, list) else [])
    of_anthropic = {id_of(one) for one in blocks_of(row) if kind_of(one) == "tool_use"}
    names: dict[str, list[str]] = {}
    # An Amplifier row holds each call in a block and in its list.
    for one, times in (in_blocks | in_list).items():
        if not one:
            continue
        answered = times if times == 1 else min(times, _results_of(one, following))
        names[one] = ids.call(one, max(1, answered), one in of_anthropic)
        if names[one] != [one] or times > 1:
            touched.add(one)
    if not touched:
        return row
    made = dict(row)
    if in_blocks:
        made["content"] = _under_names(content, names, CALLS)
    if in_list:
        made["tool_calls"] = _under_names(listed, names, None)
    return made


def _item_renamed(
    row: Row, following: Sequence[Row | None], ids: _Ids, touched: set[str]
) -> Row | None:
    """A call that is an item; None for one that its answer holds twice with one output."""
    own = row.get("call_id")
    if not isinstance(own, str):
        return row
    waiting = ids.waits(own)
    if not waiting:
        (new,) = ids.call(own, 1, form=False)
        touched.update((own,) if new != own else ())
        return row if new == own else {**row, "call_id": new}
    touched.add(own)
    if _results_of(own, following) <= waiting:
        return None
    return {**row, "call_id": ids.again(own)}


def _under_names(
    calls: Any, names: dict[str, list[str]], kinds: Collection[str] | None
) -> list[Any]:
    """The calls under their new ids; those for which no id is left are left out."""
    rest = {one: list(new) for one, new in names.items()}
    made = []
    for call in calls:
        own = id_of(call)
        if own not in rest or (kinds is not None and kind_of(call) not in kinds):
            made.append(call)
        elif rest[own]:
            made.append({**call, "id": rest[own].pop(0)})
    return made


def _results_of(call_id: str, following: Iterable[Row | None]) -> int:
    """How many results with this id are in the rows up to the next answer.

    An answer of items may go on in rows before them.
    """
    found = 0
    answered = False
    for row in following:
        if row is None:
            continue
        if not _answers(row):
            if answered or row.get("role") is not None:
                break
            continue
        answered = True
        several = row.get("tool_call_ids")
        found += row.get("tool_call_id") == call_id
        found += several.count(call_id) if isinstance(several, list) else 0
        keys = [(block, _key_of(block)) for block in blocks_of(row)]
        found += sum([key is not None and block[key] == call_id for block, key in keys])
    return found


def _key_of(block: Any) -> str | None:
    """The key under which a result has the id of its call; None for another block."""
    if kind_of(block) != "tool_result":
        return None
    found = [key for key in ("tool_use_id", "tool_call_id") if isinstance(block.get(key), str)]
    return found[0] if found else None


def _with_results_renamed(row: Row, ids: _Ids, touched: set[str]) -> Row | None:
    """The row with its results under the ids of their calls; None for a result too many."""
    made = dict(row)
    names: dict[str, str | None] = {}
    key = "tool_call_id" if row.get("role") is not None else "call_id"
    own = row.get(key)
    if isinstance(own, str):
        made[key] = names[own] = ids.result(own)  # its blocks are about the same result
    several = row.get("tool_call_ids")
    if isinstance(several, list):
        named = [ids.result(one) if isinstance(one, str) else one for one in several]
        touched.update([old for old, new in zip(several, named, strict=True) if old != new])
        made["tool_call_ids"] = [one for one in named if one is not None]
    content = []
    for block in blocks_of(row):
        inside = _key_of(block)
        of = block[inside] if inside is not None else ""
        new = names[of] if of in names else ids.result(of)
        if inside is None or new == of:
            content.append(block)
            continue
        touched.add(of)
        if new is not None:
            content.append({**block, inside: new})
    if content != row.get("content") and blocks_of(row):
        made["content"] = content
    if names and None in names.values():
        touched.update(names)
        return None
    touched.update([old for old, new in names.items() if old != new])
    return made if touched else row
