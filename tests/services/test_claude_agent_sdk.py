"""The real SDK and the real program with our session store, against a scripted server: opt-in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.adapters.claude_agent_sdk import EventctxSessionStore
from tests.services.programs import Claude, claude
from tests.services.test_coding_agents import binary as binary
from tests.services.test_coding_agents import understanding

sdk = pytest.importorskip("claude_agent_sdk", reason="an extra: eventctx[claude-agent-sdk]")


def options(program: Claude, store: EventctxSessionStore, home: str, **more: Any) -> Any:
    """Of one run, in a home folder of its own, as on another host."""
    own = program.folder / home
    own.mkdir(exist_ok=True)
    environment = program.environment(home) | {"CLAUDE_CONFIG_DIR": str(own / ".claude")}
    return sdk.ClaudeAgentOptions(
        cli_path=program.binary,
        cwd=program.project,
        env=environment,
        model="claude-sonnet-4-5",
        session_store=store,
        session_store_flush="eager",
        hooks=store.hooks(),
        **more,
    )


async def session_of(prompt: str, chosen: Any) -> str:
    found = ""
    async for message in sdk.query(prompt=prompt, options=chosen):
        found = getattr(message, "session_id", None) or found
    return found


async def test_a_session_goes_on_from_the_log_on_another_host(binary: Path, tmp_path: Path) -> None:
    with claude(binary, tmp_path, understanding) as program:
        async with eventctx.open(tmp_path / "a.db") as engine:
            store = EventctxSessionStore(engine)
            session = await session_of("Never touch legacy.py.", options(program, store, "one"))
        async with eventctx.open(tmp_path / "a.db") as engine:
            store = EventctxSessionStore(engine)
            chosen = options(program, store, "two", resume=session)
            assert await session_of("Go on.", chosen) == session
            sent = str(program.received[-1]["messages"])
            project = sdk.project_key_for_directory(str(program.project))
            (summary,) = await store.import_session({"project_key": project, "session_id": session})
            said = str(await engine.transcript(session))
            audit = await engine.audit(session)
    assert all(
        words in one for words in ("Never touch legacy.py.", "Go on.") for one in (sent, said)
    )
    assert (summary.session, len(audit.requests)) == (session, 2)


async def test_a_compaction_is_imported_and_the_demands_told(binary: Path, tmp_path: Path) -> None:
    with claude(binary, tmp_path, understanding) as program:
        async with eventctx.open(tmp_path / "a.db") as engine:
            store = EventctxSessionStore(engine)
            session = await session_of("Never touch legacy.py.", options(program, store, "one"))
            await session_of("/compact", options(program, store, "one", resume=session))
            lost = await engine.lost(session)
            await session_of("Go on.", options(program, store, "one", resume=session))
            sent = str(program.received[-1]["messages"])
    assert lost.compactions == 1
    assert "Never touch legacy.py." in [one.text for one in lost.items if one.state == "gone"]
    assert "We talked about a parser." in sent
    assert "- #0: Never touch legacy.py." in sent
