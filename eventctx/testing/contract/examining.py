"""Running the checks on a module, one after the other, each in its own folder and time limit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from eventctx.testing.contract.checks import CHECKS, Check
from eventctx.testing.contract.coordinator import core_version
from eventctx.testing.contract.subject import Subject, Target, sandbox
from eventctx.testing.contract.verdicts import Broken, Finding, NotChecked, Verdict, raised

IMPORTS: Final = "imports"

SECONDS: Final = 10.0
"""The time limit of a check, unless the caller gives another."""


HANGS: Final = 3
"""Checks that may fail by not returning; after these no more is waited for."""

_HUNG: Final = "did not return within"


async def examine(
    target: Target,
    config: Mapping[str, Any],
    folder: Path,
    *,
    seconds: float = SECONDS,
    done: int = 0,
    failed: Collection[str] = (),
    hung: int = 0,
) -> AsyncIterator[Finding]:
    """The findings of all checks, in order; the first is whether the module can be imported.

    ``folder`` is where the module may write: every check gets a directory of its own in it. A
    check may take ``seconds``. To continue after an interruption, ``done`` is the number of
    findings so far, ``failed`` names the checks that did not hold, and ``hung`` counts those that
    did not return.
    """
    broken = set(failed)
    # A module whose import hangs would hang again before every check, so it is not imported again.
    loaded = ImportError("it was tried") if IMPORTS in broken else _load(target)
    if not done:
        yield _finding(_IMPORTS, loaded if isinstance(loaded, BaseException) else None)
    if isinstance(loaded, BaseException):
        broken.add(IMPORTS)
        subject = Subject(target, None, None, config)
    else:
        subject = Subject(target, loaded, target.mount_of(loaded), config)
    for check in CHECKS[max(0, done - 1) :]:
        missing = [name for name in (IMPORTS, *check.needs) if name in broken]
        if missing:
            problem: BaseException | None = NotChecked(f"{missing[0]} does not hold")
        elif hung >= HANGS:
            problem = NotChecked(f"{hung} checks did not return")
        else:
            problem = await _problem(check, subject, folder / check.name, seconds)
        found = _finding(check, problem)
        if found.verdict == "does not hold":
            broken.add(check.name)
            hung += did_not_return(found)
        yield found
    with sandbox(folder / "amplifier-core"):
        for found in await core_findings(target, config, seconds):
            yield found


async def _no_check(subject: Subject) -> None:
    """Nothing to run: the import is tried before there is a subject."""


_IMPORTS = Check(
    IMPORTS, "required", "The module can be imported", "Entry Point Pattern", _no_check, ()
)


def did_not_return(found: Finding) -> bool:
    """Whether a check failed because the module did not return."""
    return found.verdict == "does not hold" and _HUNG in found.seen


def names_in_order() -> list[str]:
    """The names of the checks in the order of findings; those of amplifier-core come later."""
    return [IMPORTS, *(check.name for check in CHECKS)]


def blamed(name: str, seen: str) -> Finding:
    """The finding for a check that did not return, or that ended its process."""
    checks = {check.name: check for check in (_IMPORTS, *CHECKS)}
    return _finding(checks[name], Broken(seen))


def _load(target: Target) -> Any:
    try:
        return target.load()
    except (Exception, SystemExit) as error:
        return error


async def _problem(
    check: Check, subject: Subject, folder: Path, seconds: float
) -> BaseException | None:
    with sandbox(folder):
        try:
            async with asyncio.timeout(seconds) as limit:
                await check.run(subject)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return error  # the module's own
        except (Exception, SystemExit) as error:
            return Broken(f"it {_HUNG} {seconds:g} s") if limit.expired() else error
    return None


def _finding(check: Check, problem: BaseException | None) -> Finding:
    verdict: Verdict = "holds"
    seen = ""
    if isinstance(problem, NotChecked):
        verdict, seen = "not checked", str(problem)
    elif isinstance(problem, Broken):
        verdict, seen = "does not hold", str(problem)
    elif problem is not None:
        verdict, seen = "does not hold", raised(problem)
    text = " ".join(seen.split())[:400]
    return Finding(check.name, check.level, check.what, verdict, text, heading=check.heading)


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
