"""Answers as JSON: stable keys, UTF-8, the same bytes wherever they go.

An answer is a struct whose fields are the keys of its JSON, in their order. Where a question has
findings with other types (times in nanoseconds, references), its answer is filled from them.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import Any, Final, TypeVar

import msgspec

A = TypeVar("A", bound=msgspec.Struct)


def fill(answer: type[A], found: object, **others: Any) -> A:
    """An ``answer`` with ``others``, and all its other fields as they are in ``found``."""
    names = [name for name in answer.__struct_fields__ if name not in others]
    return answer(**{name: getattr(found, name) for name in names}, **others)


def encode(value: Any) -> bytes:
    """One JSON document, on one line without an end."""
    return _json.encode(value)


def indented(value: Any) -> bytes:
    """One JSON document, laid out for a reader."""
    return msgspec.json.format(_json.encode(value), indent=2)


def builtins_of(value: Any) -> Any:
    """The document as dicts, lists and scalars: what a reader of the JSON gets."""
    return msgspec.json.decode(_json.encode(value))


def _plain(value: object) -> str:
    """A path as its text; msgspec knows all else that an answer holds."""
    if isinstance(value, PurePath):
        # A file's name may be no UTF-8, and JSON is.
        return str(value).encode("utf-8", "backslashreplace").decode()
    raise NotImplementedError(f"no JSON for {type(value).__name__}")


_json: Final = msgspec.json.Encoder(enc_hook=_plain)
