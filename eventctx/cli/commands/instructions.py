"""``instructions``: what a person demanded, and whether requests still told the model of it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import click
import msgspec

from eventctx.cli.output import opening
from eventctx.cli.output.figures import figures_of, show_known
from eventctx.cli.output.opening import demand, message_number, session_or_last
from eventctx.cli.output.plain import number, one_line, plural
from eventctx.cli.output.program import run, spelling
from eventctx.cli.output.screen import Screen, put_document
from eventctx.errors import AlreadyTakenBack, InvalidSetting, NoSuchDemand
from eventctx.log.naming import RequestName, demand_name, message_name, position_name
from eventctx.queries.instructions import HELD, Held, HeldRun, Instruction, Instructions

if TYPE_CHECKING:
    from eventctx.cli.output.screen import Screen
    from eventctx.engine import Engine
    from eventctx.projections.figures import Figures
    from eventctx.queries.instructions import Instruction, Instructions


@click.command("instructions", short_help="A person's instructions: is each still sent?")
@click.argument("session", required=False)
@click.option("--absent", is_flag=True, help="Only those that the model is not told.")
@opening.one_request
@click.option(
    "--take-back",
    type=demand,
    metavar="INSTRUCTION",
    help="Record that this instruction, such as 12.1, no longer holds.",
)
@click.option(
    "--by", type=message_number, metavar="MESSAGE", help="The message that takes it back."
)
@opening.on_fork
@opening.reading
def instructions_command(
    session: str | None,
    absent: bool,
    name: RequestName,
    take_back: tuple[int, int] | None,
    by: int | None,
    fork: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """List the instructions of a person in SESSION, and how the view holds each.

    An instruction is a sentence that asks for or forbids something, told by its form ("never …",
    "make sure …") in twelve languages; `#12.1` is the first one of message #12. It is in view word
    by word (verbatim), in the summary or the index word by word, cut from its message, or absent.
    Without options it is about the view as it stands now, without SESSION about the last one used.
    JSON holds all requests.

    An instruction is superseded by a later one with the same words and another value ("at most
    300", "at most 800"), and then no longer held against a view.

    --take-back writes to the store: an instruction that was taken back no longer counts as absent,
    and a compaction need not keep it. An imported session changes by import alone: use --fork.
    """
    if take_back is not None:
        if session is None:
            raise click.UsageError("--take-back writes to a session: name it.")
        if absent or name != RequestName():
            raise click.UsageError("--take-back goes with --by and --fork only.")
        _take_back(session, take_back, by, fork, store, as_json)
        return
    if by is not None or fork is not None:
        raise click.UsageError("--by and --fork go with --take-back.")
    found, mirror, figures = run(_instructions(session, name, store))
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
    session: str | None, name: RequestName, store: str | None
) -> tuple[Instructions, str | None, Figures]:
    """The answer, the name of the file that the session mirrors (None for one of ours), figures."""
    from eventctx.queries.instruction_reading import instructions_of

    async with opening.answering(store, lists=session is None) as reader:
        info = await session_or_last(reader, session)
        found = await instructions_of(reader.store, info.stream, name)
        mirror = await reader.mirror_of(info.stream)
        return found, mirror, await figures_of(reader.store, info.stream)


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


class InstructionTakenBack(msgspec.Struct, frozen=True, kw_only=True):
    """An instruction that no longer holds, since record ``position``.

    ``by`` is the number of the message that took it back, if one was named.
    """

    session: str
    name: str
    number: int
    demand: int
    by: int | None
    said_by: Literal["person"]
    position: int


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
            InstructionTakenBack(
                session=name,
                name=demand_name(number, demand),
                number=number,
                demand=demand,
                by=by,
                said_by="person",
                position=at,
            )
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
    async with opening.open_existing(store) as engine:
        info = await opening.find_session(engine.store, session)
        if fork is not None:
            await _check(engine, info.stream, which, by)  # a fork that fails would stay
        name = await opening.choose_written(engine, info, fork)
        context = await opening.open_session(engine, name)
        receipt = await context.withdraw_instruction(*which, by=by)
        return name, receipt.position


async def _check(engine: Engine, session: str, which: tuple[int, int], by: int | None) -> None:
    found = (await engine.instructions(session)).instructions
    name = demand_name(*which)
    one = next((one for one in found if (one.number, one.demand) == which), None)
    if one is None or one.left is not None:
        raise NoSuchDemand(
            f"{name}: expected an instruction of a person in the transcript, found none; "
            f"`eventctx instructions {session}` lists them"
        )
    if one.taken_back is not None:
        raise AlreadyTakenBack(f"{name}: expected an instruction that holds, found one taken back")
    known = {message.number for message in await engine.transcript(session)}
    if by is not None and (by not in known or by <= which[0]):
        raise InvalidSetting(
            f"by: expected a message behind {message_name(which[0])} of the transcript, found "
            f"{message_name(by)}; `eventctx transcript {session}` lists them"
        )


PIPE_WIDTH: Final = 160
"""Characters of a demand's line where there is no terminal."""

_LEAST_TEXT: Final = 24
_MOST_RUNS: Final = 6
"""Runs of requests that one line names; of more, the last ones."""

_IN_WORDS: Final[dict[Held, str]] = {
    "verbatim": "sent unchanged",
    "in_summary": "in a summary",
    "in_index": "in an index or notice",
    "shortened": "cut from a message in view",
    "absent": "absent",
}
_SHORT: Final[dict[Held, str]] = {
    "verbatim": "verbatim",
    "in_summary": "summary",
    "in_index": "index",
    "shortened": "cut",
    "absent": "absent",
}
_STYLES: Final[dict[Held, str]] = {
    "verbatim": "green",
    "in_summary": "yellow",
    "in_index": "yellow",
    "shortened": "red",
    "absent": "red",
}
_LEFT: Final = {
    "set": "a set of the transcript took its message out",
    "clear": "the transcript was cleared",
    "erased": "its message was erased",
}


def answer(found: Instructions) -> str:
    """The answer in a few sentences."""
    where = "Now" if found.about is None else f"In request {found.about}"
    total = sum(found.counts.values())
    parts = [
        f"{number(found.counts[held])} {_IN_WORDS[held]}" for held in HELD if found.counts[held]
    ]
    if not found.instructions:
        text = (
            f"{where}: no instruction of a person is known; one is told by words such as "
            '"never", "must" or "make sure".'
        )
    elif not total:
        text = f"{where}: no instruction of a person applies any more."
    else:
        verb = "still applies" if total == 1 else "still apply"
        text = f"{where}: {number(total)} of your instructions {verb}: {', '.join(parts)}."
    ended = (
        (found.taken_back, "taken back"),
        (found.superseded, "superseded"),
        (found.left, "left the transcript"),
    )
    for count, words in ended:
        if count:
            verb = "" if words.startswith("left") else ("was " if count == 1 else "were ")
            text += f" {number(count)} {verb}{words}."
    if found.erased:
        text += f" {plural(found.erased, 'message')} of a person erased: nothing is known of them."
    if found.sealed:
        sealed = plural(found.sealed, "summary", "summaries")
        text += f" {sealed} encrypted: what stands in there is not known."
    return text


def show_demands(screen: Screen, listed: Sequence[Instruction]) -> None:
    """Each demand with its state now, and below it how the requests held it."""
    if listed:
        screen.blank()
    widest = max((len(one.name) for one in listed), default=0)
    for one in listed:
        state, style = _state(one)
        head = f"{state:<10} {one.name:<{widest}}  "
        width = max(_LEAST_TEXT, (screen.width if screen.live else PIPE_WIDTH) - len(head) - 2)
        screen.line((head[:11], style), (head[11:], "bold"), f"“{one_line(one.text, width)}”")
        below = _below(one)
        if below:
            screen.line((below, "dim"), indent=len(head))


def _state(one: Instruction) -> tuple[str, str]:
    if one.taken_back is not None:
        return "taken back", "dim"
    if one.superseded_by is not None:
        return "superseded", "dim"
    if one.stands is None:
        return "left", "dim"
    return _SHORT[one.stands], _STYLES[one.stands]


def _below(one: Instruction) -> str:
    """The line below a demand; nothing where it was in view all along."""
    parts: list[str] = []
    if one.stands == "verbatim" and one.where is not None:
        parts.append(f"said again in {one.where}")
    elif one.where is not None:
        parts.append(f"word by word in {one.where}")
    runs = one.runs
    # Of one that only the present view does not hold, all requests held it.
    if len(runs) > 1 or (runs and runs[0].held != "verbatim"):
        shown = [_run(run) for run in runs[-_MOST_RUNS:]]
        more = "" if len(runs) <= _MOST_RUNS else "… "
        parts.append(more + ", ".join(shown))
    if one.absent_since is not None:
        parts.append(f"not told since {one.absent_since}")
    if one.taken_back is not None:
        by = "" if one.taken_back.by is None else f" by {one.taken_back.by}"
        parts.append(f"taken back{by}, as a {one.taken_back.said_by} said ({one.taken_back.at})")
    if one.superseded_by is not None:
        parts.append(f"superseded by {one.superseded_by}")
    if one.left is not None:
        parts.append(f"{_LEFT[one.left.by]} ({one.left.at})")
    return "; ".join(parts)


def _run(run: HeldRun) -> str:
    requests = run.first if run.first == run.last else f"{run.first}–{run.last}"
    return f"{_SHORT[run.held]} {requests}"
