"""The parts of a settings file that are ours: to put in, to find again, and to take out.

Every function is pure: a text in, a text out, None for no file. An edit is checked against the
values before it is returned: the new text means the old values and ours, and nothing else.
"""

from __future__ import annotations

import json
import re
import tomllib
from copy import deepcopy
from typing import Any, Final

import msgspec

from eventctx.adapters.host_settings import jsonc
from eventctx.errors import InvalidSetting

OURS: Final = "eventctx"
"""The name of our server and plugin, and the word that every hook of ours has."""

_HEADER: Final = re.compile(r"^[ \t]*\[", re.MULTILINE)


class JsonPart(msgspec.Struct, frozen=True, tag="json"):
    """A member of an object under ``keys``; with ``item``, an item of the array there."""

    keys: tuple[str, ...]
    value: Any
    item: bool = False


class TomlPart(msgspec.Struct, frozen=True, tag="toml"):
    """A table with a header of its own: the last of ``keys`` in the others."""

    keys: tuple[str, ...]
    value: dict[str, str | list[str]]


class TextPart(msgspec.Struct, frozen=True, tag="text"):
    """The whole of a file."""

    text: str


Part = JsonPart | TomlPart | TextPart


def has(text: str | None, part: Part) -> bool:
    """Whether a part is in a text. Raises InvalidSetting for a text that cannot be read."""
    match part:
        case JsonPart():
            inner = None if _is_blank(text) else jsonc.find(jsonc.read(text or ""), part.keys)
            if part.item:
                return inner is not None and any(one == part.value for one in _items(inner, part))
            return inner is not None and inner.plain == part.value
        case TomlPart():
            return bool(_table(_toml(text or ""), part.keys) == part.value)
        case TextPart():
            return text == part.text


def put(text: str | None, part: Part) -> str:
    """A text with a part that it has not.

    Raises InvalidSetting where it cannot be read, or has something else in the part's place.
    """
    match part:
        case JsonPart():
            return _put_json("{}\n" if text is None or _is_blank(text) else text, part)
        case TomlPart():
            return _put_toml(text or "", part)
        case TextPart():
            if text is not None:
                raise InvalidSetting("expected no file of this name, found one with other contents")
            return part.text


def take_out(text: str, part: Part, base: str | None) -> str | None:
    """A text without a part; None where it was all. ``base`` is the text before we put it in.

    Containers that were not in ``base`` go with their last element. Raises InvalidSetting where the
    text cannot be read, or is a whole file that somebody changed.
    """
    match part:
        case JsonPart():
            return _take_out_json(text, part, base)
        case TomlPart():
            return _take_out_toml(text, part)
        case TextPart():
            if text != part.text:
                raise InvalidSetting("expected the file as it was written, found it changed")
            return None


def describe(parts: tuple[Part, ...]) -> list[str]:
    """Lines that say what to add: where, and the value; one line for equal values."""
    lines: list[str] = []
    places: dict[str, list[str]] = {}
    for part in parts:
        match part:
            case JsonPart():
                what = "an item " if part.item else ""
                value = what + json.dumps(part.value, ensure_ascii=False)
                places.setdefault(value, []).append(".".join(part.keys))
            case TomlPart():
                lines += _toml_table(part, "\n").splitlines()
            case TextPart():
                lines += part.text.splitlines()
    return [*lines, *[f"{', '.join(keys)}: {value}" for value, keys in places.items()]]


# -- JSON -----------------------------------------------------------------------------------------


def _put_json(text: str, part: JsonPart) -> str:
    whole = jsonc.read(text)
    known = next(n for n in range(len(part.keys), -1, -1) if jsonc.find(whole, part.keys[:n]))
    new = [part.value] if part.item else part.value
    if known < len(part.keys):
        rest = part.keys[known:]
        done = jsonc.add(text, part.keys[:known], _nest(rest[1:], new), rest[0])
    elif part.item:
        there = jsonc.find(whole, part.keys)
        if there and any(_is_hook_of_ours(one) for one in _items(there, part)):
            raise InvalidSetting(f"{'.'.join(part.keys)}: expected no hook of {OURS}, found one")
        done = jsonc.add(text, part.keys, part.value)
    else:
        raise InvalidSetting(f"{'.'.join(part.keys)}: expected none yet, found one that differs")
    if jsonc.read(done).plain != _with(whole.plain, part, new):
        raise InvalidSetting("expected a file that can be edited in place, found one that cannot")
    return done


