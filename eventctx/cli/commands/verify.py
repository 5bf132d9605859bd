"""``verify``: recompute every digest, and list the damage."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from eventctx.cli.output import opening
from eventctx.cli.output.plain import plural
from eventctx.cli.output.program import DAMAGE, OK, UNSIGNED, CommandFailed, run
from eventctx.cli.output.screen import Bar, JsonRows, Screen, progress
from eventctx.errors import InvalidSetting
from eventctx.log.integrity import public_key
from eventctx.log.naming import position_name
from eventctx.log.store import Receipt
from eventctx.queries.verification import (
    MAX_PROBLEMS,
    Problem,
    Verification,
    session_answer,
    store_answer,
)

if TYPE_CHECKING:
    from eventctx.queries.verify import StoreVerification
    from eventctx.reader import Reader

_LISTED = 20


@click.command("verify", short_help="Recompute every digest; find damage.")
@click.argument("session", required=False)
@click.option(
    "--receipt",
    "receipts",
    multiple=True,
    metavar="R",
    help="A receipt kept from before: shows a tail that was cut or rewritten since.",
)
@click.option(
    "--signed-by",
    metavar="KEY",
    help="A public key, as a PEM file or in hex: it must have signed each session.",
)
@opening.reading
def verify_command(
    session: str | None,
    receipts: tuple[str, ...],
    signed_by: str | None,
    store: str | None,
    as_json: bool,
) -> None:
    """Check every record and content of SESSION, or of all sessions and of the store itself,
    against its digest, and against the receipts that were kept for it.

    Prints a receipt for each; keep it outside the store. Exits with 5 when damage is found, with
    --signed-by else with 6 when records follow the last signature of KEY.
    """
    kept = [_receipt(text) for text in receipts]
    key = None if signed_by is None else _public_key(signed_by)
    code = run(_verify(session, kept, key, store, as_json))
    if code != OK:
        raise CommandFailed(code)


def _receipt(text: str) -> Receipt:
    try:
        return Receipt.parse(text.strip())
    except ValueError as error:
        raise InvalidSetting(f"--receipt: expected SESSION@POSITION:DIGEST ({error})") from error


def _public_key(text: str) -> str:
    path = Path(text)
    try:
        return public_key(path.read_text(encoding="utf-8") if path.is_file() else text)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSetting(f"--signed-by: {text} cannot be read: {error}") from error


def _signed(one: Verification, key: str) -> Verification:
    """The outcome, with a problem if the key has not signed the session."""
    if any(signed.public_key == key for signed in one.signed):
        return one
    problem = Problem(-1, "signature", f"no signature of the key {key[:16]}… holds")
    return msgspec.structs.replace(one, problems=(*one.problems, problem))


async def _verify(
    session: str | None, receipts: list[Receipt], key: str | None, store: str | None, as_json: bool
) -> int:
    """Verify and print, one session after the other; the exit code."""
    async with opening.open_reader(store) as reader:
        with progress("Verifying", 1 if session is None and not receipts else None) as bar:

            def began(name: str, done: int, of: int) -> None:
                bar.name(f"Verifying {name}")
                bar.at(done, of or 1)

            if session is None and not receipts:
                found: AsyncIterator[Verification | str] = reader.verifications(began=began)
            else:
                found = _each(reader, await _named(reader, session, receipts), receipts, bar)
            shown: _Printed | _Shown = _Printed() if as_json else _Shown(Screen(), bar, key)
            whole = True
            async for one in found:
                if isinstance(one, Verification) and key is not None:
                    one = _signed(one, key)
                    whole = whole and (bool(one.deleted) or not one.unsigned(key))
                shown.put(one)
        shown.end(reader.receipts_path)
        return DAMAGE if not shown.ok else OK if whole else UNSIGNED


async def _each(
    reader: Reader, names: list[str], receipts: list[Receipt], bar: Bar
) -> AsyncIterator[Verification | str]:
    for name in names:
        bar.name(f"Verifying {name}")
        own = [one for one in receipts if one.stream == name]
        for receipt in own or (None,):
            yield await reader.verify(name, receipt)


async def _named(reader: Reader, session: str | None, receipts: list[Receipt]) -> list[str]:
    names = list(dict.fromkeys(receipt.stream for receipt in receipts))
    if session is None:
        return names
    # A receipt may be for a session that is gone, which is a finding and no bad usage.
    name = (
        session if session in names else (await opening.find_session(reader.store, session)).stream
    )
    for other in names:
        if other != name:
            raise InvalidSetting(
                f"--receipt: expected one for session {name!r}, found one for {other!r}"
            )
    return [name]


def show_verifications(
    screen: Screen, checked: StoreVerification, book: Path | None = None
) -> None:
    """Each session's result, its damage or its receipt, the store's, and a last line for all.

    ``book`` is the book of receipts that the sessions were compared with.
    """
    shown = _Shown(screen)
    for one in checked.sessions:
        shown.put(one)
    for problem in checked.problems:
        shown.put(problem)
    shown.end(book)


class _Printed:
    """A verification as JSON, a row as soon as it is known."""

    def __init__(self) -> None:
        self.ok = True
        self._rows = JsonRows()
        self._problems: list[str] = []

    def put(self, one: Verification | str) -> None:
        """Print a session's row, or take a problem of the store."""
        if isinstance(one, str):
            self.ok = False
            self._problems.append(one)
            return
        self.ok = self.ok and one.ok
        self._rows.put(session_answer(one))

    def end(self, _book: Path | None) -> None:
        """Print the row of the store's problems."""
        if self._problems:
            self._rows.put(store_answer(self._problems))
        self._rows.end()


