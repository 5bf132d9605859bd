"""The page around a session's data: the inspector's own page, with its script and style inside.

A page from a file cannot import modules, so they become one script. Invariant: the script holds the
code of each module once, after the modules that it imports, without import lines, the word
``export``, whole-line comments, JSDoc and indentation. The modules share one scope, so their
top-level names are unique and their imports have one form. tests/web/test_module_rules.py holds the
page to both; ``bundle`` refuses what it cannot join.
"""

from __future__ import annotations

import base64
import posixpath
import re
from collections.abc import Callable, Iterator
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from eventctx.errors import EventctxError
from eventctx.web.export.contents import packed

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

ReadModule = Callable[[str], str]
"""Returns the source of a module, given its path below the page's folder."""

_COMMENT: Final = re.compile(r"^[ \t]*//[^\n]*\n|/\*\*.*?\*/[ \t]*", re.MULTILINE | re.DOTALL)
_IMPORT: Final = re.compile(r"^import \{[^}]*\} from '(\.{1,2}/[\w./-]+)';\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:const|let|class|function)\b)", re.MULTILINE)
_LEFT: Final = re.compile(r"^[ \t]*(?:import|export)\b[^\n]*|\bimport\s*[(.][^\n]*", re.MULTILINE)
_GAP: Final = re.compile(r"\n\s+")
_FORBIDDEN_IN_HTML: Final = re.compile(r"</script|<script|<!--", re.IGNORECASE)
_STYLE_GAP: Final = re.compile(r"\s*/\*.*?\*/\s*|\n\s*", re.DOTALL)
_STYLE_LINK: Final = re.compile(r'<link rel="stylesheet" href="/page/([\w./-]+)">\n?')
_ICON_LINK: Final = re.compile(r'<link rel="icon" [^>]*>\n?')
_SCRIPT_LINK: Final = re.compile(r'<script type="module" src="/page/([\w./-]+)"></script>\n?')
_THEME_LINK: Final = f'<script src="/page/{THEME}"></script>\n'
_TITLE: Final = re.compile(r"<title>[^<]*</title>\n?")
_CHARSET: Final = '<meta charset="utf-8">\n'


class UnreadableScript(EventctxError):
    """A script of the page is not in the form that one file can be made from."""


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


def bundle(entry: str, read: ReadModule) -> str:
    """Join ``entry`` and all that it imports. Raises UnreadableScript."""
    script = "".join(code for _, code in in_order(entry, read))
    if found := _FORBIDDEN_IN_HTML.search(script):
        raise UnreadableScript(f"{found[0]!r} in a script would end or change its element")
    return script


def in_order(entry: str, read: ReadModule) -> Iterator[tuple[str, str]]:
    """The path and the code of each module, after those that it imports.

    In a cycle, the module that is reached first comes last, as in a browser.
    """
    reached: set[str] = set()

    def reach(path: str) -> Iterator[tuple[str, str]]:
        reached.add(path)
        source = _COMMENT.sub("", read(path))
        for target in _IMPORT.findall(source):
            imported = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            if imported not in reached:
                yield from reach(imported)
        code = _EXPORT.sub("", _IMPORT.sub("", source))
        if left := _LEFT.search(code):
            raise UnreadableScript(
                f"{path}: expected `import {{ a }} from './x.js';` and `export const`, `class` or "
                f"`function`, found {left[0].strip()!r}"
            )
        # A string over several lines keeps its own indentation, and so does all of its module.
        has_long_string = any(line.count("`") % 2 for line in code.split("\n"))
        yield path, code if has_long_string else _GAP.sub("\n", code)

    return reach(entry)


def compact_style(style: str) -> str:
    """Return a style sheet without comments and indentation; the page's strings hold neither."""
    return _STYLE_GAP.sub("\n", style).strip() + "\n"
