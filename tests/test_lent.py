"""Lent rows are dicts and lists in every way, copies of them are plain, and changes are noted."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from amplifier_core.message_models import Message
from hypothesis import given
from hypothesis import strategies as st

from eventctx.errors import InvalidMessage
from eventctx.messages.encoding import decode_body, encode_message
from eventctx.messages.lent import DICT_CHANGES, LIST_CHANGES, LentDict, LentList, lend

Row = dict[str, Any]

scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
    max_leaves=15,
)
rows = st.dictionaries(keys, values, max_size=5)


def lent(row: Row, changed: set[int] | None = None) -> Any:
    """The row as a request would lend it at place 7."""
    plain = decode_body(msgspec.json.encode(row))
    return lend(plain, (set() if changed is None else changed, 7))


def is_plain(value: object) -> bool:
    if isinstance(value, dict):
        return type(value) is dict and all(map(is_plain, value.values()))
    if isinstance(value, list):
        return type(value) is list and all(map(is_plain, value))
    return True


def is_lent(value: object) -> bool:
    if isinstance(value, dict):
        return type(value) is LentDict and all(map(is_lent, value.values()))
    if isinstance(value, list):
        return type(value) is LentList and all(map(is_lent, value))
    return True


@given(row=rows)
def test_a_lent_row_is_read_and_encoded_as_the_plain_one(row: Row) -> None:
    changed: set[int] = set()
    one = lent(row, changed)
    assert is_lent(one)
    assert one == row
    assert row == one
    assert repr(one) == repr(row)
    assert json.dumps(one) == json.dumps(row)
    assert msgspec.json.encode(one) == msgspec.json.encode(row)
    assert msgspec.msgpack.encode(one) == msgspec.msgpack.encode(row)
    assert encode_message(one) == encode_message(row)
    assert changed == set(), "reading is no change"


@given(row=rows)
def test_copies_of_a_lent_row_are_plain(row: Row) -> None:
    one = lent(row)
    for made in (copy.deepcopy(one), *[pickle.loads(pickle.dumps(one, n)) for n in range(6)]):  # noqa: S301
        assert made == row
        assert repr(made) == repr(row)
        assert is_plain(made)
    shallow: list[dict[str, Any]] = [copy.copy(one), one.copy(), dict(one), one | {}, {} | one]
    for made in [*shallow, type(one)(one)]:
        assert made == row
        assert type(made) is dict
    for inner in one.values():
        if type(inner) is LentList:
            parts = [copy.copy(inner), inner.copy(), inner[:], inner.__add__([]), inner * 1]
            for part in [*parts, type(inner)(inner)]:
                assert part == inner
                assert type(part) is list


def test_a_row_that_holds_itself_can_be_copied() -> None:
    one = lent({"content": []})
    one["content"].append(one)
    again = copy.deepcopy(one)
    assert again["content"][0] is again
    assert pickle.loads(pickle.dumps(one))["content"][0]["content"]  # noqa: S301


ROW = {"role": "user", "content": [{"type": "text", "text": "b"}, {"type": "text", "text": "a"}]}

ON_A_DICT: dict[str, Callable[[Any], object]] = {
    "__init__": lambda d: d.__init__(extra=1),
    "__setitem__": lambda d: d.__setitem__("role", "system"),
    "__delitem__": lambda d: d.__delitem__("role"),
    "__ior__": lambda d: d.__ior__({"extra": 1}),
    "clear": lambda d: d.clear(),
    "pop": lambda d: d.pop("absent", None),
    "popitem": lambda d: d.popitem(),
    "setdefault": lambda d: d.setdefault("extra", []),
    "update": lambda d: d.update(extra=1),
}
ON_A_LIST: dict[str, Callable[[Any], object]] = {
    "__init__": lambda a: a.__init__("xy"),
    "__setitem__": lambda a: a.__setitem__(slice(0, 1), []),
    "__delitem__": lambda a: a.__delitem__(0),
    "__iadd__": lambda a: a.__iadd__([1]),
    "__imul__": lambda a: a.__imul__(2),
    "append": lambda a: a.append(1),
    "clear": lambda a: a.clear(),
    "extend": lambda a: a.extend(iter([1])),
    "insert": lambda a: a.insert(0, 1),
    "pop": lambda a: a.pop(),
    "remove": lambda a: a.remove({"type": "text", "text": "a"}),
    "reverse": lambda a: a.reverse(),
    "sort": lambda a: a.sort(key=lambda block: block["text"]),
}


@pytest.mark.parametrize("name", DICT_CHANGES)
def test_a_dict_that_is_changed_notes_it_and_changes(name: str) -> None:
    changed: set[int] = set()
    one, plain = lent(ROW, changed), copy.deepcopy(ROW)
    given_back, expected = ON_A_DICT[name](one), ON_A_DICT[name](plain)
    assert (one, given_back) == (plain, expected)
    assert changed == {7}


@pytest.mark.parametrize("name", LIST_CHANGES)
def test_a_list_that_is_changed_notes_it_for_its_row(name: str) -> None:
    changed: set[int] = set()
    one, plain = lent(ROW, changed), copy.deepcopy(ROW)
    given_back, expected = ON_A_LIST[name](one["content"]), ON_A_LIST[name](plain["content"])
    assert (one, given_back) == (plain, expected)
    assert changed == {7}


def test_a_change_deep_in_a_row_is_noted_for_the_row() -> None:
    changed: set[int] = set()
    one = lent({"a": [[{"b": {"c": []}}]]}, changed)
    one["a"][0][0]["b"]["c"] += [1]
    assert changed == {7}


def test_a_change_is_noted_before_it_is_made() -> None:
    changed: set[int] = set()
    one = lent(ROW, changed)
    seen: list[set[int]] = []
    one["content"].sort(key=lambda block: seen.append(changed.copy()) or block["text"])
    assert seen == [{7}, {7}]
    changed.clear()
    with pytest.raises(KeyError):
        del one["absent"]
    assert changed == {7}


READING = {
    *("__class_getitem__", "__contains__", "__eq__", "__ge__", "__getattribute__"),
    *("__getitem__", "__gt__", "__hash__", "__iter__", "__le__", "__len__", "__lt__", "__ne__"),
    *("__new__", "__repr__", "__reversed__", "__sizeof__", "__doc__", "copy"),
    *("__or__", "__ror__", "fromkeys", "get", "items", "keys", "values"),
    *("__add__", "__mul__", "__rmul__", "count", "index"),
}
"""What dicts and lists have that changes nothing."""


@pytest.mark.parametrize(("kind", "changes"), [(dict, DICT_CHANGES), (list, LIST_CHANGES)])
def test_no_method_that_changes_is_forgotten(kind: type, changes: tuple[str, ...]) -> None:
    assert vars(kind).keys() - READING == set(changes)


@given(row=rows)
def test_a_lent_row_that_is_not_valid_any_more_is_refused_as_a_plain_one(row: Row) -> None:
    one, plain = lent(row), copy.deepcopy(row)
    for message in (one, plain):
        message["content"] = [{"at": {1, 2}}]
    one["content"] = lent({"content": plain["content"] and [{}]})["content"]
    one["content"][0]["at"] = {1, 2}
    found = []
    for message in (one, plain):
        with pytest.raises(InvalidMessage) as refused:
            encode_message(message)
        found.append(str(refused.value))
    assert found[0] == found[1]


def test_a_message_model_takes_lent_rows_as_plain_ones() -> None:
    call = {"type": "tool_call", "id": "c", "name": "read", "input": {"paths": ["a", {"b": 1}]}}
    row = {"role": "assistant", "content": [{"type": "text", "text": "see"}, call]}
    made, plain = Message(**lent(row)), Message(**row)
    assert made == plain
    assert made.model_dump() == plain.model_dump()
    assert made.model_dump_json() == plain.model_dump_json()
