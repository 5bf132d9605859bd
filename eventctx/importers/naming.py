"""Names for imported sessions, and ids for their records: the same ones on every import."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

MAX_CHARACTERS: Final = 120
_KEPT: Final = frozenset("._-:@+=,()[] ")


def session_name(text: str) -> str:
    """A session id made of what a file calls itself: no path or control characters, not long."""
    name = "".join(c if c.isalnum() or c in _KEPT else "-" for c in text).strip(" .-")
    if not name:
        return f"import-{_hex(text)}"
    return name if len(name) <= MAX_CHARACTERS else f"{name[:100]}-{_hex(text)}"


def _hex(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def event_id(source: str, line: int, kind: str, ordinal: int | str) -> bytes:
    """16 bytes from where a record comes from. ``source`` is the file's own name for its session.

    The file's path is not in it: a copy under another name is the same source.
    """
    text = f"{source}\0{line}\0{kind}\0{ordinal}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
