"""What a host's messages must keep on their way into the log and back."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from eventctx.messages.encoding import decode_body, encode_plain
from eventctx.messages.parts import Part, parts_of_result, read_parts
from eventctx.messages.shorten import Limit, shorten
from eventctx.testing.requests import check_request

M = TypeVar("M")
Row = dict[str, Any]

_FEW: Final = Limit(40, 40, 40)
_READ: Final = ("text", "thinking", "refusal", "call", "result", "hosted")


class HostDialect(Protocol[M]):
    """A host's messages as rows that the engine reads, and back.

    One copy of a content is in a row, under the names that ``eventctx.messages.parts`` knows, so
    that a shortened row is a shortened message.
    """

    def rows_of(self, messages: Sequence[M]) -> list[Row]:
        """A conversation as rows, each a plain dict."""
        ...

    def messages_of(self, rows: Sequence[Row]) -> list[M]:
        """Rows, also shortened or inserted ones, as the host's messages."""
        ...

    def identity(self, row: Mapping[str, Any]) -> Hashable:
        """What a message says; equal for one that the host gave back in another form."""
        ...


def check_dialect(dialect: HostDialect[M], messages: Sequence[M], texts: Sequence[str]) -> None:
    """Check a dialect on a conversation in which each of ``texts`` is said, called or returned.

    The rows go through the encoding of the log. They come back as the same messages; the engine
    reads every text and pairs calls with results; what is shortened comes back shortened; and a
    message is known again by its identity alone. Raises AssertionError.
    """
    rows = [_through_the_log(row) for row in dialect.rows_of(messages)]
    assert dialect.messages_of(rows) == list(messages), "messages changed in the log"
    check_request(rows, "the conversation")
    read = "\n".join(str(part.value) for row in rows for part in _contents(row))
    unread = [text for text in texts if text not in read and repr(text)[1:-1] not in read]
    assert not unread, f"the engine does not read {unread!r}"
    known = [dialect.identity(row) for row in rows]
    again = [dialect.identity(row) for row in dialect.rows_of(dialect.messages_of(rows))]
    assert known == again, "messages are not known again"
    short = [shorten(_through_the_log(row), at, _FEW) for at, row in enumerate(rows)]
    back = dialect.rows_of(dialect.messages_of(short))
    found = [dialect.identity(row) for row in back]
    assert found == [dialect.identity(row) for row in short], "shortened messages grew again"
    changed = [one != other for one, other in zip(rows, short, strict=True)]
    differs = [one != other for one, other in zip(known, found, strict=True)]
    assert differs == changed, "messages that say different things have one identity"


def _contents(row: Row) -> list[Part]:
    parts = [part for part in read_parts(row) if part.kind in _READ]
    inner = [one for part in parts if part.kind == "result" for one in parts_of_result(part)]
    return [*(part for part in parts if part.kind != "result"), *inner]


def _through_the_log(row: Row) -> Row:
    return decode_body(encode_plain(row))  # type: ignore[no-any-return]
