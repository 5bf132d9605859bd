"""``sessions`` and ``search``: the sessions of a store, and messages in any of them."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final, get_args

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import minute_or, number, one_line, plural
from eventctx.cli.output.program import report_skipped, run
from eventctx.cli.output.screen import JsonRows, Screen, progress, put_document
from eventctx.cli.output.session_table import show_sessions
from eventctx.log.naming import message_name
from eventctx.queries.read_errors import ReadErrors
from eventctx.queries.session_list import (
    ListedSession,
    Order,
    Summed,
    list_sessions,
    sort_sessions,
    sum_sessions,
)

if TYPE_CHECKING:
    from eventctx.reader import Reader
    from eventctx.search.found import Found, MessageFilter, Role


_ORDERS: Final[tuple[Order, ...]] = get_args(Order)


@click.command("sessions", short_help="The sessions of the store, the last used first.")
@click.option("--limit", type=click.IntRange(1), metavar="N", help="At most so many.")
@click.option(
    "--sort",
    type=click.Choice(_ORDERS),
    help="By last activity (the default), by creation (the first one first), or the largest first.",
)
@click.option("--project", metavar="TEXT", help="Only those whose project folder holds this text.")
@click.option(
    "--grep", metavar="TEXT", help="Only those with this text in title, project, model or name."
)
@click.option(
    "--after",
    metavar="SESSION",
    help="Only those that were made after this one, in that order: the next page.",
)
@opening.reading
def sessions_command(
    limit: int | None,
    sort: Order | None,
    project: str | None,
    grep: str | None,
    after: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """List the sessions of the store, the last used first.

    A title is that of the imported file, else the first words of a person. Model and tokens are
    those of the last request; ~ marks an estimate. ● marks a session that is in use: its last
    record is less than five minutes old. Every command takes the first letters of a session's name.
    """
    if after is not None and sort not in (None, "made"):
        raise click.UsageError("--after goes on in the order of creation: use it with --sort made.")
    chosen: Order = "made" if after is not None else sort or "last"
    run(_sessions(after, limit, chosen, project, grep, store, as_json))


async def _sessions(
    after: str | None,
    limit: int | None,
    order: Order,
    project: str | None,
    grep: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    errors = ReadErrors()
    async with opening.open_reader(store, lists=True) as reader:
        with progress("Reading sessions") as bar:
            every = await sum_sessions(reader.store, errors, bar.at)
        chosen = sort_sessions(every, order)
        if after is not None:
            chosen = await _behind(reader, chosen, after)
        rows: Any = list_sessions(reader.store, chosen, project=project, grep=grep, limit=limit)
        async with aclosing(rows):
            if as_json:
                document = JsonRows()
                async for row in rows:
                    document.put(row)
                document.end()
            else:
                shown: list[ListedSession] = [row async for row in rows]
                show_sessions(Screen(), shown, every)
    report_skipped(errors)


async def _behind(reader: Reader, sessions: list[Summed], after: str) -> list[Summed]:
    name = (await opening.find_session(reader.store, after)).stream
    names = [one.info.stream for one in sessions]
    return sessions[names.index(name) + 1 :]


@click.command("search", short_help="Find what was said, in view or not.")
@click.argument("query", nargs=-1)
@click.option("--session", metavar="SESSION", help="Only in this session, forks' pasts included.")
@click.option(
    "--role",
    type=click.Choice(["system", "person", "host", "model", "result"]),
    help="Only of this speaker; host: a program's words in the user's role, result: a tool's.",
)
@click.option("--tool", metavar="NAME", help="Only calls of this tool, and its results.")
@click.option("--errors", is_flag=True, help="Only results that a tool marked as an error.")
@click.option(
    "--since", metavar="TIME", help="Only from then on: a day, or a time such as 2026-11-30T14:00."
)
@click.option("--until", metavar="TIME", help="Only up to then; a day counts whole.")
@click.option(
    "--limit",
    type=click.IntRange(1, 1_000),
    default=10,
    show_default=True,
    metavar="N",
    help="At most so many messages.",
)
@opening.reading
def search_command(
    query: tuple[str, ...],
    session: str | None,
    role: Role | None,
    tool: str | None,
    errors: bool,
    since: str | None,
    until: str | None,
    limit: int,
    store: str | None,
    as_json: bool,
) -> None:
    """Find the messages that match QUERY best.

    Words, "quoted phrases" and prefix* are understood, everything else is literal. Messages with
    all the words are found; if there are none, messages with any of them. Without a QUERY, the
    options alone choose, and the latest messages come first. Times are in UTC. The number after #
    is the message's: `eventctx why SESSION NUMBER` says whether a model is still shown it.
    """
    from eventctx.search.found import MessageFilter, found_answers, read_moment

    only = MessageFilter(
        role,
        tool,
        errors,
        None if since is None else read_moment(since),
        None if until is None else read_moment(until, is_end=True),
    )
    if not query and not only.asks:
        raise click.UsageError("Name what to look for: words, or an option such as --errors.")
    found, total = run(_found(" ".join(query), session, only, limit, store, counts=not as_json))
    if as_json:
        put_document(found_answers(found))
    else:
        _show(Screen(), found, total)


async def _found(
    query: str,
    session: str | None,
    only: MessageFilter,
    limit: int,
    store: str | None,
    *,
    counts: bool,
) -> tuple[Found, int]:
    """The messages that match best, and how many match; JSON has no place for that number."""
    from eventctx.search.found import count_messages, find_messages

    async with opening.answering(store, lists=True, text="Searching") as reader:
        name = None
        if session is not None:
            name = (await opening.find_session(reader.store, session)).stream
        asked = (reader.store, reader.recaller(), query, name)
        found = await find_messages(*asked, limit, only)
        shown = len(found[0])
        if not counts or shown < limit:
            return found, shown
        return found, await count_messages(*asked, only)


def _show(screen: Screen, answer: Found, total: int) -> None:
    found, undated = answer
    for one in found:
        screen.line(
            (f"{one.session} {message_name(one.number)} ", "bold"),
            (f"{one.role}, {minute_or(one.time, undated.get(one.session))}", "dim"),
        )
        screen.line(one_line(one.snippet), indent=2)
    if total > len(found):
        words = f"The best {number(len(found))} of {plural(total, 'message')}; --limit shows more."
        screen.line((words, "bold"))
    else:
        screen.line((plural(total, "message"), "bold") if found else "Nothing matches.")
