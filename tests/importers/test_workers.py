"""Worker processes read, one process writes: the same records, whatever happens to a worker."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from eventctx.cli.main import cli
from eventctx.errors import InvalidSetting, StoreFull
from eventctx.importers.known_files import KnownFiles
from eventctx.importers.many import FilePassedOver, ImportedPaths, import_paths
from eventctx.importers.one_session import ImportSummary
from eventctx.log.record import Draft
from eventctx.log.store import EventStore, Expected, Receipt
from eventctx.queries.verify import verify
from eventctx.stores.memory import MemoryStore
from eventctx.stores.sqlite import SqliteStore
from tests.how_much import some
from tests.importers import in_workers
from tests.importers.given import CHAT, ClaudeCode, put, text
from tests.importers.taken import FullStore

pytestmark = pytest.mark.slow


NAMES = ("a", "b", "c", "d", "e")


async def by_workers(store: EventStore, folder: Path, **options: Any) -> ImportedPaths:
    """An import in which workers read whatever there is."""
    given: dict[str, Any] = {"importing": in_workers.import_alike, "workers": 2, "workers_from": 0}
    return await import_paths(store, [folder], **{**given, **options})


async def alone(store: EventStore, folder: Path, **options: Any) -> ImportedPaths:
    return await import_paths(store, [folder], importing=in_workers.import_alike, **options)


async def contents(store: EventStore) -> dict[str, list[Any]]:
    """All records by their streams, without their places among those of other streams."""
    found = {info.stream: store.read(info.stream) async for info in store.streams()}
    return {
        stream: [structs.replace(record, global_position=0) async for record in read]
        for stream, read in found.items()
    }


def claude(session: str, turns: int, size: int = 10, **common: Any) -> bytes:
    log = ClaudeCode(session, **common)
    for turn in range(turns):
        log.user(f"question {turn}").answer(f"m{turn}", text("word " * size))
    return log.data()


def write(folder: Path, *names: str, turns: int = 3, size: int = 10) -> None:
    """A session of its own in a file of each of these names."""
    for name in names:
        put(folder / f"{name}.jsonl", claude(name, turns, size))


# -- the same as without them --------------------------------------------------------------------


def write_claude(folder: Path, name: str, turns: int) -> None:
    write(folder, name, turns=turns, size=400)


def write_the_same_session(folder: Path, name: str, turns: int) -> None:
    """Files of one session: of some, another one is the beginning."""
    put(folder / f"{name}.jsonl", claude("shared", turns))


def write_with_subagents(folder: Path, name: str, turns: int) -> None:
    write_claude(folder, name, turns)
    for number in range(turns % 3):
        data = claude(name, turns, agentId=f"{number}")
        put(folder / name / "subagents" / f"agent-{number}.jsonl", data)


def write_runs_of_one_name(folder: Path, name: str, turns: int) -> None:
    """A list of messages in a folder of its own, called as those in other folders."""
    put(folder / name / "run.json", json.dumps([*CHAT * turns]).encode())


def write_broken(folder: Path, name: str, turns: int) -> None:
    put(folder / f"{name}.jsonl", claude(name, turns)[: 40 * turns] + b"\n{half")


def write_no_transcript(folder: Path, name: str, turns: int) -> None:
    put(folder / f"{name}.json", b"" if turns % 2 else b'{"settings": {}}')


Writer = Callable[[Path, str, int], None]
WRITERS: Sequence[Writer] = (
    *(write_claude, write_the_same_session, write_with_subagents),
    *(write_runs_of_one_name, write_broken, write_no_transcript),
)
FOLDERS = st.dictionaries(
    st.sampled_from(NAMES),
    st.lists(st.tuples(st.sampled_from(WRITERS), st.integers(0, 30)), min_size=1, max_size=3),
    min_size=2,
)


@settings(max_examples=some(3, 20), deadline=None)
@given(FOLDERS, st.integers(2, 3))
def test_workers_give_the_results_and_the_records_of_one_process(
    files: dict[str, list[tuple[Writer, int]]], workers: int
) -> None:
    async def compare(folder: Path) -> None:
        one, several = MemoryStore(), MemoryStore()
        for grown in (False, True):
            for name, written in files.items():
                for write_it, turns in written:
                    write_it(folder, name, turns + 5 * grown)
            await check_same(one, several, folder, workers)

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(compare(Path(folder)))


async def check_same(one: MemoryStore, several: MemoryStore, folder: Path, workers: int) -> None:
    assert await by_workers(several, folder, workers=workers) == await alone(one, folder)
    assert await contents(several) == await contents(one)


async def test_a_session_in_two_files_has_the_first_files_records_first(tmp_path: Path) -> None:
    """The first file is long, so that the others would overtake it."""
    long = claude("shared", 100, 500)
    put(tmp_path / "a.jsonl", long)
    for name in ("b", "c"):
        put(tmp_path / f"{name}.jsonl", long + claude("shared", 3))
    await check_same(MemoryStore(), MemoryStore(), tmp_path, 3)


async def test_a_file_that_was_overtaken_is_read_again_when_all_are_done(tmp_path: Path) -> None:
    write(tmp_path, *NAMES, "late")
    found = await by_workers(MemoryStore(), tmp_path, importing=in_workers.be_overtaken)
    assert [one.session for one in found.sessions] == sorted([*NAMES, "late"])
    assert found.passed_over == ()


async def test_a_database_gets_what_workers_read_and_verifies(tmp_path: Path) -> None:
    folder, memory, receipts = tmp_path / "sessions", MemoryStore(), list[Receipt]()
    write(folder, *NAMES, turns=60, size=400)
    await alone(memory, folder)
    store = await SqliteStore.open(tmp_path / "store.db")
    try:
        await by_workers(store, folder, noted=receipts.append)
        assert await contents(store) == await contents(memory)
        assert {one.stream for one in receipts} == set(NAMES)
        for name in NAMES:
            assert (await verify(store, name)).ok
    finally:
        await store.close()


async def test_what_the_index_knows_is_not_read_again(tmp_path: Path) -> None:
    folder, store = tmp_path / "sessions", MemoryStore()
    write(folder, *NAMES)
    index = KnownFiles(tmp_path / "store.db")
    options = {"index": index, "importing": in_workers.tell_the_process}
    first = await by_workers(store, folder, **options)
    for path in folder.glob("*.pid"):
        path.unlink()
    write(folder, "b", "d", turns=5)
    again = await by_workers(store, folder, **options)
    assert sorted(path.stem for path in folder.glob("*.pid")) == ["b", "d"]
    assert [one.session for one in again.sessions] == [one.session for one in first.sessions]
    assert [one.added > 0 for one in again.sessions] == [name in ("b", "d") for name in NAMES]


# -- which process reads -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "options", "elsewhere"),
    [
        ("ab", {}, True),
        ("ab", {"workers": 1}, False),
        ("ab", {"workers_from": 1_000_000}, False),
        ("a", {}, False),
    ],
)
async def test_a_caller_says_whether_other_processes_read(
    tmp_path: Path, names: str, options: dict[str, int], elsewhere: bool
) -> None:
    write(tmp_path, *names)
    await by_workers(MemoryStore(), tmp_path, importing=in_workers.tell_the_process, **options)
    assert [one != os.getpid() for one in readers(tmp_path)] == [elsewhere] * len(names)


def readers(folder: Path) -> list[int]:
    """The processes that read the files of a folder."""
    return [int(path.read_text()) for path in folder.glob("*.pid")]


async def test_where_no_process_can_be_started_this_one_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *NAMES)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nowhere"))
    done = await by_workers(MemoryStore(), tmp_path)
    assert [one.session for one in done.sessions] == list(NAMES)


async def test_workers_that_there_cannot_be_are_refused(tmp_path: Path) -> None:
    async def importing(*_: Any, **__: Any) -> list[ImportSummary]:
        return []

    with pytest.raises(InvalidSetting, match="expected a function of a module"):
        await by_workers(MemoryStore(), tmp_path, importing=importing)
    with pytest.raises(InvalidSetting, match="workers: expected an int from 0"):
        await by_workers(MemoryStore(), tmp_path, workers=-1)


def test_a_script_needs_no_guard_of_its_main_module(tmp_path: Path) -> None:
    write(tmp_path, "a", "b")
    script = tmp_path / "script.py"
    script.write_text(
        "import asyncio, sys\n"
        "from eventctx.importers.many import import_paths\n"
        "from eventctx.stores.memory import MemoryStore\n"
        "print('begun')\n"
        "done = asyncio.run(import_paths(MemoryStore(), ['.'], workers=2, workers_from=0))\n"
        "print([one.session for one in done.sessions])\n"
    )
    there = {"cwd": tmp_path, "env": {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}}
    command = [sys.executable, str(script)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, **there)  # type: ignore[call-overload]
    assert (ran.stdout, ran.stderr) == ("begun\n['a', 'b']\n", "")


class CountingStore(MemoryStore):
    """A slow store that counts the appends which wait for it at the same time."""

    most = waiting = 0

    def append(self, stream: str, drafts: Sequence[Draft], expected: Expected) -> Any:
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        return self._written(super().append(stream, drafts, expected))

    async def _written(self, appended: Any) -> Any:
        await asyncio.sleep(0.2)
        self.waiting -= 1
        return await appended


async def test_workers_do_not_run_ahead_of_a_slow_store(tmp_path: Path) -> None:
    write(tmp_path, "a", "b", turns=250)
    store = CountingStore()
    await by_workers(store, tmp_path)
    assert 1 < store.most <= 6  # a track has two batches under way, and a third one comes


# -- when something fails ------------------------------------------------------------------------


async def test_a_killed_workers_file_is_completed_by_the_next_import(tmp_path: Path) -> None:
    write(tmp_path, "a", "dies", "z", turns=250)
    one, several = MemoryStore(), MemoryStore()
    done = await by_workers(several, tmp_path, importing=in_workers.die_in_the_middle)
    assert [one.path.stem for one in done.sessions] == ["a", "z"]
    (dead,) = done.passed_over
    assert (dead.path.name, dead.error) == ("dies.jsonl", "WorkerEnded")
    assert "signal SIGKILL" in dead.reason
    begun = await contents(several)
    await alone(one, tmp_path)
    whole = await contents(one)
    assert any(0 < len(begun[name]) < len(whole[name]) for name in begun)
    assert (await alone(several, tmp_path)).passed_over == ()
    assert await contents(several) == whole


async def test_a_worker_without_memory_is_an_error_of_its_file(tmp_path: Path) -> None:
    write(tmp_path, "a", "dies", "z")
    done = await by_workers(MemoryStore(), tmp_path, importing=in_workers.run_out_of_memory)
    assert [one.session for one in done.sessions] == ["a", "z"]
    assert [one.error for one in done.passed_over] == ["WorkerEnded"]
    assert "no more memory" in done.passed_over[0].reason


async def test_an_error_of_the_store_or_of_ours_ends_the_import(tmp_path: Path) -> None:
    write(tmp_path, "a", "b", "c")
    told: list[ImportSummary | FilePassedOver] = []
    with pytest.raises(StoreFull):
        await by_workers(FullStore(), tmp_path, told=told.append)
    # Which of two files is the first to be appended is not said.
    assert [getattr(one, "session", None) for one in told] in ([], ["a"])
    with pytest.raises(KeyError, match="a bug"):
        await by_workers(MemoryStore(), tmp_path, importing=in_workers.fail)


CHILDREN = "/proc/{0}/task/{0}/children"
SLOWLY = """
import functools, time
from eventctx.cli.start import main
from eventctx.importers import many
from eventctx.stores.sqlite import SqliteStore

