"""Whatever a session holds, its trajectory is valid and comes back as the same session; recorded
ones, too."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventctx.engine import Engine
from eventctx.errors import EventctxError
from eventctx.importers.many import import_paths
from eventctx.messages.parts import read_parts
from eventctx.projections.view.refs import MessageRef
from eventctx.queries.atif.verbatim import way_of
from eventctx.queries.records import Message as Line
from eventctx.stores.memory import MemoryStore
from tests.atif.trajectories import back, documents, in_one, requests, same_session, without_marks
from tests.faults.counts import FULL
from tests.how_much import some
from tests.messages.test_odd_messages import anything as odd_messages
from tests.messages.test_parts import marked_messages
from tests.queries.test_explaining_any_session import STEPS, in_short, play
from tests.sessions import with_frames
from tests.transcripts import Story, stories

Message = dict[str, Any]

often = settings(max_examples=some(12, 400), deadline=None, suppress_health_check=list(HealthCheck))


async def there_and_back(engine: Engine, folder: Path) -> list[tuple[Engine, list[Message]]]:
    """The session in each form, imported again and compared; with the documents of each."""
    export = await engine.export_atif("s", folder / "s.json")
    found = [(folder / "s.json", documents(export))]
    whole = [await in_one(engine, folder)]
    if whole != found[0][1]:  # where a compaction began another file
        found.append((folder / "one.json", whole))
    engines = []
    for path, written in found:
        other, summaries = await back(path)
        assert summaries[0].warnings == ()
        await same_session(engine, other)
        engines.append((other, written))
    return engines


async def tell(messages: list[Message], *, asks: bool = True) -> Engine:
    """A session with these messages, and a request before each answer of the model."""
    engine = Engine(MemoryStore())
    ctx = await engine.session("s", policy="truncate", max_tokens=1_000_000)
    await ctx.add_message({"role": "user", "content": "begin"})  # a file without a text is none
    async with contextlib.AsyncExitStack() as turns:
        for place, message in enumerate(messages):
            if message.get("role") == "user" and place % 3 == 0:
                await turns.aclose()
                turn = await turns.enter_async_context(ctx.turn())
                await turns.enter_async_context(turn.iteration())
            if asks and message.get("role") == "assistant":
                await ctx.get_messages_for_request()
            await ctx.add_message(message)
    return engine


def comes_back(messages: list[Message], *, asks: bool = True) -> None:
    async def trial() -> None:
        engine = await tell(messages, asks=asks)
        with tempfile.TemporaryDirectory() as folder:
            await there_and_back(engine, Path(folder))

    asyncio.run(trial())


@often
@given(stories(), st.booleans())
def test_a_story_in_any_dialect_comes_back(story: Story, asks: bool) -> None:
    comes_back(story.messages, asks=asks)


@often
@given(st.lists(marked_messages().map(lambda one: one[0]), min_size=1, max_size=4))
def test_every_part_of_a_message_comes_back(messages: list[Message]) -> None:
    comes_back(messages)


@pytest.mark.filterwarnings("ignore::eventctx.session.transcript.UnknownRole")
@often
@given(st.lists(odd_messages, min_size=1, max_size=4))
def test_whatever_json_a_message_holds_comes_back(messages: list[Message]) -> None:
    comes_back(messages)


@often
@given(STEPS, st.sampled_from([800, 3_000]))
def test_a_session_that_was_compacted_set_and_cleared_comes_back(
    steps: list[tuple[str, Any]], budget: int
) -> None:
    async def trial() -> None:
        engine = Engine(MemoryStore())
        options: dict[str, Any] = {"on_overflow": "send_floor", "summarizer": in_short}
        ctx = await engine.session("s", policy="ladder", max_tokens=budget, **options)
        with contextlib.suppress(EventctxError):
            await play(ctx, [("say", 9), *steps])
        with tempfile.TemporaryDirectory() as folder:
            for other, written in await there_and_back(engine, Path(folder)):
                await same_views(engine, other, steps)
                await says_its_views(engine, written)

    asyncio.run(trial())


async def same_views(engine: Engine, other: Engine, steps: list[tuple[str, Any]]) -> None:
    """Check each request's view, but for what no item of an import can say.

    That are messages restored to a view, and thinking that a set took the ground from.
    """
    if {"restore", "pin", "think"} & {what for what, _ in steps}:
        return
    old, new = (await engine.audit("s")).requests, (await other.audit("s")).requests
    for before, after in zip(old, new, strict=True):
        assert await shown(other, after.position) == await shown(engine, before.position)


async def shown(engine: Engine, position: int) -> list[Any]:
    entries = (await engine.request_view("s", position=position)).entries
    refs = [one.ref if isinstance(one.ref, MessageRef) else None for one in entries]
    return [
        (ref.number, ref.shortened) if ref else (one.kind, one.ref is None)
        for one, ref in zip(entries, refs, strict=True)
    ]


async def says_its_views(engine: Engine, written: list[Message]) -> None:
    """Check that ``keep`` and ``add`` of the steps lead to the views of the session."""
    entries: list[Any] = []
    for request in requests(written):
        entries = entries[: request["view"]["keep"]]
        for run_ in request["view"]["add"]:
            if isinstance(run_, list):
                entries += range(run_[0], run_[1] + 1)
            else:
                entries.append(run_.get("number", run_["as"]))
        view = await engine.request_view("s", position=request["position"])
        refs = [entry.ref for entry in view.entries if isinstance(entry.ref, MessageRef)]
        assert [one for one in entries if isinstance(one, int)] == [ref.number for ref in refs]
        assert len(entries) == len(view.entries)
        assert request["digest"] == view.digest


@often
@given(stories())
def test_another_reader_of_the_format_sees_the_same_words(story: Story) -> None:
    async def trial() -> None:
        engine = await tell(story.messages)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "other.json"
            path.write_text(json.dumps(without_marks(await in_one(engine, Path(folder)))))
            other, _ = await back(path)
            assert words(await other.transcript("s")) == words(await engine.transcript("s"))

    asyncio.run(trial())


def words(transcript: list[Any]) -> list[tuple[Any, ...]]:
    """The texts, calls and results of a transcript, in order, whatever its dialect."""
    found: list[tuple[Any, ...]] = []
    for part in [part for one in transcript for part in read_parts(one.message)]:
        if part.kind == "text" and part.value:
            found.append(("text", part.value))
        elif part.kind == "call":
            value = json.loads(part.value) if isinstance(part.value, str) else part.value
            found.append(("call", part.ids, part.name, value))
        elif part.kind == "result":
            found.append(("result", part.ids, part.value))
    return found


@given(st.dictionaries(st.text(max_size=4), st.text(max_size=4) | st.floats(-9, 9), max_size=3))
def test_arguments_in_the_ways_that_programs_write_json_need_no_second_copy(value: Any) -> None:
    for separators in (None, (",", ":")):
        for ascii_ in (False, True):
            written = json.dumps(value, ensure_ascii=ascii_, separators=separators)
            assert way_of(written, value) is not None


# -- recorded sessions ---------------------------------------------------------------------------

SHORT = (
    "amplifier",
    "mini-swe-agent/gemini-3-pro__django__django-16560.traj.json",
    "openhands/cli447_case_a",
    "openhands/llm-log-fncall-sonnet4.json",
    "provider",
    "swe-agent",
)
LONG = (
    "claude-code/entire-26dcd5518fea.jsonl",
    "codex/rollout-2026-05-11T11-26-55-019e1625-789d-76c0-80ab-3724b5ddb799.jsonl",
    "pi/large-session.jsonl",
)
"""A usual run tries the beginnings of these, and one session of each other harness."""


def beginning_of(path: Path, folder: Path) -> Path:
    with path.open("rb") as file, (folder / path.name).open("wb") as cut:
        cut.writelines(islice(file, 150))
    return folder / path.name


async def test_every_recorded_session_is_a_valid_trajectory_and_comes_back(
    recorded_sessions: Path, tmp_path: Path
) -> None:
    engine = Engine(MemoryStore())
    with_frames(engine.store, 100)
    chosen = [recorded_sessions]
    if not FULL:
        chosen = [recorded_sessions / name for name in SHORT]
        chosen += [beginning_of(recorded_sessions / name, tmp_path) for name in LONG]
    await import_paths(engine.store, chosen)
    sessions = [info.stream for info in await engine.sessions()]
    assert len(sessions) > 18
    for name in sessions:
        folder = tmp_path / str(sessions.index(name))
        folder.mkdir()
        export = await engine.export_atif(name, folder / "session.json")
        written = documents(export)
        audit = await engine.audit(name)
        assert export.completeness.requests == len(audit.requests)
        document = await in_one(engine, folder, name)
        paths = [folder / "session.json", folder / "one.json"]
        if written == [document]:
            paths.pop()  # as it is of every session without a compaction
        for path in paths:
            other, (done, *_) = await back(path)
            assert (done.session, done.warnings) == (name, ())
            await same_session(engine, other, name)
        (folder / "plain.json").write_text(json.dumps(without_marks(document)))
        other, (done, *_) = await back(folder / "plain.json")
        assert done.session == name
        assert calls(await other.transcript(name)) == calls(await engine.transcript(name))


def calls(transcript: list[Line]) -> list[tuple[tuple[str, ...], str | None]]:
    parts = [part for one in transcript for part in read_parts(one.message or {})]
    return [(part.ids, part.name) for part in parts if part.kind == "call"]
