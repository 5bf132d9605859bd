"""Names in a timeline's document that somebody chose, without the secrets in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from eventctx.hooks.redact import Redactor
from eventctx.projections.timeline.units import Document

_OF_SESSION: Final = ("session", "mirror", "source_format")
_OF_COMPACTION: Final = ("strategy", "fallback", "error", "requested_by")


def without_secrets(document: Document, redactor: Redactor) -> Document:
    """The document with its names and error texts redacted; ids and digests stay."""
    text = redactor.text
    parent = document["parent"]
    return {
        **_changed(document, _OF_SESSION, text),
        "parent": None if parent is None else _changed(parent, ("session",), text),
        "extras": [_changed(one, ("name",), text) for one in document["extras"]],
        "models": [text(one) for one in document["models"]],
        "compactions": [_changed(one, _OF_COMPACTION, text) for one in document["compactions"]],
        "reasons": [_changed(one, ("code",), text) for one in document["reasons"]],
        "links": [_changed(one, ("session", "kind"), text) for one in document["links"]],
    }


def _changed(fields: Document, names: tuple[str, ...], text: Callable[[str], str]) -> Document:
    found = {name: text(fields[name]) for name in names if isinstance(fields.get(name), str)}
    return {**fields, **found}