append = SqliteStore.append

def slowly(*given):
    time.sleep(0.05)  # as on a slow disk: the killer looks now and then
    return append(*given)

SqliteStore.append = slowly
many.import_paths = functools.partial(many.import_paths, workers_from=0)
main()
"""


def children_of(process: int) -> list[int]:
    return [int(one) for one in Path(CHILDREN.format(process)).read_text().split()]


def wait_until(holds: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.mark.skipif(not Path(CHILDREN.format(os.getpid())).exists(), reason="Linux tells children")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_worker_outlives_the_program_and_the_next_import_completes(
    tmp_path: Path, number: signal.Signals
) -> None:
    write(tmp_path / "sessions", *"0123", turns=200)
    store, wal = str(tmp_path / "store.db"), tmp_path / "store.db-wal"
    importing = ["import", str(tmp_path / "sessions"), "--store", store]
    command = [sys.executable, "-c", SLOWLY, *importing, "--workers", "2"]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as program:
        wait_until(lambda: wal.exists() and wal.stat().st_size > 100_000)
        workers = children_of(program.pid)
        assert len(workers) == 2
        os.killpg(program.pid, number)  # as a terminal sends it
        _, errors = program.communicate(timeout=300)
    wait_until(lambda: not any(Path(f"/proc/{one}").exists() for one in workers))
    if number == signal.SIGINT:
        assert (program.returncode, errors.strip()) == (130, b"eventctx: stopped")
    again = CliRunner().invoke(cli, [*importing, "--json"])
    total = json.loads(again.stdout)["total"]
    assert total["added"] > 0
    counted = 4 * (400 - 1)  # without the last answer of each, which may go on
    assert (total["sessions"], total["failed"], total["messages"]) == (4, 0, counted)
    assert CliRunner().invoke(cli, ["verify", "--store", store]).exit_code == 0
