"""Signatures over a session's chain: Ed25519 (RFC 8032), by the package ``cryptography``.

A chain of digests shows that nothing was changed, but anybody can compute a new one. A signature of
its head shows who vouches for all that came before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from eventctx.errors import InvalidSetting
from eventctx.log.events import SessionSigned

_CONTEXT: Final = b"eventctx session chain 1\0"
"""Begins what is signed, so that no signature made for another purpose can stand for one here."""


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
