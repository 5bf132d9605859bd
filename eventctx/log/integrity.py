"""The two checks that a stored log is what was written: digests of bodies, signatures of chains.

Invariant: every body that goes to a model, to a caller or into an answer is read by
``sound_bodies``, which compares it with the digest in its record. Only ``verify``, and a view that
is shown although it is damaged, read bodies unchecked.

A chain of digests shows that nothing was changed, but anybody can compute a new one. A signature of
its head names the key that vouches for all that came before: Ed25519 (RFC 8032), by the package
``cryptography``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple

from eventctx.errors import (
    InvalidSetting,
    LogCorrupted,
    SessionWasDeleted,
    StreamNotFound,
    WrongExpectedVersion,
)
from eventctx.log.events import SessionSigned
from eventctx.log.record import Body, body_digest
from eventctx.log.store import Address, EventStore

# -- bodies --------------------------------------------------------------------------------------


def is_sound(body: Body) -> bool:
    """Whether a body still has its digest; an erased body has nothing else and is sound."""
    if body.data is None or body.salt is None:
        return body.erased
    return body_digest(body.salt, body.data) == body.digest


async def sound_bodies(store: EventStore, stream: str, addresses: Sequence[Address]) -> list[Body]:
    """The bodies at ``addresses``, in that order, each checked against its record's digest.

    Raises LogCorrupted for a body that lost its digest, and what ``EventStore.bodies`` raises. Says
    so only after a second read: WrongExpectedVersion for places that the log does not have (yet),
    StreamNotFound and SessionWasDeleted for a session that another process deleted meanwhile.
    """
    try:
        return await _read_bodies(store, stream, addresses)
    except LogCorrupted:
        info = await store.head(stream)
        if info is None:
            raise StreamNotFound(stream) from None
        if info.deleted:
            raise SessionWasDeleted(stream) from None
        last = max([position for position, _ in addresses])
        if last > info.head:
            raise WrongExpectedVersion(stream, last, info.head) from None
    return await _read_bodies(store, stream, addresses)


async def _read_bodies(store: EventStore, stream: str, addresses: Sequence[Address]) -> list[Body]:
    bodies = await store.bodies(stream, addresses)
    check_bodies(stream, zip(addresses, bodies, strict=True))
    return bodies


def check_bodies(stream: str, placed: Iterable[tuple[Address, Body]]) -> None:
    """Raise LogCorrupted for the first body that is not sound."""
    for address, body in placed:
        data, salt = body.data, body.salt
        # Written out for the usual body, since this runs for every message that is read.
        if data is not None and salt is not None and body_digest(salt, data) == body.digest:
            continue
        if not is_sound(body):
            raise _unsound(stream, address, body)


def damage_found(stream: str, places: Sequence[Address], bodies: Sequence[Body]) -> LogCorrupted:
    """The error for bodies that cannot be decoded; names the first that lost its digest."""
    for address, body in zip(places, bodies, strict=True):
        if not is_sound(body):
            return _unsound(stream, address, body)
    return LogCorrupted(stream, places[0].position, "a body is no JSON")


def _unsound(stream: str, address: Address, body: Body) -> LogCorrupted:
    if body.data is None:
        found = "none: it was removed without an erasure"
    elif body.salt is None:
        found = "contents without their salt"
    else:
        found = "others: they were edited or damaged"
    problem = (
        f"body {address.index}: expected the contents with the digest in their record, found "
        f"{found}. Nothing is read from it; restore the store from a backup"
    )
    return LogCorrupted(stream, address.position, problem)


# -- signatures ----------------------------------------------------------------------------------

_CONTEXT: Final = b"eventctx session chain 1\0"
"""Begins what is signed, so that no signature made for another purpose passes for one of these."""


class Signer(NamedTuple):
    """A key that signs; ``public_key`` in hex."""

    public_key: str
    sign: Callable[[bytes], bytes]


def signed_bytes(position: int, digest: bytes) -> bytes:
    """The bytes that a signature covers: the position of a record, and its digest."""
    return _CONTEXT + position.to_bytes(8, "big") + digest


def signer(pem: bytes, password: bytes | None = None) -> Signer:
    """The key in a PEM file, such as ``openssl genpkey -algorithm ed25519`` writes.

    Raises InvalidSetting.
    """
    serialization, ed25519 = _library()
    try:
        key = serialization.load_pem_private_key(pem, password)
    except (ValueError, TypeError) as error:
        raise InvalidSetting(f"key: expected a private key in PEM form ({error})") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey):
        raise InvalidSetting(f"key: expected an Ed25519 key, found a {type(key).__name__}")
    return Signer(key.public_key().public_bytes_raw().hex(), key.sign)


def public_key(text: str) -> str:
    """A public key in hex, from hex or PEM. Raises InvalidSetting."""
    if "BEGIN" in text:
        serialization, ed25519 = _library()
        try:
            key = serialization.load_pem_public_key(text.encode())
        except ValueError as error:
            raise InvalidSetting(f"key: expected a public key in PEM form ({error})") from error
        if isinstance(key, ed25519.Ed25519PublicKey):
            return str(key.public_bytes_raw().hex())
    elif len(text.strip()) == 64:
        try:
            return bytes.fromhex(text.strip()).hex()
        except ValueError:
            pass
    raise InvalidSetting("key: expected an Ed25519 public key, as PEM or 64 hex digits")


def sign(position: int, digest: bytes, key: Signer) -> SessionSigned:
    """The event that vouches for the record at ``position`` and all before it."""
    made = key.sign(signed_bytes(position, digest)).hex()
    return SessionSigned(
        position=position, digest=digest.hex(), public_key=key.public_key, signature=made
    )


def holds(event: SessionSigned) -> bool:
    """Whether a signature is that of its key over what it names. Raises InvalidSetting."""
    _, ed25519 = _library()
    from cryptography.exceptions import InvalidSignature

    try:
        key = ed25519.Ed25519PublicKey.from_public_bytes(bytes.fromhex(event.public_key))
        covered = signed_bytes(event.position, bytes.fromhex(event.digest))
        key.verify(bytes.fromhex(event.signature), covered)
    except (InvalidSignature, ValueError, OverflowError):
        return False
    return True


def _library() -> tuple[Any, Any]:
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise InvalidSetting(
            "signatures need the package cryptography: install eventctx[sign]"
        ) from error
    return serialization, ed25519
