"""A file that is read while it is written: the same records as an import of the whole file."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from eventctx.importers.load import ImportSummary, follow_file
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.importers.given import NOW, SESSION, ClaudeCode, put, salt, text
from tests.importers.growing import FILES
from tests.importers.items import always
from tests.importers.taken import load, messages, same


class Written:
    """A file that gets its next part whenever the import has reached its end."""

    def __init__(self, path: Path, parts: Iterator[bytes]) -> None:
        self.path = path
        self.parts = parts
        self.paused: list[list[ImportSummary]] = []
        path.write_bytes(next(parts))

    async def more(self, summaries: list[ImportSummary], same: Callable[[], bool]) -> bool:
        self.paused.append(summaries)
        part = next(self.parts, None)
        if part is None:
            return False
        with self.path.open("ab") as file:
            file.write(part)
        assert same()
        return True

    async def follow(self, store: MemoryStore) -> list[ImportSummary]:
        return await follow_file(store, self.path, self.more, clock=lambda: NOW, salt=salt)


def pieces(data: bytes, seed: int) -> Iterator[bytes]:
    """The data cut at random places, first after the lines that name the session."""
    random_ = random.Random(seed)  # noqa: S311 - a seeded draw
    start = data.index(b"\n", data.index(b"\n", 400)) + 1
    yield data[:start]
    while start < len(data):
        stop = start + random_.choice((1, 9, 80, 500, 3_000))
        yield data[start:stop]
        start = stop


@pytest.mark.parametrize("seed", range(some(1, 3)))
@pytest.mark.parametrize("name", FILES)
async def test_reading_on_makes_the_records_of_an_import_of_the_whole(
    name: str, seed: int, tmp_path: Path
) -> None:
    path = tmp_path / "file.jsonl"
    store, other = MemoryStore(), MemoryStore()
    written = Written(path, pieces(FILES[name], seed))
    imports = 1
    (done,) = await written.follow(store)
    while path.read_bytes() != FILES[name]:
        # The lines ended, as their last one was whole without its end; or always do.
        await written.more([done], always)
        written.paused.pop()
        (done,) = await written.follow(store)
        imports += 1
    summary = await load(other, path)
    assert (await load(store, path)).added == 0
    assert (done.messages, done.calls) == (summary.messages, summary.calls)
    assert done.warned == summary.warned
    (stream,) = [info.stream async for info in store.streams()]
    assert await same(store, other, stream)
    assert len(written.paused) > imports


async def test_what_is_written_is_in_the_store_before_more_is_waited_for(tmp_path: Path) -> None:
    log = ClaudeCode().user("one")
    for number in range(5):
        log.answer(f"m{number}", text("yes"), stop_reason="end_turn").user(f"and {number}?")
    first, *lines = log.data().splitlines(keepends=True)
    parts = [first, *(a + b for a, b in zip(lines[::2], lines[1::2], strict=True))]
    written, store = Written(tmp_path / "file.jsonl", iter(parts)), MemoryStore()
    seen: list[int] = []

    async def more(summaries: list[ImportSummary], same: Callable[[], bool]) -> bool:
        seen.append(len(await messages(store, SESSION)))
        return await written.more(summaries, same)

    await follow_file(store, written.path, more)
    assert seen == [1, 3, 5, 7, 9, 11]
    added = [one[0].added for one in written.paused]
    assert added == sorted(set(added))


@pytest.mark.slow
async def test_an_import_that_was_killed_is_taken_up_and_nothing_doubled(tmp_path: Path) -> None:
    data = FILES["claude-code"].replace(b"y" * 300_000, b"y" * 3_000)
    store, other = MemoryStore(), MemoryStore()
    written = Written(tmp_path / "file.jsonl", pieces(data, 7))

    class Killed(BaseException):
        pass

    async def killed(summaries: list[ImportSummary], same: Callable[[], bool]) -> bool:
        if len(written.paused) % 4 == 3:
            written.paused.append(summaries)
            raise Killed
        return await written.more(summaries, same)

    kills = 0
    while written.path.read_bytes() != data or not written.paused:
        try:
            await follow_file(store, written.path, killed, clock=lambda: NOW, salt=salt)
        except Killed:
            kills += 1
        else:
            await written.more([], always)
    assert kills > 5
    await written.follow(store)
    await load(other, written.path)
    assert await same(store, other, SESSION)


async def test_a_file_that_was_cut_or_replaced_is_not_read_on(tmp_path: Path) -> None:
    path, data = tmp_path / "file.jsonl", ClaudeCode().user("one").user("two").data()

    async def goes_on(change: Callable[[], object]) -> bool:
        path.unlink(missing_ok=True)
        path.write_bytes(data)
        answers: list[bool] = []

        async def more(summaries: list[ImportSummary], same: Callable[[], bool]) -> bool:
            change()
            answers.append(same())
            return False

        await follow_file(MemoryStore(), path, more)
        return answers[0]

    assert await goes_on(lambda: path.write_bytes(data + data))
    for change in (
        lambda: put(tmp_path / "other.jsonl", data + data).replace(path),
        path.unlink,
        lambda: path.write_bytes(data[:-20]),
        lambda: path.write_bytes(data.replace(b"two", b"xyz") + data),
    ):
        assert not await goes_on(change)


RECORDED = (
    "claude-code/entire-26dcd5518fea.jsonl",
    "claude-code-exact/session.jsonl",
    "codex/rollout-2026-05-11T11-26-55-019e1625-789d-76c0-80ab-3724b5ddb799.jsonl",
    "pi/large-session.jsonl",
)


@pytest.mark.parametrize("name", RECORDED)
async def test_a_recorded_session_that_is_written_again_gives_the_records_of_its_import(
    name: str, recorded_sessions: Path, tmp_path: Path
) -> None:
    lines = (recorded_sessions / name).read_bytes().splitlines(keepends=True)
    data = b"".join(lines[: some(400, len(lines))])
    first, size = len(lines[0]), len(data) // 40 + 1
    starts = range(first, len(data), size)
    parts = iter([data[:first], *[data[start : start + size] for start in starts]])
    written = Written(tmp_path / "file.jsonl", parts)
    store, other = MemoryStore(), MemoryStore()
    (done,) = await written.follow(store)
    while written.path.stat().st_size < len(data):
        await written.more([done], always)
        (done,) = await written.follow(store)
    await load(other, written.path)
    assert await same(store, other, done.session or "")
