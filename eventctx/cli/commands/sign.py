"""``sign``: vouch for a session with a key of one's own."""

from __future__ import annotations

from pathlib import Path

import click

from eventctx.cli.output import opening
from eventctx.cli.output.program import run
from eventctx.cli.output.screen import Screen, put_document
from eventctx.errors import InvalidSetting
from eventctx.log.integrity import Signer, signer
from eventctx.log.store import Receipt


@click.command("sign", short_help="Vouch for a session with a key.")
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
        put_document({"session": receipt.stream, "receipt": str(receipt), "key": chosen.public_key})
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
    async with opening.existing(store) as engine:
        info = await opening.find_session(engine.store, session)
        return await engine.sign(info.stream, key)
