"""Bad input, faults and cancellations on the real kernel, and a next turn that works."""

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
from amplifier_core.testing import MockCoordinator

import eventctx
from eventctx.adapters.amplifier import mount
from eventctx.adapters.amplifier.engines import ENGINES
from eventctx.testing import Reply, ScriptedAmplifierProvider, ScriptedTool, big
from tests.amplifier.given import events, records_of, types
from tests.amplifier.hosts import Named, mounted, session
from tests.how_much import some
from tests.orchestrators.agents import CancelledAt

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
    async with mounted({"store": str(path)}) as context:
        if used:
            await context.add_message(QUESTION)
    with pytest.raises(eventctx.StoreUnavailable, match="after its cleanup; mount it again"):
        await call(context)
    assert path.exists() is used


async def test_two_hosts_that_want_different_settings_of_one_session_read_so(path: Path) -> None:
    other: Any = {"store": path, "config": {"max_tokens": 9_000}}
    async with session(ScriptedAmplifierProvider("One.", "Two."), store=path) as one:
        await one.execute("First?")
        async with session(ScriptedAmplifierProvider("Never."), **other) as two:
            with pytest.raises(RuntimeError, match="is open with"):
                await two.execute("Second?")
        assert await one.execute("Third?") == "Two."
    async with session(ScriptedAmplifierProvider("Later."), **other) as three:
        assert await three.execute("Fourth?") == "Later."


def test_a_session_goes_on_and_ends_in_another_loop_than_it_began_in(path: Path) -> None:
    before = set(threading.enumerate())

    async def begin() -> tuple[Any, Callable[[], Awaitable[None]]]:
        coordinator = MockCoordinator()
        cleanup = await mount(coordinator, {"store": str(path)})
        await coordinator.get("context").add_message(QUESTION)
        return coordinator.get("context"), cleanup

    async def end(context: Any, cleanup: Callable[[], Awaitable[None]]) -> None:
        await context.add_message(QUESTION)
        assert len(await context.get_messages()) == 2
        await cleanup()

    asyncio.run(end(*asyncio.run(begin())))
    assert set(threading.enumerate()) == before


@pytest.mark.parametrize("garbage", [None, 5, "text", object()])
async def test_a_provider_that_answers_garbage_fails_the_turn_and_the_next_one_works(
    garbage: Any, path: Path
) -> None:
    class Garbling(ScriptedAmplifierProvider):
        async def complete(self, request: Any, **options: Any) -> Any:
            if not self.requests:
                self.requests.append(request)
                return garbage
            return await super().complete(request, **options)

    provider = Garbling("Well.")
    async with session(provider, store=path) as host:
        with pytest.raises(RuntimeError):
            await host.execute("Hello")
        assert await host.execute("Hello") == "Well."
    records = await records_of(path)
    assert [one.number for one in events(records, "prompt:submit")] == [1, 2]


async def test_megabytes_are_stored_whole_and_sent_short(path: Path) -> None:
    whole = big(some(5, 50))
    provider = ScriptedAmplifierProvider(Reply(calls=[("read", {"n": 1})]), "Long.", "Yes.")
    async with session(provider, ScriptedTool("read", whole, amplifier=True), store=path) as host:
        assert await host.execute("Read.") == "Long."
        assert await host.execute("Still there?") == "Yes."
        stored = await host.coordinator.get("context").get_messages()
    assert stored[2]["content"] == whole
    assert len(provider.messages[1][2]["content"]) < 600_000
    await records_of(path)


