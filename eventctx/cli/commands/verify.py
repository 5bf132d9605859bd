"""``verify``: recompute every digest, and list the damage."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from eventctx.cli.output import opening
from eventctx.cli.output.plain import plural
from eventctx.cli.output.program import DAMAGE, CommandFailed, run
from eventctx.cli.output.screen import Screen, progress, put_document
from eventctx.documents.verification import verification_document
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.naming import position_name
from eventctx.log.signatures import public_key
from eventctx.log.store import Receipt
from eventctx.queries.verification.findings import MAX_PROBLEMS, Problem, Verification
from eventctx.queries.verification.whole_store import StoreVerification

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

    Prints a receipt for each; keep it outside the store. Exits with 5 when damage is found.
    """
    kept = [_receipt(text) for text in receipts]
    key = None if signed_by is None else _public_key(signed_by)
    checked, book = run(_verify(session, kept, store))
    if key is not None:
        checked = _signed(checked, key)
    if as_json:
        put_document(verification_document(checked))
    else:
        show_verifications(Screen(), checked, book)
    if not checked.ok:
        raise CommandFailed(DAMAGE)


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


def _signed(checked: StoreVerification, key: str) -> StoreVerification:
    """The outcome with a problem for each session that the key has not signed."""
    sessions = []
    for one in checked.sessions:
        if not any(signed.public_key == key for signed in one.signed):
            problem = Problem(-1, "signature", f"no signature of the key {key[:16]}… holds")
            one = msgspec.structs.replace(one, problems=(*one.problems, problem))
        sessions.append(one)
    return msgspec.structs.replace(checked, sessions=tuple(sessions))


async def _verify(
    session: str | None, receipts: list[Receipt], store: str | None
) -> tuple[StoreVerification, Path | None]:
    async with opening.existing(store) as engine:
        if session is None and not receipts:
            with progress("Verifying", len(await engine.sessions())) as bar:

                def began(name: str, done: int, _of: int) -> None:
                    bar.name(f"Verifying {name}")
                    bar.at(done)

                return await engine.verify_store(began=began), engine.receipts_path
        checked: list[Verification] = []
        with progress("Verifying", None) as bar:
            for name in await _named(engine, session, receipts):
                bar.name(f"Verifying {name}")
                own = [one for one in receipts if one.stream == name]
                checked += [await engine.verify(name, receipt) for receipt in own or (None,)]
        return StoreVerification(tuple(checked), ()), engine.receipts_path


async def _named(engine: Engine, session: str | None, receipts: list[Receipt]) -> list[str]:
    names = list(dict.fromkeys(receipt.stream for receipt in receipts))
    if session is None:
        return names
    # A receipt may be for a session that is gone, which is a finding and no bad usage.
    name = session if session in names else (await opening.find_session(engine, session)).stream
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
    for one in checked.sessions:
        if one.ok:
            _show_sound(screen, one)
        else:
            _show_damaged(screen, one)
    for problem in checked.problems:
        screen.line(("DAMAGED ", "bold red"), ("the store", "bold"), f": {problem}")
    count = len(checked.sessions)
    bad = sum(not one.ok for one in checked.sessions)
    if not count and not checked.problems:
        screen.line("The store holds no sessions.")
    elif count > 1 or checked.problems:
        parts = [f"{plural(count - bad, 'session')} ok"]
        parts += [f"{bad} damaged"] if bad else []
        parts += [plural(len(checked.problems), "problem") + " of the store"] * bool(
            checked.problems
        )
        screen.line((", ".join(parts), "bold" if checked.ok else "bold red"))
    kinds = {found.kind for one in checked.sessions for found in one.problems}
    if "receipt" in kinds and book is not None:
        screen.line("If you put an older copy of the store in its place, delete its receipts:")
        screen.whole(str(book))


def _show_sound(screen: Screen, one: Verification) -> None:
    if one.deleted:
        screen.line(
            ("ok ", "bold green"), (one.stream, "bold"),
            f": deleted on purpose, with {plural(one.deleted, 'record')}; receipt:",
        )  # fmt: skip
    else:
        signers = len({signed.public_key for signed in one.signed})
        signed = f", signed by {plural(signers, 'key')}" if signers else ""
        screen.line(
            ("ok ", "bold green"), (one.stream, "bold"),
            f": {plural(one.records, 'record')}{_erased(one)}{signed}; receipt:",
        )  # fmt: skip
    # People copy a receipt, so it has a line of its own, which is never wrapped.
    screen.whole(str(one.receipt))


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
