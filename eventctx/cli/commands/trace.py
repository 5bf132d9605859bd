"""``trace``: show a session's spans, or send them to a collector, to Jaeger or to a file."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from eventctx.cli.output import opening
from eventctx.cli.output.figures import figures_of, show_known
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Screen, progress, put_json, styled
from eventctx.cli.output.trace_tree import show
from eventctx.errors import InvalidSetting
from eventctx.hooks.redact import DEFAULT, Redactor, cleaner
from eventctx.log.store import StreamInfo
from eventctx.projections.trace.dialects import DIALECTS, GENAI, in_dialect
from eventctx.projections.trace.spans import Span
from eventctx.projections.trace.texts import Clean
from eventctx.queries import spans as tracing

if TYPE_CHECKING:
    from eventctx.cli.output.trace_outputs import Output
    from eventctx.reader import Reader

_FILE = click.Path(path_type=Path, dir_okay=False)


@click.command("trace", short_help="The trace of a session: a tree, a file, or sent to Jaeger.")
@click.argument("session", required=False)
@click.option("--turn", type=int, metavar="N", help="Only this turn.")
@click.option("--all", "every", is_flag=True, help="All sessions of the store.")
@click.option(
    "--otlp", metavar="URL",
    help="Send to a collector or Jaeger: http://HOST:4318, or grpc://HOST:4317.",
)  # fmt: skip
@click.option("--jaeger", type=_FILE, metavar="FILE", help="Write a file for Jaeger's upload tab.")
@click.option("--otlp-file", type=_FILE, metavar="FILE", help="Write a file of OTLP JSON lines.")
@click.option(
    "--unfinished", is_flag=True,
    help="With --otlp: also a turn that is still open. Sent again when done, it is there twice.",
)  # fmt: skip
@click.option(
    "--dialect", type=click.Choice(list(DIALECTS)), default=GENAI, metavar="NAME",
    help="Names of attributes: genai, the default, or openinference, which Phoenix reads.",
)  # fmt: skip
@click.option("--content", is_flag=True, help="With the texts of messages, redacted and cut.")
@click.option("--no-redact", is_flag=True, help="Leave keys, tokens and addresses as they are.")
@opening.reading
def trace_command(
    session: str | None, turn: int | None, every: bool, store: str | None, as_json: bool,
    content: bool, dialect: str, no_redact: bool, unfinished: bool, **targets: Any,
) -> None:  # fmt: skip
    """Show the spans of SESSION: turns, model calls, tool calls, compactions, as a tree.

    Or send them, with the times and the ids of the live run: sending again changes nothing.
    Of a fork, what is its own. With --json, one span a line.
    """
    if (session is None) == (not every):
        raise InvalidSetting("trace: expected the name of a session, or --all")
    if every and turn is not None:
        raise InvalidSetting("trace: expected at most one of --turn and --all, found both")
    if unfinished and targets["otlp"] is None:
        raise InvalidSetting("trace: --unfinished is for --otlp; all else has open turns anyway")
    if dialect != GENAI and not as_json and all(target is None for target in targets.values()):
        raise InvalidSetting("trace: --dialect is for spans that are sent, or written; see --otlp")
    redactor = None if no_redact else DEFAULT
    contents = cleaner(redactor) if content else None
    selection = _Selection(turn, contents, redactor, unfinished, dialect)
    run(_trace(session, selection, store, as_json, targets))


Sessions = Callable[[], AsyncIterator[StreamInfo]]
"""Gives the sessions that are asked for, each time it is called: they may be too many to hold."""


class _Selection(NamedTuple):
    """The spans to show, and how much of each: the texts of messages, redacted or not.

    ``unfinished``: whether a collector gets turns that are still open.
    """

    turn: int | None
    contents: Clean | None
    redactor: Redactor | None
    unfinished: bool
    dialect: str

    async def spans(
        self, reader: Reader, session: str, report: Callable[[int], None] | None = None
    ) -> AsyncIterator[Span]:
        found = tracing.spans(
            reader.store, session, turn=self.turn, contents=self.contents, progress=report
        )
        async for span in found:
            redacted = span if self.redactor is None else self.redactor.span(span)
            yield in_dialect(redacted, self.dialect)


async def _trace(
    session: str | None,
    selection: _Selection,
    store: str | None,
    as_json: bool,
    targets: dict[str, Any],
) -> None:
    async with opening.open_reader(store) as reader:
        infos: Sessions = reader.each_session
        if session is not None:
            infos = partial(_only, await opening.find_session(reader.store, session))
        if any(target is not None for target in targets.values()):
            await _export(reader, infos, selection, targets)
        elif as_json:
            async for info in infos():
                async for span in selection.spans(reader, info.stream):
                    put_json(span)
        else:
            await _print(reader, infos, selection)


async def _only(info: StreamInfo) -> AsyncIterator[StreamInfo]:
    yield info


async def _count(infos: Sessions) -> tuple[int, int]:
    """The number of sessions, and of their own records."""
    sessions = records = 0
    async for info in infos():
        sessions += 1
        records += _own_records(info)
    return sessions, records


async def _print(reader: Reader, infos: Sessions, selection: _Selection) -> None:
    screen = Screen()
    several = (await _count(infos))[0] > 1
    place = 0
    async for info in infos():
        if several:
            if place:
                screen.blank()
            screen.line((info.stream, "bold"))
        place += 1
        # A tool call's request is one of the texts: it is redacted and cut as they are.
        texts = selection._replace(contents=cleaner(selection.redactor))
        found = [span async for span in texts.spans(reader, info.stream)]
        if found:
            figures = await figures_of(reader.store, info.stream)
            show(screen, found, figures)
            show_known(screen, figures)
        else:
            screen.line(f"Session {info.stream} has no spans: no turn, no call, no compaction.")


async def _export(
    reader: Reader, infos: Sessions, selection: _Selection, targets: dict[str, Any]
) -> None:
    # Imported here, because a tree on the terminal needs no OpenTelemetry.
    from eventctx.cli.output.trace_outputs import BATCH, BATCH_TEXT, outputs, text_of

    summaries: list[str] = []
    with outputs(**targets, unfinished=selection.unfinished) as found:
        sessions, total = await _count(infos)
        with progress("Tracing", total) as bar:
            batch: list[Span] = []
            before = text = 0
            async for info in infos():
                if sessions > 1:
                    bar.name(f"Tracing {info.stream}")
                report = _behind(before, bar.at)
                async for span in selection.spans(reader, info.stream, report):
                    batch.append(span)
                    text += text_of(span)
                    if len(batch) == BATCH or text >= BATCH_TEXT:
                        await _put(found, batch)
                        batch, text = [], 0
                before += _own_records(info)
            await _put(found, batch)
        summaries.extend([await output.finish() for output in found])
    for line in summaries:
        click.echo(styled(line).plain, err=True)


def _own_records(info: StreamInfo) -> int:
    return info.head - (-1 if info.forked_at is None else info.forked_at)


def _behind(before: int, at: Callable[[int], None]) -> Callable[[int], None]:
    """``at`` for a session whose records come after ``before`` records of other sessions."""
    return lambda done: at(before + done)


async def _put(found: Sequence[Output], batch: Sequence[Span]) -> None:
    if batch:
        for output in found:
            await output.put(batch)
