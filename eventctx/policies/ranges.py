"""Checks of the ranges of policies' settings; an error names the setting that is wrong."""

from __future__ import annotations

from eventctx.errors import InvalidSetting


def check_ints(settings: object, least: int, *names: str) -> None:
    """Raise InvalidSetting for a setting among ``names`` that is no int from ``least``."""
    for name in names:
        value = getattr(settings, name)
        if type(value) is not int or value < least:
            raise InvalidSetting(f"{name}: expected an int from {least}, found {value!r}")


def check_shares(settings: object, *names: str) -> None:
    """Raise InvalidSetting for a setting among ``names`` that is no number from 0 to 1."""
    for name in names:
        value = getattr(settings, name)
        if type(value) not in (int, float) or not 0 <= value <= 1:
            raise InvalidSetting(f"{name}: expected a number from 0 to 1, found {value!r}")
