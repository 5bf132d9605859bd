"""One file that shows a session: the page, the timeline, and the contents that may be seen.

The page is the inspector's own, with its style and its one script (``page_files.py``) inside.
"""

from __future__ import annotations

import base64
import html
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, Final, NamedTuple

import msgspec

from eventctx.errors import InvalidSetting
from eventctx.hooks.result_redactor import ResultRedactor
from eventctx.log.store import EventStore, Receipt
from eventctx.projections.timeline.columns import Document
from eventctx.text import escape
from eventctx.version import __version__
from eventctx.web.export.contents import (
    addresses,
    block_element,
    blocks,
    demanding,
    json_element,
    packed,
    packed_element,
)
from eventctx.web.export.cut import cut_to_turns, everything
from eventctx.web.export.structure import structure_of
from eventctx.web.page_files import STYLE_LINK, UnreadableScript, bundle, compact_style
from eventctx.web.renderer import Renderer

PAGE: Final = Path(__file__).parents[1] / "page"

STYLE: Final = "styles/file.css"
"""The style that only a file has."""

LOADER: Final = "source/unpack.js"
"""The script that unpacks the page's style and script.

Compressed they take a third, and the policy names the hash of what comes out: nothing else runs.
"""

THEME: Final = "theme.js"
"""The script that runs before anything is painted."""

LEFT_OUT: Final = {
    "source/server.js": "export const serverSource = () => { throw new Error('no server') };\n",
}
"""Modules that a file has no use for, and what stands in their place."""

_SCRIPT_LINK: Final = re.compile(r'<script type="module" src="/page/([\w./-]+)"></script>\n?')
_ICON_LINK: Final = re.compile(r'<link rel="icon" [^>]*>\n?')
_THEME_LINK: Final = f'<script src="/page/{THEME}"></script>\n'
_TITLE: Final = re.compile(r"<title>[^<]*</title>\n?")
_CHARSET: Final = '<meta charset="utf-8">\n'

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
    written += file.write(packed_element("digests", [one.hex() for one in known]))
    renderer = Renderer(most_slow=_MOST_SLOW)
    try:
        async for block in blocks(store, session, places, demanding(document), redactor, renderer):
            written += file.write(block_element(block))
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
    yield json_element("export", _about(document, contents))
    # Of a structure, anybody can read in the file's source that there is no text in it.
    yield (json_element if contents.structure else packed_element)("timeline", document)


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


# -- the page around the data ---------------------------------------------------------------------


class Shell(NamedTuple):
    """The parts of the page, in their order: data is between ``body`` and ``end``.

    ``head`` ends before the title.
    """

    head: str
    style: str
    body: str
    end: str

    @property
    def size(self) -> int:
        """Bytes of a file without a session."""
        return sum(len(part.encode()) for part in self)


@cache
def shell() -> Shell:
    """The page as one file needs it. Raises UnreadableScript."""
    theme = bundle(THEME, _read)
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    index = index.replace(_THEME_LINK, f"<script>{theme}</script>\n")
    styles = [*STYLE_LINK.findall(index), STYLE]
    entries = _SCRIPT_LINK.findall(index)
    for pattern in (STYLE_LINK, _ICON_LINK, _SCRIPT_LINK, _TITLE):
        index = pattern.sub("", index)
    head, found, rest = index.partition("</head>\n")
    body, closed, end = rest.partition("</body>")
    if not (found and closed and len(entries) == 1 and _CHARSET in head) or "/page/" in index:
        raise UnreadableScript("index.html: expected one script, and nothing else from the server")
    script = bundle(entries[0], _read)
    style = "".join(compact_style(_read(path)) for path in styles)
    if "</style" in style.lower():
        raise UnreadableScript("a style that ends its element")
    loader = bundle(LOADER, _read)
    policy = (
        '<meta http-equiv="Content-Security-Policy" content="'
        f"default-src 'none'; script-src '{_hash(theme)}' '{_hash(loader)}' '{_hash(script)}'; "
        f"style-src '{_hash(style)}'; img-src blob:; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types page\">\n"
    )
    code = packed(msgspec.json.encode([style, script]))
    return Shell(
        head.replace(_CHARSET, _CHARSET + policy),
        "</head>\n",
        body,
        f'<script type="application/json" id="page">"{code}"</script>\n'
        f"<script>{loader}</script>\n</body>{end}",
    )


def _read(path: str) -> str:
    return LEFT_OUT.get(path) or (PAGE / path).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"
