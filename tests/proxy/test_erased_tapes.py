"""What is erased in a store is gone from every file of ours, and nothing brings it back."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

pytest.importorskip("h11", reason="an extra: eventctx[record]")

from eventctx.cli.main import cli
from eventctx.log.store import Receipt
from eventctx.proxy.call_copy import SeenCall
from eventctx.proxy.tapes import Tapes
from eventctx.stores.location import default_book, default_tapes
from eventctx.stores.own_copies import copies, destroy_tapes
from eventctx.stores.receipt_book import ReceiptBook
from tests.scripted_apis import answering

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

    def holding(self, words: bytes = b"SECRETWORDS") -> list[str]:
        """The files of all folders that hold the words."""
        files = [one for one in self.home.rglob("*") if one.is_file()]
        return sorted(str(one.relative_to(self.home)) for one in files if words in one.read_bytes())


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


@pytest.mark.parametrize(
    "command",
    [
        ["erase", SESSION, "0"],
        pytest.param(["delete", SESSION], marks=pytest.mark.slow),
        pytest.param(["prune", "--older-than", "0h"], marks=pytest.mark.slow),
    ],
)
def test_what_is_erased_is_in_no_file_of_the_users_folders(
    machine: Machine, command: list[str]
) -> None:
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
    sent = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]}).encode()
    headers = [(b"session-id", b"s1")]
    answer = json.dumps({"choices": [{"message": {"role": "assistant", "content": "y"}}]}).encode()
    path = "/v1/chat/completions"
    call = SeenCall("POST", "h", path, headers, sent, 200, [], answer, 1, 2, True)
    book = ReceiptBook(default_book(home / "s.db"))
    folder, first = default_tapes(), default_tapes() / f"{SESSION}.jsonl"
    tapes = Tapes(folder, "run", print)
    tapes.put(call)
    tapes.close()
    assert first.exists()
    book.erased(SESSION)
    destroy_tapes(book)
    tapes = Tapes(folder, "run", print)
    tapes.put(call)
    tapes.close()
    assert tapes.lost == 0
    second = first.with_name(f"{SESSION}.2.jsonl")
    assert [*default_tapes().glob("*.jsonl")] == [second]
    header, row = map(json.loads, second.read_text().splitlines())
    assert header["session"] == f"{SESSION}.2"
    assert row["sent"]["messages"][0]["content"] == "x"
