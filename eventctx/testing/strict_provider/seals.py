"""Signatures that say what they were made for, so that they can be verified without a memory.

A real signature binds a thinking block to its model, to its text, and on newer models to what was
before it. So does a seal, in plain sight: base64 of a JSON with digests. A signature from
elsewhere is no seal, and nothing can be said of it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from eventctx.testing.strict_provider.claude_request import (
    THINKING,
    ClaudeBlock,
    ClaudeMessage,
    ClaudeRequest,
)

_MARK: Final = b"strict:"


class Seal(msgspec.Struct, frozen=True):
    """What a signature was made for; digests are hex, ``after`` the seal of the thinking before."""

    model: str
    text: str
    prefix: str
    after: str = ""


def seal_signature(seal: Seal) -> str:
    """The signature that says so."""
    return base64.b64encode(_MARK + msgspec.json.encode(seal)).decode()


def read_seal(signature: object) -> Seal | None:
    """What a signature was made for; None for one that was not sealed here."""
    if not isinstance(signature, str):
        return None
    try:
        content = base64.b64decode(signature, validate=True)
        if not content.startswith(_MARK):
            return None
        return msgspec.json.decode(content[len(_MARK) :], type=Seal)
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return None


def signature_of(block: ClaudeBlock) -> object:
    """The signature of a thinking block, or the data of a redacted one."""
    return block.fields.get("signature" if block.type == "thinking" else "data")


def sealed_blocks(request: ClaudeRequest) -> list[tuple[ClaudeMessage, ClaudeBlock, Seal]]:
    """The thinking of a request that was sealed here, in order."""
    found = []
    for row, block in request.blocks():
        seal = read_seal(signature_of(block)) if block.type in THINKING else None
        if seal is not None:
            found.append((row, block, seal))
    return found


def digest(*parts: object) -> str:
    """SHA-256 of values as JSON with sorted keys, in hex."""
    return hashlib.sha256(msgspec.json.encode(parts, order="deterministic")).hexdigest()


def text_digest(block_type: str, text: object) -> str:
    """The digest of what a thinking block shows."""
    return digest(block_type, text if block_type == "thinking" else None)


def prefix_digest(
    request: ClaudeRequest,
    until: ClaudeBlock | None = None,
    answered: Sequence[Mapping[str, Any]] = (),
) -> str:
    """The digest of what is before a block, or before the next block of an answer.

    That is ``system``, ``tools`` and every block with its role, but no thinking: the seals say
    which thinking was before. Marks for the cache and null fields are no change.
    """
    before = []
    for row, block in request.blocks():
        if block is until:
            break
        before.append((row.role, block.fields))
    before += [("assistant", block) for block in answered]
    spoken = [(role, plain(block)) for role, block in before if block.get("type") not in THINKING]
    return digest(plain_text(request.body.get("system")), plain(request.body.get("tools")), spoken)


def plain(value: Any) -> Any:
    """A value without marks for the cache and null fields; a result's text as a block."""
    if isinstance(value, Mapping):
        kept = {
            key: plain(one)
            for key, one in value.items()
            if key != "cache_control" and one is not None
        }
        if kept.get("type") == "tool_result":
            kept["content"] = plain_text(value.get("content"))
            kept["is_error"] = bool(value.get("is_error"))
        return kept
    return [plain(one) for one in value] if isinstance(value, list | tuple) else value


def plain_text(content: Any) -> Any:
    """A content as blocks, whether it was sent as a text or as a list."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return plain(content) or []
