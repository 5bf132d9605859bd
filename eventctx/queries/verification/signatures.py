"""The check of signatures in a chain: each vouches for the record just before it."""

from __future__ import annotations

from eventctx.errors import DecodeError, InvalidSetting
from eventctx.log.codec import decode_event
from eventctx.log.events import SessionSigned
from eventctx.log.integrity import holds
from eventctx.log.record import Record
from eventctx.queries.verification.findings import Findings, Signed


class SignatureChecker:
    """Takes the records of a stream in order; ``signed`` are the signatures that hold."""

    def __init__(self, found: Findings) -> None:
        self._found = found
        self.signed: list[Signed] = []

    def take(self, record: Record, previous: bytes | None) -> None:
        """Check a ``session:signed``; ``previous`` is the digest of the record before it."""
        if record.type != "session:signed":
            return
        try:
            event = decode_event(record)
            if not isinstance(event, SessionSigned):
                return  # of a later release
            before = record.position - 1, (previous or b"").hex()
            if (event.position, event.digest) == before and holds(event):
                self.signed.append(Signed(event.position, event.public_key))
                return
            problem = "the signature is not that of its key over the records before it"
        except DecodeError as error:
            problem = str(error)
        except InvalidSetting as error:
            problem = f"the signature cannot be checked: {error}"
        self._found.report(record.position, "signature", problem)
