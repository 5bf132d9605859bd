"""Examining a module in a process of its own, which may hang or die without harm."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.testing.contract.examining import (
    SECONDS,
    blamed,
    core_blamed,
    did_not_return,
    names_in_order,
)
from eventctx.testing.contract.verdicts import Finding

_START: Final = 60.0
"""Seconds within which a process must start."""

_GRACE: Final = 5.0
"""Seconds beyond a check's own time limit after which its process is killed."""

_LINE: Final = 2**20


async def validate(
    given: str, config: Mapping[str, Any] | None = None, *, seconds: float = SECONDS
) -> list[Finding]:
    """Check a context module against the context contract.

    ``given`` is a directory, a .py file, a module, ``pkg.mod:mount`` or the name of an entry point;
    ``config`` are the settings to mount it with. A check may take ``seconds``. The module runs in
    a child process whose working directory and home are temporary; after a check that hangs or
    kills its process, the next checks run in a new one. Raises InvalidSetting if there is no such
    module.
    """
    findings: list[Finding] = []
    names = names_in_order()
    with tempfile.TemporaryDirectory(prefix="eventctx-validate-") as folder:
        order: dict[str, Any] = {
            "given": given,
            "cwd": str(Path.cwd()),
            "folder": folder,
            "config": dict(config or {}),
            "seconds": seconds,
        }
        while True:
            order["done"] = len(findings)
            order["failed"] = [one.check for one in findings if one.verdict == "does not hold"]
            order["hung"] = sum(map(did_not_return, findings))
            problem = await _run(order, Path(folder), findings, seconds)
            if problem is None:
                return findings
            if len(findings) >= len(names):
                return [*findings, core_blamed(problem)]
            findings.append(blamed(names[len(findings)], problem))


async def _run(
    order: Mapping[str, Any], folder: Path, findings: list[Finding], seconds: float
) -> str | None:
    """Collect the findings of one process; returns its problem, None if it completed."""
    errors = folder / f"stderr-{order['done']}"
    with errors.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "eventctx.testing.contract",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(_path())},
            cwd=folder,
            limit=_LINE,
            start_new_session=True,
        )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(msgspec.json.encode(order))
        process.stdin.close()
        patience = _START
        try:
            while line := await asyncio.wait_for(process.stdout.readline(), patience):
                if _take(line, findings):
                    return None
                patience = seconds + _GRACE
            code = await asyncio.wait_for(process.wait(), patience)
        except TimeoutError:
            return f"it blocked its thread, and did not return within {patience:g} s"
    finally:
        # The process group may be gone; macOS raises PermissionError for that.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            _kill(process)
        await process.communicate()  # wait() never returns while output is unread
    last = errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return f"its process ended with code {code}{f': {last[0]}' if last else ''}"


def _kill(process: asyncio.subprocess.Process) -> None:
    """End a process and those that the module forked, which would hold the pipe open."""
    if sys.platform == "win32":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)


def _path() -> list[str]:
    """This interpreter's import path, with the working directory at its end."""
    return [*[str(Path(one).absolute()) for one in sys.path if one], str(Path.cwd())]


def _take(line: bytes, findings: list[Finding]) -> bool:
    """Keep a finding; returns whether it was the last. Other lines are the module's: ignored.

    Raises InvalidSetting where the process found no such module.
    """
    try:
        found = msgspec.json.decode(line, type=dict[str, Any])
        kind = found.get("kind")
        if kind is None:
            findings.append(msgspec.convert(found, Finding))
    except msgspec.DecodeError:
        return False
    if kind == "unusable":
        raise InvalidSetting(found["problem"])
    return bool(kind == "ended")
