"""A policy's settings as a compaction records them: enough to know it by, never a content."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from eventctx.log.turn_recorder import fit_for_log
from eventctx.policies.policy import Policy

MAX_SETTING_CHARACTERS: Final = 200

Setting = int | float | bool | str | None


def recorded_settings(policy: Policy) -> dict[str, Setting]:
    """The settings of a policy by name; none for a policy that is no msgspec Struct.

    Names and numbers stand as they are; of anything that could hold a content, only its size.
    """
    if not isinstance(policy, msgspec.Struct):
        return {}
    return {
        name: _setting(value)
        for name, value in msgspec.structs.asdict(policy).items()
        if name not in ("name", "version")
    }


def _setting(value: object) -> Setting:
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return fit_for_log(value, MAX_SETTING_CHARACTERS)
    if callable(value):
        return f"{getattr(value, '__module__', '?')}:{getattr(value, '__qualname__', '?')}"
    if isinstance(value, Sequence):
        names = [getattr(one, "name", None) for one in value]
        if names and all(isinstance(name, str) for name in names):
            return ",".join([str(name) for name in names])
        return f"{len(value)} items"
    return type(value).__name__
