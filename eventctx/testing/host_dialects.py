"""Checks that a host's messages come back from the log as they went in."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final, Protocol, TypeVar

from eventctx.errors import InvalidMessage
from eventctx.messages.encoding import decode_body, encode_message
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import Part, parts_of_result, read_parts
from eventctx.messages.shorten import Limit, shorten
from eventctx.projections.view.refs import MessageRef
from eventctx.projections.view.render import synthetic_result
from eventctx.testing.requests import check_request
from eventctx.text import clip

M = TypeVar("M")
Row = dict[str, Any]

_FEW: Final = Limit(40, 40, 40)
_SHOWN: Final = 300
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
        """The content of a message; equal for one that the host gave back in another form."""
        ...


def check_dialect(
    dialect: HostDialect[M],
    messages: Sequence[M],
    texts: Sequence[str],
    *,
    compared: Callable[[M], object] = lambda message: message,
) -> None:
    """Check a dialect on a conversation in which each of ``texts`` is said, called or returned.

    The rows go through the encoding of the log. They come back as the same messages; the engine
    reads every text and pairs calls with results; what is shortened or inserted by the engine comes
    back so; and a message is known again by its identity alone. Raises AssertionError, which says
    what was expected and found, and what to do.

    ``compared`` makes of a message what it is compared by, for a host whose messages are equal only
    to themselves.
    """
    made = dialect.rows_of(messages)
    rows = [_through_the_log(row, at) for at, row in enumerate(made)]
    back = dialect.messages_of(rows)
    _check_same(list(map(compared, messages)), list(map(compared, back)))
    check_request(rows, "the conversation")
    read = "\n".join(str(part.value) for row in rows for part in _contents(row))
    unread = [text for text in texts if text not in read and repr(text)[1:-1] not in read]
    assert not unread, (
        f"the engine does not read {_cut(unread)}, and so could not count or shorten it. It reads "
        f"the names of docs/reference/adapter-kit.md; found the rows {_cut(rows)}"
    )
    known = _identities(dialect, rows)
    again = _identities(dialect, dialect.rows_of(dialect.messages_of(rows)))
    for row, was, now in zip(rows, known, again, strict=False):
        assert was == now, (
            "messages are not known again: identity() differs for a row that went through "
            f"messages_of() and rows_of(); leave out what that changes. The row: {_cut(row)}"
        )
    _check_shortened(dialect, rows, known)
    _check_inserted(dialect, rows)


def _check_shortened(
    dialect: HostDialect[M], rows: Sequence[Row], known: Sequence[Hashable]
) -> None:
    short = [shorten(_through_the_log(row, at), at, _FEW) for at, row in enumerate(rows)]
    back = dialect.rows_of(dialect.messages_of(short))
    assert len(back) == len(short), (
        f"{len(short)} rows became {len(back)}, after the engine had shortened them"
    )
    found = _identities(dialect, back)
    for one, other, same in zip(
        short, back, map(_equal, _identities(dialect, short), found), strict=True
    ):
        assert same, (
            "shortened messages grew again, or lost something: messages_of() has to make the "
            f"message of what is in the row alone. The row: {_cut(one)}; as it came back: "
            f"{_cut(other)}"
        )
    for row, shorter, was, now in zip(rows, short, known, found, strict=True):
        assert (was != now) == (row != shorter), (
            "messages that say different things have one identity: identity() has to tell "
            f"{_cut(row)} from {_cut(shorter)}"
        )


_SUMMARY: Final[Row] = {"role": "user", "content": "A summary of what was said."}


def _check_inserted(dialect: HostDialect[M], rows: Sequence[Row]) -> None:
    """Check the rows that a view may have besides those of the host: they are plain messages."""
    inserted = [_SUMMARY]
    for at, row in enumerate(rows):
        facts = read_facts(row)
        if facts.calls:
            ref = MessageRef(at, at, 0, b"", facts, 0)
            body = encode_message(row)
            inserted.append(synthetic_result(ref, facts.calls[0], "It never ended.", body))
            break
    for row in inserted:
        try:
            (back,) = dialect.rows_of(dialect.messages_of([dict(row)]))
        except Exception as error:
            raise AssertionError(
                f"messages_of() does not take a row that the engine inserts, {row}: "
                f"{type(error).__name__}: {error}. Its content is a text, and it has no fields of "
                "the host's own"
            ) from error
        said = " ".join(str(part.value) for part in _contents(back))
        wanted = [str(part.value) for part in _contents(row)]
        assert all(one in said for one in wanted), (
            f"a row that the engine inserts, {row}, came back as {_cut(back)}: expected its text"
        )


def _check_same(messages: Sequence[Any], back: Sequence[Any]) -> None:
    what = "messages changed in the log"
    assert len(back) == len(messages), (
        f"{what}: rows_of() and messages_of() made {len(back)} of {len(messages)}; a message may "
        "be several rows, but comes back as one"
    )
    for at, (one, other) in enumerate(zip(messages, back, strict=True)):
        assert one == other, (
            f"{what}: message {at} was {_cut(one)} and came back as {_cut(other)}; a row has to "
            "keep every field that the host reads, as JSON. If the host's messages have no "
            "equality of their own, give compared=, a function to data that has one"
        )


def _identities(dialect: HostDialect[M], rows: Sequence[Row]) -> list[Hashable]:
    found = [dialect.identity(row) for row in rows]
    for one in found:
        try:
            hash(one)
        except TypeError:
            raise AssertionError(
                f"identity() gave {_cut(one)}, which is not hashable: give a text, a tuple or "
                "eventctx.adapters.kit.plain_identity(row)"
            ) from None
    return found


def _equal(one: object, other: object) -> bool:
    return one == other


def _cut(value: object) -> str:
    return clip(repr(value), _SHOWN + 1)


def _contents(row: Row) -> list[Part]:
    parts = [part for part in read_parts(row) if part.kind in _READ]
    inner = [one for part in parts if part.kind == "result" for one in parts_of_result(part)]
    return [*(part for part in parts if part.kind != "result"), *inner]


def _through_the_log(row: Row, at: int) -> Row:
    try:
        return decode_body(encode_message(row))  # type: ignore[no-any-return]
    except InvalidMessage as error:
        raise AssertionError(f"rows_of(): row {at} cannot be stored: {error}") from error
