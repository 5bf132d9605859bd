"""Upcasters: turn an old stored payload into the present form, one function per version step.

A stored record is never rewritten. When the payload of an event type changes, its version in the
catalogue goes up by one and a function is added here that takes the old payload (a plain dict of
decoded JSON) to the next version. Golden files of every version stay in ``tests/golden/``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from eventctx.errors import UpcastMissing

Payload = dict[str, Any]
Upcaster = Callable[[Payload], Payload]

UPCASTERS: Mapping[tuple[str, int], Upcaster] = {}
"""``(type name, from version)`` to the function that takes a payload to the next version."""


def upcast(
    name: str,
    version: int,
    target: int,
    payload: Payload,
    steps: Mapping[tuple[str, int], Upcaster] = UPCASTERS,
) -> Payload:
    """Take ``payload`` from ``version`` to ``target``. Raises UpcastMissing if it lacks a step."""
    while version < target:
        step = steps.get((name, version))
        if step is None:
            raise UpcastMissing(
                f"{name} is stored in version {version}, this release reads version {target} "
                f"and knows no step from {version} to {version + 1}: update eventctx"
            )
        payload = step(payload)
        version += 1
    return payload
