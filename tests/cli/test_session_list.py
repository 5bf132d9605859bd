"""``sessions``: titles, projects, order, and what is chosen; short names that commands take."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import eventctx
from eventctx.cli.main import cli
from eventctx.log.events import SessionEnd
from eventctx.queries.session_names import fits, short_names
from tests.importers.given import SESSION, ClaudeCode, jsonl, text

HOSTILE = "\x1b[2Jred\x07 \u202eback\u2066 👩‍👩‍👧 漢字 " + "long " * 200_000


def said(path: Path, session: str, words: str) -> None:
    async def say() -> None:
        async with eventctx.open(path) as engine:
            await (await engine.session(session)).add_message({"role": "user", "content": words})

    asyncio.run(say())


@pytest.fixture
def three(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    for name, words in (("b-old", "Mend the roof"), ("a-new", "Paint it"), ("c", "Sell it")):
        said(path, name, words)
    said(path, "b-old", "again")
    return path


def names(done: Any) -> list[str]:
    return [row["session"] for row in done.document]


def test_the_session_that_was_used_last_comes_first(run: Any, three: Path) -> None:
    listed = ("sessions", "--json", "--store", three)
    assert names(run(*listed)) == ["b-old", "c", "a-new"]
    assert names(run(*listed, "--sort", "made")) == ["b-old", "a-new", "c"]
    assert names(run(*listed, "--sort", "messages", "--limit", 1)) == ["b-old"]
    assert names(run(*listed, "--after", "b-old")) == ["a-new", "c"]
    assert run(*listed, "--after", "b-old", "--sort", "tokens").code == 2
    assert run(*listed, "--sort", "colour").code == 2


def test_sessions_are_chosen_by_words_of_their_title(run: Any, three: Path) -> None:
    assert names(run("sessions", "--json", "--grep", "ROOF", "--store", three)) == ["b-old"]
    assert names(run("sessions", "--json", "--grep", "new", "--store", three)) == ["a-new"]
    assert names(run("sessions", "--json", "--project", "x", "--store", three)) == []
    assert "None of 3 sessions fits." in run("sessions", "--grep", "zz", "--store", three).out


def imported(run: Any, folder: Path, data: bytes) -> dict[str, Any]:
    path = folder / "talk.jsonl"
    path.write_bytes(data)
    assert run("import", path, "--store", folder / "s.db").code == 0
    (row,) = run("sessions", "--json", "--store", folder / "s.db").document
    return dict(row)


def test_a_title_that_the_file_gives_goes_before_and_the_last_one_holds(
    run: Any, tmp_path: Path
) -> None:
    log = ClaudeCode().user("Mend the roof").answer("m1", text("x")).user("Thanks.").user("Bye.")
    rows = [
        {"type": "ai-title", "aiTitle": "A roof", "sessionId": SESSION},
        {"type": "custom-title", "customTitle": 'The "old" roof', "sessionId": SESSION},
    ]
    row = imported(run, tmp_path, log.data() + jsonl(rows))
    assert row["title"] == 'The "old" roof'


@pytest.mark.parametrize("apart", [False, True], ids=["one batch", "two batches"])
def test_a_persons_name_wins_over_a_title_that_was_generated_later(
    apart: bool, run: Any, tmp_path: Path
) -> None:
    log = ClaudeCode().user("Mend the roof").answer("m1", text("x")).user("Thanks.").user("Bye.")
    named = jsonl([{"type": "custom-title", "customTitle": "My roof", "sessionId": SESSION}])
    long = ClaudeCode().progress(output="y" * 200_000).data() if apart else b""
    later = jsonl([{"type": "ai-title", "aiTitle": "Roof repair", "sessionId": SESSION}])
    assert imported(run, tmp_path, log.data() + named + long + later)["title"] == "My roof"


def test_a_project_is_the_folder_that_the_file_names(run: Any, tmp_path: Path) -> None:
    log = ClaudeCode().user("go").answer("m1", text("x")).user("Thanks.").user("Bye.")
    data = log.data().replace(b'{"', b'{"cwd":"C:\\\\work\\\\\\u00fcber","', 1)
    assert imported(run, tmp_path, data)["project"] == "C:\\work\\über"


@pytest.mark.parametrize("width", [60, 200])
def test_a_row_is_a_line_whatever_its_title_holds(
    width: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said(tmp_path / "s.db", "odd", HOSTILE)
    said(tmp_path / "s.db", "0f" * 16, "plain")
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    out = CliRunner().invoke(cli, ["sessions", "--store", str(tmp_path / "s.db")]).output
    shown = re.sub(r"\x1b\[[0-9;]*m", "", out).splitlines()
    assert len(shown) == 4, shown
    assert "\x1b" not in shown[3] and "\u202e" not in shown[3]
    assert ("● now" if width < 140 else "● 20") in shown[3]
    from rich.cells import cell_len

    assert max(map(cell_len, shown)) <= width


def test_a_session_that_was_ended_is_live_again_when_it_goes_on(run: Any, tmp_path: Path) -> None:
    store = tmp_path / "s.db"

    async def end() -> None:
        async with eventctx.open(store) as engine:
            await (await engine.session("a")).emit(SessionEnd())

    def is_live() -> bool:
        (row,) = run("sessions", "--json", "--store", store).document
        return bool(row["live"])

    said(store, "a", "Mend the roof")
    assert is_live()
    asyncio.run(end())
    assert not is_live()
    said(store, "a", "One more thing")
    assert is_live()


IDS = [
    "258c7280-ae70-4798-800f-63464d01a85d",
    "258c7280-ae70-4798-800f-63464d01a85d.agent-a881341",
    "258c7280-ae70-4798-800f-63464d01a85d.agent-acompact-fffbd0",
    "019e1625-789d-76c0-80ab-3724b5ddb799",
    "019e1625-789d-76c0-80ab-3724b5ddb79a",
    "test_wire_stable[ag_ui]",
    "test_wire_stable[ag_ui]-2",
    "work",
]


def test_a_short_name_means_its_session_on_a_command_line(run: Any, tmp_path: Path) -> None:
    for name in IDS:
        said(tmp_path / "s.db", name, name)
    short = short_names(IDS)
    assert short["work"] == "work" and short[IDS[0]] == "258c7280"
    assert short[IDS[1]] == "258c7280…341"
    for name in IDS:
        (message,) = run("transcript", short[name], "--json", "--store", tmp_path / "s.db").document
        assert message["message"]["content"] == name, short[name]
    two = run("transcript", "019e", "--store", tmp_path / "s.db")
    assert two.code == 2 and "could be '019e1625" in two.err


def test_a_gap_stands_for_any_characters_of_a_name() -> None:
    assert fits("258c…341", IDS[1]) and not fits("258c…341", IDS[0])
    assert fits("…agent", IDS[1]) and not fits("258c…x…341", IDS[1])
    assert fits("work", "worker") and not fits("worker", "work")
