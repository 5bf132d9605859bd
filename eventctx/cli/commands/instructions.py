"""``instructions``: what a person demanded, and whether requests still told the model of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from eventctx.cli.output import opening
from eventctx.cli.output.demands import answer, show_demands
from eventctx.cli.output.known import show_known
from eventctx.cli.output.numbers import demand, message_number, one_request, position, request
from eventctx.cli.output.program import run, spelling
from eventctx.cli.output.screen import Screen, put_document
from eventctx.cli.session_lists.default import session_or_last
from eventctx.errors import AlreadyTakenBack, InvalidSetting, NoSuchDemand
from eventctx.log.naming import RequestName, demand_name, message_name, position_name
from eventctx.queries.key_frames import figures_of

if TYPE_CHECKING:
    from eventctx.engine import Engine
    from eventctx.projections.figures import Figures
    from eventctx.queries.instructions import Instruction, Instructions


@click.command("instructions", short_help="What a person demanded, and what is still told.")
@click.argument("session", required=False)
@click.option("--absent", is_flag=True, help="Only those that the model is not told.")
@click.option(
    "--turn", type=request, metavar="N[.I]", help="In the last request of turn N, or in N.I."
)
@click.option("--position", type=position, metavar="P", help="Instead: in the request at P.")
@click.option(
    "--take-back",
    type=demand,
    metavar="DEMAND",
    help="Record that this demand, such as 12.1, no longer holds.",
)
@click.option(
    "--by", type=message_number, metavar="MESSAGE", help="The message that takes it back."
)
@opening.on_fork
@opening.reading
def instructions_command(
    session: str | None,
    absent: bool,
    turn: RequestName | None,
    position: int | None,
    take_back: tuple[int, int] | None,
    by: int | None,
    fork: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """List what a person demanded in SESSION, and how the view holds each demand.

    A demand is a sentence that asks for or forbids something, told by English words such as
    "never" or "make sure"; `#12.1` is the first one of message #12. It is in view word by word
    (verbatim), in the summary or the index word by word, cut from its message, or absent. Without
    options it is about the view as it stands now, without SESSION about the last one used. JSON
    holds all requests.

    --take-back writes to the store: a demand that was taken back no longer counts as absent, and a
    compaction need not keep it. Nothing is guessed from words. An imported session changes by
    import alone: use --fork.
    """
    if take_back is not None:
        if session is None:
            raise click.UsageError("--take-back writes to a session: name it.")
        if absent or turn is not None or position is not None:
            raise click.UsageError("--take-back goes with --by and --fork only.")
        _take_back(session, take_back, by, fork, store, as_json)
        return
    if by is not None or fork is not None:
        raise click.UsageError("--by and --fork go with --take-back.")
    if turn is not None and position is not None:
        raise click.UsageError("Expected at most one of --turn and --position.")
    which = one_request(turn, None, position)
    found, mirror, figures = run(_instructions(session, which, store))
    if as_json:
        put_document(found)
        return
    screen = Screen()
    screen.line((answer(found), "bold"))
    listed = [one for one in found.instructions if one.is_absent or not absent]
    show_demands(screen, listed)
    _show_next(screen, found, store, mirror)
    show_known(screen, figures)


async def _instructions(
    session: str | None, which: RequestName, store: str | None
) -> tuple[Instructions, str | None, Figures]:
    """The answer, the name of the file that the session mirrors (None for one of ours), figures."""
    async with opening.existing(store) as engine:
        info = await session_or_last(engine, session)
        found = await engine.instructions(info.stream, **which._asdict())
        mirror = await engine.mirror_of(info.stream)
        return found, mirror, await figures_of(engine.store, info.stream)


def _show_next(screen: Screen, found: Instructions, store: str | None, mirror: str | None) -> None:
    """The commands to ask next: why a demand is absent, and how to have it back."""
    absent: list[Instruction] = [one for one in found.instructions if one.is_absent]
    if not absent:
        return
    where = opening.as_option(store)
    at = "" if found.about is None else f" --{_selected(found.about)}"
    session, number = shlex.quote(found.session), absent[0].number
    screen.blank()
    if all(one.absent_since is None for one in absent):
        screen.line(("No request has left without them yet.", "dim"))
    screen.line((f"Why {message_name(number)} is not in view, and how to have all back:", "dim"))
    screen.whole(f"{spelling()} why {session} {number}{at}{where}")
    fork = "" if mirror is None else " --fork NAME"
    numbers = " ".join([str(one) for one in dict.fromkeys([one.number for one in absent])])
    screen.whole(f"{spelling()} restore {session} {numbers}{fork}{where}")


def _selected(name: str) -> str:
    return f"position {name[1:]}" if name.startswith("@") else f"turn {name}"


def _take_back(
    session: str,
    which: tuple[int, int],
    by: int | None,
    fork: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    name, at = run(_withdrawn(session, which, by, fork, store))
    number, demand = which
    if as_json:
        put_document(
            {
                "session": name,
                "name": demand_name(number, demand),
                "number": number,
                "demand": demand,
                "by": by,
                "said_by": "person",
                "position": at,
            }
        )
        return
    screen = Screen()
    if fork is not None:
        screen.line("forked ", (session, "bold"), " as it is now as ", (name, "bold"))
    behind = "" if by is None else f", by {message_name(by)}"
    what = f"{demand_name(number, demand)}{behind} ({position_name(at)})"
    screen.line(("taken back: ", "bold green"), f"{what}; it no longer counts as absent")


async def _withdrawn(
    session: str, which: tuple[int, int], by: int | None, fork: str | None, store: str | None
) -> tuple[str, int]:
    async with opening.existing(store) as engine:
        info = await opening.find_session(engine.store, session)
        if fork is not None:
            await _check(engine, info.stream, which, by)  # a fork that fails would stay
        name = await opening.written(engine, info, fork)
        context = await opening.for_a_change(engine, name)
        receipt = await context.withdraw_instruction(*which, by=by)
        return name, receipt.position


async def _check(engine: Engine, session: str, which: tuple[int, int], by: int | None) -> None:
    found = (await engine.instructions(session)).instructions
    name = demand_name(*which)
    one = next((one for one in found if (one.number, one.demand) == which), None)
    if one is None or one.left is not None:
        raise NoSuchDemand(
            f"{name}: expected a demand of a person in the transcript, found none; "
            f"`eventctx instructions {session}` lists them"
        )
    if one.taken_back is not None:
        raise AlreadyTakenBack(f"{name}: expected a demand that holds, found one taken back")
    known = {message.number for message in await engine.transcript(session)}
    if by is not None and (by not in known or by <= which[0]):
        raise InvalidSetting(
            f"by: expected a message behind {message_name(which[0])} of the transcript, found "
            f"{message_name(by)}; `eventctx transcript {session}` lists them"
        )
