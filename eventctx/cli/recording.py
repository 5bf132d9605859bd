"""The run of a recorded program: the relay, its tapes, and the sessions that are made of them."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path, PurePath

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import plural
from eventctx.cli.output.program import complain, spelling, stopped_by_signals
from eventctx.errors import EventctxError, InvalidSetting
from eventctx.importers.load import import_file
from eventctx.log.private_files import make_folder
from eventctx.stores.location import ENVIRONMENT, default_tapes, in_users_folder
from eventctx.stores.receipt_book import ReceiptBook


def folder_of(tapes: str | None) -> Path:
    """Where the tapes are written: the folder that was named, or the user's."""
    if tapes is None:
        return default_tapes()
    return Path(in_users_folder(tapes, "tapes"))


async def record(
    command: Sequence[str], name: str, port: int, folder: Path, store: str | None
) -> int:
    """Run a command, or serve without one; return its exit code. Raises InvalidSetting."""
    try:
        from eventctx.proxy.program import Upstreams, addresses
        from eventctx.proxy.relay import Relay
        from eventctx.proxy.tape_process import TapeProcess
    except ModuleNotFoundError as error:
        if error.name != "h11":
            raise
        raise InvalidSetting(
            "record: expected the package h11; install it with: pip install 'eventctx[record]'"
        ) from error

    upstreams = Upstreams.of(os.environ)
    relay = Relay(upstreams.choose(), lambda call: tapes.put(call), os.environ)
    make_folder(folder)
    tapes = TapeProcess(folder, name)
    gc.freeze()  # what lives until the end is not looked through while tokens pass
    try:
        await relay.start(port)
    except OSError as error:
        tapes.close()
        raise InvalidSetting(
            f"record: expected a free port of this machine, found {port} ({error.strerror})"
        ) from error
    url = relay.url
    code = 0
    try:
        async with _followed(folder, store):
            if command:
                code = await _run(command, url)
            else:
                for variable, value in addresses(url).items():
                    click.echo(f"export {variable}={value}")
                with stopped_by_signals() as stop:
                    await stop.wait()
    finally:
        await relay.close()
        written = await asyncio.to_thread(tapes.close)
    if written.problem is not None:
        complain(f"{plural(written.lost, 'call')} not recorded: {written.problem}")
    if relay.unread:
        what = f"{plural(relay.unread, 'connection')} with calls that are in no session"
        complain(f"{what}: a WebSocket, or HTTP in another form, was passed on and not read")
    await _imported([Path(one) for one in written.paths], store)
    if not written.calls and not written.lost and command:
        complain(
            f"{PurePath(command[0]).name} asked no model here: a setting of its own may name the "
            "address of its model (`ANTHROPIC_BASE_URL` in Claude Code's settings.json)"
        )
    return code


async def _run(command: Sequence[str], relay: str) -> int:
    """Run a program at the terminal, and return its exit code."""
    from eventctx.proxy.program import command_of, environment_of

    arguments = command_of(command, relay)
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments, env=environment_of(relay, os.environ)
        )
    except OSError as error:
        raise click.UsageError(f"{command[0]}: {error.strerror or error}.") from error
    loop = asyncio.get_running_loop()
    # Ctrl-C is the program's: it gets the signal from the terminal as we do.
    for number, pass_on in ((signal.SIGINT, False), (signal.SIGTERM, True)):
        with suppress(NotImplementedError):
            loop.add_signal_handler(number, process.send_signal if pass_on else _nothing, number)
    code = await process.wait()
    return 128 - code if code < 0 else code


def _nothing(number: int) -> None:
    """Leave a signal to the program."""


@asynccontextmanager
async def _followed(folder: Path, store: str | None) -> AsyncIterator[None]:
    """Import the tapes while they are written, in a process of its own.

    Reading a request takes longer than a token may wait. What goes wrong there is told at the end,
    when the tapes are imported here.
    """
    # A store's address may hold a password, which everybody sees in a command line.
    environment = {**os.environ, ENVIRONMENT: opening.location(store)}
    nothing = asyncio.subprocess.DEVNULL
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "eventctx.cli", "watch", str(folder)),
            env=environment,
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,  # Ctrl-C is not for it
        )
    except OSError:
        yield
        return
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def _imported(paths: Sequence[Path], store: str | None) -> None:
    """Import what is new in the tapes of this run, and say which sessions they are."""
    if not paths:
        return
    summaries = []
    try:
        async with opening.open_or_create(store) as engine:
            book = None if engine.receipts_path is None else ReceiptBook(engine.receipts_path)
            for path in paths:
                for one in await import_file(engine.store, path, noted=engine.note_receipt):
                    summaries.append(one)
                    if book is not None and one.session is not None:
                        book.copied_to(path, one.session, "tape")
    except (EventctxError, OSError, click.ClickException) as error:
        complain(f"{error}; the tapes are kept: {_import_command(paths[0].parent, store)}")
        return
    option = opening.as_option(store)
    for one in summaries:
        if one.session is not None and one.calls:
            told = (
                f"recorded {plural(one.calls, 'call')}: {spelling()}{option} inspect {one.session}"
            )
            sys.stderr.write(told + "\n")


def _import_command(folder: Path, store: str | None) -> str:
    return f"{spelling()}{opening.as_option(store)} import {folder}"