ODD: dict[Any, tuple[Any, Any]] = {
    "when": (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
    "pair": ((1, 2), [1, 2]),
    "nan": (float("nan"), "nan"),
    "raw": (b"\x00\x01", "[2 bytes]"),
    "huge": (2**80, str(2**80)),
    "names": ({"b", "a"}, ["a", "b"]),
    "lone": ("\ud800", "?"),
    5: (None, None),
}


async def test_what_json_cannot_hold_is_told_in_json(caplog: pytest.LogCaptureFixture) -> None:
    odd = {name: given for name, (given, _) in ODD.items()}
    async with mounted() as context:
        with caplog.at_level(logging.WARNING, "eventctx.adapters.amplifier"):
            await context.add_message({"role": "assistant", "content": "text", "metadata": odd})
        assert "told in JSON" in caplog.text
        (stored,) = await context.get_messages()
        assert stored["content"] == "text"
        assert stored["metadata"] == {str(name): told for name, (_, told) in ODD.items()}
        await context.set_messages([stored, {"role": "user", "content": ("a", "b")}])
        assert (await context.get_messages())[1] == {"role": "user", "content": ["a", "b"]}
        # Other classes of mappings are stored as dicts.
        for row in (OrderedDict(QUESTION), MappingProxyType(QUESTION), {**QUESTION, "\ud800": 1}):
            await context.add_message(row)
        assert (await context.get_messages())[2:] == [QUESTION, QUESTION, {**QUESTION, "?": 1}]


async def test_a_message_without_a_role_is_a_value_error_and_nothing_is_stored() -> None:
    async with mounted() as context:
        for bad in ({"content": "x"}, {}, 5, None, {"role": None, "content": "x"}):
            with pytest.raises(ValueError, match=r"role|dict"):
                await context.add_message(bad)
        assert await context.get_messages() == []


async def test_results_in_role_function_stay_with_their_calls() -> None:
    async with mounted({"max_tokens": 800}) as context:
        for number in range(30):
            call = {"type": "tool_call", "id": f"c{number}", "name": "f", "input": {}}
            text = {"type": "text", "text": "looking " * 10}
            await context.add_message({"role": "user", "content": f"question {number} " * 5})
            await context.add_message({"role": "assistant", "content": [text, call]})
            block = {"type": "tool_result", "tool_call_id": f"c{number}", "output": "found " * 20}
            result = {"role": "function", "tool_call_id": f"c{number}", "content": [block]}
            await context.add_message(result)
            rows = await context.get_messages_for_request()
            answers = [row["content"] for row in rows if row["role"] == "assistant"]
            calls = [one["id"] for row in answers for one in row if one["type"] == "tool_call"]
            results = [row["tool_call_id"] for row in rows if row["role"] == "function"]
            assert results == calls
            assert f"c{number}" in results
        assert len(rows) < 90
        assert len(await context.get_messages()) == 90


async def test_an_older_host_finds_what_it_calls() -> None:
    async with mounted({"max_tokens": 2_000}) as context:
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


# -- cancellations at every await ------------------------------------------------------------------


async def survives(work: Awaitable[Any], at: int) -> bool:
    """Whether the work ended before the step at which it was to be cancelled."""
    (came,) = await asyncio.gather(CancelledAt(work, at).task(), return_exceptions=True)
    assert came is None or isinstance(came, asyncio.CancelledError), came
    return came is None


async def test_a_child_whose_beginning_is_cancelled_is_linked_to_its_parent(path: Path) -> None:
    engines, at, done = len(ENGINES._shared), 0, False
    while not done:
        at += 1
        assert at < 200
        async with mounted({"store": str(path)}, Named(f"child-{at}", "parent")) as context:
            done = await survives(context.add_message(QUESTION), at)
            await context.add_message(QUESTION)
        linked = events(await records_of(path, f"child-{at}"), "session:linked")
        assert [one.session for one in linked] == ["parent"]
    assert at > 1
    assert len(ENGINES._shared) == engines


async def test_a_session_survives_a_cancellation_at_every_await(path: Path) -> None:
    at, done = 0, False
    async with mounted({"store": str(path), "max_tokens": 1_500}) as context:

        async def work(number: int) -> None:
            await context.add_message({"role": "user", "content": f"question {number} " * 20})
            await context.get_messages_for_request()
            answer = {"role": "assistant", "content": f"answer {number} " * 20}
            await context.add_message(answer)
            await context.compact()
            await context.set_messages([*await context.get_messages(), QUESTION])

        while not done:
            at += 1
            assert at < 200
            done = await survives(work(at), at)
            before = await context.get_messages()
            await context.add_message({"role": "user", "content": "and on"})
            assert await context.get_messages() == [*before, {"role": "user", "content": "and on"}]
            await context.get_messages_for_request()
    assert at > 5
    await records_of(path, "test-session")


async def test_a_cleanup_that_is_cancelled_at_any_await_lets_go(tmp_path: Path) -> None:
    at, done = 0, False
    while not done:
        at += 1
        assert at < 100
        path = tmp_path / f"{at}.db"
        coordinator = MockCoordinator()
        cleanup = await mount(coordinator, {"store": str(path)})
        await coordinator.hooks.emit("prompt:submit", {"prompt": "a"})
        # Only noted so far: the cleanup records it.
        await coordinator.hooks.emit("provider:request", {"provider": "p", "iteration": 1})
        done = await survives(cleanup(), at)
        assert not [one.name for one in threading.enumerate() if path.name in one.name]
        with pytest.raises(eventctx.StoreUnavailable):
            await coordinator.get("context").get_messages()
        assert types(await records_of(path, "test-session")).count("provider:request") == 1
    assert at > 1
