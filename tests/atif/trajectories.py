"""Exports of sessions as ATIF documents, checked by the package ``atif``, and imported again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.importers.load import ImportSummary, import_file
from eventctx.queries.atif.export import AtifExport, write
from eventctx.stores.memory import MemoryStore
from tests.sessions import with_frames

Document = dict[str, Any]


def valid(document: Document) -> Document:
    """The document, which the format's own models accept."""
    pytest.importorskip("atif").Trajectory.model_validate(document)
    return document


async def exported(engine: Engine, folder: Path, session: str = "s") -> list[Document]:
    """The documents of a session: of its file, and of those in which it goes on."""
    return documents(await engine.export_atif(session, folder / f"{session}.json"))


def documents(export: AtifExport) -> list[Document]:
    return [valid(json.loads(Path(one).read_bytes())) for one in export.files]


async def in_one(engine: Engine, folder: Path, session: str = "s") -> Document:
    """The document of a session on standard output, which is also a file ``one.json``."""
    path = folder / "one.json"
    with path.open("wb") as file:
        await write(engine.store, session, lambda _: file.write)
    return valid(json.loads(path.read_bytes()))


async def back(path: Path, **options: Any) -> tuple[Engine, list[ImportSummary]]:
    """An engine on a store into which a trajectory was imported."""
    engine = Engine(MemoryStore())
    with_frames(engine.store, 100)
    return engine, await import_file(engine.store, path, complete=True, **options)


def own(value: Document) -> Document:
    """What a document or step says under our name."""
    found: Document = value["extra"]["eventctx"]
    return found


def requests(documents: list[Document]) -> list[Document]:
    told = [own(step) for document in documents for step in document["steps"]]
    return [one["request"] for one in told if "request" in one]


def without_marks(value: Any) -> Any:
    """The same without what is under our name: as another program would write it."""
    if isinstance(value, list):
        return [without_marks(one) for one in value]
    if isinstance(value, dict):
        return {key: without_marks(one) for key, one in value.items() if key != "eventctx"}
    return value


async def same_session(engine: Engine, other: Engine, session: str = "s") -> None:
    """Check that two sessions have the same messages, turns, calls and sums of tokens."""
    old, new = await engine.audit(session), await other.audit(session)
    before, after = [
        [(one.number, one.message, one.origin) for one in await each.transcript(session)]
        for each in (engine, other)
    ]
    assert after == before
    assert [one.number for one in new.turns] == [one.number for one in old.turns]
    asked, again = [
        [(one.turn, one.model, one.reported) for one in each.requests] for each in (old, new)
    ]
    assert (again, new.usage) == (asked, old.usage)
    assert len(new.compactions) == sum(one.outcome == "applied" for one in old.compactions)
