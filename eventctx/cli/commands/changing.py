"""``restore``, ``fork`` and ``sign``: each appends a record to a session, or begins a new one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from eventctx.cli.output import opening
from eventctx.cli.output.opening import flat, message_numbers, position
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Screen, progress, put_document
from eventctx.errors import InvalidSetting
from eventctx.log.integrity import Signer, signer
from eventctx.log.naming import message_name, position_name
from eventctx.log.store import Receipt
from eventctx.projections.presence import Presence
from eventctx.queries.lost.answers import KINDS, ItemKind

if TYPE_CHECKING:
    from eventctx.engine import Engine


_KINDS: Final[dict[str, ItemKind]] = {f"{kind}s": kind for kind in KINDS}
"""What ``--lost`` takes, with the kind of item in a ``Lost``."""


class RestoredMessages(msgspec.Struct, frozen=True):
    """Messages that a session has in view again, with the rest of their tool rounds.

    ``in_view_already``: those of ``asked_for`` that needed nothing. ``pinned``: no compaction takes
    them again.
    """

    session: str
    asked_for: tuple[int, ...]
    restored: tuple[int, ...]
    in_view_already: list[int]
    pinned: list[int]


class Forked(msgspec.Struct, frozen=True):
    """A session as another one was after position ``at``."""

    session: str
    parent: str
    at: int
    messages: int
    receipt: str


class SessionSignature(msgspec.Struct, frozen=True):
    """A signature of all records until ``receipt``; ``key`` is the public key."""

    session: str
    receipt: str
    key: str


@click.command("restore", short_help="Bring messages back into view.")
@click.argument("session")
@click.argument(
    "messages",
    nargs=-1,
    type=message_numbers,
    callback=flat,
    metavar="[MESSAGE...]",
)
@click.option(
    "--lost",
    "kinds",
    multiple=True,
    type=click.Choice(sorted(_KINDS)),
    help="The messages that `lost` lists under this heading.",
)
@click.option("--pin", is_flag=True, help="Keep them there: no compaction takes them again.")
@opening.on_fork
@opening.reading
def restore_command(
    session: str,
    messages: tuple[int, ...],
    kinds: tuple[str, ...],
    pin: bool,
    fork: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Bring MESSAGEs of SESSION back into view, whole and with their tool rounds.

    Writes to the store. A MESSAGE is a message's number, as `transcript` shows it after #, not a
    record's position (docs/reference/numbers-and-positions.md). The next compaction may take them
    out again unless they are pinned. An imported session changes by import alone: use --fork.
    """
    if not messages and not kinds:
        raise click.UsageError("Expected a message, or --lost; `lost` lists what left the view.")
    name, messages, back = run(_restore(session, messages, kinds, pin, fork, store))
    already = sorted({*messages}.difference(back))
    if as_json:
        pinned = sorted({*messages}) if pin else []
        put_document(RestoredMessages(name, messages, back, already, pinned))
        return
    screen = Screen()
    if fork is not None:
        screen.line("forked ", (session, "bold"), " as it is now as ", (name, "bold"))
    if not messages:
        screen.line(f"Nothing to bring back: all {' and '.join(kinds)} are in view, whole.")
    _show(screen, messages, back, already, pin)


async def _restore(
    session: str,
    messages: tuple[int, ...],
    kinds: tuple[str, ...],
    pin: bool,
    fork: str | None,
    store: str | None,
) -> tuple[str, tuple[int, ...], tuple[int, ...]]:
    """The session that was written to, the messages that were asked for, and those that came."""
    async with opening.open_existing(store) as engine:
        info = await opening.find_session(engine.store, session)
        if kinds:
            with progress("Reading"):
                messages = (*messages, *await _lost(engine, info.stream, kinds))
        if not messages:
            return info.stream, (), ()
        if fork is not None:
            await _check_numbers(engine, info.stream, messages)  # a fork that fails would stay
        name = await opening.choose_written(engine, info, fork)
        context = await opening.open_session(engine, name)
        back = await context.restore(*messages)
        if pin:
            await context.pin(*dict.fromkeys(messages))
        return name, messages, back


async def _lost(engine: Engine, session: str, kinds: tuple[str, ...]) -> list[int]:
    """The newest message of each item of these kinds that is not in view whole."""
    wanted = {_KINDS[one] for one in kinds}
    found = await engine.lost(session)
    numbers = {
        item.number
        for item in found.items
        if item.kind in wanted
        and item.state is not Presence.WHOLE
        # The view has it, and the next request has it again.
        and (item.left is None or item.left.by != "provider")
    }
    return sorted(numbers)


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


@click.command("fork", short_help="A new session from a point of another one.")
@click.argument("session")
@click.argument("new")
@click.option(
    "--at",
    type=position,
    required=True,
    metavar="POSITION",
    help="Everything up to here is shared.",
)
@opening.reading
def fork_command(session: str, new: str, at: int, store: str | None, as_json: bool) -> None:
    """Make the session NEW as SESSION was after a position, without copying anything."""
    run(_fork(session, new, at, store, as_json))


async def _fork(session: str, new: str, at: int, store: str | None, as_json: bool) -> None:
    async with opening.open_existing(store) as engine:
        info = await opening.find_session(engine.store, session)
        receipt = await engine.fork(info.stream, at, new)
        messages = len(await engine.transcript(new))
    if as_json:
        put_document(Forked(new, info.stream, at, messages, str(receipt)))
        return
    screen = Screen()
    screen.line(
        "forked ", (info.stream, "bold"), f" {position_name(at)} as ", (new, "bold"),
        f": {messages} messages, nothing copied",
    )  # fmt: skip
    screen.whole(("receipt ", "dim"), str(receipt))


@click.command("sign", short_help="Sign a session.")
@click.argument("session")
@click.option(
    "--key",
    required=True,
    type=click.Path(path_type=Path),
    help="A private Ed25519 key in PEM form: `openssl genpkey -algorithm ed25519 -out FILE`.",
)
@opening.reading
def sign_command(session: str, key: Path, store: str | None, as_json: bool) -> None:
    """Sign all records of SESSION until now. Writes to the store: the signature is a record.

    Whoever has the public key can check with `verify --signed-by` that nothing before it was
    changed since. Needs the extra `sign`.
    """
    chosen = _read(key)
    receipt = run(_sign(session, chosen, store))
    if as_json:
        put_document(SessionSignature(receipt.stream, str(receipt), chosen.public_key))
        return
    screen = Screen()
    screen.line(("signed ", "bold green"), (receipt.stream, "bold"), "; public key:")
    screen.whole(chosen.public_key)


def _read(key: Path) -> Signer:
    try:
        return signer(key.read_bytes())
    except OSError as error:
        raise InvalidSetting(f"--key: {key} cannot be read: {error.strerror}") from error


async def _sign(session: str, key: Signer, store: str | None) -> Receipt:
    async with opening.open_existing(store) as engine:
        info = await opening.find_session(engine.store, session)
        return await engine.sign(info.stream, key)
