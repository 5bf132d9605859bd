"""Rows that are lent: dicts and lists that note that they were changed, before they are.

A request hands out the rows of the one before again, and only what is new is decoded. What a
caller does with them must not reach a later view, so every method that changes one marks its row
first, and the next request makes the marked rows anew. Apart from that they are dicts and lists:
equal, encoded and read as such. Copies, also deep and pickled ones, are plain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, Final, SupportsIndex

Mark = tuple[set[int], int]
"""Where a row notes that it was changed: the set of its view's changed places, and its place."""

DICT_CHANGES: Final = (
    *("__init__", "__setitem__", "__delitem__", "__ior__"),
    *("clear", "pop", "popitem", "setdefault", "update"),
)
"""The methods that change a dict."""

LIST_CHANGES: Final = (
    *("__init__", "__setitem__", "__delitem__", "__iadd__", "__imul__"),
    *("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"),
)
"""The methods that change a list."""


class LentDict(dict[str, Any]):
    """A dict of a lent row. Calling the class makes a plain dict; ``lend`` makes lent ones."""

    __slots__ = ("_mark",)
    _mark: Mark

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A plain dict: who makes one "of the same type" makes something of their own."""
        return dict(*args, **kwargs)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Copied and pickled as a dict."""
        return dict, (), None, None, iter(self.items())


class LentList(list[Any]):
    """A list in a lent row. Calling the class makes a plain list."""

    __slots__ = ("_mark",)
    _mark: Mark

    def __new__(cls, *args: Any) -> Any:
        """A plain list, as with ``LentDict``."""
        return list(*args)

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Copied and pickled as a list."""
        return list, (), None, iter(self)


def _marking(change: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(change)
    def marked(self: LentDict | LentList, /, *args: Any, **kwargs: Any) -> Any:
        changed, place = self._mark
        # Before the change: whoever hands out rows in between must find it marked.
        changed.add(place)
        return change(self, *args, **kwargs)

    return marked


for _name in DICT_CHANGES:
    setattr(LentDict, _name, _marking(getattr(dict, _name)))
for _name in LIST_CHANGES:
    setattr(LentList, _name, _marking(getattr(list, _name)))


def lend(value: dict[str, Any], mark: Mark) -> LentDict:
    """The dict as a lent one, and all in it. ``value`` itself is used up."""
    for key, inner in value.items():
        kind = type(inner)
        if kind is dict:
            value[key] = lend(inner, mark)
        elif kind is list:
            value[key] = _lend_list(inner, mark)
    made = _new_dict(LentDict)
    made._mark = mark
    _fill_dict(made, value)
    return made


def _lend_list(value: list[Any], mark: Mark) -> LentList:
    for place, inner in enumerate(value):
        kind = type(inner)
        if kind is dict:
            value[place] = lend(inner, mark)
        elif kind is list:
            value[place] = _lend_list(inner, mark)
    made = _new_list(LentList)
    made._mark = mark
    _fill_list(made, value)
    return made


# Past the methods that mark.
_new_dict: Callable[[type[LentDict]], LentDict] = dict.__new__
_new_list: Callable[[type[LentList]], LentList] = list.__new__
_fill_dict: Callable[[LentDict, dict[str, Any]], None] = dict.update
_fill_list: Callable[[LentList, Iterable[Any]], None] = list.extend
