"""``view --verify``: the proof that a view that was derived again is the one that was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventctx.cli.output.plain import plural
from eventctx.log.naming import message_name, position_name

if TYPE_CHECKING:
    from eventctx.cli.output.screen import Screen
    from eventctx.queries.requests import RequestView
    from eventctx.queries.sent import SentForm
    from eventctx.queries.view import Proof


def show_proof(screen: Screen, view: RequestView, proof: Proof) -> None:
    """Show the proof in words: the digest, every body, and the erased messages."""
    recorded = view.prepared.digest
    if view.sent is not None:
        _show_sent(screen, view, view.sent)
    if view.known == "reconstructed":
        screen.line("An importer inferred the request: the file does not hold what was sent.")
    if proof.digest_matches and view.known != "prepared":
        screen.line("The transcript's view was derived again, and is the one that the import made,")
        screen.line(f"at position {view.position}:")
        screen.whole(recorded)
    elif proof.digest_matches:
        screen.line("The view was derived again from the log, and has the digest that was recorded")
        screen.line(f"before the request left, {position_name(view.position)}:")
        screen.whole(recorded)
    else:
        screen.line(("The view that the log gives is not the one that was sent.", "bold red"))
        screen.whole(f"recorded {recorded}")
        screen.whole(f"derived  {view.digest}")
    entries = plural(len(view.entries), "message")
    if proof.edited:
        places = ", ".join(map(position_name, proof.edited))
        screen.line(
            (f"Of {entries}, these were changed after they were stored: ", "bold red"),
            f"those in the records at {places}.",
        )
    else:
        screen.line(
            f"{plural(proof.bodies, 'stored content')} of {entries} have their own digests."
        )
    if proof.erased:
        numbers = ", ".join(map(message_name, proof.erased))
        screen.line(f"Erased on purpose, so that only their digests could be compared: {numbers}.")
    if proof.ok and view.known == "reconstructed":
        screen.line(("The view is consistent.", "bold"), " What was sent, nothing proves.")
    elif proof.ok and (view.sent is None or view.sent.holds):
        screen.line(("The view verifies.", "bold green"))
    else:
        screen.line(("The view DOES NOT VERIFY", "bold red"), "; `verify` says what was changed.")


def _show_sent(screen: Screen, view: RequestView, sent: SentForm) -> None:
    """Show whether the request that was rebuilt is the one that the program sent."""
    wire = view.prepared.wire
    recorded = "" if wire is None else wire.digest
    if sent.holds:
        screen.line("The request was rebuilt from the log, message by message. Each had the hash")
        screen.line("that the program recorded when it sent it; since then the digest is the same:")
        screen.whole(recorded)
    elif sent.digest == recorded:
        screen.line(("Contents of the request were changed after they were stored.", "bold red"))
    else:
        screen.line(("The request that the log gives is not the one that was sent.", "bold red"))
        screen.whole(f"recorded {recorded}")
        screen.whole(f"rebuilt  {sent.digest}")
