"""Running the demonstration's agent as a process, and killing it while one of its tools runs."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from typing import IO, Final

import msgspec

from eventctx.cli.demo.agent import BUDGET
from eventctx.errors import TurnError
from eventctx.log.codec import decode_event
from eventctx.log.events import ToolPre
from eventctx.log.record import Record

SIGNAL: Final = "SIGKILL" if hasattr(signal, "SIGKILL") else "TerminateProcess"
"""The name of what kills the process here; systems without signals end it as abruptly."""

_ANSWERED: Final = 2
"""Calls beside ``ask_person``, whose results are in the log before the process is killed."""


def run_and_kill(url: str, session: str, observe: Callable[[Record], None]) -> None:
    """Run the agent until it has written its question and its other calls have results; kill it.

    ``observe`` is called with each record that the process's hooks received. Raises TurnError when
    the process ends by itself.
    """
    command = [sys.executable, "-m", "eventctx.cli.demo.agent", url, session, str(BUDGET)]
    with subprocess.Popen(  # noqa: S603 - this interpreter, and our own module
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        try:
            reached = process.stdout is not None and _reached(process.stdout, observe)
        finally:
            process.kill()
    if not reached:
        raise TurnError(
            f"the agent's process ended by itself with exit code {process.returncode}, before it "
            "asked its question: expected one to kill; what it complained of stands above"
        )


def _reached(lines: IO[bytes], observe: Callable[[Record], None]) -> bool:
    """Read until the process has reached the point to kill it; False when it ends before."""
    read = msgspec.json.Decoder(Record | str)
    questioned = begun = False
    added = 0
    for line in lines:
        received = read.decode(line)
        if isinstance(received, str):
            questioned = True
        else:
            observe(received)
            begun = begun or _asks(received)
            added = 0 if received.type == "provider:request" else added + _adds(received)
        # One message is the model's answer, the others are the results.
        if questioned and begun and added == 1 + _ANSWERED:
            return True
    return False


def _asks(record: Record) -> bool:
    event = decode_event(record)
    return isinstance(event, ToolPre) and event.name == "ask_person"


def _adds(record: Record) -> bool:
    return record.type == "context:message_added"
