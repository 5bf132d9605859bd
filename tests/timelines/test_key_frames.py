"""A state from a key frame is the state from zero, whatever happened to log or frames."""

from __future__ import annotations

import asyncio
import gc
import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from msgspec.structs import asdict, replace

import eventctx
from eventctx.engine import Engine
from eventctx.errors import DecodeError
from eventctx.log.private_files import own_key
from eventctx.log.record import Record
from eventctx.log.store import EventStore
from eventctx.projections.explain.changes import Origin
from eventctx.projections.timeline import blocks, fold
from eventctx.projections.timeline.document import document
from eventctx.projections.timeline.fold import TimelineState
from eventctx.projections.timeline.snapshot import FRAME, LoadedFrames, dump
from eventctx.queries import frame_files
from eventctx.queries.frame_files import FrameFiles
from eventctx.queries.key_frames import KEY_FRAME, KeyFrames
from eventctx.session import repository
from eventctx.session.repository import IdleFrames
from eventctx.stores.location import default_key
from eventctx.stores.memory import MemoryStore
from tests.how_much import some
from tests.queries.test_explaining_any_session import STEPS, in_short, play
from tests.sessions import user
from tests.web.made_sessions import SESSIONS as MADE

pytestmark = pytest.mark.slow

EVERY = 7
MOST_POSITIONS = 12  # of a long session in an ordinary run


async def records_of(store: EventStore, stream: str = "s") -> list[Record]:
    return [record async for record in store.read(stream, bodies=False)]


def states_of(records: list[Record]) -> list[TimelineState]:
    """The state after each record, folded from zero."""
    found, state = [], fold.initial()
    for record in records:
        state = fold.evolve(state, record)
        found.append(state)
    return found


def shown(state: TimelineState) -> dict[str, Any]:
    """What a state says, in a form that two folds of one log have alike."""
    layout = state.view.layout
    view = asdict(replace(state.view, layout=None))
    return {
        "document": document(state, "s"),
        "view": view | {"entries": layout.entries(), "digest": layout.measure()},
        "changes": replace(state.changes, view=None),
        "extras": replace(state.extras, usage=state.extras.usage.models),
    }


def same_changes_by_number(found: TimelineState, wanted: TimelineState) -> None:
    for number in range(0, len(wanted.changes.origins) + 1, 5):
        changes = [one for one in wanted.changes.changes if one.number == number]
        assert found.changes.changes.numbered(number) == changes
        assert wanted.changes.changes.numbered(number) == changes


