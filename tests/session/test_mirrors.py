"""An imported session mirrors its file: no command writes to it, and a fork of it is ours."""

from __future__ import annotations

import inspect
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.engine import Engine
from eventctx.errors import ImportedSession
from eventctx.importers.load import import_file
from eventctx.log import events
from eventctx.log.events import CATALOGUE
from eventctx.log.ids import RecordIds
from eventctx.session.context import Context
from eventctx.session.host_requests import ObservedRequest
from eventctx.session.host_state import Extension, HostPart
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.importers.given import NOW, SESSION, ClaudeCode, call, salt, text
from tests.policies.advisers import mute
from tests.session.counting_store import CountingStore
from tests.session.given import appended, records_of, signing_key
from tests.sessions import with_frames

Command = Callable[[Context], Awaitable[Any]]

HELLO: Final = {"role": "user", "content": "hello"}


def session() -> ClaudeCode:
    """A session of two turns whose last answer is followed, so that all of it is imported."""
    one = ClaudeCode().user("Fix the test.").answer("m1", text("I look."), call("t1"))
    return one.result("t1").answer("m2", text("Done.")).user("Thanks.").user("Bye.")


async def mirrored(store: MemoryStore, data: bytes | None = None, **options: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "talk.jsonl"
        path.write_bytes(session().data() if data is None else data)
        await import_file(store, path, clock=lambda: NOW, salt=salt, **options)


async def a_step(position: int) -> Extension:
    return Extension("host", [HostPart("state", b"{}")], [HELLO])


EMITTED: Final[tuple[events.Event, ...]] = (
    *[events.SetIgnored(messages=1, missing_roles=()), events.UsageReported(prompt=3)],
    *[events.SessionEnd(), events.PromptComplete(), events.PlanStart(), events.PlanEnd()],
    *[events.ProviderRequest(), events.ProviderResponse(), events.ProviderError(error_type="x")],
    *[events.ToolPre("f"), events.ToolPost("f"), events.ToolError("f", error_type="x")],
)

WRITES: Final[dict[str, list[Command]]] = {
    "add_message": [lambda c: c.add_message(HELLO)],
    "add_messages": [lambda c: c.add_messages([HELLO, HELLO])],
    "get_messages_for_request": [
        lambda c: c.get_messages_for_request(9_000),
        lambda c: c.get_messages_for_request(adding=[HELLO]),
    ],
    "set_messages": [lambda c: c.set_messages([HELLO]), lambda c: c.set_messages([])],
    "resume_messages": [lambda c: c.resume_messages([HELLO]), lambda c: c.resume_messages([])],
    "extend": [lambda c: c.extend(a_step)],
    "clear": [lambda c: c.clear()],
    "set_system_prompt": [lambda c: c.set_system_prompt("Be brief.")],
    "set_memory": [lambda c: c.set_memory(["Use tabs."])],
    "compact": [lambda c: c.compact(), lambda c: c.compact(policy="simple", budget=1_000)],
    "pin": [lambda c: c.pin(0)],
    "restore": [lambda c: c.restore(0)],
    "unpin": [lambda c: c.unpin(0)],
    "withdraw_instruction": [lambda c: c.withdraw_instruction(0)],
    "turn": [lambda c: c.turn().__aenter__()],
    "following": [lambda c: c.following().turn_began("t")],
    "observe_request": [lambda c: c.observe_request(ObservedRequest("openai-chat-1", [HELLO]))],
    "record_sent": [lambda c: c.record_sent(3, 1, [(0, HELLO)])],
    "emit": [lambda c, event=event: c.emit(event) for event in EMITTED],
}
"""Ways to call every command of a context that writes to its session."""

READS: Final = {
    *("get_messages", "get_timed_messages", "memory", "get_token_count", "recall_tool"),
    *("on", "close", "transcript_mark", "get_messages_after"),
}

ENGINE_WRITES: Final = {"session"}
"""Opens a session, and begins a new one. What it returns is held by the commands above."""

ENGINE_ABOUT: Final = {"fork", "link", "erase", "delete", "sign", "note_receipt"}
"""They make a session of ours, or serve evidence and duties: allowed on a mirror."""

ENGINE_READS: Final = {
    *("recaller", "recall", "sessions", "forks", "expired", "records", "transcript", "audit"),
    *("verify", "verify_store", "backup", "why", "diff", "lost", "dry_run", "timeline"),
    *("request_view", "hook_failures", "close_session", "close", "mirror_of", "instructions"),
    *("compare", "copy_to", "each_session", "verifications", "export_atif"),
}


def public(kind: type[Any]) -> set[str]:
    """The public methods of a class."""
    found = inspect.getmembers(kind, inspect.isfunction)
    return {name for name, _ in found if not name.startswith("_")}


def test_every_public_method_and_every_event_is_known_as_one_that_writes_or_does_not() -> None:
    assert public(Context) == {*WRITES, *READS}
    assert public(Engine) == ENGINE_WRITES | ENGINE_ABOUT | ENGINE_READS
    tried = {event.__struct_config__.tag for event in EMITTED}
    assert tried == {name for name, row in CATALOGUE.items() if row.emitted} - {"session:linked"}


COMMANDS: Final = [(name, command) for name, ways in WRITES.items() for command in ways]


@settings(deadline=None, max_examples=some(20, 60))
@given(st.lists(st.sampled_from(COMMANDS), min_size=1, max_size=6), st.booleans())
async def test_nothing_writes_to_a_mirror(chosen: list[tuple[str, Command]], again: bool) -> None:
    store = MemoryStore()
    await mirrored(store)
    async with Engine(store) as engine:
        before = await store.head(SESSION)
        context = await engine.session(SESSION)
        for name, command in chosen:
            with pytest.raises(ImportedSession, match=r"mirror of talk\.jsonl"):
                await command(context)
                pytest.fail(name)
            assert await store.head(SESSION) == before, name
            if again:
                await engine.close_session(SESSION)
                context = await engine.session(SESSION)
        await engine.close_session(SESSION)
        assert await store.head(SESSION) == before


@pytest.fixture
async def engine() -> Any:
    store = MemoryStore()
    await mirrored(store)
    made = Engine(store)
    yield made
    await made.close()


async def test_the_error_says_what_was_asked_and_offers_both_ways_on(engine: Engine) -> None:
    context = await engine.session(SESSION)
    with pytest.raises(ImportedSession, match="it was asked to pin messages") as caught:
        await context.pin(1)
    for way in ("--fork NAME", "engine.fork(...)", "import --take-over FILE"):
        assert way in str(caught.value)
    assert (caught.value.stream, caught.value.source) == (SESSION, "talk.jsonl")


async def test_nobody_is_asked_about_a_compaction_of_a_mirror(engine: Engine) -> None:
    asked: list[Any] = []
    engine.intercept("context:pre_compact", lambda compaction: asked.append(compaction))
    summarizer = mute()
    context = await engine.session(SESSION, policy="summarize", summarizer=summarizer)
    with pytest.raises(ImportedSession):
        await context.compact(budget=1_000)
    assert asked == summarizer.requests == []


async def test_a_mirror_is_read_as_any_session_and_a_fork_of_it_is_ours(engine: Engine) -> None:
    context = await engine.session(SESSION)
    assert len(await context.get_messages()) == 6
    assert (await context.compact(dry_run=True)).dry_run
    assert (await engine.dry_run(SESSION)).dry_run
    last = (await records_of(engine.store, SESSION))[-1]
    await engine.fork(SESSION, last.position, "mine")
    context = await engine.session("mine")
    await context.add_message(HELLO)
    await context.pin(1)
    assert await engine.mirror_of("mine") is None
    assert await engine.mirror_of(SESSION) == "talk.jsonl"
    assert (await engine.verify(SESSION)).ok


async def test_a_long_session_is_told_from_a_mirror_without_reading_it() -> None:
    store = CountingStore()
    await mirrored(store)
    engine = Engine(store)
    await (await engine.session("ours")).add_messages([HELLO] * 50)
    await with_frames(store).at(SESSION)
    for name, mirror in (("ours", None), (SESSION, "talk.jsonl")):
        store.records = 0
        assert await engine.mirror_of(name) == mirror
        assert store.records <= 2, name


async def test_what_serves_evidence_is_possible_and_blocks_no_import(engine: Engine) -> None:
    store: Any = engine.store
    await engine.session("child")
    await engine.link(SESSION, "child")
    await engine.sign(SESSION, signing_key())
    await engine.erase(SESSION, [1])
    assert (await engine.verify(SESSION)).ok
    await mirrored(store)
    await mirrored(store, session().answer("m9", text("More.")).user("x").data())
    assert len(await engine.transcript(SESSION)) == 8
    await engine.delete(SESSION)


@pytest.mark.slow
async def test_a_snapshot_keeps_that_a_session_is_a_mirror() -> None:
    store = MemoryStore()
    await mirrored(store)
    async with Engine(store) as engine:
        for number in range(300):
            await engine.session(f"child-{number}")
            await engine.link(SESSION, f"child-{number}")
        assert await store.load_snapshot(SESSION, "request_view") is not None
        await engine.close_session(SESSION)
        with pytest.raises(ImportedSession):
            await (await engine.session(SESSION)).add_message(HELLO)


async def test_opening_a_mirror_does_not_end_the_compaction_that_its_file_began() -> None:
    store = MemoryStore()
    await mirrored(store)
    began = events.PreCompact("imported", "x", 1, tokens=1, messages=1)
    await appended(store, began, RecordIds(None, "1" * 16), SESSION)
    before = await store.head(SESSION)
    async with Engine(store) as engine:
        await engine.session(SESSION)
        await engine.close_session(SESSION)
        assert await store.head(SESSION) == before


async def test_a_session_that_is_open_is_written_to_once_an_import_took_it_over() -> None:
    store = MemoryStore()
    await mirrored(store)
    async with Engine(store) as engine:
        context = await engine.session(SESSION)
        with pytest.raises(ImportedSession):
            await context.add_message(HELLO)
        await mirrored(store, take_over=True)
        await context.add_message(HELLO)
        assert await engine.mirror_of(SESSION) is None
