"""One file that shows a session: the page, the timeline, and the contents that may be seen."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, Final, NamedTuple

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.hooks.result_redactor import ResultRedactor
from eventctx.log.store import EventStore, Receipt
from eventctx.projections.timeline.columns import Document
from eventctx.text import escape
from eventctx.version import __version__
from eventctx.web.export.contents import BodyBlock, addresses, blocks, demanding, packed
from eventctx.web.export.cut import cut_to_turns, everything
from eventctx.web.export.shell import shell
from eventctx.web.export.structure import structure_of
from eventctx.web.renderer import Renderer

_ESCAPES: Final = str.maketrans({"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"})

_MOST_SLOW: Final = 8
"""Texts whose markup may take too long: those of a session that was written to be slow."""

_ALONE: Final = (
    "If this stays, the session cannot be shown: the file is not whole, or this browser is too old "
    "or runs no scripts."
)
"""Goes away when the page is there."""


class Contents(NamedTuple):
    """The contents of a session that a file holds.

    With ``reveal`` no secret is replaced. With ``structure`` no text and
    no chosen name is in the file. ``turns`` are the first and the last one of a cut.
    """

    reveal: bool = False
    structure: bool = False
    turns: tuple[int, int] | None = None

    def left_out(self) -> list[str]:
        """The parts that are not in the file, in sentences for its reader."""
        found = []
        if self.turns is not None:
            first, last = self.turns
            which = f"turn {first}" if first == last else f"turns {first} to {last}"
            found.append(
                f"Only {which}: of other requests there is nothing, of messages that these "
                "requests did not show there are sizes and standings."
            )
        if self.structure:
            found.append(
                "All texts are left out, and all names of sessions, files, models, tools and "
                "calls. Times are counted from the beginning, which is put at 2000-01-01."
            )
        elif not self.reveal:
            found.append("Keys, tokens and e-mail addresses that were recognised are replaced.")
        else:
            found.append("Nothing is redacted.")
        return found


async def write_file(
    file: IO[bytes],
    store: EventStore,
    document: Document,
    marks: Sequence[bytes],
    contents: Contents,
    report: Callable[[int], None] = lambda done: None,
) -> int:
    """Write the session of a timeline's whole ``document``; returns the number of bytes.

    ``marks`` are what a view's digest covers of each message, so that the page can check its views.
    ``report`` hears how many bodies were written. Raises InvalidSetting for turns without a
    request, LogCorrupted for a damaged body.
    """
    session = document["session"]
    shown = everything(document)
    if contents.turns is not None:
        document, shown = cut_to_turns(document, *contents.turns)
    redactor = ResultRedactor(reveal=contents.reveal)
    places = [] if contents.structure else addresses(document, shown)
    if contents.structure:
        document = structure_of(document)
    else:
        document = redactor.timeline(document, addresses=False)
    written = done = 0
    for part in _before_contents(document, contents):
        written += file.write(part)
    known = marks[: len(document["messages"]["position"])]
    written += file.write(_packed_json("digests", [one.hex() for one in known]))
    renderer = Renderer(most_slow=_MOST_SLOW)
    try:
        async for block in blocks(store, session, places, demanding(document), redactor, renderer):
            written += file.write(_block(block))
            done += block.bodies
            report(done)
    finally:
        await renderer.close()
    return written + file.write(shell().end.encode())


def _before_contents(document: Document, contents: Contents) -> Iterator[bytes]:
    page = shell()
    title = f"<title>{_text(document['session'])} · eventctx</title>\n"
    yield (page.head + title + page.style + page.body).encode()
    yield _footer(document, contents).encode()
    yield _json("export", _about(document, contents))
    # Of a structure, anybody can read in the file's source that there is no text in it.
    yield (_json if contents.structure else _packed_json)("timeline", document)


def _block(block: BodyBlock) -> bytes:
    return (
        b'<script type="application/json" class="bodies" '
        b'data-first="%d.%d" data-last="%d.%d">"%b"</script>\n'
        % (*block.first, *block.last, block.data.encode())
    )


def turns_of(text: str) -> tuple[int, int]:
    """Read ``A..B``, or ``A`` for one turn. Raises InvalidSetting."""
    first, separator, last = text.partition("..")
    try:
        found = int(first), int(last if separator else first)
    except ValueError:
        found = (1, 0)
    if not 0 <= found[0] <= found[1]:
        raise InvalidSetting(f"turn: expected A..B, or one number, found {text!r}")
    return found


def _receipt(document: Document) -> Receipt:
    return Receipt(document["session"], document["head"], bytes.fromhex(document["digest"]))


def _about(document: Document, contents: Contents) -> dict[str, Any]:
    return {
        "version": __version__,
        "receipt": str(_receipt(document)),
        "reveal": contents.reveal,
        "structure": contents.structure,
        "turns": contents.turns,
        "left_out": contents.left_out(),
    }


def _footer(document: Document, contents: Contents) -> str:
    words = [
        f"Made by eventctx {__version__}.",
        *contents.left_out(),
    ]
    receipt = f"<code>{_text(str(_receipt(document)))}</code>"
    return (
        f'<p id="alone">{_ALONE}</p>\n<footer class="file-note"><p>{_text(" ".join(words))}</p>'
        f"<p>Receipt: {receipt}</p></footer>\n"
    )


def _text(text: str) -> str:
    """A text in HTML; control and bidirectional characters as escapes."""
    return html.escape(escape(text))


def _packed_json(name: str, value: Any) -> bytes:
    data = packed(msgspec.json.encode(value))
    return f'<script type="application/json" id="{name}">"{data}"</script>\n'.encode()


def _json(name: str, value: Any) -> bytes:
    # All that is not ASCII is written as escapes, so that the source turns nothing around either.
    data = json.dumps(value, separators=(",", ":")).translate(_ESCAPES)
    return f'<script type="application/json" id="{name}">{data}</script>\n'.encode()