async def check_all(store: EventStore, *every: KeyFrames, stream: str = "s") -> None:
    """Every position, or some of them, in an order in which each needs another frame."""
    wanted = states_of(await records_of(store, stream))
    order = sorted(range(len(wanted)), key=lambda position: (position * 31) % len(wanted))
    for position in order[:: some(max(4, len(order) // MOST_POSITIONS), 1)]:
        # Before all changes are made, which ``shown`` does.
        found = [await frames.at(stream, position) for frames in every]
        for one in found:
            same_changes_by_number(one, wanted[position])
        expected = shown(wanted[position])
        assert all(shown(one) == expected for one in found), position
    for frames in every:
        assert shown(await frames.at(stream)) == shown(wanted[-1])


def frames_of(store: EventStore, kept: FrameFiles | None = None) -> KeyFrames:
    return KeyFrames(store, kept, every=EVERY)


async def check_forms(store: EventStore, folder: Path, stream: str = "s") -> None:
    """Frames in memory, in a file that is read whole, and in one that is read by ranges."""
    kept, by_range = FrameFiles(folder / "store.db"), FrameFiles(folder / "store.db", large=0)
    await frames_of(store, kept).at(stream)
    every = [frames_of(store, files) for files in (None, kept, by_range)]
    await check_all(store, *every, stream=stream)


async def played(store: EventStore, steps: list[tuple[str, Any]]) -> None:
    options = {"max_tokens": 3_000, "on_overflow": "send_floor", "summarizer": in_short}
    await play(await Engine(store).session("s", policy="ladder", **options), steps)


@settings(max_examples=some(8, 25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_a_state_from_a_frame_is_the_state_from_zero_in_any_session(
    steps: list[tuple[str, Any]],
) -> None:
    async def run() -> None:
        store = MemoryStore()
        await played(store, steps)
        with tempfile.TemporaryDirectory() as folder:
            await check_forms(store, Path(folder))
            kept = await FrameFiles(Path(folder) / "store.db").load("s")
            assert (kept is None) == (len(await records_of(store)) < EVERY)

    asyncio.run(run())


@pytest.mark.parametrize("name", MADE)
async def test_a_state_from_a_frame_is_the_state_from_zero_in_a_made_session(
    name: str, tmp_path: Path
) -> None:
    engine, stream = await MADE[name]()
    await check_forms(engine.store, tmp_path, stream)


class Counting(MemoryStore):
    """Counts the records that are read."""

    records = 0

    async def read(self, *args: Any, **options: Any) -> Any:
        async for record in super().read(*args, **options):
            self.records += 1
            yield record


async def filled(store: EventStore, messages: int = 60) -> eventctx.Context:
    ctx = await Engine(store).session("s")
    await say(ctx, messages)
    return ctx


async def say(ctx: eventctx.Context, messages: int, word: str = "message") -> None:
    for number in range(messages):
        await ctx.add_message(user(f"{word} {number}"))


async def saved(folder: Path, **options: Any) -> tuple[MemoryStore, FrameFiles]:
    """A store with a session whose frames are in a file."""
    store, kept = MemoryStore(), FrameFiles(folder / "store.db", **options)
    await filled(store)
    await frames_of(store, kept).at("s")
    return store, kept


async def test_a_question_reads_one_stretch_at_most_and_one_record_where_none_came() -> None:
    store = Counting()
    await filled(store)
    frames = frames_of(store)
    await frames.at("s")
    for position in (*range(60), None):
        store.records = 0
        await frames.at("s", position)
        assert store.records <= (1 if position is None else EVERY + 1), position
    assert store.records == 1


async def test_an_erasure_changes_what_frames_said_of_the_erased_messages(tmp_path: Path) -> None:
    store, kept = await saved(tmp_path)
    frames = frames_of(store, kept)
    assert (await frames.at("s", 40)).changes.origins[3].ref.facts.prose > 0
    await Engine(store).erase("s", [3])
    for asked in (frames, frames_of(store, kept)):
        assert (await asked.at("s", 40)).changes.origins[3].ref.facts.prose == 0
        await check_all(store, asked)


async def test_frames_of_another_log_of_the_same_name_or_of_a_parent_are_not_used(
    tmp_path: Path,
) -> None:
    for count in (60, 50, 61):
        store = MemoryStore()
        await filled(store, count)
        await check_all(store, frames_of(store, FrameFiles(tmp_path / "store.db")))
    store = MemoryStore()
    await filled(store)
    engine = Engine(store)
    await engine.fork("s", 30, "f")
    ctx = await engine.session("f")
    for number in range(20):
        await ctx.add_message(user(f"other {number}"))
        await ctx.get_messages_for_request()
    await check_all(store, frames_of(store), stream="f")


# -- files ---------------------------------------------------------------------------------------


def the_file(folder: Path) -> Path:
    [found] = (folder / "store.db.eventctx-timelines").iterdir()
    return found


HARMS: dict[str, Callable[[Path], object]] = {
    "emptied": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[:-9]),
    "cut in a head": lambda file: file.write_bytes(file.read_bytes()[:30]),
    "one bit changed": lambda file: file.write_bytes(_flipped(file.read_bytes(), 0.6)),
    "of another version": lambda file: file.write_bytes(_flipped(file.read_bytes(), 0.0, 21)),
    "gone": lambda file: file.unlink(),
    "a folder": lambda file: (file.unlink(), file.mkdir()),
}


def _flipped(data: bytes, share: float, at: int | None = None) -> bytes:
    place = int(len(data) * share) if at is None else at
    return data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :]


@pytest.mark.parametrize("harm", HARMS)
async def test_a_file_that_cannot_be_used_only_costs_time(harm: str, tmp_path: Path) -> None:
    store, kept = await saved(tmp_path)
    HARMS[harm](the_file(tmp_path))
    await check_all(store, frames_of(store, kept))


async def test_frames_that_another_hand_wrote_are_never_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another hand's"))
    store, kept = await saved(tmp_path)
    assert await kept.load("s") is not None
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "ours"))
    own_key(default_key(), make=True)
    assert await kept.load("s") is None
    await frames_of(store, kept).at("s")
    assert await kept.load("s") is not None
    key = tmp_path / "ours" / "eventctx" / "cache.key"
    assert (key.stat().st_size, key.stat().st_mode & 0o777) == (32, 0o600)


@pytest.mark.parametrize("change", ["taken out", "moved"])
async def test_a_file_whose_frames_were_put_together_anew_is_not_used(
    change: str, tmp_path: Path
) -> None:
    store, kept = await saved(tmp_path)
    file = the_file(tmp_path)
    data = file.read_bytes()
    digests = [record.digest for record in (await records_of(store))[EVERY - 1 :: EVERY]]
    # A frame begins with the length of its head, and the head with the digest.
    first, second, third = [data.index(digest) - 7 for digest in digests[:3]]
    one, two = data[first:second], data[second:third]
    middle = two if change == "taken out" else two + one
    file.write_bytes(data[:first] + middle + data[third:])
    assert await kept.load("s") is None
    await check_all(store, frames_of(store, kept))


async def test_without_a_key_no_file_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state").write_text("no folder")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    store, kept = await saved(tmp_path)
    await check_all(store, frames_of(store, kept))
    assert not (tmp_path / "store.db.eventctx-timelines").exists()


async def test_somebody_elses_file_is_left_alone(tmp_path: Path) -> None:
    store, kept = await saved(tmp_path)
    the_file(tmp_path).write_text("mine\n")
    frames = frames_of(store, kept)
    await check_all(store, frames)
    await frames.forget("s")
    assert the_file(tmp_path).read_text() == "mine\n"


async def test_the_file_grows_by_what_came_and_holds_no_text(tmp_path: Path) -> None:
    store, kept = await saved(tmp_path)
    first, file = await kept.load("s"), the_file(tmp_path)
    assert first is not None
    before, place = file.read_bytes(), file.stat().st_ino
    await say(await Engine(store).session("s"), 20, "zirconium")
    # A process that was killed left a part of a frame.
    with file.open("ab") as torn:
        torn.write(before[30:400])
    frames = frames_of(store, kept)
    await frames.at("s")
    assert (file.read_bytes()[: len(before)], file.stat().st_ino) == (before, place)
    second = await kept.load("s")
    assert second is not None
    assert second.positions[: len(first.positions)] == first.positions
    assert second.positions[-1] == 76
    states = [second.state(place) for place in range(len(second.positions))]
    assert "zirconium" not in repr(states)
    assert file.stat().st_mode & 0o077 == 0
    await check_all(store, frames, frames_of(store, kept))


class Interrupted(MemoryStore):
    """Calls ``meanwhile`` once, while records are read."""

    meanwhile: Callable[[], Any] | None = None

    async def read(self, *args: Any, **options: Any) -> Any:
        async for record in super().read(*args, **options):
            yield record
            if record.position == 30 and self.meanwhile is not None:
                meanwhile, self.meanwhile = self.meanwhile, None
                await meanwhile()


async def test_frames_that_an_erasure_forgot_during_the_fold_are_not_saved(tmp_path: Path) -> None:
    store, kept = Interrupted(), FrameFiles(tmp_path / "store.db")
    await filled(store)
    frames = frames_of(store, kept)
    store.meanwhile = lambda: frames.forget("s")
    assert (await frames.at("s")).position == 60
    assert await kept.load("s") is None


@pytest.mark.parametrize("share", [0.2, 0.6, 0.99])
async def test_a_damaged_part_of_a_large_file_is_an_error_once(
    share: float, tmp_path: Path
) -> None:
    store, by_range = await saved(tmp_path, large=0)
    file = the_file(tmp_path)
    file.write_bytes(_flipped(file.read_bytes(), share))
    frames, errors = frames_of(store, by_range), 0
    for _ in range(3):
        try:
            await check_all(store, frames)
        except DecodeError:
            errors += 1
    assert errors <= 1
    await check_all(store, frames_of(store, by_range))


async def test_a_question_reads_a_few_parts_of_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    ctx = await filled(store)
    for _ in range(35):
        await say(ctx, 20)
        await ctx.clear()
    by_range = FrameFiles(tmp_path / "store.db", large=0)
    await frames_of(store, by_range).at("s")
    read: list[int] = []
    whole = frame_files._Source.read

    def count(source: Any, start: int, size: int) -> bytes:
        read.append(size)
        return whole(source, start, size)

    monkeypatch.setattr(frame_files._Source, "read", count)
    state = await frames_of(store, by_range).at("s", 350)
    assert state.changes.origins[300].ref.number == 300
    assert [one.what for one in state.changes.changes.numbered(300)] == ["cleared"]
    assert sum(read) < the_file(tmp_path).stat().st_size / 5


async def test_an_agent_that_pauses_leaves_key_frames_for_the_first_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, kept = tmp_path / "store.db", asyncio.Event()
    save, evolve = KeyFrames.save, fold.evolve
    folded: list[Record] = []

    async def saved(frames: KeyFrames, stream: str) -> None:
        await save(frames, stream)
        kept.set()

    def count(state: TimelineState, record: Record) -> TimelineState:
        folded.append(record)
        return evolve(state, record)

    monkeypatch.setattr(KeyFrames, "save", saved)
    async with eventctx.open(path, durability="normal", receipts=False) as engine:
        await say(await engine.session("s"), 2 * KEY_FRAME + 9)
        await asyncio.wait_for(kept.wait(), 30)
    monkeypatch.setattr(fold, "evolve", count)
    async with eventctx.read(path) as reader:
        assert (await reader.timeline("s"))["records"] == 2 * KEY_FRAME + 10
    assert len(folded) == 10


async def test_an_agent_that_goes_on_is_not_kept_waiting_for_key_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repository, "PAUSE", 3_600.0)
    files = tmp_path / "store.db.eventctx-timelines"
    async with eventctx.open(tmp_path / "store.db", durability="normal") as engine:
        due = IdleFrames(engine.store)
        take = due.after(lambda record: None)
        await say(await engine.session("s"), KEY_FRAME)
        for record in await records_of(engine.store):
            take(record)
        await due.fold(60.0)
        assert not files.exists()
        await due.fold(0.0)
        assert the_file(tmp_path).exists()
        await due.close()
        # They are forgotten on disk where their session is destroyed.
        await engine.erase("s", [3])
        assert not list(files.iterdir())
        await engine.audit("s")
        assert the_file(tmp_path).exists()
        await engine.delete("s")
        assert not list(files.iterdir())


