"""Edits of JSON with comments that leave every other byte as it is.

A text is scanned to values with their places in it (``read``). An edit is an insertion or a removal
at such a place, so comments, order, line ends and layout stay. ``add`` gives what it adds the
layout of its neighbours; ``remove`` is the inverse. Comments and trailing commas are accepted,
because programs that read such files accept them. All else is strict, and nothing is added that a
strict reader refuses.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from eventctx.errors import InvalidSetting
from eventctx.text import pattern

Keys = Sequence[str | int]
"""Keys of objects and indices of arrays, from the outermost value on."""

_TRIVIA: Final = pattern(r"(?:[ \t\r\n\ufeff]|//[^\r\n]*|/\*.*?\*/)*", re.DOTALL)
_REST_OF_LINE: Final = pattern(r"(?:[ \t]|/\*[^\r\n]*?\*/)*(?://[^\r\n]*)?")
_STRING: Final = pattern(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_SCALAR: Final = pattern(r"-?[0-9][0-9.eE+-]*|true|false|null")
_OWN_LINE: Final = pattern(r"(\r?\n)([ \t]*)\Z")
_INDENT: Final = pattern(r"[ \t]*")
_DEEPEST: Final = 200
"""Levels of a value; settings have about five."""


class Element(NamedTuple):
    """A member of an object, or an item of an array with its index as the key.

    ``place`` is where it begins: at its key in an object.
    """

    key: str | int
    place: int
    value: Value


class Value(NamedTuple):
    """A value of a text, from ``start`` to ``end``, and its elements if it is a container."""

    start: int
    end: int
    plain: Any
    elements: tuple[Element, ...] = ()


def read(text: str) -> Value:
    """The value of a text. Raises InvalidSetting, which names the line, for anything but JSON."""
    value = _scan(text, _after(text, 0), 0)
    if _after(text, value.end) != len(text):
        raise _wrong(text, _after(text, value.end), "the end of the file")
    return value


def find(value: Value, keys: Keys) -> Value | None:
    """The value under ``keys``; None where there is none."""
    for key in keys:
        inner = [one.value for one in value.elements if one.key == key]
        if not inner:
            return None
        value = inner[0]
    return value


def add(text: str, keys: Keys, plain: Any, key: str | None = None) -> str:
    """``text`` with a new last member ``key`` of the object under ``keys``, or item of the array.

    Raises InvalidSetting where there is no such container, or where the object has the key.
    """
    container = find(read(text), keys)
    kind = list if key is None else dict
    if container is None or not isinstance(container.plain, kind):
        expected = "an array" if key is None else "an object"
        raise InvalidSetting(f"{_spell(keys)}: expected {expected}, found another value")
    if key in container.plain:
        raise InvalidSetting(f"{_spell([*keys, str(key)])}: expected no value yet, found one")
    name = "" if key is None else json.dumps(key, ensure_ascii=False) + ": "
    if not container.elements:
        return _fill(text, container, name, plain)
    last = container.elements[-1]
    comma = _comma_after(text, last.value.end)
    at = last.value.end if comma is None else comma + 1
    own_line = _OWN_LINE.search(text[: last.place])
    ending = "" if comma is None else ","
    if own_line is None:
        body = name + json.dumps(plain, ensure_ascii=False)
        return text[:at] + ("," if comma is None else "") + " " + body + ending + text[at:]
    head = text[:at] + ("," if comma is None else "")
    rest = _REST_OF_LINE.match(text, at)
    line_end = rest.end() if rest else at
    body = name + _lay_out(plain, own_line[2], _unit(text), own_line[1])
    return head + text[at:line_end] + own_line[0] + body + ending + text[line_end:]


def remove(text: str, keys: Keys) -> str:
    """``text`` without the element under ``keys``, the line that it stands on, and one comma.

    Raises InvalidSetting where there is none.
    """
    container = find(read(text), keys[:-1])
    names = [] if container is None else [one.key for one in container.elements]
    if container is None or keys[-1] not in names:
        raise InvalidSetting(f"{_spell(keys)}: expected a value, found none")
    at = names.index(keys[-1])
    element = container.elements[at]
    own_line = _OWN_LINE.search(text[: element.place])
    begin = own_line.start() if own_line else element.place
    comma = _comma_after(text, element.value.end)
    if comma is not None:
        rest = text[element.value.end : comma] + text[comma + 1 :]
        head = text[:begin]
        if own_line is None:
            rest = rest.lstrip(" ")
    elif at:
        before = _after(text, container.elements[at - 1].value.end)  # the comma between the two
        between = text[before + 1 : begin]
        head = text[:before] + (between if between.strip() else "")
        rest = text[element.value.end :]
    else:
        head, rest = text[:begin], text[element.value.end :]
    if len(names) == 1:
        inside = head[container.start + 1 :], rest[: -len(text[container.end - 1 :])]
        if not "".join(inside).strip():
            return head[: container.start + 1] + text[container.end - 1 :]
    return head + rest


def document(plain: Any) -> str:
    """The text of a file that has nothing but this value."""
    return json.dumps(plain, ensure_ascii=False, indent=2) + "\n"


def _fill(text: str, container: Value, name: str, plain: Any) -> str:
    """``text`` with the first element of an empty container; comments in it stay before it."""
    line = max(text.rfind("\n", 0, container.start), text.rfind("\r", 0, container.start)) + 1
    outer = _INDENT.match(text, line)
    indent = outer[0] if outer else ""
    end = "\r\n" if "\r\n" in text else "\n"
    kept = text[container.start + 1 : container.end - 1].rstrip()
    body = name + _lay_out(plain, indent + _unit(text), _unit(text), end)
    inside = f"{kept}{end}{indent}{_unit(text)}{body}{end}{indent}"
    return text[: container.start + 1] + inside + text[container.end - 1 :]


def _lay_out(plain: Any, indent: str, unit: str, end: str) -> str:
    return json.dumps(plain, ensure_ascii=False, indent=unit).replace("\n", end + indent)


def _unit(text: str) -> str:
    """The indentation of the outermost members, which is that of one level."""
    for one in read(text).elements:
        own_line = _OWN_LINE.search(text[: one.place])
        if own_line and own_line[2]:
            return own_line[2]
    return "  "


def _after(text: str, at: int) -> int:
    """The place after blanks and comments."""
    trivia = _TRIVIA.match(text, at)
    return trivia.end() if trivia else at


def _comma_after(text: str, at: int) -> int | None:
    comma = _after(text, at)
    return comma if text[comma : comma + 1] == "," else None


def _scan(text: str, at: int, depth: int) -> Value:
    """The value that begins at a place."""
    if depth > _DEEPEST:
        raise _wrong(text, at, f"at most {_DEEPEST} levels")
    if text[at : at + 1] in ("{", "["):
        return _container(text, at, depth)
    token = _STRING.match(text, at) or _SCALAR.match(text, at)
    try:
        return Value(at, token.end(), json.loads(token[0]))  # type: ignore[union-attr, index]
    except (AttributeError, ValueError) as error:
        raise _wrong(text, at, "a JSON value") from error


def _container(text: str, start: int, depth: int) -> Value:
    named = text[start] == "{"
    closing = "}" if named else "]"
    elements: list[Element] = []
    at = _after(text, start + 1)
    while text[at : at + 1] != closing:
        place, key = at, len(elements)
        if named:
            name = _scan(text, at, _DEEPEST) if text[at : at + 1] == '"' else None
            at = _after(text, name.end) if name else at
            if name is None or text[at : at + 1] != ":":
                raise _wrong(text, at, f'a key in quotes, ":" or "{closing}"')
            key, at = name.plain, _after(text, at + 1)
            if key in [one.key for one in elements]:
                raise _wrong(text, place, f"{key!r} once in an object")
        value = _scan(text, at, depth + 1)
        elements.append(Element(key, place, value))
        at = _after(text, value.end)
        if text[at : at + 1] == ",":
            at = _after(text, at + 1)
        elif text[at : at + 1] != closing:
            raise _wrong(text, at, f'"," or "{closing}"')
    plain: Any = [one.value.plain for one in elements]
    if named:
        plain = {one.key: one.value.plain for one in elements}
    return Value(start, at + 1, plain, tuple(elements))


def _wrong(text: str, at: int, expected: str) -> InvalidSetting:
    line = text.count("\n", 0, at) + 1
    seen = "the end of the file" if at >= len(text) else repr(text[at : at + 20])
    return InvalidSetting(f"line {line}: expected {expected}, found {seen}")


def _spell(keys: Keys) -> str:
    return ".".join(map(str, keys)) or "the file"