def _take_out_json(text: str, part: JsonPart, base: str | None) -> str:
    inner = None if _is_blank(text) else jsonc.find(jsonc.read(text), part.keys)
    if inner is None:
        return text
    if part.item:
        items = list(enumerate(_items(inner, part)))
        places = [n for n, one in items if one == part.value]
        places = places or [n for n, one in items if _is_hook_of_ours(one)]  # somebody changed it
        for place in reversed(places):
            text = jsonc.remove(text, [*part.keys, place])
        if not places:
            return text
    else:
        text = jsonc.remove(text, part.keys)
    before = None if _is_blank(base) else jsonc.read(base or "")
    for n in range(len(part.keys) - (not part.item), 0, -1):
        left = jsonc.find(jsonc.read(text), part.keys[:n])
        was = before is not None and jsonc.find(before, part.keys[:n]) is not None
        if was or left is None or left.elements:
            break
        text = jsonc.remove(text, part.keys[:n])
    return text


def _items(value: jsonc.Value, part: JsonPart) -> list[Any]:
    if not isinstance(value.plain, list):
        raise InvalidSetting(f"{'.'.join(part.keys)}: expected an array, found another value")
    return value.plain


def _is_hook_of_ours(item: object) -> bool:
    text = json.dumps(item)
    return OURS in text and " hook " in text


def _nest(keys: tuple[str, ...], value: Any) -> Any:
    for key in reversed(keys):
        value = {key: value}
    return value


def _with(plain: Any, part: JsonPart, new: Any) -> Any:
    """What the whole means with a part: a check that shares nothing with the edit of the text."""
    whole = inner = deepcopy(plain)
    for key in part.keys[:-1]:
        inner = inner.setdefault(key, {})
    last = part.keys[-1]
    inner[last] = [*inner.get(last, []), part.value] if part.item else new
    return whole


def _is_blank(text: str | None) -> bool:
    return not (text or "").strip("\ufeff \t\r\n")


# -- TOML -----------------------------------------------------------------------------------------


def _put_toml(text: str, part: TomlPart) -> str:
    values = _toml(text)
    if _table(values, part.keys) is not None:
        raise InvalidSetting(f"{'.'.join(part.keys)}: expected none yet, found one that differs")
    end = "\r\n" if "\r\n" in text else "\n"
    parting = "" if not text else end if text.endswith("\n") else end + end
    done = text + parting + _toml_table(part, end)
    try:
        if _without(_toml(done), part.keys) == _without(values, part.keys):
            return done
    except InvalidSetting:  # the table's parent is written inline, say
        pass
    raise InvalidSetting("expected a file to which a table can be added, found one that cannot")


def _take_out_toml(text: str, part: TomlPart) -> str:
    """The text without the table and those below it, which mean nothing alone."""
    values = _toml(text)
    names = r"\s*\.\s*".join(f"[\"']?{re.escape(key)}[\"']?" for key in part.keys)
    header = re.compile(rf"^[ \t]*\[\s*{names}\s*(?:\.[^\]\r\n]*)?\][^\r\n]*(?:\r?\n|\Z)", re.M)
    done = text
    while (head := header.search(done)) is not None:
        later = _HEADER.search(done, head.end())
        body = done[head.end() : later.start() if later else len(done)]
        last = max((one.end() for one in re.finditer(r"^[^#\s].*(?:\n|\Z)", body, re.M)), default=0)
        before = re.sub(r"(\A|\n)\r?\n\Z", r"\1", done[: head.start()])
        done = before + done[head.end() + last :]
    left = _toml(done)
    stays = _table(left, part.keys) is not None
    if stays or _without(left, part.keys) != _without(values, part.keys):
        raise InvalidSetting(f"expected [{'.'.join(part.keys)}] as a table, found it elsewhere")
    return done


def _toml(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSetting(f"expected TOML, found something else: {error}") from error


def _table(values: Any, keys: tuple[str, ...]) -> Any:
    for key in keys:
        values = values.get(key) if isinstance(values, dict) else None
    return values


def _without(values: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    """The values without those under ``keys``, and without tables that are then empty."""
    left = {key: value for key, value in values.items() if key != keys[0]}
    inner = values.get(keys[0])
    if len(keys) > 1 and isinstance(inner, dict) and (rest := _without(inner, keys[1:])):
        left[keys[0]] = rest
    return left


def _toml_table(part: TomlPart, end: str) -> str:
    """The table's text: JSON's strings and arrays of them are TOML's."""
    rows = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in part.value.items()]
    return end.join([f"[{'.'.join(part.keys)}]", *rows, ""])
