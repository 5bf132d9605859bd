"""The documentation as a site: the pages of the repository as they are, with a search.

``python -m tests.site [FOLDER]`` builds into FOLDER (``build/site``) and says where the first page
is. Any warning of the tool ends it, and so does a link of a built page that leads nowhere. The
navigation is docs/index.md: its headings, and the links below each.

A page links what is outside docs/, too: the README, a test. On GitHub such a link opens the
file; here it opens a page that this program makes of the file, so that the sources need no second
form of a link.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
INDEX = DOCS / "index.md"

_FENCE = re.compile(r"^ *(```+).*?^ *\1 *$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\[[^\]]*\]\()([^)\s]+)(\))")
_ENTRY = re.compile(r"^(?:## (?P<section>.+)|- \[(?P<title>[^\]]+)\]\((?P<link>[^)]+)\).*)$", re.M)

SETTINGS: dict[str, object] = {
    "site_name": "eventctx",
    "site_description": "Compact what an agent's model sees, and say why it saw what it saw.",
    "docs_dir": "pages",
    "site_dir": "html",
    "use_directory_urls": False,
    "theme": {
        "font": False,  # the tool's default asks a server of somebody else for its fonts
        "features": [
            *("content.code.copy", "navigation.footer", "navigation.tabs", "navigation.top"),
            *("search.highlight", "toc.follow"),
        ],
        "palette": [
            {
                "media": f"(prefers-color-scheme: {scheme})",
                "scheme": name,
                "toggle": {"icon": icon, "name": f"Switch to {other}"},
            }
            for scheme, name, icon, other in (
                ("light", "default", "lucide/sun", "dark"),
                ("dark", "slate", "lucide/moon", "light"),
            )
        ],
    },
    "plugins": {"search": {}},
}


class BrokenSite(Exception):
    """The site cannot be built, or has links that lead nowhere; says which."""


def build(folder: Path) -> Path:
    """Build the site below ``folder`` and return its first page.

    Raises ``BrokenSite`` with what the tool said of the pages, or with the links that are broken.
    """
    shutil.rmtree(folder, ignore_errors=True)
    stage(folder / "pages")
    settings = msgspec.json.encode({**SETTINGS, "nav": navigation()})
    (folder / "mkdocs.yml").write_bytes(settings)  # JSON is YAML
    tool = [sys.executable, "-m", "zensical", "build", "--strict", "--clean"]
    done = subprocess.run(tool, cwd=folder, capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise BrokenSite(done.stdout + done.stderr)
    if broken := sorted(complaints(folder / "html")):
        raise BrokenSite("\n".join(broken))
    return folder / "html" / "index.html"


def stage(folder: Path) -> None:
    """Lay every page into ``folder``, and a page for each other file that one of them links."""
    shutil.copytree(DOCS, folder, ignore=shutil.ignore_patterns("*.md"), dirs_exist_ok=True)
    waiting = sorted(DOCS.rglob("*.md"))
    seen = set(waiting)
    while waiting:
        file = waiting.pop()
        text, linked = _page(file)
        place = folder / _place(file)
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")
        waiting += linked - seen
        seen |= linked


def navigation() -> list[dict[str, object]]:
    sections: list[dict[str, object]] = [{"Start": INDEX.name}]
    for entry in _ENTRY.finditer(INDEX.read_text(encoding="utf-8")):
        if entry["section"]:
            pages: list[dict[str, str]] = []
            sections.append({entry["section"]: pages})
        else:
            pages.append({entry["title"]: str(_place((DOCS / entry["link"]).resolve()))})
    return sections


def _place(file: Path) -> Path:
    """Where in the site a file of the repository has its page."""
    if file.is_relative_to(DOCS):
        return file.relative_to(DOCS)
    place = file.relative_to(ROOT)
    if place.name == "README.md":
        return Path("readme-of-the-repository.md")  # the tool takes README.md for the first page
    return place if file.suffix == ".md" else Path("source") / f"{place}.md"


def _page(file: Path) -> tuple[str, set[Path]]:
    """A file's page, and the files that it links and that need a page."""
    text = file.read_text(encoding="utf-8")
    if file.suffix != ".md":
        name = file.relative_to(ROOT)
        kind = file.suffix.removeprefix(".")
        return f"---\nsearch:\n  exclude: true\n---\n\n# {name}\n\n````{kind}\n{text}````\n", set()
    linked: set[Path] = set()

    def moved(link: re.Match[str]) -> str:
        path, mark, anchor = link[2].partition("#")
        target = (file.parent / path).resolve()
        if not path or ":" in link[2] or not target.is_file():
            return link[0]
        if not target.is_relative_to(DOCS) or target.suffix == ".md":
            linked.add(target)
        there = os.path.relpath(_place(target), _place(file).parent)
        return f"{link[1]}{there}{mark}{anchor}{link[3]}"

    parts: list[str] = []
    end = 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(moved, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(moved, text[end:])]), linked


class _Reading(HTMLParser):
    """The links of one built page, and the names in it that a link can lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.names: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.add(value)
                if tag != "a":
                    self.loaded.add(value)
            elif value and name in ("id", "name"):
                self.names.add(value)


def complaints(folder: Path) -> Iterator[str]:
    """Every link of a built page that leads to no file, or to no place in it.

    So is what a page would load from another server. The tool looks at links to Markdown alone,
    and names a heading in its own way: a link that GitHub follows may lead nowhere here.
    """
    folder = folder.resolve()
    pages = {page: _Reading(page.read_text(encoding="utf-8")) for page in folder.rglob("*.html")}
    places = {str(page): page for page in folder.rglob("*") if page.is_file()}
    for page, read in pages.items():
        if page.name == "404.html":
            continue  # its links hold from the root of a server alone
        for link in read.links:
            parts = urlsplit(link)
            # Every page has all links of the navigation: asking the disk took half of the time.
            at = os.path.normpath(f"{page.parent}/{unquote(parts.path)}")
            target = places.get(at) if parts.path else page
            where = f"{page.relative_to(folder)}: {link}"
            if parts.scheme or parts.netloc:
                if link in read.loaded and parts.scheme != "data":
                    yield f"{where} is on another server"
            elif target is None:
                yield f"{where} leads to no page"
            elif target in pages and unquote(parts.fragment) not in {"", *pages[target].names}:
                yield f"{where} leads to no heading"


if __name__ == "__main__":
    try:
        place = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
        sys.stdout.write(f"{build(place.resolve())}\n")
    except BrokenSite as error:
        sys.exit(str(error))
