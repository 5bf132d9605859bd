"""ATIF trajectories, trap by trap."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from eventctx.importers.formats.atif.trajectory import parse
from eventctx.importers.load import import_file
from eventctx.importers.many import import_paths
from eventctx.importers.source.items import (
    CompactionItem,
    Linked,
    MessageItem,
    ModelCall,
    TurnBegan,
    Warned,
)
from eventctx.log.usage import Usage
from eventctx.stores.memory import MemoryStore
from tests.importers.given import put
from tests.importers.items import always, items_of, of_type, roles, texts
from tests.importers.outputs import Atif, seen
from tests.importers.taken import load, messages, next_request

COMPACTED = {"context_management": {"type": "compaction", "boundary": "replace"}}
SUMMARY = [{"session_id": "run-1-summarization-1-summary", "trajectory_path": "s.json"}]


def found(log: Atif, **root: Any) -> list[Any]:
    return items_of(parse, log.data(**root), always)


def go() -> Atif:
    return Atif().step("user", "go").acts("x")


def replaced_by(log: Atif) -> list[tuple[dict[str, Any], ...]]:
    """What each compaction of a trajectory left."""
    return [one.messages for one in of_type(found(log), CompactionItem)]


def test_results_answer_the_calls_that_have_none() -> None:
    log = Atif().step("user", "go")
    log.acts("two keys", "a", "b", observation=seen((None, "screen")))
    log.acts("one key", "c", observation=seen((None, "screen")))
    log.acts("two screens", "d", "e", observation=seen((None, "1"), (None, "2")))
    log.acts("fails", "f", observation=seen(("f", "no"), extra={"tool_result_is_error": True}))
    results = [m for m in of_type(found(log), MessageItem) if m.message["role"] == "tool"]
    assert results[0].message["tool_call_ids"] == ["a", "b"]
    assert [one.message["tool_call_id"] for one in results[1:]] == ["c", "d", "e", "f"]
    assert [one.failed for one in results] == [False, False, False, False, True]
    # That of a step without calls is an observation.
    last = of_type(found(log.acts("keys: ls", observation=seen((None, "jars")))), MessageItem)[-1]
    assert (last.message, last.observation) == ({"role": "user", "content": "jars"}, True)


def test_metrics_are_of_one_call_with_what_was_cached_and_written() -> None:
    extra = {"cache_creation_input_tokens": 9, "reasoning_output_tokens": 4}
    told = {"prompt_tokens": 100, "completion_tokens": 7, "cached_tokens": 60, "extra": extra}
    log = Atif().step("user", "go").acts("x", metrics=told)
    log.acts("several", prompt=300, llm_call_count=2)
    log.acts("", "a", llm_call_count=0, observation=seen(("a", "routed")))  # calls no model
    calls = [(call.model, call.usage) for call in of_type(found(log), ModelCall)]
    assert calls == [("test-model", Usage(100, 7, 60, 9, 4)), ("test-model", None)]
    assert roles(found(log)) == ["user", *["assistant"] * 3, "tool"]


def test_images_and_sounds_are_named_by_their_files() -> None:
    parts = [
        {"type": "text", "text": "See."},
        {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}},
        {"type": "audio", "source": {"media_type": "audio/wav", "path": "a.wav"}},
    ]
    (message,) = texts(found(Atif().step("user", parts)))
    assert [part["type"] for part in message["content"]] == ["text", "image_url", "input_audio"]
    assert message["content"][1]["image_url"]["url"] == "a.png"


# -- what a compaction replaced ------------------------------------------------------------------


def test_the_prompt_after_a_boundary_replaces_what_came_before() -> None:
    log = go().step("system", "Compacted.", extra=COMPACTED)
    # At the end of a file it waits for the step that it goes on with.
    assert of_type(items_of(parse, log.data()), CompactionItem) == []
    assert replaced_by(log) == [()]
    log.step("user", "Here is the summary.").acts("y")
    assert replaced_by(log) == [({"role": "user", "content": "Here is the summary."},)]
    assert len(of_type(found(log), TurnBegan)) == 1
    trimmed = {"context_management": {"type": "pruning", "boundary": "truncate"}}
    (warning,) = of_type(found(go().step("system", "Trimmed.", extra=trimmed)), Warned)
    assert "truncate" in warning.text


def test_a_compaction_is_told_by_summarizers_and_by_the_words_of_claude_code() -> None:
    refs = {"results": [{"subagent_trajectory_ref": SUMMARY}]}
    log = go().step("system", "Handed on.", observation=refs).step("user", "The answers.").acts("y")
    assert replaced_by(log) == [({"role": "user", "content": "The answers."},)]
    assert [one.session_id for one in of_type(found(log), Linked)] == [SUMMARY[0]["session_id"]]
    words = "This session is being continued from a previous conversation that ran out of context."
    log = go().step("user", words).acts("y")
    assert replaced_by(log) == [({"role": "user", "content": words},)]
    log = Atif().step("user", words).acts("y")
    assert (replaced_by(log), roles(found(log))) == ([], ["user", "assistant"])


def test_copied_steps_are_no_calls_unless_a_compaction_marked_them() -> None:
    def prompts_of(log: Atif) -> list[int]:
        return [call.usage.prompt for call in of_type(found(log), ModelCall)]

    log = Atif().step("user", "go", is_copied_context=True)
    log.acts("x", prompt=50, is_copied_context=True).step("user", "and?", is_copied_context=True)
    assert prompts_of(log.acts("y", prompt=90)) == [90]
    assert len(of_type(found(log), TurnBegan)) == 1
    log = Atif().step("user", "go", is_copied_context=True)
    log.acts("x", prompt=50, is_copied_context=True).step("system", "Compacted.", extra=COMPACTED)
    assert prompts_of(log.step("user", "In short.").acts("y", prompt=9)) == [50, 9]


def continued(folder: Path) -> Path:
    """A trajectory whose context was replaced, and that goes on in the next file."""
    refs = {"results": [{"subagent_trajectory_ref": SUMMARY}]}
    first = Atif().step("user", "go").acts("x", prompt=50)
    first.step("system", "Handed on.", extra=COMPACTED, observation=refs)
    then = Atif(session_id="run-1-cont-1").step("user", "go", is_copied_context=True)
    then.step("user", "In short.", is_copied_context=True).acts("y", prompt=20).acts("z", prompt=30)
    name = put(folder / "trajectory.cont-1.json", then.data()).name
    return put(folder / "trajectory.json", first.data(continued_trajectory_ref=name))


async def test_a_trajectory_goes_on_in_the_next_file_with_what_was_left(tmp_path: Path) -> None:
    path, store = continued(tmp_path), MemoryStore()
    done = await load(store, path, complete=True)
    assert (done.messages, done.calls, done.compactions, done.turns) == (4, 3, 1, 1)
    assert [one["content"] for one in await messages(store, "run-1")] == ["go", "x", "y", "z"]
    # The prompt that was copied is the first one still; only the summary is new.
    sent = await next_request(store, "run-1")
    assert [one["content"] for one in sent] == ["go", "In short.", "y", "z"]
    assert (await load(store, path, complete=True)).added == 0
    searched = await import_paths(MemoryStore(), [tmp_path])
    assert [one.session for one in searched.sessions] == ["run-1"]
    reason = "it goes on from trajectory.json, and is imported with it"
    assert [one.reason for one in searched.passed_over] == [reason]
    path, next_file = continued(tmp_path), tmp_path / "trajectory.cont-1.json"
    kept = next_file.read_bytes()
    next_file.unlink()
    store, other = MemoryStore(), MemoryStore()
    first = await load(store, path)
    assert first.compactions == 0
    assert "goes on in trajectory.cont-1.json" in first.warnings[0]
    put(next_file, kept)
    await load(store, path)
    await load(other, path)
    assert await messages(store, "run-1") == await messages(other, "run-1")
    assert (await load(store, path)).added == 0


async def test_embedded_subagents_are_sessions_that_name_their_parent(tmp_path: Path) -> None:
    inner = Atif(trajectory_id="inner").step("user", "count").acts("3").document()
    child = Atif(trajectory_id="child").step("user", "look").acts("seen")
    ref = {"source_call_id": "a", "subagent_trajectory_ref": [{"trajectory_id": "child"}]}
    log = Atif().step("user", "go").acts("x", "a", observation={"results": [ref]})
    embedded = child.document(subagent_trajectories=[inner])
    data, store = log.data(subagent_trajectories=[embedded]), MemoryStore()
    path = put(tmp_path / "a.json", data)
    done = await import_file(store, path, complete=True)
    names = ["run-1", "run-1.agent-child", "run-1.agent-child.agent-inner"]
    assert [one.session for one in done] == names
    assert done[0].links == ("run-1.agent-child",)
    assert [one["content"] for one in await messages(store, names[2])] == ["count", "3"]


async def test_runs_without_a_session_are_named_by_their_folders(tmp_path: Path) -> None:
    for run in ("one", "two"):
        log = Atif(session_id="unknown").step("user", run).acts("x")
        put(tmp_path / run / "trajectory.json", log.data())
    done = await import_paths(MemoryStore(), [tmp_path])
    assert sorted(str(one.session) for one in done.sessions) == ["trajectory", "two.trajectory"]
