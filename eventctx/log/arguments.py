"""Checks of what a caller passes in: texts that UTF-8 can hold, numbers that a record can hold.

Every check raises InvalidSetting with the argument's name, what was expected, and what was found.
"""

from __future__ import annotations

from typing import Final

from eventctx.errors import InvalidSetting
from eventctx.text import clip

LAST: Final = 2**63 - 1
"""The largest position or time that a record can have."""

_MAX_SHOWN: Final = 80


def shown(value: object, characters: int = _MAX_SHOWN) -> str:
    """A value in an error's text: its ``repr``, short, whatever the value is."""
    try:
        text = repr(value)
    except Exception:
        # It is a user's object, and even an int of thousands of digits raises here.
        return f"a {type(value).__name__}"
    return clip(text, characters + 1)


def is_text(value: object) -> bool:
    """Whether a value is a text that UTF-8 can hold: one without lone surrogates."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_text(name: str, value: object) -> None:
    """Check an argument that is a text."""
    if not is_text(value):
        raise InvalidSetting(f"{name}: expected a text that UTF-8 can hold, found {shown(value)}")


def check_optional_text(name: str, value: object) -> None:
    """Check an argument that is a text or None."""
    if value is not None:
        check_text(name, value)


def check_callable(name: str, value: object) -> None:
    """Check an argument that will be called."""
    if not callable(value):
        raise InvalidSetting(f"{name}: expected a function, found {shown(value)}")


def check_int(name: str, value: object) -> None:
    """Check an argument that is an int of either sign."""
    if type(value) is not int:
        raise InvalidSetting(f"{name}: expected an int, found {shown(value)}")


def check_number(name: str, value: object, most: int = LAST) -> None:
    """Check an argument that counts or names something: an int from 0 to ``most``."""
    if type(value) is not int or not 0 <= value <= most:
        raise InvalidSetting(f"{name}: expected an int from 0 to {most}, found {shown(value)}")
