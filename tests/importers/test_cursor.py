"""Cursor's transcripts: messages without ids, results or times of their own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from eventctx.importers.formats.cursor import parse
from eventctx.importers.found import search
from eventctx.importers.load import import_file
from eventctx.importers.source.items import MessageItem
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import Cursor
from tests.importers.given import (
    NOW,
    always,
    events,
    items_of,
    load,
    messages,
    of_type,
    salt,
    text,
)

WRITTEN = """user:
<user_query>
start it
</user_query>

assistant:
[Thinking] Look first.
[Tool call] Write
  path: /start.sh
  contents: #!/bin/sh
set -e

echo on
[Tool call] Shell
  command: sh start.sh

[Tool result] Write

[Tool result] Shell

assistant:
It runs.

user:
thanks
"""


@pytest.mark.parametrize(
    ("written", "hour", "minute"),
    [("3:44 PM (UTC+8)", 7, 44), ("11:59 AM (UTC-4)", 15, 59), ("2:57 PM (UTC+5:30)", 9, 27)],
)
def test_a_prompt_holds_its_time(written: str, hour: int, minute: int) -> None:
    stamp = f"<timestamp>Tuesday, Sep 15, 2026, {written}</timestamp>\n<user_query>go</user_query>"
    (item,) = of_type(items_of(parse, Cursor().says("user", text(stamp)).data()), MessageItem)
    expected = datetime(2026, 9, 15, hour, minute, tzinfo=UTC)
    assert item.time == int(expected.timestamp()) * 10**9


async def test_a_text_says_which_calls_were_made(tmp_path: Path) -> None:
    path = tmp_path / "talk.txt"
    path.write_text(WRITTEN)
    store = MemoryStore()
    summary = await load(store, path, complete=True)
    assert (summary.session, summary.format, summary.turns) == ("talk", "cursor", 2)
    _, answer, _, last = await messages(store, "talk")
    thinking, write, shell = answer["content"]
    assert thinking["text"] == "[Thinking] Look first."
    assert write["input"] == {"path": "/start.sh", "contents": "#!/bin/sh\nset -e\n\necho on"}
    assert (shell["name"], shell["input"]) == ("Shell", {"command": "sh start.sh"})
    assert last["content"] == [text("thanks")]


async def test_the_last_message_of_a_text_waits_as_it_may_grow(tmp_path: Path) -> None:
    path = tmp_path / "talk.txt"
    store = MemoryStore()
    for cut in range(20, len(WRITTEN), 7):
        path.write_text(WRITTEN[:cut])
        await load(store, path)
    path.write_text(WRITTEN)
    assert (await load(store, path, complete=True)).messages == 4
    assert [item.message for item in of_type(whole(), MessageItem)] == await messages(store, "talk")


def whole() -> list[Any]:
    return items_of(parse, WRITTEN.encode(), always)


async def test_subagents_are_found_around_the_file_and_linked(tmp_path: Path) -> None:
    folder = tmp_path / ".cursor" / "projects" / "p" / "agent-transcripts" / "main"
    (folder / "subagents").mkdir(parents=True)
    (folder / "main.jsonl").write_bytes(Cursor().user("go").answer(text("ok")).data())
    child = Cursor().user("look").answer(text("seen"))
    (folder / "subagents" / "child.jsonl").write_bytes(child.data())
    (folder.parent / "old.txt").write_text(WRITTEN)
    (folder.parents[1] / "tools.json").write_text(json.dumps({"tools": []}))
    (folder.parents[1] / "terminal.txt").write_text("$ ls")
    found = search(tmp_path / ".cursor" / "projects")
    assert sorted(Path(one).name for one in found.files) == ["main.jsonl", "old.txt"]
    path = folder / "main.jsonl"
    assert {Path(one.path).name for one in found.files[str(path)]} == {"main.jsonl", "child.jsonl"}
    store = MemoryStore()
    done = await import_file(store, path, complete=True, clock=lambda: NOW, salt=salt)
    assert [one.session for one in done] == ["main", "child"]
    (link,) = await events(store, "child", "session:linked")
    assert (link.session, link.relation) == ("main", "parent")