async def test_bytes_that_are_no_frame_raise_one_error() -> None:
    store = MemoryStore()
    await filled(store)
    states = states_of(await records_of(store))[6::EVERY]
    stored = [dump(one, before) for before, one in pairwise([None, *states]) if one is not None]
    third = stored[2]
    for damage in (
        third._replace(parts={FRAME: b"not a frame"}),
        third._replace(parts={FRAME: third.parts.get(FRAME), "origins": b"not a block"}),
        third._replace(lengths=third.lengths[1:]),
    ):
        with pytest.raises(DecodeError, match="key frame is damaged"):
            LoadedFrames([*stored[:2], damage, *stored[3:]]).state(2)


async def test_of_a_long_session_only_the_last_parts_are_held_as_objects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def alive() -> int:
        return sum(type(one) is Origin for one in gc.get_objects())

    monkeypatch.setattr(blocks, "MOST_DECODED", 2)
    store = MemoryStore()
    ctx = await Engine(store).session("s", max_tokens=100_000)
    for _ in range(10):
        await ctx.add_messages([user("Read the file.")] * 60)
        await ctx.get_messages_for_request()
        await ctx.clear()
    before = alive()
    state = await KeyFrames(store, every=50).at("s")
    assert len(state.changes.origins) == 600
    assert alive() - before < 200
