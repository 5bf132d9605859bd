"""The name of an agent in Amplifier: the host's, the profile's, or the one in the session's id."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventctx.testing import ScriptedAmplifierProvider
from tests.amplifier.given import events, records_of
from tests.amplifier.hosts import session

CHILD = "0000000000000000-4f1c2d3e4a5b6c7d_explorer"


@pytest.mark.parametrize("loop", ["basic", "loop-eventctx-events"])
async def test_a_session_that_was_started_for_an_agent_has_its_name(
    loop: str, tmp_path: Path
) -> None:
    path = tmp_path / "contexts.db"
    provider = ScriptedAmplifierProvider("Found it.")
    config = {"store": str(path)}
    async with session(provider, loop=loop, config=config, session_id=CHILD) as host:
        assert await host.execute("Look.") == "Found it."
    assert await agents(path, CHILD) == ["explorer"]


async def test_the_setting_of_the_orchestrator_goes_before_it(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    more: dict[str, Any] = {"loop": "loop-eventctx-streaming", "loop_config": {"agent": "coder"}}
    provider = ScriptedAmplifierProvider("Yes.")
    async with session(provider, config={"store": str(path)}, session_id=CHILD, **more) as host:
        await host.execute("Look.")
    assert await agents(path, CHILD) == ["coder"]


async def test_what_the_host_tells_goes_before_it_and_others_have_none(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    config = {"store": str(path)}
    for name, data in ((CHILD, {"agent": "coder"}), ("session-1", {})):
        provider = ScriptedAmplifierProvider()
        async with session(provider, config=config, session_id=name) as host:
            await host.coordinator.hooks.emit("prompt:submit", data)
            await host.coordinator.hooks.emit("orchestrator:complete", {})
    assert await agents(path, CHILD) == ["coder"]
    assert await agents(path, "session-1") == [None]


async def agents(path: Path, name: str) -> list[str | None]:
    return [one.agent for one in events(await records_of(path, name), "prompt:submit")]
