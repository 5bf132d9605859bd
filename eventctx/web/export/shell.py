"""The page around a session's data: the inspector's own page, with its script and style inside."""

from __future__ import annotations

import base64
import re
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from eventctx.web.export.bundler import UnreadableScript, bundle, compact_style
from eventctx.web.export.contents import packed

PAGE: Final = Path(__file__).parents[1] / "page"

STYLE: Final = "styles/file.css"
"""The style that only a file has."""

LOADER: Final = "source/unpack.js"
"""The one script that stands in a file as it is: it unpacks the page's style and script.

Compressed they take a third, and the policy names the hash of what comes out: nothing else runs.
"""

LEFT_OUT: Final = {
    "source/server.js": "export const serverSource = () => { throw new Error('no server') };\n",
}
"""Modules that a file has no use for, and what stands in their place."""

_STYLE_LINK: Final = re.compile(r'<link rel="stylesheet" href="/page/([\w./-]+)">\n?')
_ICON_LINK: Final = re.compile(r'<link rel="icon" [^>]*>\n?')
_SCRIPT_LINK: Final = re.compile(r'<script type="module" src="/page/([\w./-]+)"></script>\n?')
_TITLE: Final = re.compile(r"<title>[^<]*</title>\n?")
_CHARSET: Final = '<meta charset="utf-8">\n'


class Shell(NamedTuple):
    """The parts of the page, in their order: data stands between ``body`` and ``end``.

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
    index = (PAGE / "index.html").read_text(encoding="utf-8")
    styles = [*_STYLE_LINK.findall(index), STYLE]
    entries = _SCRIPT_LINK.findall(index)
    for pattern in (_STYLE_LINK, _ICON_LINK, _SCRIPT_LINK, _TITLE):
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
        f"default-src 'none'; script-src '{_hash(loader)}' '{_hash(script)}'; "
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
