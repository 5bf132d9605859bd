"""Names for imported sessions, and ids for their records: the same ones on every import."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from eventctx.importers.source.lines import text_of_content
from eventctx.importers.source.values import encode

MAX_CHARACTERS: Final = 120
_SAME_IN_EVERY_SESSION: Final = frozenset(
    ("transcript", "context-messages", "events", "api_conversation_history")
)
_BETWEEN: Final = frozenset(("context-intelligence",))
_KEPT: Final = frozenset("._-:@+=,()[] ")


def session_name(text: str) -> str:
    """A session id from a file's own name for itself: short, without path or control characters."""
    name = "".join(c if c.isalnum() or c in _KEPT else "-" for c in text).strip(" .-")
    if not name:
        return f"import-{_hex(text)}"
    return name if len(name) <= MAX_CHARACTERS else f"{name[:100]}-{_hex(text)}"


def named_by_folder(path: Path) -> str:
    """The file's own name, or the session's folder if the file has one name in every session."""
    if path.stem not in _SAME_IN_EVERY_SESSION:
        return path.name
    folder = path.resolve().parent
    return (folder.parent if folder.name in _BETWEEN else folder).name or path.name


def names_with_folders(path: Path, own: str) -> Iterator[str]:
    """The name ``own`` after that of its folder, then after those of two, …

    A folder of the same name says nothing.
    """
    name = own
    for folder in path.resolve().parents:
        if folder.name and folder.name != own:
            name = f"{folder.name}.{name}"
            yield session_name(name)


def folder_mark(path: Path) -> str:
    """What tells files of one name apart by their folders, without the folders' names."""
    return _hex(str(path.resolve().parent))


class RecordNames:
    """Names for a file's records by their ids: a record that is written again has its name again.

    No program gives an id twice, but files do have them. What a person says under a known id is no
    new version of that record, so it gets a name of its own, and hides nothing.
    """

    def __init__(self) -> None:
        self._first: dict[str, str] = {}

    def name_of(self, own: str, said: str) -> str:
        """The name of a record with the id ``own``; ``said`` as from ``words_in``, or its kind."""
        first = self._first.setdefault(own, said)
        return own if first == said else f"{own}\0{said}"


def words_in(content: Any) -> str:
    """A mark of what a person says in a message's content; the same in any form of content."""
    return _hex(text_of_content(content) or encode(content).decode())


def _hex(text: str) -> str:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=6).hexdigest()


def event_id(source: str, line: int, kind: str, ordinal: int | str) -> bytes:
    """An id of 16 bytes from a record's origin. ``source`` is the file's own id for its session.

    The file's path is left out, so a copy under another name is the same source.
    """
    text = f"{source}\0{line}\0{kind}\0{ordinal}"
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()
