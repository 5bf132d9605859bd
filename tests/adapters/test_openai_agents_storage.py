"""A session of ours as storage of the OpenAI Agents SDK: what upstream's own tests store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

agents = pytest.importorskip("agents", reason="an extra: eventctx[openai-agents]")
pytest.importorskip("cryptography", reason="an extra: eventctx[sign]")

from agents import Agent, Runner  # noqa: E402
from agents.extensions.memory import EncryptedSession  # noqa: E402
from agents.testing import ScriptedModel, assistant_message  # noqa: E402

import eventctx  # noqa: E402
from eventctx.adapters.openai_agents import AgentsSession  # noqa: E402
from eventctx.engine import Engine  # noqa: E402
from eventctx.errors import InvalidMessage  # noqa: E402


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with eventctx.open("memory://") as opened:
        yield opened


async def test_it_keeps_what_an_encrypting_session_stores_in_it(engine: Engine) -> None:
    plain = await AgentsSession.open(engine, "s")
    sealed = EncryptedSession("s", plain, encryption_key="a key of one's own")
    for text in ("Read one.", "yes"):
        agent = Agent(name="a", model=ScriptedModel([[assistant_message("Sealed.")]]))
        await Runner.run(agent, text, session=sealed)
    texts = [item.get("content") for item in await sealed.get_items()]
    assert texts[::2] == ["Read one.", "yes"]
    assert all("__enc__" in item and "type" not in item for item in await plain.get_items())
    assert "Sealed." in json.dumps(await sealed.pop_item())
    assert len(await sealed.get_items()) == 3


async def test_an_item_that_json_cannot_hold_is_refused_and_the_session_goes_on(
    engine: Engine,
) -> None:
    session = await AgentsSession.open(engine, "s")
    with pytest.raises(InvalidMessage, match=r"\$\.content: expected .* found a object"):
        await session.add_items(cast("list[Any]", [{"role": "user", "content": object()}]))
    for odd in ([], 3, None):
        with pytest.raises(InvalidMessage):
            await session.add_items(cast("list[Any]", [odd]))
    await session.add_items([{"role": "user", "content": "\U0001f600 \u202e" + "x" * 1_000_000}])
    (kept,) = await session.get_items()
    assert kept == {"role": "user", "content": "\U0001f600 \u202e" + "x" * 1_000_000}


async def test_items_added_at_once_are_all_kept(engine: Engine) -> None:
    session = await AgentsSession.open(engine, "s")
    await asyncio.gather(
        *(
            session.add_items(
                [{"role": "user", "content": f"{at}"}, {"role": "assistant", "content": f"{at}"}]
            )
            for at in range(20)
        )
    )
    said = [cast("dict[str, Any]", item)["content"] for item in await session.get_items()]
    assert said[::2] == said[1::2]
    assert sorted(said[::2], key=int) == [str(at) for at in range(20)]
