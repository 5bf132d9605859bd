"""``verify``: recompute every digest, and list the damage."""

from __future__ import annotations

from typing import Any

import click

from eventctx.cli.output import opening
from eventctx.cli.output.plain import plural
from eventctx.cli.output.program import FOUND, CommandFailed, run
from eventctx.cli.output.screen import Screen, progress, put_document
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting
from eventctx.log.store import Receipt
from eventctx.queries.verify import MAX_PROBLEMS, Verification

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
@opening.reading
def verify_command(
    session: str | None, receipts: tuple[str, ...], store: str | None, as_json: bool
) -> None:
    """Check every record and content of SESSION, or of all sessions, against its digest.

    Prints a receipt for each; keep it outside the store. Exits with 1 when damage is found.
    """
    kept = [_receipt(text) for text in receipts]
    checked = run(_verify(session, kept, store))
    if as_json:
        put_document([_as_json(one) for one in checked])
    else:
        show_verifications(Screen(), checked)
    if any(not one.ok for one in checked):
        raise CommandFailed(FOUND)


def _receipt(text: str) -> Receipt:
    try:
        return Receipt.parse(text.strip())
    except ValueError as error:
        raise InvalidSetting(f"--receipt: expected SESSION@POSITION:DIGEST ({error})") from error


async def _verify(
    session: str | None, receipts: list[Receipt], store: str | None
) -> list[Verification]:
    async with opening.existing(store) as engine:
        if session is not None:
            names = [(await opening.find_session(engine, session)).stream]
        elif receipts:
            names = list(dict.fromkeys(receipt.stream for receipt in receipts))
        else:
            names = [info.stream for info in await engine.sessions()]
        for receipt in receipts:
            if receipt.stream not in names:
                raise InvalidSetting(
                    f"--receipt: expected one for session {names[0]!r}, found one for "
                    f"{receipt.stream!r}"
                )
        checked: list[Verification] = []
        with progress("Verifying", len(names) if len(names) > 1 else None) as bar:
            for done, name in enumerate(names, 1):
                bar.name(f"Verifying {name}")
                checked.extend(await _verify_one(engine, name, receipts))
                bar.at(done)
    return checked


async def _verify_one(engine: Engine, name: str, receipts: list[Receipt]) -> list[Verification]:
    own = [receipt for receipt in receipts if receipt.stream == name]
    if not own:
        return [await engine.verify(name)]
    return [await engine.verify(name, receipt) for receipt in own]


def _as_json(one: Verification) -> dict[str, Any]:
    return {
        "session": one.stream,
        "ok": one.ok,
        "records": one.records,
        "erased": one.erased,
        "problems": one.problems,
        "receipt": str(one.receipt) if one.ok else None,
    }


def show_verifications(screen: Screen, checked: list[Verification]) -> None:
    """Each session's result, its damage or its receipt, and a last line for all."""
    for one in checked:
        erased = f", {plural(one.erased, 'content')} erased on purpose" if one.erased else ""
        if one.ok:
            screen.line(
                ("ok ", "bold green"), (one.stream, "bold"),
                f": {plural(one.records, 'record')}{erased}; receipt:",
            )  # fmt: skip
            # People copy a receipt, so it has a line of its own, which is never wrapped.
            screen.whole(str(one.receipt))
            continue
        many = len(one.problems)
        found = f"{MAX_PROBLEMS:,} problems or more" if many >= MAX_PROBLEMS else (
            plural(many, "problem")
        )  # fmt: skip
        screen.line(
            ("DAMAGED ", "bold red"), (one.stream, "bold"),
            f": {found} in {plural(one.records, 'record')}{erased}",
        )  # fmt: skip
        shown = one.problems[:_LISTED] if screen.live else one.problems
        for problem in shown:
            screen.line(
                (f"position {problem.position}", "red"), f" ({problem.kind}): {problem.text}",
                indent=3,
            )  # fmt: skip
        if len(shown) < many:
            screen.line((f"… and {many - len(shown)} more (--json lists them)", "dim"), indent=3)
    bad = sum(not one.ok for one in checked)
    if not checked:
        screen.line("The store holds no sessions.")
    elif len(checked) > 1:
        good = f"{plural(len(checked) - bad, 'session')} ok"
        screen.line((f"{good}, {bad} damaged" if bad else good, "bold red" if bad else "bold"))
