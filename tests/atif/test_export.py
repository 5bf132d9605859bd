"""A session as ATIF documents, trap by trap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.errors import InvalidSetting, StreamNotFound
from eventctx.importers.load import ImportSummary
from eventctx.policies.advisers import ModelAnswer
from eventctx.queries.atif.export import write
from eventctx.session.host_requests import ObservedRequest
from eventctx.stores.memory import MemoryStore
from tests.atif.trajectories import back, documents, exported, own, requests, same_session
from tests.sessions import tool_round, user

Message = dict[str, Any]
USER = {"role": "user", "content": "Count the jars."}


def asks(*ids: str, text: str = "I look.") -> Message:
    """An answer in Anthropic's blocks, with calls."""
    uses = [{"type": "tool_use", "id": one, "name": "look", "input": {"at": one}} for one in ids]
    thought = {"type": "thinking", "thinking": f"hm {text}", "signature": "c2ln"}
    return {"role": "assistant", "content": [thought, {"type": "text", "text": text}, *uses]}


def gives(*ids: str, words: str = "") -> Message:
    """The results of calls, and a person's words after them."""
    rows = [{"type": "tool_result", "tool_use_id": one, "content": f"{one}!"} for one in ids]
    said = [{"type": "text", "text": words}] if words else []
    return {"role": "user", "content": [*rows, *said]}


async def told(*messages: Message, **options: Any) -> Engine:
    """A session of one turn, with a request before each answer."""
    engine = Engine(MemoryStore())
    ctx = await engine.session("s", **options)
    async with ctx.turn() as turn:
        for message in messages:
            if message["role"] == "assistant":
                async with turn.iteration():
                    await ctx.get_messages_for_request()
                    await ctx.add_message(message)
            else:
                await ctx.add_message(message)
    return engine


def texts(document: dict[str, Any]) -> list[Any]:
    return [(step["source"], step["message"]) for step in document["steps"]]


async def comes_back(engine: Engine, folder: Path, *sessions: str) -> list[ImportSummary]:
    """Check that the export that is there is imported as the same sessions."""
    other, done = await back(folder / "s.json")
    for session in sessions or ("s",):
        await same_session(engine, other, session)
    return done


# -- steps ---------------------------------------------------------------------------------------


async def test_an_answer_and_the_results_of_its_calls_are_one_step(tmp_path: Path) -> None:
    late = (user("Well?"), gives("b"), asks(text="Three."))
    engine = await told(USER, asks("a", "b"), gives("a"), *late)
    (document,) = await exported(engine, tmp_path)
    _, step, _, last, _ = document["steps"]
    said = [("user", "Count the jars."), ("agent", "I look."), ("user", "Well?"), ("agent", "")]
    assert texts(document) == [*said, ("agent", "Three.")]
    assert step["reasoning_content"] == "hm I look."
    calls = [(one["tool_call_id"], one["arguments"]) for one in step["tool_calls"]]
    assert calls == [("a", {"at": "a"}), ("b", {"at": "b"})]
    assert step["observation"]["results"] == [{"source_call_id": "a", "content": "a!"}]
    assert (step["llm_call_count"], own(step)["turn"]) == (1, 1)
    # A late result is a step that calls no model.
    assert last["observation"]["results"] == [{"source_call_id": "b", "content": "b!"}]
    assert last["llm_call_count"] == 0
    # The signature stays with its message, and no text is there twice.
    thought, text, use, _ = own(step)["messages"][0]["shape"]["content"]
    assert thought == {"type": "thinking", "thinking": None, "signature": "c2ln"}
    assert (text["text"], use["input"]) == (None, None)
    assert json.dumps(document).count("I look.") == 2  # in the answer and in its thinking


async def test_erased_contents_are_a_mark(tmp_path: Path) -> None:
    engine = await told(USER, asks(text="The code is 1234."))
    await engine.erase("s", [1], reason="asked for")
    (document,) = await exported(engine, tmp_path)
    assert "1234" not in json.dumps(document)
    assert texts(document)[1] == ("agent", "[erased]")
    assert own(document)["completeness"]["erased"] == 1
    # The request for it did not hold it yet.
    assert [one["exact"] for one in requests([document])] == [True]
    await engine.erase("s", [0])
    assert [one["exact"] for one in requests(await exported(engine, tmp_path))] == [False]


async def test_a_missing_session_is_named_and_no_database_is_replaced(tmp_path: Path) -> None:
    async with eventctx.open(tmp_path / "s.db", receipts=False) as engine:
        await (await engine.session("s")).add_message(USER)
        with pytest.raises(StreamNotFound, match="other"):
            await engine.export_atif("other", tmp_path / "other.json")
        assert not (tmp_path / "other.json").exists()
        for file, problem in (("s.db", "found a database"), ("none/s.json", "expected a folder")):
            with pytest.raises(InvalidSetting, match=problem):
                await engine.export_atif("s", tmp_path / file)


# -- requests ------------------------------------------------------------------------------------


