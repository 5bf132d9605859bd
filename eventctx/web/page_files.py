"""The page's files: a table made at start, so that no path of a request ever reaches a disk.

Modules are joined to one script for each entry, and styles to one sheet: a browser that asks for a
hundred modules one after another paints nothing for a second. Invariant: a script holds the code of
each module once, after the modules that it imports, without import lines, whole-line comments,
JSDoc and indentation, and in a file without the word ``export``. The modules share one scope, so
their top-level names are unique and their imports have one form. tests/web/test_page_modules.py
holds the page to both; ``bundle`` refuses what it cannot join.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from eventctx.errors import EventctxError, InvalidSetting

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The kinds of file that are served; whatever else lies there stays where it is."""

STYLE: Final = "page.css"
"""The path of the joined style sheet."""

_WORKER: Final = "worker.js"
"""The entry that no page names: a script starts it."""

_COMMENT: Final = re.compile(r"^[ \t]*//[^\n]*\n|/\*\*.*?\*/[ \t]*", re.MULTILINE | re.DOTALL)
_IMPORT: Final = re.compile(r"^import \{[^}]*\} from '(\.{1,2}/[\w./-]+)';\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:const|let|class|function)\b)", re.MULTILINE)
_LEFT: Final = re.compile(r"^[ \t]*(?:import|export)\b[^\n]*|\bimport\s*[(.][^\n]*", re.MULTILINE)
_GAP: Final = re.compile(r"\n\s+")
_FORBIDDEN_IN_HTML: Final = re.compile(r"</script|<script|<!--", re.IGNORECASE)
_STYLE_GAP: Final = re.compile(r"\s*/\*.*?\*/\s*|\n\s*", re.DOTALL)
STYLE_LINK: Final = re.compile(r'<link rel="stylesheet" href="/page/([\w./-]+)">\n?')
_ENTRY: Final = re.compile(r'<script [^>]*\bsrc="/page/([\w./-]+)"')

ReadModule = Callable[[str], str]
"""Returns the source of a module, given its path below the page's folder."""


class UnreadableScript(EventctxError):
    """A script of the page is not in the form that one file can be made from."""


class PageFile(NamedTuple):
    """A file as it is sent."""

    content_type: str
    data: bytes


def page_files(folder: Traversable | None = None) -> dict[str, PageFile]:
    """The page's files by their path below ``folder`` (None: the package's own).

    Raises InvalidSetting where there is no ``index.html``, UnreadableScript for a module that
    cannot be joined to others.
    """
    root = files("eventctx.web") / "page" if folder is None else folder
    found = dict(_walk(root, "")) if root.is_dir() else {}
    if "index.html" not in found:
        raise InvalidSetting(
            "the inspector's page is not in this installation of eventctx: install it again"
        )
    return _joined(found)


def _joined(page: dict[str, PageFile]) -> dict[str, PageFile]:
    """The same page, with one script for each entry and one style sheet."""

    def read(path: str) -> str:
        return page[path].data.decode()

    index = read("index.html")
    scripts = {one for one in (*_ENTRY.findall(index), _WORKER) if one in page}
    sheets = STYLE_LINK.findall(index)
    style = "".join([compact_style(read(path)) for path in sheets])
    index = index.replace(f"/page/{sheets[0]}", f"/page/{STYLE}") if sheets else index
    index = STYLE_LINK.sub(lambda link: link[0] if link[1] == STYLE else "", index)
    left = {name: file for name, file in page.items() if not name.endswith((".js", ".css"))}
    made = {
        one: page[one]._replace(data=bundle(one, read, as_module=True).encode()) for one in scripts
    }
    return {
        **left,
        "index.html": page["index.html"]._replace(data=index.encode()),
        STYLE: PageFile(_TYPES[".css"], style.encode()),
        **made,
    }


def _walk(folder: Traversable, before: str) -> Iterator[tuple[str, PageFile]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _walk(one, f"{before}{one.name}/")
            continue
        kind = _TYPES.get(f".{one.name.rpartition('.')[2]}")
        if kind is not None:
            yield before + one.name, PageFile(kind, one.read_bytes())


def bundle(entry: str, read: ReadModule, *, as_module: bool = False) -> str:
    """Join ``entry`` and all that it imports. Raises UnreadableScript.

    ``as_module``: the script still exports what its modules did, for who imports it.
    """
    script = "".join(code for _, code in in_order(entry, read, as_module=as_module))
    if found := _FORBIDDEN_IN_HTML.search(script):
        raise UnreadableScript(f"{found[0]!r} in a script would end or change its element")
    return script


def in_order(entry: str, read: ReadModule, *, as_module: bool = False) -> Iterator[tuple[str, str]]:
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
        exporting = _IMPORT.sub("", source)
        inner = _EXPORT.sub("", exporting)
        if left := _LEFT.search(inner):
            raise UnreadableScript(
                f"{path}: expected `import {{ a }} from './x.js';` and `export const`, `class` or "
                f"`function`, found {left[0].strip()!r}"
            )
        code = exporting if as_module else inner
        # A string over several lines keeps its own indentation, and so does all of its module.
        has_long_string = any(line.count("`") % 2 for line in code.split("\n"))
        yield path, code if has_long_string else _GAP.sub("\n", code)

    return reach(entry)


def compact_style(style: str) -> str:
    """Return a style sheet without comments and indentation; the page's strings hold neither."""
    return _STYLE_GAP.sub("\n", style).strip() + "\n"
