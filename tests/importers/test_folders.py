"""Folders of events, which are transcripts, and folders that are searched for transcripts."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventctx.errors import InvalidSetting, UnknownFormat
from eventctx.importers import found
from eventctx.importers.many import import_paths
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import AmplifierLog, OpenHands, openhands_talk
from tests.importers.given import load, messages, records, story


async def test_a_folder_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    log = OpenHands()
    for number in range(12):
        log.user(f"message {number}")
    folder = log.folder(tmp_path / "conversation-7" / "events")
    (folder.parent / "base_state.json").write_text("{}")
    (folder / "notes.txt").write_text("no event")
    store = MemoryStore()
    summary = await load(store, folder)
    assert (summary.format, summary.session) == ("openhands", "conversation-7")
    told = [message["content"][0]["text"] for message in await messages(store, "conversation-7")]
    assert told == [f"message {number}" for number in range(12)]


async def test_events_that_appear_later_are_added(tmp_path: Path) -> None:
    store = MemoryStore()
    log = openhands_talk().user("more").action("c2", "r2").action("c3", "r2").seen("c2").seen("c3")
    log.condensed("e2", "e3", summary="S", summary_offset=2).says("bye")
    for count in range(1, len(log.rows) + 1):
        part = OpenHands()
        part.rows = log.rows[:count]
        await load(store, part.folder(tmp_path / "run"))
    other = MemoryStore()
    await load(other, tmp_path / "run")
    assert (await load(store, tmp_path / "run")).added == 0
    assert story(await records(store, "run")) == story(await records(other, "run"))


async def test_what_follows_a_missing_event_waits_for_it(tmp_path: Path) -> None:
    folder = openhands_talk().user("more").folder(tmp_path / "run")
    missing = folder / "event-00002-e2.json"
    kept = missing.read_bytes()
    missing.unlink()
    store = MemoryStore()
    summary = await load(store, folder)
    assert summary.messages == 2
    assert "event 2 is missing" in summary.waiting[0]
    missing.write_bytes(kept)
    summary = await load(store, folder)
    assert (summary.messages, summary.waiting) == (6, ())


async def test_a_missing_event_does_not_stop_a_complete_import(tmp_path: Path) -> None:
    folder = openhands_talk().user("more").folder(tmp_path / "run")
    (folder / "event-00002-e2.json").unlink()
    (folder / "event-00003-e3.json").unlink()
    store = MemoryStore()
    summary = await load(store, folder, complete=True)
    assert summary.messages == 4
    assert summary.warnings == ("line 5: missing before it: event 2 to 3",)
    # What was taken as complete stays so.
    assert (await load(store, folder)).added == 0


async def test_a_folder_without_events_is_none(tmp_path: Path) -> None:
    (tmp_path / "event-x.json").write_text("{}")
    with pytest.raises(UnknownFormat, match="folder of OpenHands events"):
        await load(MemoryStore(), tmp_path)
    openhands_talk().folder(tmp_path)
    with pytest.raises(UnknownFormat, match="folder"):
        await load(MemoryStore(), tmp_path, format="pi")


async def test_a_search_takes_folders_of_events_as_wholes_with_files(tmp_path: Path) -> None:
    openhands_talk().folder(tmp_path / "agents" / "run-7" / "events")
    openhands_talk().folder(tmp_path / "agents" / "run-8" / "events")
    (tmp_path / "agents" / "run-7" / "base_state.json").write_text("{}")
    (tmp_path / "agents" / "events.jsonl").write_bytes(AmplifierLog().prompt("x").data())
    done = await import_paths(MemoryStore(), [tmp_path / "agents"], complete=True)
    assert sorted(str(one.session) for one in done.sessions) == ["amp-1", "run-7", "run-8"]
    (other,) = done.passed_over
    assert (other.reason, other.error) == ("no transcript: an object with the keys none", None)


@pytest.mark.parametrize("folder", ["/", "many"])
async def test_a_folder_that_nobody_means_all_of_is_refused(
    folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(found, "MOST_ENTRIES", 20)
    for number in range(21):
        below = tmp_path / "many" / str(number % 4)
        below.mkdir(parents=True, exist_ok=True)
        (below / f"{number}.txt").touch()
    with pytest.raises(InvalidSetting, match="name a folder in it"):
        await import_paths(MemoryStore(), [tmp_path / folder])
    assert (await import_paths(MemoryStore(), [tmp_path / "many" / "0"])).sessions == ()
