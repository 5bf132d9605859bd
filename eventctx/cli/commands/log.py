"""``log``: the records of a session, one a line."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, cast

import click

from eventctx.cli.output import opening
from eventctx.cli.output.messages import snippet
from eventctx.cli.output.opening import position, session_or_last
from eventctx.cli.output.plain import clock, day, number, one_line, plural
from eventctx.cli.output.program import report_skipped, run
from eventctx.cli.output.records import (
    WITH_MESSAGE,
    contents_in_text,
    details,
    more_rows,
    type_style,
)
from eventctx.cli.output.screen import Screen, put_json, styled
from eventctx.errors import EventctxError, InvalidSetting
from eventctx.hooks.registry import Hooks
from eventctx.log.events import CATALOGUE, EventPattern
from eventctx.log.naming import iso, position_name
from eventctx.log.record import Record
from eventctx.messages.encoding import decode_body
from eventctx.projections import figures, numbering
from eventctx.projections.figures import Figures
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.records import record_answer
from eventctx.text import escape

if TYPE_CHECKING:
    from eventctx.reader import Reader

_SNIPPET = 240
_HEAD = 53
_LINES = 2
_BODY_LINES = 12
_LINE_CHARACTERS = 400


@click.command("log", short_help="The records of a session, one a line.")
@click.argument("session", required=False)
@click.option("--from", "start", type=position, metavar="POSITION", help="First position to show.")
@click.option("--to", "stop", type=position, metavar="POSITION", help="Last position to show.")
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="NAME",
    help="Only records of this type; `context:*` for a family. May be given several times.",
)
@click.option(
    "--bodies",
    is_flag=True,
    help="The contents of each record too, whole with --json, else the beginning; kept parts of an "
    "imported file as their text.",
)
@click.option("--follow", "-f", is_flag=True, help="Go on showing records as they are written.")
@opening.reading
def log_command(session: str | None, store: str | None, as_json: bool, **options: Any) -> None:
    """Show the records of SESSION: position, time, turn and iteration, type, what it says.

    Of a message, its beginning; `transcript` shows all. With --json, one JSON object a line.
    Without SESSION: the last one used.
    """
    _check_types(options["types"])
    try:
        run(_log(session, store, as_json, **options))
    except KeyboardInterrupt:
        if not options["follow"]:
            raise


def _check_types(types: tuple[str, ...]) -> None:
    """Raise UnknownEventName for a name that no event has.

    A pattern is never refused, so that it can match types of a later release in the log.
    """
    for name in types:
        if name not in CATALOGUE and not any(sign in name for sign in "*?["):
            # The registry of hooks checks the same names, and its error names similar ones.
            Hooks().on(cast(EventPattern, name), lambda record: None)


async def _log(
    session: str | None,
    store: str | None,
    as_json: bool,
    *,
    start: int | None,
    stop: int | None,
    types: tuple[str, ...],
    bodies: bool,
    follow: bool,
) -> None:
    start = start or 0
    if start < 0 or (stop is not None and stop < start):
        raise InvalidSetting(f"positions: expected 0 <= from <= to, found {start} to {stop}")
    async with opening.open_reader(store, lists=session is None) as reader:
        info = await session_or_last(reader, session)
        if start > info.head and not follow:
            raise InvalidSetting(
                f"session {info.stream!r} has positions @0 to {position_name(info.head)}, "
                f"found --from {position_name(start)}"
            )
        time: numbering.Numbering = numbering.initial()
        errors = ReadErrors()
        # While records are still being written, sizes are what each record says of itself.
        known = None if follow or as_json else await _figures(reader, info.stream)
        screen = Screen(as_json)
        printer = _Printer(screen)
        async for record in _records(reader, info.stream, stop, follow):
            time = errors.fold(numbering.evolve, time, record)
            if stop is not None and record.position > stop:
                break
            if record.position < start:
                continue
            if types and not any(fnmatchcase(record.type, pattern) for pattern in types):
                continue
            if as_json:
                turn = numbering.turn_number(time, record.turn_id)
                put_json(record_answer(record, turn, contents=bodies))
            else:
                printer.put(record, numbering.turn_number(time, record.turn_id), known)
                if bodies:
                    printer.contents(record)
    report_skipped(errors)


async def _figures(reader: Reader, session: str) -> Figures:
    """The session's figures, as far as its records can be read; the listing says what cannot."""
    state, errors = figures.initial(), ReadErrors()
    with suppress(EventctxError):
        async for record in reader.records(session):
            state = errors.fold(figures.evolve, state, record)
    return figures.read(state)


async def _records(
    reader: Reader, session: str, stop: int | None, follow: bool
) -> AsyncIterator[Record]:
    if follow:
        async for record in reader.store.subscribe(stream=session, bodies=True):
            yield record
    else:
        # From the start of the log, because turns are numbered while records are read.
        async for record in reader.records(session, 0, stop, bodies=True):
            yield record


class _Printer:
    """Prints records, and on a terminal a heading when the day changes."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._day = ""
        if not screen.live and not screen.json:
            screen.whole("position  time                            turn    type  details")

    def put(self, record: Record, turn: int | None, known: Figures | None) -> None:
        text = details(record, known)
        if record.type in WITH_MESSAGE and record.bodies:
            text = _message(record)
        where = "" if turn is None else f"{turn}"
        if record.iteration is not None:
            where = f"{where}.{record.iteration}"
        screen = self._screen
        if not screen.live:
            at = position_name(record.position)
            undated = known is not None and record.time == known.file.undated
            when = "not dated" if undated else iso(record.time)
            line = f"{at:>8}  {when:<30}  {where:<6}  {record.type}  {text}"
            screen.whole(line.rstrip())
            return
        if day(record.time) != self._day:
            self._day = day(record.time)
            screen.line((f"{self._day} (UTC)", "bold underline"))
        head = styled(
            (f"{position_name(record.position):>7} ", "bold"),
            (f"{clock(record.time)} ", "dim"),
            (f"{where:<6} ", "green"),
            (record.type.ljust(24), type_style(record.type)),
        )
        if len(text) <= screen.width - _HEAD:
            screen.console.print(head + " " + styled(text), soft_wrap=True)
            return
        head.rstrip()
        screen.console.print(head, soft_wrap=True)
        screen.line(one_line(text, _LINES * (screen.width - 8)), indent=7)

    def contents(self, record: Record) -> None:
        """Show the beginning of each body, a line of it on a line."""
        for body in record.bodies:
            text = contents_in_text(record, body)
            lines = text.split("\n", _BODY_LINES)
            for line in lines[:_BODY_LINES]:
                cut = len(line) - _LINE_CHARACTERS
                more = f" … {number(cut)} characters more" if cut > 0 else ""
                self._screen.whole("          " + escape(line[:_LINE_CHARACTERS]) + more)
            if len(lines) > _BODY_LINES:
                left = lines[-1].count("\n") + 1
                self._screen.whole(f"          … {plural(left, 'line')} more; --json has all")


def _message(record: Record) -> str:
    if not record.bodies or record.bodies[0].data is None:
        return "[erased]"
    message = decode_body(record.bodies[0].data)
    role = message.get("role") or message.get("type") if isinstance(message, dict) else "?"
    told = f"{role}: {snippet(message, _SNIPPET)}" if isinstance(message, dict) else str(role)
    return told + more_rows(record)
