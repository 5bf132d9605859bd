"""``erase``, ``delete`` and ``prune``: destroy contents for ever, after showing what will go."""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import msgspec

from eventctx.cli.output import opening
from eventctx.cli.output.opening import flat, message_numbers
from eventctx.cli.output.plain import minute, plural
from eventctx.cli.output.program import complain, is_agreed, run
from eventctx.cli.output.screen import Screen, put_document
from eventctx.log.naming import message_name, position_name
from eventctx.queries.encoding import fill
from eventctx.stores.own_copies import copies, destroy_exports
from eventctx.stores.receipt_book import ReceiptBook

if TYPE_CHECKING:
    from eventctx.engine import Engine
    from eventctx.session.erasure.destruction import ExpiredSession
    from eventctx.session.erasure.erasing import ErasureResult

_SECONDS: Final = {"h": 3_600, "d": 86_400, "w": 604_800}

_yes = click.option("--yes", is_flag=True, help="Do it without asking.")
_dry_run = click.option("--dry-run", is_flag=True, help="Only show what would go.")
_exports = click.option(
    "--exports", is_flag=True, help="Also the files that `export -o` wrote of them, where they are."
)
_reason = click.option("--reason", default="", metavar="TEXT", help="Recorded with it.")


@click.command("erase", short_help="Destroy contents of messages for ever.")
@click.argument("session")
@click.argument(
    "messages",
    nargs=-1,
    required=True,
    type=message_numbers,
    callback=flat,
    metavar="MESSAGE...",
)
@_exports
@_reason
@_dry_run
@_yes
@opening.reading
def erase_command(
    session: str,
    messages: tuple[int, ...],
    exports: bool,
    reason: str,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Destroy the contents of MESSAGEs of SESSION, and all that was made of them.

    Their tool rounds, summaries and shortened copies, raw parts of an imported file, what a host
    was sent and search terms go along, in every fork. The records stay, and everything still
    verifies. Shows what goes, and asks; without a terminal it only shows, unless --yes is given.
    """
    done, result = run(_erase(session, messages, exports, reason, dry_run, yes, store, as_json))
    if as_json:
        put_document(_erasure_answer(done, result))
    elif done:
        _show_erased(Screen(), result)


async def _erase(
    session: str,
    messages: tuple[int, ...],
    exports: bool,
    reason: str,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> tuple[bool, ErasureResult]:
    async with opening.open_existing(store) as engine:
        info = await opening.find_session(engine.store, session)
        planned = await engine.erase(info.stream, messages, dry_run=True)
        if not as_json:
            _show_plan(Screen(), messages, planned)
        files = _Files(engine, planned.sessions, exports)
        files.show(as_json)
        if dry_run or not is_agreed("Erase all this for ever?", yes=yes, quiet=as_json):
            return False, planned
        result = await engine.erase(info.stream, messages, reason=reason)
        files.destroy()
        return True, result


def _show_plan(screen: Screen, messages: tuple[int, ...], planned: ErasureResult) -> None:
    along = sorted(set(planned.numbers).difference(messages))
    rounds = f", with {_listed(along)} of the same tool rounds" if along else ""
    screen.line(("goes: ", "bold"), f"{_listed(sorted({*messages}))}{rounds}")
    copies = planned.bodies - len(planned.numbers)
    if copies > 0:
        screen.line(f"{plural(copies, 'content')} made of them, or shared with forks", indent=2)
    if len(planned.sessions) > 1:
        others = ", ".join(one for one in planned.sessions if one != planned.session)
        screen.line(f"also in: {others}", indent=2)
    _show_what_stays(screen, planned)


def _show_what_stays(screen: Screen, result: ErasureResult) -> None:
    if result.repeated:
        named = ", ".join(f"{message_name(number)} of {name}" for name, number in result.repeated)
        screen.line(("stays: ", "yellow"), f"the same words stand in {named}")
    if result.payloads:
        named = ", ".join(f"{position_name(at)} of {name}" for name, at in result.payloads)
        screen.line(
            ("stays: ", "yellow"),
            f"the words stand in records that the chain covers, {named}; only `delete` takes those",
        )


def _show_erased(screen: Screen, result: ErasureResult) -> None:
    screen.line(
        ("erased ", "bold green"),
        f"{plural(result.bodies, 'content')} in {plural(len(result.sessions), 'session')}; "
        "chains and receipts still verify",
    )
    _show_scrubbed(screen, result.scrubbed)


def _show_scrubbed(screen: Screen, scrubbed: bool) -> None:
    if not scrubbed:
        screen.line(
            ("The bytes are still in the store's log: ", "yellow"),
            "another process is reading it. They go when it ends.",
        )


class RepeatedWords(msgspec.Struct, frozen=True):
    """A message that keeps the same words."""

    session: str
    message: int


class KeptPayload(msgspec.Struct, frozen=True):
    """A record whose payload holds the words, and which the chain covers."""

    session: str
    position: int


class ErasureAnswer(msgspec.Struct, frozen=True):
    """Contents that were destroyed, or would be (``erased`` is false).

    ``messages`` are the numbers of those whose contents go; ``contents`` counts these, what was
    made of them, and their copies in forks. ``repeated`` are messages with the same words, and
    ``payloads`` records that hold them where the chain covers it: both stay. ``scrubbed``: whether
    the store has overwritten what went.
    """

    erased: bool
    session: str
    messages: tuple[int, ...]
    contents: int
    sessions: tuple[str, ...]
    repeated: list[RepeatedWords]
    payloads: list[KeptPayload]
    scrubbed: bool


def _erasure_answer(done: bool, result: ErasureResult) -> ErasureAnswer:
    return fill(
        ErasureAnswer,
        result,
        erased=done,
        messages=result.numbers,
        contents=result.bodies,
        repeated=[RepeatedWords(*one) for one in result.repeated],
        payloads=[KeptPayload(*one) for one in result.payloads],
    )


class DeletionAnswer(msgspec.Struct, frozen=True):
    """Sessions that were deleted, or would be (``deleted`` is false), and their forks.

    ``scrubbed``: whether the store has overwritten what they held.
    """

    deleted: bool
    sessions: list[str]
    scrubbed: bool


@click.command("delete", short_help="Destroy a session for ever.")
@click.argument("session")
@click.option("--forks", is_flag=True, help="Also the sessions that were forked from it.")
@_exports
@_reason
@_dry_run
@_yes
@opening.reading
def delete_command(
    session: str,
    forks: bool,
    exports: bool,
    reason: str,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Destroy all records of SESSION. One stays, which says so, and with which `verify` agrees.

    The name is not used again. Shows what goes, and asks; without a terminal it only shows, unless
    --yes is given.
    """
    names, done, scrubbed = run(
        _delete(session, forks, exports, reason, dry_run, yes, store, as_json)
    )
    if as_json:
        put_document(DeletionAnswer(done, names, scrubbed))
    elif done:
        screen = Screen()
        screen.line(("deleted ", "bold green"), ", ".join(names))
        _show_scrubbed(screen, scrubbed)


async def _delete(
    session: str,
    forks: bool,
    exports: bool,
    reason: str,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> tuple[list[str], bool, bool]:
    async with opening.open_existing(store) as engine:
        info = await opening.find_session(engine.store, session)
        names = [*(await engine.forks(info.stream) if forks else ()), info.stream]
        if not as_json:
            records = f", with {plural(info.head + 1, 'record')}"
            Screen().line(("goes: ", "bold"), f"{', '.join(names)}{records}")
        files = _Files(engine, names, exports)
        files.show(as_json)
        if dry_run or not is_agreed("Delete all this for ever?", yes=yes, quiet=as_json):
            return names, False, True
        names = await engine.delete(info.stream, reason=reason, forks=forks)
        files.destroy()
        return names, True, await engine.store.scrubbed()


@click.command("prune", short_help="Delete the sessions that are older than a limit.")
@click.option(
    "--older-than",
    "age",
    required=True,
    metavar="AGE",
    help="Sessions whose last record is older than this: 90d, 12w, 36h.",
)
@_exports
@_reason
@_dry_run
@_yes
@opening.reading
def prune_command(
    age: str,
    exports: bool,
    reason: str,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> None:
    """Delete every session whose last record is older than AGE, as `delete` does.

    One from which a younger session was forked stays. Shows what goes, and asks; without a terminal
    it only shows, unless --yes is given.
    """
    before = time.time_ns() - _nanoseconds(age)
    found, done = run(_prune(before, exports, reason, dry_run, yes, store, as_json))
    going = [one for one in found if not one.kept_by]
    if as_json:
        from eventctx.session.erasure.destruction import PruningAnswer

        put_document(PruningAnswer(done, going, _kept(found)))
    elif done:
        Screen().line(("deleted ", "bold green"), plural(len(going), "session"))


async def _prune(
    before: int,
    exports: bool,
    reason: str,
    dry_run: bool,
    yes: bool,
    store: str | None,
    as_json: bool,
) -> tuple[list[ExpiredSession], bool]:
    async with opening.open_existing(store) as engine:
        found = await engine.expired(before)
        going = [one for one in found if not one.kept_by]
        if not as_json:
            _show_expired(Screen(), found)
        files = _Files(engine, [one.session for one in going], exports)
        files.show(as_json)
        ask = f"Delete {plural(len(going), 'session')} for ever?"
        if not going or dry_run or not is_agreed(ask, yes=yes, quiet=as_json):
            return found, False
        await _delete_all(engine, going, reason)
        files.destroy()
        return found, True


async def _delete_all(engine: Engine, sessions: list[ExpiredSession], reason: str) -> None:
    for one in sessions:
        await engine.delete(one.session, reason=reason)


def _show_expired(screen: Screen, found: list[ExpiredSession]) -> None:
    if not found:
        screen.line("No session is that old.")
    for one in found:
        last = f"last record {minute(one.last)}"
        if one.kept_by:
            forks = ", ".join(one.kept_by)
            screen.line(("stays: ", "yellow"), f"{one.session}, {last}: {forks} is forked from it")
        else:
            records = plural(one.records, "record")
            screen.line(("goes: ", "bold"), f"{one.session}, {records}, {last}")


def _kept(found: list[ExpiredSession]) -> list[ExpiredSession]:
    return [one for one in found if one.kept_by]


def _nanoseconds(age: str) -> int:
    read = re.fullmatch(r"(\d{1,6})([hdw])", age.strip())
    if read is None:
        raise click.UsageError(f"--older-than: expected an age such as 90d or 36h, found {age!r}.")
    return int(read[1]) * _SECONDS[read[2]] * 10**9


class _Files:
    """The files of ours that hold the same words: tapes go along, exports if that is wanted."""

    def __init__(self, engine: Engine, sessions: Collection[str], exports: bool) -> None:
        path = engine.receipts_path
        book = None if path is None else ReceiptBook(path)
        self._tapes = copies(book, sessions, "tape")
        self._exports = copies(book, sessions, "export")
        self._wanted = exports

    def show(self, quiet: bool) -> None:
        """Name them."""
        if quiet:
            return
        screen = Screen()
        for path in (*self._tapes, *(self._exports if self._wanted else ())):
            screen.line(("goes: ", "bold"), f"the file {path}")
        if not self._wanted:
            self._complain(self._exports, "--exports takes it, too")

    def destroy(self) -> None:
        """Destroy the exports, and name what stays. The engine has destroyed the tapes."""
        stay = [path for path in self._tapes if path.exists()]
        stay += destroy_exports(self._exports) if self._wanted else []
        self._complain(stay, "it cannot be removed")

    def _complain(self, paths: list[Path], why: str) -> None:
        for path in paths:
            complain(f"stays: the file {path} holds the same words; {why}")


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(message_name, numbers))