class _Shown:
    """A verification for a person, a line as soon as it is known, and a last line for all."""

    def __init__(self, screen: Screen, bar: Bar | None = None, key: str | None = None) -> None:
        self._key = key
        self._screen = screen
        self._bar = bar
        self._count = self._bad = self._problems = 0
        self._of_receipts = False

    @property
    def ok(self) -> bool:
        """Whether nothing was found so far."""
        return not self._bad and not self._problems

    def put(self, one: Verification | str) -> None:
        """Show what was found about a session, or a problem of the store."""
        if self._bar is not None:
            self._bar.close()  # the lines tell how far it is
        if isinstance(one, str):
            self._problems += 1
            # A problem of the store is a sentence; the one about receipts has to say so.
            self._of_receipts |= "receipts" in one
            self._screen.line(("DAMAGED ", "bold red"), ("the store", "bold"), f": {one}")
            return
        self._count += 1
        if one.ok:
            _show_sound(self._screen, one, self._key)
            return
        self._bad += 1
        self._of_receipts |= any(found.kind == "receipt" for found in one.problems)
        _show_damaged(self._screen, one)

    def end(self, book: Path | None) -> None:
        """Show the last line, and where the receipts are that something contradicts."""
        screen, count = self._screen, self._count
        if not count and self.ok:
            screen.line("The store holds no sessions.")
        elif count > 1 or self._problems:
            parts = [f"{plural(count - self._bad, 'session')} ok"]
            parts += [f"{self._bad} damaged"] if self._bad else []
            parts += [f"{plural(self._problems, 'problem')} of the store"] * bool(self._problems)
            screen.line((", ".join(parts), "bold" if self.ok else "bold red"))
        if self._of_receipts and book is not None:
            screen.line(
                "If you removed the store, or put an older copy of it or of its -wal in its place, "
                "delete its receipts:"
            )
            screen.whole(str(book))


def _show_sound(screen: Screen, one: Verification, key: str | None = None) -> None:
    if one.deleted:
        screen.line(
            ("ok ", "bold green"), (one.stream, "bold"),
            f": deleted on purpose, with {plural(one.deleted, 'record')}; receipt:",
        )  # fmt: skip
    else:
        screen.line(
            ("ok ", "bold green"), (one.stream, "bold"),
            f": {plural(one.records, 'record')}{_erased(one)}{_reach(one, key)}; receipt:",
        )  # fmt: skip
    # People copy a receipt, so it has a line of its own, which is never wrapped.
    screen.whole(str(one.receipt))


def _reach(one: Verification, key: str | None) -> str:
    """How far the signatures of a key reach, or those of any key."""
    if not one.signed:
        return ""
    signers = len({signed.public_key for signed in one.signed})
    by = "" if key is not None else f" by {plural(signers, 'key')}"
    after = one.unsigned(key)
    rest = f"; {after} after it {'is' if after == 1 else 'are'} not signed" if after else ""
    return f", signed{by} up to {position_name(one.signed_to(key))}{rest}"


def _show_damaged(screen: Screen, one: Verification) -> None:
    many = len(one.problems)
    found = f"{MAX_PROBLEMS:,} problems or more" if many >= MAX_PROBLEMS else (
        plural(many, "problem")
    )  # fmt: skip
    screen.line(
        ("DAMAGED ", "bold red"), (one.stream, "bold"),
        f": {found} in {plural(one.records, 'record')}{_erased(one)}",
    )  # fmt: skip
    shown = one.problems[:_LISTED] if screen.live else one.problems
    for problem in shown:
        where = position_name(problem.position) if problem.position >= 0 else "the session"
        screen.line((where, "red"), f" ({problem.kind}): {problem.text}", indent=3)
    if len(shown) < many:
        screen.line((f"… and {many - len(shown)} more (--json lists them)", "dim"), indent=3)


def _erased(one: Verification) -> str:
    return f", {plural(one.erased, 'content')} erased on purpose" if one.erased else ""
