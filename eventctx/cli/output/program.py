"""The outcome of every command: exit codes, errors as one line, signals, a pipe that closes."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

import click

from eventctx.cli.output.plain import one_line, plural
from eventctx.errors import (
    CompactionRefused,
    ContextOverflow,
    DecodeError,
    EventctxError,
    ExportFailed,
    InvalidSetting,
    LogCorrupted,
    StoreError,
    StreamExists,
    StreamNotFound,
)
from eventctx.text import escape, escape_breaks, without_password

if TYPE_CHECKING:
    import asyncio

    from eventctx.queries.read_errors import ReadErrors

OK: Final = 0
FOUND: Final = 1
USAGE: Final = 2
STORE: Final = 3
BUG: Final = 4
DAMAGE: Final = 5
UNSIGNED: Final = 6
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

EXIT_CODES: Final = (
    (OK, "done, and nothing is wrong"),
    (
        FOUND,
        (
            "a problem was found: damage, a request that does not verify, a module that breaks a "
            "rule, a budget below what must stay"
        ),
    ),
    (USAGE, "bad usage or bad input: an unknown option or session, a file that cannot be read"),
    (
        STORE,
        "no usable store (missing, locked, read-only, full, too new) or collector, or no room",
    ),
    (BUG, "a bug in eventctx; the traceback is shown"),
    (DAMAGE, "`verify`, `backup`, `restore-backup` or `copy` found damage"),
    (UNSIGNED, "`verify --signed-by` found no damage, and records after the last signature"),
    (INTERRUPTED, "stopped by Ctrl-C"),
    (PIPE_CLOSED, "the reader of the output went away, as in `eventctx log S | head`"),
)
"""The meaning of each exit code; the reference is checked against this table."""

_OUTPUT: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_EPILOG: Final = (
    "Names, as they are printed and as arguments take them: message #6, record @48, request 2.3 "
    "(turn 2, iteration 3). A figure behind ~ is our estimate.\n\n"
    "Exit codes: 0 done, 1 a problem was found, 2 bad usage or input, 3 the store cannot be used."
)


class CommandFailed(Exception):
    """A command completed and found something wrong: exit with this code, print nothing more."""

    def __init__(self, code: int = FOUND) -> None:
        super().__init__(code)
        self.code = code


class _PipeClosed(Exception):
    """A BrokenPipeError under a name that click lets through; click would exit with 1 for it."""


class Program(click.Group):
    """A group of commands whose ``main`` turns every outcome into an exit code."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("epilog", _EPILOG)
        super().__init__(*args, **kwargs)

    def main(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Run, and exit with one of ``EXIT_CODES``."""
        kwargs["standalone_mode"] = False
        kwargs.setdefault("prog_name", "eventctx")
        _accept_any_text()
        try:
            code = super().main(*args, **kwargs)
            if sys.stdout is not None:  # as it is where the caller closed it
                sys.stdout.flush()
        except BaseException as error:
            code = _exit_code(error)
        sys.exit(code if isinstance(code, int) else OK)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise _PipeClosed from error


def _accept_any_text() -> None:
    """Print a character that the terminal cannot show as its code, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if callable(reconfigure):
            reconfigure(errors="backslashreplace")


def _exit_code(error: BaseException) -> int:
    """Print the error on stderr, and return its exit code."""
    import msgspec

    match error:
        case CommandFailed():
            return error.code
        case click.exceptions.Exit():
            return error.exit_code
        case BrokenPipeError() | _PipeClosed():
            _drop_output()
            return PIPE_CLOSED
        case KeyboardInterrupt() | click.Abort():
            _say("stopped")
            return INTERRUPTED
        case click.ClickException():
            shown = StringIO()
            error.show(shown)
            click.echo(escape(without_password(shown.getvalue())), nl=False, err=True)
            return USAGE
        case EventctxError():
            _say(str(error))
            return code_of(error)
        case msgspec.DecodeError():
            _say(f"stored contents are damaged ({error}); `eventctx verify` lists all damage")
            return FOUND
        case SystemExit():
            return error.code if isinstance(error.code, int) else FOUND
        case OSError() if error.errno in _OUTPUT:
            _say(f"the output cannot be written: {error.strerror}")
            _drop_output()
            return STORE
        case OSError() if error.filename is not None:
            _say(f"{os.fspath(error.filename)}: {error.strerror}")
            return USAGE
    import traceback

    click.echo(escape(without_password("".join(traceback.format_exception(error)))), err=True)
    _say("this is a bug in eventctx; please report it with the lines above")
    return BUG


def code_of(error: EventctxError) -> int:
    """The exit code of an error."""
    if isinstance(error, LogCorrupted | DecodeError | ContextOverflow | CompactionRefused):
        return FOUND
    if isinstance(error, StreamNotFound | StreamExists | InvalidSetting):
        return USAGE
    if isinstance(error, StoreError | ExportFailed):
        return STORE
    return USAGE


def complain(text: str) -> None:
    """Print one line on stderr, for an error after which the command continues."""
    _say(text)


def _say(text: str) -> None:
    click.echo(f"eventctx: {escape_breaks(without_password(text))}", err=True)


def _drop_output() -> None:
    """Point stdout at the null device, so that Python's own flush at exit cannot fail."""
    try:
        nothing = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nothing, sys.stdout.fileno())
        os.close(nothing)
    except (OSError, ValueError):
        pass


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end."""
    import asyncio

    return asyncio.run(work)


def spelling() -> str:
    """The command that calls this program again from the same shell, for suggested commands."""
    called = Path(sys.argv[0])
    if called.name == "__main__.py":
        return f"{sys.executable} -m eventctx.cli"
    found = shutil.which("eventctx")
    if found is None and called.name == "eventctx" and called.exists():
        return str(called)
    if found is not None and called.exists() and called.resolve() != Path(found).resolve():
        return str(called)
    return "eventctx"


def on_terminal() -> bool:
    """Whether a person can be asked, and sees the answer."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def is_agreed(question: str, *, yes: bool, quiet: bool = False) -> bool:
    """Whether to go on: with ``--yes``, or if the person at the terminal agrees."""
    if yes:
        return True
    if quiet or not on_terminal():
        click.echo("Nothing was changed: add --yes to do it.", err=True)
        return False
    return click.confirm(question)


def report_skipped(errors: ReadErrors) -> None:
    """Say what was passed over. Raises CommandFailed where it is damage.

    An error that is none of the library's own is raised again: it is a bug, to be reported.
    """
    for aside in errors.asides:
        complain(one_line(aside))
    for what, count in errors.later.items():
        complain(
            f"{plural(count, 'record')} passed over: {what}, written by a later release; "
            "update eventctx to read what is missing here"
        )
    for problem in errors.damaged:
        complain(f"{problem}; passed over; `eventctx verify` lists all damage")
    if errors.broken:
        raise errors.broken[0]
    if errors.damaged:
        raise CommandFailed(FOUND)


@contextmanager
def stopped_by_signals() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C or SIGTERM sets. A second Ctrl-C stops the program at once."""
    import asyncio

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    def stopped() -> None:
        stop.set()
        loop.remove_signal_handler(signal.SIGINT)

    # Where the loop takes no handlers (Windows), Ctrl-C cancels, and there is no total.
    with suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, stopped)
        loop.add_signal_handler(signal.SIGTERM, stop.set)
    try:
        yield stop
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)
            loop.remove_signal_handler(signal.SIGTERM)
