"""An exported file, read back as a browser reads it."""

from __future__ import annotations

import base64
import gzip
import json
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from eventctx.cli.commands.inspect import html_of
from eventctx.engine import Engine
from eventctx.web.export.file import Contents

Address = tuple[int, int]
WHOLE = Contents()


def unpacked(data: str) -> Any:
    """The value of an element whose text is the base64 of compressed JSON."""
    return json.loads(gzip.decompress(base64.b64decode(json.loads(data))))


class Exported(HTMLParser):
    """The parts of a file: its scripts by id, the bodies by address, and its text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.source = path.read_text(encoding="utf-8")
        self.size = path.stat().st_size
        self.parts: dict[str, str] = {}
        self.scripts: list[str] = []
        self.blocks: list[tuple[str, str, str]] = []
        self.text = ""
        self.metas: list[dict[str, str | None]] = []
        self.tags: list[str] = []
        self._inside: dict[str, str | None] | None = None
        self._tag = ""
        self.feed(self.source)
        self.close()
        timeline = self.parts["timeline"]
        packed = timeline.startswith('"')
        self.timeline: dict[str, Any] = unpacked(timeline) if packed else json.loads(timeline)
        self.style, self.script = unpacked(self.parts["page"])
        self.about: dict[str, Any] = json.loads(self.parts["export"])
        rows = [row for _, _, data in self.blocks for row in unpacked(data)]
        more = {(row[0], row[1]): row[3] for row in rows if len(row) > 3}
        self.bodies: dict[Address, Any] = {(row[0], row[1]): row[2] for row in rows}
        self.trees = {place: one["texts"] for place, one in more.items() if one["texts"]}
        self.demands = {at: one["demands"] for at, one in more.items() if "demands" in one}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._tag, self._inside = tag, dict(attrs)
        if tag == "meta":
            self.metas.append(dict(attrs))

    def handle_data(self, data: str) -> None:
        given = self._inside or {}
        if self._tag != "script":
            self.text += data
        elif "id" in given:
            self.parts[str(given["id"])] = data
        elif given.get("class") == "bodies":
            self.blocks.append((str(given["data-first"]), str(given["data-last"]), data))
        else:
            self.scripts.append(data)

    def handle_endtag(self, tag: str) -> None:
        self._tag, self._inside = "", None

    @property
    def contents(self) -> list[str]:
        """The text of every block, decompressed."""
        return [json.dumps(unpacked(data), ensure_ascii=False) for _, _, data in self.blocks]

    def views(self) -> list[list[int]]:
        """The entry ids of every request's view, as the page derives them."""
        found: list[list[int]] = []
        view: list[int] = []
        requests = self.timeline["requests"]
        for keep, pairs in zip(requests["keep"], requests["add"], strict=True):
            view = view[:keep]
            for first, last in zip(pairs[::2], pairs[1::2], strict=True):
                view += range(first, last + 1)
            found.append(view)
        return found

    def body_of(self, entry: int) -> Any:
        """The body of an entry that has one in the file."""
        if entry >= 0:
            messages = self.timeline["messages"]
            return self.bodies[messages["position"][entry], messages["index"][entry]]
        extra = self.timeline["extras"][-1 - entry]
        return self.bodies[extra["position"], extra["index"]]


async def exported(engine: Engine, session: str, path: Path, what: Contents = WHOLE) -> Exported:
    [info] = [one for one in await engine.sessions() if one.stream == session]
    written = await html_of(engine, info, path, what)
    found = Exported(path)
    assert found.size == written
    return found
