"""Bad input and faults on the real kernel: a clear error or a recorded outcome, and a next turn."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

import eventctx
from eventctx.testing import Reply, ScriptedAmplifierProvider, ScriptedTool, big
from tests.amplifier.given import events, records_of, unended
from tests.amplifier.hosts import mounted, session

QUESTION = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    "call",
    [
        lambda context: context.add_message(QUESTION),
        lambda context: context.get_messages(),
        lambda context: context.get_messages_for_request(),
        lambda context: context.set_messages([QUESTION]),
        lambda context: context.clear(),
        lambda context: context.compact(),
        lambda context: context.get_token_count(),
    ],
)
@pytest.mark.parametrize("used", [True, False])
async def test_a_host_that_calls_after_the_cleanup_reads_so(
    call: Callable[[Any], Awaitable[Any]], used: bool, tmp_path: Path
) -> None:
    path = tmp_path / "contexts.db"
    context, cleanup = await mounted({"store": str(path)})
    if used:
        await context.add_message(QUESTION)
    await cleanup()
    with pytest.raises(eventctx.StoreUnavailable, match="after its cleanup; mount it again"):
        await call(context)
    assert path.exists() is used


async def test_two_hosts_on_one_session_share_it(tmp_path: Path) -> None:
    config = {"store": str(tmp_path / "contexts.db")}
    first, second = ScriptedAmplifierProvider("One."), ScriptedAmplifierProvider("Two.", "Three.")
    async with session(first, config=config) as one:
        async with session(second, config=config) as two:
            await one.execute("First?")
            await two.execute("Second?")
        assert len(second.messages[0]) == 3
        assert len(await one.coordinator.get("context").get_messages()) == 4
    records = await records_of(tmp_path / "contexts.db")
    assert unended(records) == []
    assert [one.number for one in events(records, "prompt:submit")] == [1, 2]


async def test_two_hosts_that_want_different_settings_of_one_session_read_so(
    tmp_path: Path,
) -> None:
    store = {"store": str(tmp_path / "contexts.db")}
    first, second = ScriptedAmplifierProvider("One.", "Two."), ScriptedAmplifierProvider("Never.")
    async with session(first, config=store) as one:
        await one.execute("First?")
        async with session(second, config={**store, "max_tokens": 9_000}) as two:
            with pytest.raises(RuntimeError, match="is open with"):
                await two.execute("Second?")
        assert await one.execute("Third?") == "Two."
    again = ScriptedAmplifierProvider("Later.")
    async with session(again, config={**store, "max_tokens": 9_000}) as three:
        assert await three.execute("Fourth?") == "Later."


async def test_a_session_is_opened_again_with_other_settings_while_another_goes_on(
    tmp_path: Path,
) -> None:
    store = {"store": str(tmp_path / "contexts.db")}
    async with session(ScriptedAmplifierProvider("x"), config=store, session_id="other") as other:
        await other.execute("Hello")
        for limit in (9_000, 8_000):
            provider = ScriptedAmplifierProvider("y")
            async with session(provider, config={**store, "max_tokens": limit}) as host:
                assert await host.execute("Hello") == "y"


def test_a_session_goes_on_and_ends_in_another_loop_than_it_began_in(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    config = {"store": str(tmp_path / "contexts.db")}

    async def begin() -> tuple[Any, Callable[[], Awaitable[None]]]:
        context, cleanup = await mounted(config)
        await context.add_message(QUESTION)
        return context, cleanup

    async def end(context: Any, cleanup: Callable[[], Awaitable[None]]) -> None:
        await context.add_message(QUESTION)
        assert len(await context.get_messages()) == 2
        await cleanup()

    asyncio.run(end(*asyncio.run(begin())))
    assert set(threading.enumerate()) == before


async def test_a_store_that_is_a_folder_is_said_to_the_host(tmp_path: Path) -> None:
    async with session(ScriptedAmplifierProvider("x"), config={"store": str(tmp_path)}) as host:
        with pytest.raises(RuntimeError, match="folder"):
            await host.execute("Hello")


async def test_a_store_behind_a_file_is_said_to_the_host(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    store = str(tmp_path / "file" / "contexts.db")
    async with session(ScriptedAmplifierProvider("x"), config={"store": store}) as host:
        with pytest.raises(RuntimeError, match=r"contexts\.db"):
            await host.execute("Hello")


async def test_a_folder_that_cannot_be_made_is_said_to_the_host() -> None:
    store = "/proc/no-such-folder/contexts.db"
    async with session(ScriptedAmplifierProvider("x"), config={"store": store}) as host:
        with pytest.raises(RuntimeError, match="its folder cannot be made"):
            await host.execute("Hello")


@pytest.mark.parametrize("garbage", [None, 5, "text", object()])
async def test_a_provider_that_answers_garbage_fails_the_turn_and_the_next_one_works(
    garbage: Any, tmp_path: Path
) -> None:
    path = tmp_path / "contexts.db"

    class Garbling(ScriptedAmplifierProvider):
        async def complete(self, request: Any, **options: Any) -> Any:
            if not self.requests:
                self.requests.append(request)
                return garbage
            return await super().complete(request, **options)

    provider = Garbling("Well.")
    async with session(provider, config={"store": str(path)}) as host:
        with pytest.raises(RuntimeError):
            await host.execute("Hello")
        assert await host.execute("Hello") == "Well."
    records = await records_of(path)
    assert unended(records) == []
    assert [one.number for one in events(records, "prompt:submit")] == [1, 2]


@pytest.mark.slow
async def test_fifty_megabytes_are_stored_whole_and_sent_short(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    whole = big(50)
    provider = ScriptedAmplifierProvider(Reply(calls=[("read", {"n": 1})]), "Long.", "Yes.")
    async with session(
        provider, ScriptedTool("read", whole, amplifier=True), config={"store": str(path)}
    ) as host:
        assert await host.execute("Read.") == "Long."
        assert await host.execute("Still there?") == "Yes."
        stored = await host.coordinator.get("context").get_messages()
    assert stored[2]["content"] == whole
    assert len(provider.messages[1][2]["content"]) < 600_000
    assert unended(await records_of(path)) == []


async def test_what_json_cannot_hold_is_told_in_json(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "contexts.db"
    context, cleanup = await mounted({"store": str(path)})
    odd = {
        "role": "assistant",
        "content": "text",
        "metadata": {
            "when": datetime(2026, 1, 2, tzinfo=UTC),
            "pair": (1, 2),
            "nan": float("nan"),
            "raw": b"\x00\x01",
            "huge": 2**80,
            "names": {"b", "a"},
            "lone": "\ud800",
            5: None,
        },
    }
    with caplog.at_level(logging.WARNING, "eventctx.adapters.amplifier"):
        await context.add_message(odd)
    assert "told in JSON" in caplog.text
    (stored,) = await context.get_messages()
    assert stored["content"] == "text"
    assert stored["metadata"] == {
        "when": "2026-01-02T00:00:00+00:00",
        "pair": [1, 2],
        "nan": "nan",
        "raw": "[2 bytes]",
        "huge": str(2**80),
        "names": ["a", "b"],
        "lone": "?",
        "5": None,
    }
    await context.set_messages([stored, {"role": "user", "content": ("a", "b")}])
    assert (await context.get_messages())[1] == {"role": "user", "content": ["a", "b"]}
    await cleanup()


async def test_a_message_of_another_class_of_mapping_is_stored_as_a_dict() -> None:
    context, cleanup = await mounted({"store": "memory://"})
    await context.add_message(OrderedDict(role="user", content="a"))
    await context.add_message(MappingProxyType({"role": "user", "content": "b"}))
    await context.add_message({"role": "user", "content": "c", "\ud800": 1})
    first, second, third = await context.get_messages()
    assert (first, second) == ({"role": "user", "content": "a"}, {"role": "user", "content": "b"})
    assert third == {"role": "user", "content": "c", "?": 1}
    await cleanup()


async def test_a_message_without_a_role_is_a_value_error_and_nothing_is_stored() -> None:
    context, cleanup = await mounted({"store": "memory://"})
    for bad in ({"content": "x"}, {}, 5, None, {"role": None, "content": "x"}):
        with pytest.raises(ValueError, match=r"role|dict"):
            await context.add_message(bad)
    assert await context.get_messages() == []
    await cleanup()


async def test_results_in_role_function_stay_with_their_calls() -> None:
    context, cleanup = await mounted({"store": "memory://", "max_tokens": 800})
    for number in range(30):
        call = {"type": "tool_call", "id": f"c{number}", "name": "f", "input": {}}
        text = {"type": "text", "text": "looking " * 10}
        await context.add_message({"role": "user", "content": f"question {number} " * 5})
        await context.add_message({"role": "assistant", "content": [text, call]})
        block = {"type": "tool_result", "tool_call_id": f"c{number}", "output": "found " * 20}
        result = {"role": "function", "tool_call_id": f"c{number}", "content": [block]}
        await context.add_message(result)
        rows = await context.get_messages_for_request()
        calls = [one["id"] for row in rows for one in blocks(row) if one["type"] == "tool_call"]
        results = [row["tool_call_id"] for row in rows if row["role"] == "function"]
        assert results == calls
        assert f"c{number}" in results
    assert len(rows) < 90
    assert len(await context.get_messages()) == 90
    await cleanup()


def blocks(row: dict[str, Any]) -> list[dict[str, Any]]:
    return row["content"] if row["role"] == "assistant" else []


# -- older hosts ---------------------------------------------------------------------------------


async def test_an_older_host_finds_what_it_calls() -> None:
    context, cleanup = await mounted({"store": "memory://", "max_tokens": 2_000})
    assert context.config.get("max_tokens", 200_000) == 2_000
    assert await context.should_compact() is False
    assert await context.compact() == 0
    for number in range(40):
        await context.add_message({"role": "user", "content": f"question {number} " * 10})
        await context.add_message({"role": "assistant", "content": f"answer {number} " * 10})
    before = await context.get_token_count()
    assert before > 2_000
    assert await context.should_compact() is True
    saved = await context.compact()
    assert saved == before - await context.get_token_count() > 0
    assert await context.should_compact() is False
    assert len(await context.get_messages()) == 80
    await cleanup()


async def test_a_host_without_a_limit_has_a_budget_to_divide_by() -> None:
    context, cleanup = await mounted({"store": "memory://"})
    assert context.config["max_tokens"] == 200_000
    await cleanup()
