"""ATIF trajectories, trap by trap."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eventctx.engine import Engine
from eventctx.errors import NotATranscript
from eventctx.importers.detect import choose
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
from tests.importers.given import always, forked, items_of, load, messages, of_type, roles, texts
from tests.importers.outputs import Atif, seen

COMPACTED = {"context_management": {"type": "compaction", "boundary": "replace"}}
SUMMARY = [{"session_id": "run-1-summarization-1-summary", "trajectory_path": "s.json"}]


def found(log: Atif, **root: Any) -> list[Any]:
    return items_of(parse, log.data(**root), always)


def compaction(items: list[Any]) -> CompactionItem:
    (one,) = of_type(items, CompactionItem)
    assert isinstance(one, CompactionItem)
    return one


def test_one_result_without_a_name_answers_all_calls_that_have_none() -> None:
    log = Atif().step("user", "go")
    log.acts("two keys", "a", "b", observation=seen((None, "screen")))
    log.acts("one key", "c", observation=seen((None, "screen")))
    log.acts("two screens", "d", "e", observation=seen((None, "1"), (None, "2")))
    shared, single, first, second = [one for one in texts(found(log)) if one["role"] == "tool"]
    assert shared["tool_call_ids"] == ["a", "b"]
    assert [one["tool_call_id"] for one in (single, first, second)] == ["c", "d", "e"]


def test_a_result_of_a_step_without_calls_is_an_observation() -> None:
    items = found(Atif().step("user", "go").acts("keys: ls", observation=seen((None, "jars"))))
    last = of_type(items, MessageItem)[-1]
    assert (last.message, last.observation) == ({"role": "user", "content": "jars"}, True)


def test_metrics_are_the_whole_prompt_with_what_was_cached_and_written() -> None:
    extra = {"cache_creation_input_tokens": 9, "reasoning_output_tokens": 4}
    told = {"prompt_tokens": 100, "completion_tokens": 7, "cached_tokens": 60, "extra": extra}
    (call,) = of_type(found(Atif().step("user", "go").acts("x", metrics=told)), ModelCall)
    assert (call.model, call.usage) == ("test-model", Usage(100, 7, 60, 9, 4))


def test_metrics_of_several_calls_are_of_no_prompt_and_a_dispatch_calls_no_model() -> None:
    log = Atif().step("user", "go").acts("x", prompt=300, llm_call_count=2)
    log.acts("", "a", llm_call_count=0, observation=seen(("a", "routed")))
    (call,) = of_type(found(log), ModelCall)
    assert call.usage is None
    assert roles(found(log)) == ["user", "assistant", "assistant", "tool"]


def test_a_failed_tool_is_told_from_what_its_result_has_beside_it() -> None:
    log = Atif().step("user", "go")
    log.acts("x", "a", observation=seen(("a", "no"), extra={"tool_result_is_error": True}))
    assert [item.failed for item in of_type(found(log), MessageItem)] == [False, False, True]


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


def test_the_prompt_after_a_boundary_without_content_replaces_what_came_before() -> None:
    log = Atif().step("user", "go").acts("x").step("system", "Compacted.", extra=COMPACTED)
    items = found(log.step("user", "Here is the summary.").acts("y"))
    assert compaction(items).messages == ({"role": "user", "content": "Here is the summary."},)
    assert len(of_type(items, TurnBegan)) == 1


def test_summaries_of_subagents_tell_of_a_compaction_where_no_boundary_is_named() -> None:
    refs = {"results": [{"subagent_trajectory_ref": SUMMARY}]}
    log = Atif().step("user", "go").acts("x").step("system", "Handed on.", observation=refs)
    items = found(log.step("user", "The answers.").acts("y"))
    assert compaction(items).messages[0]["content"] == "The answers."
    assert [one.session_id for one in of_type(items, Linked)] == [SUMMARY[0]["session_id"]]


def test_a_summary_in_the_words_of_claude_code_replaces_what_came_before() -> None:
    words = "This session is being continued from a previous conversation that ran out of context."
    items = found(Atif().step("user", "go").acts("x").step("user", words).acts("y"))
    assert compaction(items).messages == ({"role": "user", "content": words},)
    first = found(Atif().step("user", words).acts("y"))
    assert (of_type(first, CompactionItem), roles(first)) == ([], ["user", "assistant"])


def test_a_boundary_at_the_end_waits_for_the_step_that_it_goes_on_with() -> None:
    log = Atif().step("user", "go").acts("x").step("system", "Compacted.", extra=COMPACTED)
    assert of_type(items_of(parse, log.data()), CompactionItem) == []
    assert compaction(found(log)).messages == ()


def test_another_change_of_the_context_is_a_warning() -> None:
    trimmed = {"context_management": {"type": "pruning", "boundary": "truncate"}}
    items = found(Atif().step("user", "go").acts("x").step("system", "Trimmed.", extra=trimmed))
    (warning,) = of_type(items, Warned)
    assert "truncate" in warning.text


def test_copied_steps_are_no_calls_and_begin_one_turn() -> None:
    log = Atif().step("user", "go", is_copied_context=True)
    log.acts("x", prompt=50, is_copied_context=True).step("user", "and?", is_copied_context=True)
    items = found(log.acts("y", prompt=90))
    assert [call.usage.prompt for call in of_type(items, ModelCall)] == [90]
    assert len(of_type(items, TurnBegan)) == 1


def test_steps_that_a_compaction_marked_as_copied_were_called_here() -> None:
    log = Atif().step("user", "go", is_copied_context=True)
    log.acts("x", prompt=50, is_copied_context=True).step("system", "Compacted.", extra=COMPACTED)
    items = found(log.step("user", "In short.").acts("y", prompt=9))
    assert [call.usage.prompt for call in of_type(items, ModelCall)] == [50, 9]


# -- several files -------------------------------------------------------------------------------


def continued(folder: Path) -> Path:
    """A trajectory whose context was replaced, and that goes on in the next file."""
    refs = {"results": [{"subagent_trajectory_ref": SUMMARY}]}
    first = Atif().step("user", "go").acts("x", prompt=50)
    first.step("system", "Handed on.", extra=COMPACTED, observation=refs)
    then = Atif(session_id="run-1-cont-1").step("user", "go", is_copied_context=True)
    then.step("user", "In short.", is_copied_context=True).acts("y", prompt=20).acts("z", prompt=30)
    (folder / "trajectory.cont-1.json").write_bytes(then.data())
    path = folder / "trajectory.json"
    path.write_bytes(first.data(continued_trajectory_ref="trajectory.cont-1.json"))
    return path


async def test_a_trajectory_goes_on_in_the_next_file_with_what_its_compaction_left(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    done = await load(store, continued(tmp_path), complete=True)
    assert (done.messages, done.calls, done.compactions, done.turns) == (4, 3, 1, 1)
    assert [one["content"] for one in await messages(store, "run-1")] == ["go", "x", "y", "z"]
    context = await forked(Engine(store), "run-1")
    # The prompt that was copied is the first one still; only the summary is new.
    view = await context.get_messages_for_request()
    assert [one["content"] for one in view] == ["go", "In short.", "y", "z"]
    assert (await load(store, tmp_path / "trajectory.json", complete=True)).added == 0


async def test_a_search_reads_the_files_of_one_trajectory_once(tmp_path: Path) -> None:
    continued(tmp_path)
    done = await import_paths(MemoryStore(), [tmp_path])
    assert [one.session for one in done.sessions] == ["run-1"]
    assert [one.reason for one in done.passed_over] == [
        "it goes on from trajectory.json, and is imported with it"
    ]


async def test_a_next_file_that_is_missing_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trajectory.json"
    path.write_bytes(Atif().step("user", "go").acts("x").data(continued_trajectory_ref="b.json"))
    done = await load(MemoryStore(), path)
    assert "goes on in b.json" in done.warnings[0]


async def test_a_trajectory_that_grows_into_the_next_file_adds_the_rest(tmp_path: Path) -> None:
    path = continued(tmp_path)
    next_file = tmp_path / "trajectory.cont-1.json"
    kept = next_file.read_bytes()
    next_file.unlink()
    store, other = MemoryStore(), MemoryStore()
    assert (await load(store, path)).compactions == 0
    next_file.write_bytes(kept)
    await load(store, path)
    await load(other, path)
    assert await messages(store, "run-1") == await messages(other, "run-1")
    assert (await load(store, path)).added == 0


async def test_embedded_subagents_are_sessions_that_name_their_parent(tmp_path: Path) -> None:
    inner = Atif(trajectory_id="inner").step("user", "count").acts("3").document()
    child = Atif(trajectory_id="child").step("user", "look").acts("seen")
    ref = {"source_call_id": "a", "subagent_trajectory_ref": [{"trajectory_id": "child"}]}
    log = Atif().step("user", "go").acts("x", "a", observation={"results": [ref]})
    path = tmp_path / "run.json"
    embedded = child.document(subagent_trajectories=[inner])
    path.write_bytes(log.data(subagent_trajectories=[embedded]))
    store = MemoryStore()
    done = await import_file(store, path, complete=True)
    names = ["run-1", "run-1.agent-child", "run-1.agent-child.agent-inner"]
    assert [one.session for one in done] == names
    assert done[0].links == ("run-1.agent-child",)
    assert [one["content"] for one in await messages(store, names[2])] == ["count", "3"]


# -- marks, and bad input ------------------------------------------------------------------------


@pytest.mark.parametrize("version", [f"ATIF-v1.{minor}" for minor in range(9)])
def test_every_version_is_told_by_its_version_and_its_steps(version: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(Atif().step("user", "go").data(schema_version=version))
    assert choose(path, None).name == "atif"


async def test_a_document_with_one_of_the_marks_is_none(tmp_path: Path) -> None:
    for value in ({"schema_version": "ATIF-v1.8"}, {"schema_version": "1.0", "steps": [{}]}):
        path = tmp_path / "x.json"
        path.write_text(json.dumps(value))
        with pytest.raises(NotATranscript):
            await load(MemoryStore(), path)


async def test_runs_of_one_name_without_a_session_are_named_by_their_folders(
    tmp_path: Path,
) -> None:
    for run in ("one", "two"):
        (tmp_path / run).mkdir()
        log = Atif(session_id="unknown").step("user", run).acts("x")
        (tmp_path / run / "trajectory.json").write_bytes(log.data())
    done = await import_paths(MemoryStore(), [tmp_path])
    assert sorted(str(one.session) for one in done.sessions) == ["trajectory", "two.trajectory"]
