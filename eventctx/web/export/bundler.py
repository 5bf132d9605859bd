"""One script from the modules of the page, since a page from a file cannot import modules.

Invariant: the script holds the code of each module once, after the modules that it imports, without
import lines, the word ``export``, whole-line comments and JSDoc. The modules share one scope, so
their top-level names are unique and their imports have one form. tests/web/test_module_rules.py
holds the page to both; the bundler refuses what it cannot join.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator
from typing import Final

from eventctx.errors import EventctxError

ReadModule = Callable[[str], str]
"""Returns the source of a module, given its path below the page's folder."""

_COMMENT: Final = re.compile(r"^[ \t]*//[^\n]*\n|/\*\*.*?\*/[ \t]*", re.MULTILINE | re.DOTALL)
_IMPORT: Final = re.compile(r"^import \{[^}]*\} from '(\.{1,2}/[\w./-]+)';\n", re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (?=(?:async )?(?:const|let|class|function)\b)", re.MULTILINE)
_LEFT: Final = re.compile(r"^[ \t]*(?:import|export)\b[^\n]*|\bimport\s*[(.][^\n]*", re.MULTILINE)
_FORBIDDEN_IN_HTML: Final = re.compile(r"</script|<script|<!--", re.IGNORECASE)
_STYLE_GAP: Final = re.compile(r"\s*/\*.*?\*/\s*|\n\s*", re.DOTALL)


class UnreadableScript(EventctxError):
    """A script of the page is not in the form that one file can be made from."""


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
        yield path, code

    return reach(entry)


def compact_style(style: str) -> str:
    """Return a style sheet without comments and indentation; the page's strings hold neither."""
    return _STYLE_GAP.sub("\n", style).strip() + "\n"
