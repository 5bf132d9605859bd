"""Tapes are written, imported, and gone from every folder once their words are erased."""

from __future__ import annotations

import gzip
import io
import json
import resource
import shutil
import signal
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

pytest.importorskip("h11", reason="an extra: eventctx[record]")

import eventctx
from eventctx.cli.main import cli
from eventctx.importers.load import import_file
from eventctx.log.store import Receipt
from eventctx.proxy.call_copy import SeenCall
from eventctx.proxy.tape_process import TapeProcess, write
from eventctx.proxy.tapes import NotUnpacked, Tapes, unpacked
from eventctx.stores.location import default_book, default_tapes
from eventctx.stores.own_copies import copies, destroy_tapes
from eventctx.stores.receipt_book import ReceiptBook
from tests.proxy.recorded import CLAUDE, answer, request, said, sent_bodies, user
from tests.scripted_apis import answering

brotli = pytest.importorskip("brotli", reason="an extra: eventctx[record]")
zstandard = pytest.importorskip("zstandard", reason="an extra: eventctx[record]")


TEXT = b"the same words, " * 40

PACKED = {
    "gzip": gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]),
    "deflate": zlib.compress(TEXT),
    "Deflate": zlib.compress(TEXT, wbits=-15),
    "br": brotli.compress(TEXT),
    "zstd": zstandard.compress(TEXT),
    "identity": TEXT,
    "gzip, br": brotli.compress(gzip.compress(TEXT)),
}


@pytest.mark.parametrize("encoding", PACKED)
def test_a_packed_body_is_unpacked(encoding: str) -> None:
    assert unpacked(PACKED[encoding], encoding) == TEXT


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd"])
def test_bytes_that_are_packed_otherwise_are_refused(encoding: str) -> None:
    with pytest.raises(NotUnpacked, match="expected a"):
        unpacked(b"no packed body at all, by no means", encoding)


def call(*rows: dict[str, object], reply: str = "1", status: int = 200) -> SeenCall:
    headers = [(name.encode(), value.encode()) for name, value in CLAUDE.items()]
    sent = json.dumps(request(*rows)).encode()
    said_so = answer(reply) if status == 200 else {"error": {"type": "rate_limit_error"}}
    data = json.dumps(said_so).encode()
    return SeenCall("POST", "h", "/v1/messages", headers, sent, status, [], data, 1, 2, True)


def put(folder: Path, *calls: SeenCall) -> Path:
    tapes = Tapes(folder, "run", print)
    for one in calls:
        tapes.put(one)
    tapes.close()
    assert tapes.lost == 0
    (path,) = tapes.paths
    return path


async def test_a_call_that_does_not_fit_on_the_disk_spoils_none_behind_it(tmp_path: Path) -> None:
    problems: list[str] = []
    tapes = Tapes(tmp_path, "run", problems.append)
    rows = [user("one"), said("1"), user("two " * 5_000)]
    tapes.put(call(*rows[:1]))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        while tapes.calls < 1:
            pass
        resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, limit[1]))
        tapes.put(call(*rows, reply="2"))
        while tapes.lost < 1:
            pass
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    tapes.put(call(*rows, said("2"), user("three"), reply="3"))
    tapes.close()
    assert (tapes.calls, tapes.lost, len(problems)) == (2, 1, 1)
    (path,) = tapes.paths
    async with eventctx.open("memory://") as engine:
        (summary,) = await import_file(engine.store, path)
        assert (summary.calls, summary.observed) == (2, 2)
        *_, last = await sent_bodies(engine, summary.session)
        assert len(last["messages"]) == 5


async def test_a_call_asked_again_after_an_error_is_one_conversation(tmp_path: Path) -> None:
    attempts = [call(user("one"), status=status) for status in (429, 529, 200)]
    path = put(tmp_path, *attempts, call(user("one"), said("1"), user("two"), reply="2"))
    async with eventctx.open("memory://") as engine:
        (summary,) = await import_file(engine.store, path)
        assert (summary.calls, summary.turns, summary.compactions) == (4, 2, 0)
        records = [one async for one in engine.store.read(summary.session)]
    ends = [one.payload for one in records if one.type in ("provider:response", "provider:error")]
    assert b"HTTP 429 rate_limit_error" in ends[0]


def test_a_pipe_that_is_cut_in_a_call_leaves_those_before_it(tmp_path: Path) -> None:
    packed = msgspec.msgpack.encode(call(user("one")))
    whole = len(packed).to_bytes(8, "big") + packed
    done = write(io.BytesIO(whole + whole[:-9]), tmp_path, "run")
    assert (done.calls, done.lost, len(done.paths)) == (1, 0, 1)


def test_calls_are_written_by_a_process_whose_death_is_told(tmp_path: Path) -> None:
    for killed in (False, True):
        tapes = TapeProcess(tmp_path, "run")
        if killed:
            tapes._process.kill()
            tapes._process.wait()
        tapes.put(call(user("one")))
        done = tapes.close()
        assert (done.calls, done.lost, bool(done.problem)) == (not killed, killed, killed)


# -- erased words are in no file of ours, and nothing brings them back -----------------------------

PROGRAM = """
import json, os, urllib.request
rows = [{"role": "user", "content": "capital of Switzerland, SECRETWORDS"}]
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
sent = json.dumps({"model": "m", "messages": rows}).encode()
urllib.request.urlopen(urllib.request.Request(url, sent, {"session-id": "s1"})).read()
"""
SESSION = "s1.recorded"


