"""The agent's name: where it comes from, and that its turns are recorded and traced with it."""

from __future__ import annotations

from typing import Any

import pytest

import eventctx
from eventctx.errors import InvalidSetting
from eventctx.log.ids import agent_in
from eventctx.orchestrators import BasicOrchestrator, EventsOrchestrator, StreamingOrchestrator
from eventctx.projections.trace.fold import fold
from tests.orchestrators.agents import Scripted, records, says

LOOPS: Any = [BasicOrchestrator, StreamingOrchestrator, EventsOrchestrator]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(
    ("settings", "name"), [({"agent": "coder"}, "invoke_agent coder"), ({}, "invoke_agent")]
)
async def test_a_turn_is_named_after_the_orchestrators_agent_if_it_has_one(
    loop: Any, settings: dict[str, str], name: str
) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s")
        await loop(**settings).execute("hi", ctx, {"p": Scripted(says("hello"))})
        spans = list(fold(await records(engine)))
    assert spans[-1].name == name
    assert spans[-1].attributes.get("gen_ai.agent.name") == settings.get("agent")


@pytest.mark.parametrize("agent", [5, ["coder"]])
def test_a_name_that_is_none_is_refused(agent: Any) -> None:
    with pytest.raises(InvalidSetting, match="agent: expected"):
        EventsOrchestrator(agent=agent)


def test_the_id_of_a_session_that_amplifier_started_for_an_agent_names_it() -> None:
    assert agent_in("0000000000000000-4f1c2d3e4a5b6c7d_zen-architect") == "zen-architect"
    assert agent_in("0f3a2c1e-0000-4000-8000-000000000001") is None
    assert agent_in("my_session") is None
