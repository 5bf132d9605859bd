"""Short ways to import a file, and to read what became of it in the log."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from typing import Any

from eventctx.engine import Engine
from eventctx.errors import StoreFull
from eventctx.importers.load import ImportSummary, import_file
from eventctx.log.codec import decode_event
from eventctx.log.record import Draft, Record
from eventctx.log.store import Appended, Expected
from eventctx.messages.encoding import decode_body
from eventctx.session.context import Context
from eventctx.stores.memory import MemoryStore
from tests.importers.given import NOW, put, raw_bytes, salt, story


async def load(store: MemoryStore, path: Path, **options: Any) -> ImportSummary:
    """Import and return the summary of the file itself, without its subagents."""
    return (await import_file(store, path, clock=lambda: NOW, salt=salt, **options))[0]


async def forked(engine: Engine, session: str) -> Context:
    """A fork of an imported session at its end, to go on from."""
    info = await engine.store.head(session)
    assert info is not None
    await engine.fork(session, info.head, "fork")
    return await engine.session("fork")


async def next_request(store: MemoryStore, session: str) -> list[Any]:
    """What a fork of an imported session would send."""
    return list(await (await forked(Engine(store), session)).get_messages_for_request())


async def views(store: MemoryStore, session: str) -> list[list[Any]]:
    """The messages that each request of an imported session showed; its log verifies."""
    engine = Engine(store)
    assert (await engine.verify(session)).ok
    asked = (await engine.audit(session)).requests
    found = [await engine.request_view(session, position=one.position) for one in asked]
    assert all(view.consistent for view in found)
    return [list(view.messages) for view in found]


async def shown(tmp_path: Path, data: bytes) -> list[list[str]]:
    """The first text of each message in each request, as an import of this file has them.

    The second import adds nothing.
    """
    store, summary = await load_data(tmp_path, data)
    assert (await load(store, tmp_path / "file.jsonl", complete=True)).added == 0
    found = await views(store, summary.session or "")
    return [[first_text(message["content"]) for message in view] for view in found]


def first_text(content: Any) -> str:
    return str(content if isinstance(content, str) else content[0]["text"])


async def records(store: MemoryStore, stream: str) -> list[Record]:
    return [record async for record in store.read(stream)]


async def events(store: MemoryStore, stream: str, kind: str) -> list[Any]:
    return [decode_event(r) for r in await records(store, stream) if r.type == kind]


async def messages(store: MemoryStore, stream: str) -> list[Any]:
    found = await records(store, stream)
    added = [r for r in found if r.type == "context:message_added"]
    return [decode_body(r.bodies[0].data or b"") for r in added]


async def kept(store: MemoryStore, session: str) -> bytes:
    """All that an import has kept of its file."""
    found = await records(store, session)
    bodies = [body.data or b"" for record in found for body in record.bodies]
    return b"\n".join([*bodies, raw_bytes(found)])


async def same(one: MemoryStore, other: MemoryStore, session: str) -> bool:
    """Whether a session has the same story in two stores."""
    return story(await records(one, session)) == story(await records(other, session))


async def load_data(
    tmp_path: Path, data: bytes, name: str = "file.jsonl", *, complete: bool = True, **options: Any
) -> tuple[MemoryStore, ImportSummary]:
    """Import a file of this content into a new store; the store and the summary."""
    store = MemoryStore()
    return store, await load(store, put(tmp_path / name, data), complete=complete, **options)


async def imported(
    tmp_path: Path, data: bytes, *, complete: bool = False, **options: Any
) -> tuple[MemoryStore, str]:
    """Import a file of this content into a new store; the store and the session's name."""
    store, summary = await load_data(tmp_path, data, complete=complete, **options)
    assert summary.session is not None
    return store, summary.session


class Refused:
    """What an append that failed returns; like a store's, it may be awaited or not."""

    def __await__(self) -> Generator[None, None, Appended]:
        raise StoreFull("no space left; free some and import again")
        yield


class FullStore(MemoryStore):
    """A store on a disk that is full after the first batch."""

    left = 1

    def append(self, stream: str, drafts: Any, expected: Expected) -> Any:
        if self.left == 0:
            return Refused()
        self.left -= 1
        return super().append(stream, drafts, expected)


def draft(kind: str) -> Draft:
    """A record of this kind, as another writer appends it."""
    return Draft(kind.encode().ljust(16)[:16], kind, 1, NOW, b"{}")


def words(message: dict[str, Any]) -> str:
    """A message in short: its role, and its texts, calls and results."""
    of = {"text": "text", "thinking": "thinking", "tool_use": "id", "tool_result": "content"}
    found = ["?" * (one["type"] == "thinking") + one[of[one["type"]]] for one in message["content"]]
    return f"{str(message['role'])[0]}:{'+'.join(found)}"


async def views_in_words(store: MemoryStore, session: str) -> list[list[str]]:
    """The messages of each request."""
    return [[words(one) for one in view] for view in await views(store, session)]


async def usage(store: MemoryStore, session: str) -> tuple[int, int, int, int]:
    """The sums of what is reported: prompt, output, read from the cache, reasoning."""
    found = await events(store, session, "usage:reported")
    told = [(one.prompt, one.output, one.cache_read, one.reasoning) for one in found]
    prompt, output, cached, reasoning = map(sum, zip(*told, strict=True))
    return prompt, output, cached, reasoning


async def linked_to(store: MemoryStore, session: str) -> list[str]:
    return [one.session for one in await events(store, session, "session:linked")]