async def test_each_step_says_how_its_request_is_known(tmp_path: Path) -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    async with ctx.turn() as turn:
        for number in range(3):
            async with turn.iteration():
                await ctx.add_message({"role": "user", "content": f"say {number}"})
                rows = await ctx.get_messages_for_request()
                if number == 1:  # the host added texts that it does not tell
                    prepared = (await engine.audit("s")).requests[-1].position
                    await ctx.record_sent(prepared, 0, 2)
                if number == 2:
                    await ctx.observe_request(ObservedRequest("openai-chat-1", rows, model="m"))
                await ctx.add_message({"role": "assistant", "content": f"said {number}"})
    (document,) = await exported(engine, tmp_path)
    known = [(one["known"], one["exact"]) for one in requests([document])]
    assert known[:2] == [("prepared", True), ("prepared", False)]
    assert known[2:] == [("prepared", True), ("observed", True)]
    found = own(document)["completeness"]
    assert (found["requests"], found["exact"], found["observed"], found["prepared"]) == (4, 3, 1, 3)
    # The one that was prepared, and sent as observed, has no answer of its own.
    assert found["requests_without_answer"] == 1
    other, _ = await back(tmp_path / "s.json")
    (again,) = await exported(other, tmp_path)
    assert own(again)["completeness"]["reconstructed"] == 4


async def test_steps_have_the_metrics_of_their_calls_and_say_what_failed(tmp_path: Path) -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    async with ctx.turn() as turn:
        await ctx.add_message(USER)
        async with turn.iteration() as cycle:
            await ctx.get_messages_for_request()
            with pytest.raises(OSError, match="no route"):
                async with cycle.provider_call("m"):
                    raise OSError("no route")
            await ctx.add_message(user("Again."))
        for number in (1, 2):
            async with turn.iteration() as cycle:
                await ctx.get_messages_for_request()
                async with cycle.provider_call("m", "p") as call:
                    counts = {"prompt": 100 * number, "output": 7, "cache_read": 60}
                    await call.usage(**counts, cache_write=9, reasoning=4)
                await ctx.add_message(asks(f"{number}"))
                async with cycle.tool_call("look", f"{number}") as tool:
                    tool.failed("no such jar")
                    await ctx.add_message(gives(f"{number}"))
    (document,) = await exported(engine, tmp_path)
    assert [source for source, _ in texts(document)] == ["user", "system", "user", *["agent"] * 2]
    # A request without an answer is a system step in its place.
    assert "no route" in document["steps"][1]["message"]
    step = document["steps"][3]
    counted = {"prompt_tokens": 100, "completion_tokens": 7, "cached_tokens": 60}
    more = {"cache_creation_input_tokens": 9, "reasoning_tokens": 4}
    assert step["metrics"] == {**counted, "extra": more}
    sums = {"total_prompt_tokens": 300, "total_completion_tokens": 14, "total_cached_tokens": 120}
    assert document["final_metrics"] == {**sums, "total_steps": 5}
    assert step["observation"]["results"][0]["extra"] == {"is_error": True}
    await comes_back(engine, tmp_path)
    other, _ = await back(tmp_path / "s.json")
    assert [one.type async for one in other.records("s")].count("tool:error") == 2


async def test_tools_that_were_sent_are_the_agents_in_openais_form(tmp_path: Path) -> None:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s")
    tool = {"name": "look", "description": "Look.", "input_schema": {"type": "object"}}
    await ctx.add_message(USER)
    sent = ObservedRequest("anthropic-messages-1", [USER], tools=[tool], system="Be good.")
    await ctx.observe_request(sent)
    await ctx.add_message(asks(text="Yes."))
    (document,) = await exported(engine, tmp_path)
    function = {"name": "look", "description": "Look.", "parameters": {"type": "object"}}
    assert document["agent"]["tool_definitions"] == [{"type": "function", "function": function}]
    assert ("system", "Be good.") in texts(document)
    await comes_back(engine, tmp_path)  # the system prompt is none of its messages


# -- a context that was replaced -----------------------------------------------------------------


async def compacted(**options: Any) -> Engine:
    engine = Engine(MemoryStore())
    ctx = await engine.session("s", **options)
    await ctx.add_message(USER)
    for number in range(8):
        await ctx.add_messages(tool_round(number))
    await ctx.compact(force=True)
    await ctx.get_messages_for_request()
    await ctx.add_message({"role": "assistant", "content": "Done."})
    return engine


async def test_a_compaction_ends_a_file_and_the_next_begins_with_copies(tmp_path: Path) -> None:
    engine = await compacted(policy="truncate", keep_recent=2)
    first, then = await exported(engine, tmp_path)
    assert first["continued_trajectory_ref"] == "s.cont-1.json"
    assert "continued_trajectory_ref" not in then
    assert (first["trajectory_id"], then["trajectory_id"]) == ("s", "s.cont-1")
    boundary = first["steps"][-1]
    assert boundary["extra"]["context_management"] == {"type": "compaction", "boundary": "replace"}
    assert own(boundary)["compaction"]["strategy"] == "truncate"
    copied = [step.get("is_copied_context", False) for step in then["steps"]]
    assert copied[0]
    assert sorted(copied, reverse=True) == copied
    assert not any("metrics" in step for step in then["steps"] if step.get("is_copied_context"))
    assert own(then)["completeness"]["copied_steps"] == sum(copied)
    assert (await comes_back(engine, tmp_path))[0].compactions == 1


