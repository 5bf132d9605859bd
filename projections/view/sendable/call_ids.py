"""Rules about the ids of calls: each call has one of its own, and its result has the same.

A call without an id, or whose id is taken, gets another one, and so does its result.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from eventctx.projections.view.sendable.rows import (
    CALLS,
    Row,
    RowChange,
    Rows,
    blocks_of,
    id_of,
    kind_of,
)

# -- calls without an id -------------------------------------------------------------------------


def give_ids(rows: Rows) -> list[RowChange]:
    """Give each call of OpenAI's form an id, and its result the same.

    Some servers answer with an empty id or with none. A result belongs to the first call of its
    tool, or of any tool if it names none. A call without a result is left out, and a result without
    a call. Calls of Ollama's form need no ids; a result that was made up gets that form, too.
    """
    touched: list[int] = []
    ids: Iterator[str] | None = None
    for place, row in enumerate(rows):
        calls = _listed(row)
        if not calls:
            continue
        if any(map(_needs_id, calls)):
            ids = ids or _free_ids(rows)
            touched += [place, *_give_ids(rows, place, ids)]
        elif any(map(_is_of_ollama, calls)):
            for one in _results_without_id(rows, place):
                made_up = rows[one] or {}
                if made_up.get("role") == "function":
                    said = {"tool_name": made_up.get("name"), "content": made_up.get("content")}
                    rows[one] = {"role": "tool", **said}
                    touched.append(one)
    return [RowChange(place, "call_without_id") for place in touched]


def _give_ids(rows: Rows, place: int, ids: Iterator[str]) -> list[int]:
    """Give the calls of a row ids; returns the places of all results without an id after it."""
    row = rows[place] or {}
    results = _results_without_id(rows, place)
    waiting = {one: rows[one] or {} for one in results}
    calls: list[Any] = []
    for call in _listed(row):
        if not _needs_id(call):
            calls.append(call)
            continue
        name = call["function"].get("name")
        found = next((one for one in waiting if waiting[one].get("name", name) == name), None)
        if found is not None:
            new, content = next(ids), waiting.pop(found).get("content")
            calls.append({**call, "id": new})
            rows[found] = {"role": "tool", "tool_call_id": new, "content": content}
    made = {key: value for key, value in row.items() if key != "tool_calls"}
    rows[place] = {**made, "tool_calls": calls} if calls else made
    for one in waiting:
        rows[one] = None
    return results


def _listed(row: Row | None) -> list[Any]:
    calls = row.get("tool_calls") if row is not None else None
    return calls if isinstance(calls, list) else []


def _needs_id(call: Any) -> bool:
    """Whether a call of OpenAI's form, whose arguments are a text, has no id."""
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and not id_of(call) and not _is_of_ollama(call)


def _is_of_ollama(call: Any) -> bool:
    """Whether a call has Ollama's form: an object for arguments, and perhaps no id."""
    function = call.get("function") if isinstance(call, dict) else None
    return isinstance(function, dict) and isinstance(function.get("arguments"), dict)


def _results_without_id(rows: Rows, place: int) -> list[int]:
    """The places of the results without an id up to the next answer."""
    found: list[int] = []
    for later, row in enumerate(rows[place + 1 :], place + 1):
        if row is None:
            continue
        if not _answers(row):
            break
        if row.get("role") in ("tool", "function") and not row.get("tool_call_id"):
            found.append(later)
    return found


def _free_ids(rows: Rows) -> Iterator[str]:
    """Ids that no call of the request has: call_1, call_2."""
    taken = {id_of(call) for row in rows for call in _listed(row)}
    return (one for one in map("call_{}".format, itertools.count(1)) if one not in taken)


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
        if "call_id" in row:
            calls.append(f"{_answers(row)} {row['call_id']}")
        if "tool_call_id" in row:
            results.append(f"{_answers(row)} {row['tool_call_id']}")
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
