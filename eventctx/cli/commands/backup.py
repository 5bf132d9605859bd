"""``backup`` and ``restore-backup``: a verified copy of a store, and its way back."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import UNSET, UnsetType

from eventctx.cli.commands.verify import show_verifications
from eventctx.cli.output import opening
from eventctx.cli.output.plain import plural, size
from eventctx.cli.output.program import DAMAGE, CommandFailed, run
from eventctx.cli.output.screen import Screen, progress, put_document
from eventctx.errors import InvalidSetting
from eventctx.queries.verification import VerificationAnswer
from eventctx.queries.verify import verification_answers, verify_file
from eventctx.stores.location import default_book, default_path
from eventctx.stores.receipt_book import ReceiptBook
from eventctx.text import escape_breaks, without_password

if TYPE_CHECKING:
    from eventctx.queries.verify import StoreVerification


@click.command("backup", short_help="A verified copy of the store, while it is in use.")
@click.argument("file", type=click.Path(path_type=Path))
@opening.reading
def backup_command(file: Path, store: str | None, as_json: bool) -> None:
    """Copy the store to the new FILE, and verify the copy whole. Others go on writing meanwhile.

    FILE appears only when it is complete and on the disk. Exits with 5 when damage is found; the
    copy is kept then, but do not rely on it.
    """
    checked = run(_back_up(file, store))
    if as_json:
        put_document(_answer(file, checked))
    else:
        _show_backup(Screen(), file, checked)
    if not checked.ok:
        raise CommandFailed(DAMAGE)


async def _back_up(file: Path, store: str | None) -> StoreVerification:
    async with opening.open_reader(store) as reader:
        with progress("Copying and verifying"):
            return await reader.backup(file)


def _show_backup(screen: Screen, file: Path, checked: StoreVerification) -> None:
    if checked.ok:
        screen.line(("backed up ", "bold green"), f"{_counted(checked)}, {_size(file)}, verified:")
    else:
        show_verifications(screen, checked)
        screen.line(("The copy has the damage above", "bold red"), "; keep older backups. It is:")
    screen.whole(escape_breaks(str(file)))


@click.command("restore-backup", short_help="Put a verified backup in the store's place.")
@click.argument("file", type=click.Path(path_type=Path, exists=True, dir_okay=False))
@click.option("--replace", is_flag=True, help="Replace a store; it is kept under another name.")
@click.option("--yes", is_flag=True, help="Do not ask before a store is replaced.")
@opening.reading
def restore_backup_command(
    file: Path, replace: bool, yes: bool, store: str | None, as_json: bool
) -> None:
    """Verify the backup FILE, and put a copy of it where the store is named to be.

    With --replace also where a store is already, unless a program has it open: the old one is
    moved to NAME.before-restore-TIME next to it, and never deleted. Exits with 5, and changes
    nothing, when FILE is damaged.
    """
    place = _place(file, replace, store)
    checked, aside = _restore(file, place, replace, ask=replace and not yes)
    if as_json:
        put_document(_answer(place, checked, kept=aside))
    else:
        _show_restored(Screen(), place, checked, aside)
    if not checked.ok:
        raise CommandFailed(DAMAGE)


def _place(file: Path, replace: bool, store: str | None) -> Path:
    """The path that the backup is to have. Raises InvalidSetting where that is plainly no good."""
    url = opening.location(store)
    place = opening.path_of(url)
    if place is None:
        raise InvalidSetting(
            f"restore-backup: expected a store in a file, found {without_password(url)!r}; to "
            f"bring the backup's sessions into it: `eventctx copy {file} URL`"
        )
    if place.exists():
        if place.samefile(file):
            raise InvalidSetting(f"{file} is the store itself, not a backup of it")
        if not replace:
            raise InvalidSetting(
                f"there is a store at {place}: --replace puts the backup in its place, and keeps "
                "the old one beside it; --store names another place"
            )
    elif place == default_path():
        place.parent.mkdir(parents=True, exist_ok=True)
    return place


def _restore(
    file: Path, place: Path, replace: bool, *, ask: bool
) -> tuple[StoreVerification, Path | None]:
    from eventctx.stores.sqlite_backup import fetch_copy, put_in_place

    with fetch_copy(file, place) as copy:
        with progress("Verifying the backup"):
            checked = run(verify_file(copy, {}))
        if not checked.ok:
            return checked, None
        if ask and place.exists():
            _ask(file, place, checked)
        aside = put_in_place(copy, place, replace=replace)
    book = ReceiptBook(default_book(place))
    # What was written after the backup has receipts, which would be held against the store.
    book.restored(one.receipt for one in checked.sessions if not one.deleted)
    return checked, aside


def _ask(file: Path, place: Path, checked: StoreVerification) -> None:
    if not sys.stdin.isatty():
        raise InvalidSetting("--replace: nobody can be asked here; say --yes to replace the store")
    question = f"Put {file} ({_counted(checked)}) in the place of {place}?"
    click.confirm(question, abort=True, err=True)


def _show_restored(
    screen: Screen, place: Path, checked: StoreVerification, aside: Path | None
) -> None:
    if not checked.ok:
        show_verifications(screen, checked)
        screen.line(("The backup is damaged", "bold red"), "; nothing was changed.")
        return
    screen.line(("restored ", "bold green"), f"{_counted(checked)}, {_size(place)}, verified:")
    screen.whole(str(place))
    if aside is not None:
        screen.line("The store that was there is kept as:")
        screen.whole(str(aside))


def _counted(checked: StoreVerification) -> str:
    records = sum(one.records for one in checked.sessions)
    return f"{plural(len(checked.sessions), 'session')}, {plural(records, 'record')}"


def _size(file: Path) -> str:
    return size(file.stat().st_size)


class BackupAnswer(msgspec.Struct, frozen=True):
    """A copy of a store, verified; or a backup in the place of a store.

    ``bytes`` is None where there is no file. ``kept`` is where ``restore-backup`` keeps the store
    that was replaced, if any; ``backup`` prints no such key.
    """

    file: Path
    bytes: int | None
    ok: bool
    sessions: list[VerificationAnswer]
    kept: Path | UnsetType | None = UNSET


def _answer(
    file: Path, checked: StoreVerification, kept: Path | UnsetType | None = UNSET
) -> BackupAnswer:
    size = file.stat().st_size if file.exists() else None
    return BackupAnswer(file, size, checked.ok, verification_answers(checked), kept)
