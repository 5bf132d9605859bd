"""``restore``: bring messages back into the view of a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from eventctx.cli.output import opening
from eventctx.cli.output.numbers import flat, message_numbers
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Screen, put_document
from eventctx.errors import InvalidSetting
from eventctx.log.naming import message_name

if TYPE_CHECKING:
    from eventctx.engine import Engine


@click.command("restore", short_help="Bring messages back into view.")
@click.argument("session")
@click.argument(
    "messages",
    nargs=-1,
    required=True,
    type=message_numbers,
    callback=flat,
    metavar="MESSAGE...",
)
@click.option("--pin", is_flag=True, help="Keep them there: no compaction takes them again.")
@opening.on_fork
@opening.reading
def restore_command(
    session: str,
    messages: tuple[int, ...],
    pin: bool,
    fork: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Bring MESSAGEs of SESSION back into view, whole and with their tool rounds.

    Writes to the store. A MESSAGE is a message's number, as `transcript` shows it behind #, not a
    record's position (docs/reference/numbers-and-positions.md). The next compaction may take them
    out again unless they are pinned. An imported session changes by import alone: use --fork.
    """
    name, back = run(_restore(session, messages, pin, fork, store))
    already = sorted({*messages}.difference(back))
    if as_json:
        put_document(
            {
                "session": name,
                "asked_for": list(messages),
                "restored": list(back),
                "in_view_already": already,
                "pinned": sorted({*messages}) if pin else [],
            }
        )
        return
    screen = Screen()
    if fork is not None:
        screen.line("forked ", (session, "bold"), " as it is now as ", (name, "bold"))
    _show(screen, messages, back, already, pin)


async def _restore(
    session: str, messages: tuple[int, ...], pin: bool, fork: str | None, store: str | None
) -> tuple[str, tuple[int, ...]]:
    async with opening.existing(store) as engine:
        info = await opening.find_session(engine.store, session)
        if fork is not None:
            await _check_numbers(engine, info.stream, messages)  # a fork that fails would stay
        name = await opening.written(engine, info, fork)
        context = await opening.for_a_change(engine, name)
        back = await context.restore(*messages)
        if pin:
            await context.pin(*dict.fromkeys(messages))
        return name, back


async def _check_numbers(engine: Engine, session: str, messages: tuple[int, ...]) -> None:
    known = {message.number for message in await engine.transcript(session)}
    unknown = [number for number in messages if number not in known]
    if unknown:
        raise InvalidSetting(
            f"restore: expected message numbers of the transcript, found {unknown}; "
            f"`eventctx transcript {session}` lists them"
        )


def _show(
    screen: Screen, messages: tuple[int, ...], back: tuple[int, ...], already: list[int], pin: bool
) -> None:
    if back:
        along = len(set(back).difference(messages))
        rounds = f" ({along:,} of them because they belong to the same tool rounds)"
        rounds = rounds if along else ""
        screen.line(("back in view, whole: ", "bold green"), f"{_listed(back)}{rounds}")
    if already:
        screen.line(f"in view already: {_listed(already)}")
    if pin:
        kept = _listed(sorted({*messages}))
        screen.line(("pinned: ", "bold"), f"{kept}; no compaction takes them out from here on")
    elif back:
        screen.line("The next compaction may take them out again; --pin keeps them.")


def _listed(numbers: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(message_name, numbers))
