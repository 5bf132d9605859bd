"""Signatures that say what they were made for, so that they can be verified without a memory.

A real signature binds a thinking block to its model, to its text, and on newer models to what was
before it. So does a seal, in plain sight: base64 of a JSON with digests. A signature from
elsewhere is no seal, and nothing can be said of it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from eventctx.testing.strict_provider.claude_request import (
    THINKING,
    ClaudeBlock,
    ClaudeMessage,
    ClaudeRequest,
    read_model,
)

_MARK: Final = b"strict:"


class Seal(msgspec.Struct, frozen=True):
    """The contents that a signature was made for; digests are hex.

    ``after`` is that of the signature of the thinking before it. A compaction's seal has the
    digests of ``system`` and ``tools`` in ``text``, of all that it replaces in ``prefix``, and of
    its summary in ``after``.
    """

    model: str
    text: str
    prefix: str
    after: str = ""


def seal_signature(seal: Seal) -> str:
    """The signature that says so."""
    return base64.b64encode(_MARK + msgspec.json.encode(seal)).decode()


def read_seal(signature: object) -> Seal | None:
    """The seal in a signature; None for one that was not sealed here."""
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
    return digest(block_type, text if block_type != "redacted_thinking" else None)


def prefixes(request: ClaudeRequest) -> Iterator[tuple[ClaudeBlock, str | None]]:
    """Each block of a request with the digest of what is before it; None if it cannot be known.

    That is ``system``, ``tools`` and every block with its role, but no thinking: the seals say
    which thinking was before. Marks for the cache and null fields are no change. A compaction
    that a model of preserved thinking made is as good as what it replaces, as long as ``system``
    and ``tools`` are the same.
    """
    begin = begin_digest(request)
    prefix: str | None = begin
    for message, block in request.blocks():
        yield block, prefix
        if block.type == "compaction" and block.fields.get("content") is not None:
            seal = read_seal(block.fields.get("signature"))
            prefix = None if seal is None else seal.prefix
            keeps = seal is not None and read_model(seal.model).preserves_thinking
            if seal is not None and (seal.text != begin or not keeps):
                prefix = digest("changed", begin)
        elif prefix is not None:
            prefix = _extend(prefix, message.role, block.fields)


def prefix_digest(request: ClaudeRequest, answered: Sequence[Mapping[str, Any]] = ()) -> str | None:
    """The digest of what is before the next block of an answer that has these blocks."""
    end = ClaudeBlock("", "", {})
    last = ClaudeMessage(len(request.rows), "assistant", None, (end,), {})
    whole = msgspec.structs.replace(request, rows=(*request.rows, last))
    prefix = list(prefixes(whole))[-1][1]
    for fields in answered:
        prefix = prefix and _extend(prefix, "assistant", fields)
    return prefix


def begin_digest(request: ClaudeRequest) -> str:
    """The digest of ``system`` and ``tools``."""
    return digest(plain_text(request.body.get("system")), plain(request.body.get("tools")))


def _extend(prefix: str, role: str, block: Mapping[str, Any]) -> str:
    return prefix if block.get("type") in THINKING else digest(prefix, role, plain(block))


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
