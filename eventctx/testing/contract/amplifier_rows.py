"""The results of Amplifier's own validator for the module, as findings beside ours."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

from eventctx.testing.contract.coordinator import core_version
from eventctx.testing.contract.target import Target
from eventctx.testing.contract.verdicts import Finding

_RULE: Final = "Amplifier's own validator"


async def core_findings(target: Target, config: Mapping[str, Any], seconds: float) -> list[Finding]:
    """The findings of ``amplifier_core.validation.ContextValidator``.

    A single finding "not checked" when amplifier-core is not installed or mount has another name.
    """
    if core_version() is None:
        return [_not_checked("amplifier-core is not installed: pip install 'eventctx[amplifier]'")]
    if target.attribute != "mount":
        return [_not_checked(f"it looks for mount(), and this one is {target.attribute}()")]
    validator = import_module("amplifier_core.validation").ContextValidator()
    place = target.module if target.path is None else target.path
    try:
        async with asyncio.timeout(seconds):
            result = await validator.validate(place, config=dict(config))
    except TimeoutError:
        return [core_blamed(f"it did not return within {seconds:g} s")]
    return [_row(one.name, one.severity, one.passed, one.message) for one in result.checks]


def _row(name: str, severity: str, passed: bool, message: str) -> Finding:
    return Finding(
        name,
        "recommended" if severity == "warning" else "required",
        f"Amplifier's validator: {name}",
        "holds" if passed else "does not hold",
        "" if passed else message,
        "amplifier-core",
    )


def core_blamed(seen: str) -> Finding:
    """The finding for a validator that did not complete."""
    return Finding("validator", "required", _RULE, "does not hold", seen, "amplifier-core")


def _not_checked(why: str) -> Finding:
    return Finding("validator", "required", _RULE, "not checked", why, "amplifier-core")