async def test_the_call_of_a_summarizer_is_in_the_compaction(tmp_path: Path) -> None:
    async def in_short(request: Any) -> ModelAnswer:
        return ModelAnswer("In short: jars.", model="small", prompt=500, output=20)

    engine = await compacted(policy="summarize", max_tokens=3_000, summarizer=in_short)
    first, then = await exported(engine, tmp_path)
    (asked,) = own(first["steps"][-1])["compaction"]["asked"]
    assert (asked["model_name"], asked["metrics"]["prompt_tokens"]) == ("small", 500)
    assert first["final_metrics"]["total_prompt_tokens"] == 500
    assert then["steps"][0]["is_copied_context"]
    other, _ = await back(tmp_path / "s.json")
    assert (await other.audit("s")).usage == (await engine.audit("s")).usage


async def test_what_a_fork_inherits_is_copied(tmp_path: Path) -> None:
    engine = await told(USER, asks("a"), gives("a"), asks(text="Three."))
    (info,) = await engine.sessions()
    await engine.fork("s", info.head, "child")
    ctx = await engine.session("child")
    async with ctx.turn() as turn, turn.iteration():
        await ctx.add_message(user("And now?"))
        await ctx.get_messages_for_request()
        await ctx.add_message(asks(text="Four."))
    (document,) = await exported(engine, tmp_path, "child")
    copied = [step.get("is_copied_context", False) for step in document["steps"]]
    assert copied == [True, True, True, False, False]
    assert own(document)["completeness"]["requests"] == 1
    assert own(document)["fork"]["parent"] == "s"
    other, _ = await back(tmp_path / "child.json")
    assert len(await other.transcript("child")) == len(await engine.transcript("child"))
    assert len((await other.audit("child")).requests) == 1


# -- subagents -----------------------------------------------------------------------------------


async def with_subagents() -> Engine:
    engine = await told(USER, asks("a"), gives("a"), asks(text="Three."))
    for name, call in (("s.agent-one", "a"), ("another", None)):
        ctx = await engine.session(name)
        await ctx.add_message({"role": "user", "content": f"I am {name}."})
        await ctx.add_message({"role": "assistant", "content": "Found."})
        await engine.link("s", name, call_id=call)
    return engine


async def test_subagents_are_in_the_document_and_linked_by_their_call(tmp_path: Path) -> None:
    engine = await with_subagents()
    (document,) = await exported(engine, tmp_path)
    (result,) = document["steps"][1]["observation"]["results"]
    told = {"trajectory_id": "one", "session_id": "s.agent-one"}
    assert result["subagent_trajectory_ref"] == [told]
    inner = document["subagent_trajectories"]
    assert [one["trajectory_id"] for one in inner] == ["one", "another"]
    assert inner[0]["agent"]["extra"] == {"parent_session_id": "s"}
    names = ["s", "s.agent-one", "another"]
    assert [one.session for one in await comes_back(engine, tmp_path, *names)] == names


async def test_a_subagent_that_is_gone_is_named_and_circles_end(tmp_path: Path) -> None:
    engine = await with_subagents()
    await engine.delete("another")
    export = await engine.export_atif("s", tmp_path / "s.json")
    assert (export.subagents, export.missing) == (("s.agent-one",), ("another",))
    (document,) = documents(export)
    (ref,) = document["steps"][-1]["observation"]["results"][0]["subagent_trajectory_ref"]
    assert (ref["trajectory_path"], ref["session_id"]) == ("another.json", "another")
    await engine.link("s.agent-one", "s")
    assert "s" in (await engine.export_atif("s", tmp_path / "s.json")).missing


async def test_a_step_is_written_before_the_next_but_one_is_read(tmp_path: Path) -> None:
    engine = await told(USER, *[asks(text=f"{number} " * 500) for number in range(40)])
    sizes: list[int] = []
    await write(engine.store, "s", lambda _: lambda data: sizes.append(len(data)))
    whole = sum(sizes)
    assert max(sizes) < whole / 20, "no more than a step is written at once"


async def test_a_step_that_was_changed_is_read_by_its_words(tmp_path: Path) -> None:
    two = {"role": "user", "content": [{"type": "text", "text": "One."}] * 2}
    engine = await told(two, asks(text="Three."))
    (document,) = await exported(engine, tmp_path)
    document["steps"][0]["message"] = "Cut."
    (tmp_path / "s.json").write_text(json.dumps(document))
    other, (done, *_) = await back(tmp_path / "s.json")
    assert "changed after its export" in done.warnings[0]
    first, second = await other.transcript("s")
    assert first.message == {"role": "user", "content": "Cut."}
    assert second.message == asks(text="Three.")
