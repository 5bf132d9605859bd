"""What items become in the log: turns, iterations, spans, requests, compactions, raw parts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.importers.formats.claude.conversation import RESENT
from eventctx.importers.recording import spilled
from eventctx.importers.recording.carried import find_carried
from eventctx.log.codec import decode_event
from eventctx.log.events import CATALOGUE
from eventctx.log.record import Record
from eventctx.projections.view import request_view
from eventctx.queries.audit import audit_session
from eventctx.queries.requests import fold
from tests.benchmarks.importing import MEGABYTE, write_transcript
from tests.importers.given import ClaudeCode, Codex, call, jsonl, text
from tests.importers.growing import FILES
from tests.importers.taken import events, imported, records
from tests.importers.taken import views as views_of


def tool_loop() -> ClaudeCode:
    log = ClaudeCode().user("go").answer("m1", call("t1"), call("t2", "Read"))
    log.result("t1", "a").result("t2", "b", is_error=True).answer("m2", text("done"))
    return log.user("again").answer("m3", text("sure")).system("turn_duration")


async def test_the_spans_of_a_call_are_inside_each_other(tmp_path: Path) -> None:
    """In which order its records come, the samples say."""
    store, session = await imported(tmp_path, tool_loop().data())
    by_type: dict[str, list[Record]] = {}
    for record in await records(store, session):
        by_type.setdefault(record.type, []).append(record)
    turn, request = by_type["prompt:submit"][0], by_type["provider:request"][0]
    pre = by_type["tool:pre"]
    assert request.parent_span_id == turn.span_id
    assert [r.parent_span_id for r in pre] == [request.span_id] * 2
    assert pre[0].span_id != pre[1].span_id
    assert by_type["tool:post"][0].span_id == pre[0].span_id
    assert by_type["tool:error"][0].span_id == pre[1].span_id
    prepared = by_type["context:request_prepared"][0].position
    events: list[Any] = [decode_event(one) for one in (by_type["usage:reported"][0], request)]
    assert [event.prepared for event in events] == [prepared, prepared]
    assert all(len(r.span_id or "0" * 16) == 16 for found in by_type.values() for r in found)
    assert by_type.keys() <= set(CATALOGUE)


async def test_the_view_after_a_boundary_starts_with_the_summary(tmp_path: Path) -> None:
    log = tool_loop().system("compact_boundary", compactMetadata={"trigger": "manual"})
    log.user("In short: …", isCompactSummary=True).user("go on").answer("m4", text("ok"))
    store, session = await imported(tmp_path, log.data(), complete=True)
    state, views = request_view.initial(), []
    for record in await records(store, session):
        if record.type == "context:request_prepared":
            views.append((state.layout, decode_event(record)))
        state = request_view.evolve(state, record)
    layout, prepared = views[-1]
    assert [entry.kind for entry in layout.entries()] == ["insertion", "message"]
    assert prepared.digest == layout.measure()[0]  # type: ignore[union-attr]
    assert (await views_of(store, session))[-1][0]["content"] == "In short: …"
    (post,) = await events(store, session, "context:post_compact")
    assert (post.outcome, post.trigger, post.strategy) == ("applied", "imported", "imported")
    assert post.requested_by == "claude-code:manual"
    assert runs_of(post) == [(0, 6, "summarised")]
    assert post.plan.insertions[0].stands_for == ((0, 6),)
    assert post.messages_after == 1


def runs_of(post: Any) -> list[tuple[int, int, str]]:
    return [(run.first, run.last, run.disposition) for run in post.plan.runs]


async def test_a_system_prompt_outlives_a_replacement_history(tmp_path: Path) -> None:
    user = Codex().says("user", "u").payloads()
    log = Codex().says("developer", "rules").says("user", "x").says("assistant", "y")
    log.line("compacted", message="", replacement_history=user * 2)
    store, session = await imported(tmp_path, log.says("assistant", "z").data())
    (post,) = await events(store, session, "context:post_compact")
    assert runs_of(post) == [(0, 1, "kept"), (2, 3, "summarised")]
    assert [i.body for i in post.plan.insertions] == [0, 1]


async def test_large_files_are_cut_into_many_raw_records(tmp_path: Path) -> None:
    log = ClaudeCode().user("go")
    for _ in range(40):
        log.progress(output="x" * 10_000)
    ranges = [event.lines for event in await events(*await imported(tmp_path, log.data()), RAW)]
    assert len(ranges) == 4
    assert all(a[1] < b[0] for a, b in pairwise(ranges))


async def test_a_compaction_is_estimated_as_the_requests_around_it(tmp_path: Path) -> None:
    meta = {"trigger": "auto", "preTokens": 167_000}
    log = ClaudeCode().user("go").answer("m1", text("a")).user("on").answer("m2", text("b"))
    log.system("compact_boundary", compactMetadata=meta)
    log.user("In short: …", isCompactSummary=True).user("next").answer("m3", text("c"))
    store, session = await imported(tmp_path, log.data(), complete=True)
    (ended,) = await events(store, session, "context:post_compact")
    *_, before, after = await events(store, session, "context:request_prepared")
    assert ended.tokens_recorded == 167_000
    assert 500 < ended.reserve <= before.reserve
    # The first request after a compaction has what the program sends again with its summary.
    assert after.reserve == before.reserve + RESENT
    assert ended.reserve < ended.tokens_after < ended.tokens_before
    assert ended.tokens_before <= before.tokens
    assert ended.estimator == before.estimator == after.estimator
    assert ended.tokens_after <= after.tokens
    (row,) = (await audit_session(store, session)).compactions
    assert row.figures is not None
    assert (row.figures.before, row.figures.after, row.figures.recorded) == (543, 543, 167_000)
    assert not row.figures.estimated


# -- messages that a sent message carries ----------------------------------------------------------

WORDS = st.text("ab \n", min_size=1, max_size=12)


RAW = "import:raw"


def user(*words: str) -> dict[str, Any]:
    return {"role": "user", "content": [text(word) for word in words]}


def result(call: str, content: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": content}
    return {"role": "user", "content": [block]}


def joined(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [block for one in messages for block in one["content"]]}


@given(st.lists(WORDS, max_size=4), st.lists(WORDS, min_size=1, max_size=4))
def test_a_message_among_reminders_is_carried_and_they_are_injected(
    reminders: list[str], words: list[str]
) -> None:
    marked = [f"<reminder>{one}</reminder>" for one in reminders]
    found = find_carried(user(*marked, *words), [user(*words)])
    assert found.messages == (0,)
    assert [span.place[1] for span in found.injected] == list(range(len(marked)))
    assert [(span.start, span.end) for span in found.injected] == [(0, len(m)) for m in marked]


@given(st.lists(WORDS, min_size=1, max_size=3), WORDS)
def test_results_joined_in_one_message_are_all_carried_each_with_its_own_note(
    outputs: list[str], note: str
) -> None:
    messages = [result(f"t{number}", one) for number, one in enumerate(outputs)]
    noted = [result(f"t{number}", f"{one}\n\n<note>{note}") for number, one in enumerate(outputs)]
    found = find_carried(joined(*noted), messages)
    assert found.messages == tuple(range(len(outputs)))
    for number, one in enumerate(outputs):
        (span,) = [span for span in found.injected if span.place[1] == number]
        assert (span.start, span.end) == (len(one), len(one) + len(note) + 8)


@given(st.lists(WORDS, max_size=4), st.lists(st.lists(WORDS, max_size=3), max_size=4))
def test_every_character_is_carried_or_injected_and_never_both(
    sent: list[str], messages: list[list[str]]
) -> None:
    found = find_carried(user(*sent), [user(*texts) for texts in messages])
    for index, one in enumerate(sent):
        spans = [s for s in found.injected if s.place == ("content", index, "text")]
        assert all(0 <= s.start < s.end <= len(one) for s in spans)
        assert all(a.end <= b.start for a, b in pairwise(spans))
        begins, ends = [0, *[s.end for s in spans]], [*[s.start for s in spans], len(one)]
        kept = "".join(one[a:b] for a, b in zip(begins, ends, strict=True))
        carried = [piece for number in found.messages for piece in messages[number]]
        assert not kept or any(piece in kept for piece in carried)


def test_an_image_is_carried_and_a_word_inside_of_a_reminder_is_not() -> None:
    reminder = user("<reminder>is it ok now?</reminder>")
    assert find_carried(reminder, [user("ok")]).messages == ()
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
    marked = {**image, "cache_control": {"type": "ephemeral"}}
    messages = [{"role": "user", "content": [image]}, result("t1", [image])]
    assert find_carried({"role": "user", "content": [marked]}, messages).messages == (0,)
    assert find_carried(result("t1", [image]), messages).messages == (1,)


# -- the first request after a compaction ----------------------------------------------------------

BESIDE = 26_000
"""Tokens of system prompt and tools, in no line of the file."""


def working(log: ClaudeCode, name: str, rounds: int, prompt: int, each: int) -> int:
    """Rounds of a tool whose prompts grow by ``each``; returns the last prompt."""
    for number in range(rounds):
        prompt += each
        key = f"{name}{number}"
        usage = {"input_tokens": prompt, "output_tokens": 9}
        log.answer(f"m{key}", call(key), model="claude-opus-4-5", usage=usage)
        log.result(key, "some words of a result " * 200)
    return prompt


def compacted(log: ClaudeCode) -> None:
    log.system("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 150_000})
    log.user("This session is being continued from a previous conversation", isCompactSummary=True)


async def expected(tmp_path: Path, log: ClaudeCode) -> list[Any]:
    store, session = await imported(tmp_path, log.data(), complete=True)
    assert (await fold(store, session, request_view)).calibration.compacted > 0
    return await events(store, session, "context:request_prepared")


# About 1,600 tokens a round are counted. The first prompt holds one round already.
@pytest.mark.parametrize("each", [900, 1_600, 3_000])
async def test_however_wrong_the_growth_was_what_was_sent_with_it_is_known(
    tmp_path: Path, each: int
) -> None:
    log = ClaudeCode().user("go")
    working(log, "a", 40, BESIDE, each)
    compacted(log)
    working(log, "b", 1, BESIDE, each)
    requests = await expected(tmp_path, log)
    behind = next(one for one in requests if "compaction" in one.breaks)
    assert behind.reconstructed
    assert behind.tokens == pytest.approx(BESIDE + each + RESENT, rel=0.03)


async def test_a_second_compaction_and_what_is_sent_again_are_judged_by_the_first(
    tmp_path: Path,
) -> None:
    log = ClaudeCode().user("go")
    working(log, "a", 40, BESIDE, 1_600)
    compacted(log)
    working(log, "b", 40, 50_000, 1_600)
    compacted(log)
    working(log, "c", 1, 50_000, 1_600)
    requests = await expected(tmp_path, log)
    *_, behind = [one for one in requests if "compaction" in one.breaks]
    assert behind.tokens == pytest.approx(51_600, rel=0.05)
    log = ClaudeCode().user("go")
    working(log, "a", 10, BESIDE, 1_600)
    compacted(log)
    log.answer("m1", text("one"), model="claude-opus-4-5", usage=None)
    log.user("and?").answer("m2", text("two"), model="claude-opus-4-5", usage=None)
    requests = await expected(tmp_path, log)
    first, second = requests[-2:]
    assert second.reserve == first.reserve > BESIDE + RESENT * 0.9


def write_chat(path: Path, size: int) -> None:
    """A list of short messages, since each costs the view the same whatever its length."""
    with path.open("wb") as file:
        for number in range(size // 1000):
            role = "assistant" if number % 2 else "user"
            file.write(jsonl([{"role": role, "content": f"{number} " + "word " * 190}]))


@pytest.mark.slow
@pytest.mark.parametrize("write", [write_transcript, write_chat])
def test_an_import_of_a_file_three_times_as_long_takes_no_more_memory(
    write: Callable[[Path, int], None], tmp_path: Path
) -> None:
    peaks = []
    for megabytes in (2, 6):
        path = tmp_path / f"{megabytes}.jsonl"
        write(path, megabytes * MEGABYTE)
        program = [sys.executable, "-m", "tests.benchmarks.importing"]
        command = [*program, str(path), str(path.with_suffix(".db"))]
        ran = subprocess.run(command, capture_output=True, text=True, check=True)
        peaks.append(float(ran.stdout.split()[-1]))
    # What a process takes varies by one MiB; an import that held its file would take four more.
    assert peaks[1] - peaks[0] < 3, peaks


@pytest.mark.parametrize("name", ["claude-code", "codex", "pi", "copilot"])
async def test_an_import_is_the_same_with_its_view_on_disk(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_memory = await records(*await imported(tmp_path, FILES[name], complete=True))
    monkeypatch.setattr(spilled, "CHUNK", 2)
    assert await records(*await imported(tmp_path, FILES[name], complete=True)) == in_memory