class Machine:
    """A user's folders, all under one, and the program in them."""

    def __init__(self, home: Path, environment: dict[str, str]) -> None:
        self.home = home
        self.tapes = home / "data" / "eventctx" / "recordings"
        folders = {"HOME": "", "TMPDIR": "tmp", "XDG_STATE_HOME": "state"}
        folders |= {"XDG_DATA_HOME": "data", "XDG_CACHE_HOME": "cache"}
        (home / "tmp").mkdir()
        named = {name: str(home / folder) for name, folder in folders.items()}
        self._environment: dict[str, str | None] = {**environment, **named, "EVENTCTX_STORE": None}

    def run(self, *arguments: str) -> Result:
        done = CliRunner(env=self._environment).invoke(cli, arguments)
        assert done.exit_code == 0, done.stderr
        return done

    def record(self) -> None:
        self.run("record", "--", sys.executable, "-c", PROGRAM)

    def holding(self) -> list[str]:
        """The files of all folders that hold the words."""
        files = [one for one in self.home.rglob("*") if one.is_file()]
        found = [one for one in files if b"SECRETWORDS" in one.read_bytes()]
        return sorted(str(one.relative_to(self.home)) for one in found)


in_one_process = pytest.mark.xdist_group("tapes")  # which records the program once


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machine, Path]]:
    """A machine on which a program was recorded, and a copy of all its files."""
    folder = tmp_path_factory.mktemp("recorded")
    home = folder / "home"
    home.mkdir()
    with answering() as environment:
        machine = Machine(home, environment)
        machine.record()
        yield machine, shutil.copytree(home, folder / "copy")


@pytest.fixture
def machine(recorded: tuple[Machine, Path]) -> Machine:
    """The machine as it was after the program."""
    machine, copy = recorded
    shutil.rmtree(machine.home)
    shutil.copytree(copy, machine.home)
    return machine


@pytest.mark.slow
@in_one_process
@pytest.mark.parametrize(
    "command", [["erase", SESSION, "0"], ["delete", SESSION], ["prune", "--older-than", "0h"]]
)
def test_what_is_erased_is_in_no_file_of_the_user(machine: Machine, command: list[str]) -> None:
    machine.run("search", SESSION, "SECRETWORDS")
    machine.run("audit", SESSION)
    export = machine.home / "out.jsonl"
    machine.run("export", SESSION, "-o", str(export))
    half = export.with_name(".out.jsonl.77.part")
    half.write_bytes(export.read_bytes()[:-9])
    tape = f"data/eventctx/recordings/{SESSION}.jsonl"
    assert {tape, export.name, half.name} < {*machine.holding()}
    named = machine.run(*command, "--dry-run")
    assert tape in named.stdout
    assert f"{export} holds the same words; --exports takes it, too" in named.stderr
    done = machine.run(*command, "--exports", "--yes")
    assert "stays" not in done.stdout + done.stderr
    assert machine.holding() == []
    assert [*machine.tapes.glob("*.jsonl")] == []  # so no import can bring it back
    if command[0] != "prune":  # which deletes
        machine.record()  # the program goes on: a session of its own, and nothing is refused
        assert f'"{SESSION}.2"' in machine.run("sessions", "--json").stdout


@in_one_process
@pytest.mark.slow
def test_an_export_stays_and_is_named_unless_it_is_to_go(machine: Machine) -> None:
    export = machine.home / "out.jsonl"
    machine.run("export", SESSION, "-o", str(export))
    done = machine.run("delete", SESSION, "--yes")
    assert f"{export} holds the same words" in done.stderr
    assert machine.holding() == ["out.jsonl"]


def tape(path: Path, session: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"eventctx_tape": 1, "session": session}) + "\n")
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


def test_only_our_own_files_of_these_sessions_are_destroyed(home: Path) -> None:
    book = ReceiptBook(default_book(home / "s.db"))
    noted, other = tape(home / "tapes" / "a.jsonl", "a"), tape(default_tapes() / "b.jsonl", "b")
    side = tape(default_tapes() / "c.jsonl", "c")
    somebodys = home / "tapes" / "mine.jsonl"
    somebodys.write_text('{"session": "a"}\n')
    for path in (noted, somebodys):
        book.copied_to(path, "a", "tape")
    assert destroy_tapes(book) == []
    assert noted.exists()  # as nothing was erased
    book.erased("a")
    book.deleted(Receipt("c-2", 1, bytes(32)))
    assert copies(book, ["a"], "tape") == [noted]
    assert destroy_tapes(book) == []
    assert [one.exists() for one in (noted, other, side, somebodys)] == [False, True, False, True]
    assert copies(None, ["b"], "tape") == []


def test_a_program_that_goes_on_after_an_erasure_has_a_tape_of_another_name(home: Path) -> None:
    name = f"{CLAUDE['x-claude-code-session-id']}.recorded"
    first = put(default_tapes(), call(user("x")))
    assert first == default_tapes() / f"{name}.jsonl"
    book = ReceiptBook(default_book(home / "s.db"))
    book.erased(name)
    destroy_tapes(book)
    second = put(default_tapes(), call(user("x")))
    assert [*default_tapes().glob("*.jsonl")] == [second] == [first.with_name(f"{name}.2.jsonl")]
    header, row = map(json.loads, second.read_text().splitlines())
    assert header["session"] == f"{name}.2"
    assert row["sent"]["messages"] == [user("x")]
