"""The page's files: a table made at start, so that no path of a request ever reaches a disk."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Final, NamedTuple

from eventctx.errors import InvalidSetting

_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The kinds of file that are served; whatever else lies there stays where it is."""


class PageFile(NamedTuple):
    """A file as it is sent."""

    content_type: str
    data: bytes


def page_files(folder: Traversable | None = None) -> dict[str, PageFile]:
    """The page's files by their path below ``folder`` (None: the package's own).

    Raises InvalidSetting where there is no ``index.html``.
    """
    root = files("eventctx.web") / "page" if folder is None else folder
    found = dict(_walk(root, "")) if root.is_dir() else {}
    if "index.html" not in found:
        raise InvalidSetting(
            "the inspector's page is not in this installation of eventctx: install it again"
        )
    return found


def _walk(folder: Traversable, before: str) -> Iterator[tuple[str, PageFile]]:
    for one in folder.iterdir():
        if one.is_dir():
            yield from _walk(one, f"{before}{one.name}/")
            continue
        kind = _TYPES.get(f".{one.name.rpartition('.')[2]}")
        if kind is not None:
            yield before + one.name, PageFile(kind, one.read_bytes())
