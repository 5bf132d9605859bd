"""Every recorded session is a valid trajectory, and comes back as the same session."""

from __future__ import annotations

import json
from pathlib import Path

from eventctx.engine import Engine
from eventctx.importers.many import import_paths
from eventctx.messages.parts import read_parts
from eventctx.queries.records import Message
from eventctx.stores.memory import MemoryStore
from tests.atif.trajectories import back, documents, in_one, same_session, without_marks
from tests.how_much import some


async def test_every_recorded_session_is_a_valid_trajectory_and_comes_back(
    recorded_sessions: Path, tmp_path: Path
) -> None:
    engine = Engine(MemoryStore())
    await import_paths(engine.store, [recorded_sessions])
    sessions = [info.stream for info in await engine.sessions()]
    assert len(sessions) > 20
    for name in sessions[:: some(2, 1)]:
        folder = tmp_path / str(sessions.index(name))
        folder.mkdir()
        export = await engine.export_atif(name, folder / "session.json")
        assert documents(export)
        audit = await engine.audit(name)
        assert export.completeness.requests == len(audit.requests)
        document = await in_one(engine, folder, name)
        for path in (folder / "session.json", folder / "one.json"):
            other, (done, *_) = await back(path)
            assert (done.session, done.warnings) == (name, ())
            await same_session(engine, other, name)
        (folder / "plain.json").write_text(json.dumps(without_marks(document)))
        other, (done, *_) = await back(folder / "plain.json")
        assert done.session == name
        assert calls(await other.transcript(name)) == calls(await engine.transcript(name))


def calls(transcript: list[Message]) -> list[tuple[tuple[str, ...], str | None]]:
    parts = [part for one in transcript for part in read_parts(one.message or {})]
    return [(part.ids, part.name) for part in parts if part.kind == "call"]
