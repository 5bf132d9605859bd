"""Many files: what cannot be read is passed over with the reason, and the rest is imported."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from eventctx.errors import SourceChanged, StoreFull
from eventctx.importers.found import find
from eventctx.importers.known_files import KnownFiles
from eventctx.importers.load import ImportSummary, import_file
from eventctx.importers.many import FilePassedOver, ImportedPaths, import_paths
from eventctx.log.store import NO_STREAM, EventStore
from eventctx.stores.memory import MemoryStore
from tests.importers.agents import openhands_talk
from tests.importers.given import NOW, ClaudeCode, FullStore, draft, jsonl, load, records, text

CHAT = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
DEEP = b"[" * 100_000 + b"]" * 100_000
GOOD = "zz-good.jsonl"
"""The last name, so that all that cannot be read comes before it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "transcripts"
    folder.mkdir()
    (folder / GOOD).write_bytes(jsonl(CHAT))
    return folder


async def imported(*paths: Path, store: MemoryStore | None = None) -> ImportedPaths:
    return await import_paths(store or MemoryStore(), paths)


def sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2 << 30)


def long_line(path: Path) -> None:
    with path.open("wb") as file:
        file.write(jsonl(CHAT) + b'{"role":"user","content":"')
        file.truncate(2 << 30)


def a_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        os.chdir(path.parent)  # the path of a socket may have no more than 107 bytes
        made.bind(path.name)


def a_device(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes devices")
    os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))


BAD: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "brackets": (lambda p: p.write_bytes(DEEP), "MalformedTranscript", "deeper than 256"),
    "open brackets": (lambda p: p.write_bytes(DEEP[:100_000]), "MalformedTranscript", "deeper"),
    "objects": (lambda p: p.write_bytes(b'{"a":' * 100_000), "MalformedTranscript", "deeper"),
    "lines of brackets": (lambda p: p.write_bytes(DEEP + b"\n" + DEEP), "Malf", "deeper"),
    "brackets in a document": (
        lambda p: p.write_bytes(b'{"history":[{"role":"user","content":' + DEEP + b"}]}"),
        "MalformedTranscript",
        "deeper",
    ),
    "an empty file": (lambda p: p.write_bytes(b""), "MalformedTranscript", "empty"),
    "half a line": (lambda p: p.write_bytes(b'{"role": "us'), "UnknownFormat", "neither"),
    "no UTF-8": (lambda p: p.write_bytes(b"\xff\xfe\x80\n\x81"), "UnknownFormat", "neither"),
    "NUL bytes": (lambda p: p.write_bytes(b"\0" * 99), "UnknownFormat", "binary"),
    "2 GB of nothing": (sparse, "UnknownFormat", "binary"),
    "a line of 2 GB": (long_line, "UnknownFormat", "binary"),
    "a link to nowhere": (lambda p: p.symlink_to("/nowhere"), "UnreadableFile", "No such file"),
    "a link to itself": (lambda p: p.symlink_to(p), "UnreadableFile", "symbolic links"),
    "a pipe": (os.mkfifo, "UnreadableFile", "a pipe, a socket or a device"),
    "a socket": (a_socket, "UnreadableFile", "a pipe, a socket or a device"),
    "a device": (a_device, "UnreadableFile", "a pipe, a socket or a device"),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_file_that_cannot_be_read_is_passed_over_and_the_rest_imported(
    case: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, error, reason = BAD[case]
    monkeypatch.chdir(folder)
    make(folder / "bad.jsonl")
    done = await imported(folder)
    assert [one.session for one in done.sessions] == ["zz-good"]
    (bad,) = done.passed_over
    assert bad.path == folder / "bad.jsonl"
    assert (bad.error or "").startswith(error)
    assert reason in bad.reason
    assert (done.total.sessions, done.total.passed_over, done.total.failed) == (1, 1, 1)


async def test_json_that_is_no_transcript_is_named_and_no_error(folder: Path) -> None:
    (folder / "settings.json").write_text('{"theme": "dark"}')
    done = await imported(folder)
    (other,) = done.passed_over
    assert (other.reason, other.error) == ("no transcript: an object with the keys theme", None)
    assert done.total.failed == 0
    # Somebody who names the file says that it is one.
    (named,) = (await imported(folder / "settings.json")).passed_over
    assert named.error == "NotATranscript"


async def test_a_file_with_nothing_to_import_yet_is_named_and_no_error(folder: Path) -> None:
    title = {"type": "summary", "summary": "Title", "leafUuid": "x"}
    (folder / "title.jsonl").write_bytes(jsonl([title]))
    (waiting,) = (await imported(folder)).passed_over
    assert (waiting.reason, waiting.error) == ("line 1: no line names the session yet", None)


async def test_a_file_that_was_cut_after_its_import_is_passed_over(folder: Path) -> None:
    store = MemoryStore()
    path = folder / "cut.jsonl"
    path.write_bytes(jsonl([*CHAT, *CHAT]))
    await imported(folder, store=store)
    path.write_bytes(jsonl(CHAT))
    done = await imported(folder, store=store)
    (cut,) = done.passed_over
    assert (cut.path, cut.error) == (path, "SourceChanged")
    assert [one.added for one in done.sessions] == [0]


async def test_a_deleted_session_is_passed_over(folder: Path) -> None:
    store = MemoryStore()
    await imported(folder, store=store)
    last = (await records(store, "zz-good"))[-1]
    await store.delete("zz-good", draft("session:deleted"), last.position)
    (folder / "other.jsonl").write_bytes(jsonl(CHAT))
    done = await imported(folder, store=store)
    assert [one.session for one in done.sessions] == ["other"]
    # It is gone on purpose: nothing is wrong with the folder, unless its file is asked for by name.
    assert [one.error for one in done.passed_over] == [None]
    assert "deleted on purpose" in done.passed_over[0].reason
    named = await imported(folder / done.passed_over[0].path.name, store=store)
    assert [one.error for one in named.passed_over] == ["SessionWasDeleted"]


async def test_two_files_of_one_session_count_once(folder: Path) -> None:
    data = ClaudeCode().user("x").answer("m", text("y")).data()
    (folder / "a.jsonl").write_bytes(data)
    (folder / "b.jsonl").write_bytes(data)
    done = await imported(folder)
    assert [one.added > 0 for one in done.sessions] == [True, False, True]
    assert (done.total.sessions, done.total.messages, done.total.turns) == (2, 3, 2)


async def test_a_file_that_vanishes_before_its_turn_is_passed_over(folder: Path) -> None:
    (folder / "vanishing.jsonl").write_bytes(jsonl(CHAT))
    (folder / "a.jsonl").write_bytes(jsonl(CHAT))
    store = MemoryStore()

    async def importing(store: EventStore, path: Path, **_: Any) -> list[ImportSummary]:
        (folder / "vanishing.jsonl").unlink(missing_ok=True)
        return await import_file(store, path)

    done = await import_paths(store, [folder], importing=importing)
    assert [one.session for one in done.sessions] == ["a", "zz-good"]
    assert [one.error for one in done.passed_over] == ["UnreadableFile"]


async def test_a_subagents_file_that_cannot_be_read_is_passed_over(folder: Path) -> None:
    log = ClaudeCode().user("x").answer("m", text("y"))
    (folder / "main.jsonl").write_bytes(log.data())
    agents = folder / "main" / "subagents"
    agents.mkdir(parents=True)
    (agents / "agent-a1.jsonl").write_bytes(b"x" * 100)
    (agents / "agent-a2.jsonl").symlink_to("/nowhere")
    done = await imported(folder)
    assert [one.format for one in done.sessions] == ["claude-code", "messages"]
    assert {one.path.name for one in done.passed_over} == {"agent-a1.jsonl", "agent-a2.jsonl"}
    assert next(one.error for one in done.passed_over if "a2" in one.path.name) == "UnreadableFile"


async def test_the_stores_error_ends_the_import_and_what_was_imported_stays(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(jsonl(CHAT))
    (folder / "b.jsonl").write_bytes(jsonl(CHAT))
    store = FullStore()
    told: list[ImportSummary | FilePassedOver] = []
    with pytest.raises(StoreFull):
        await import_paths(store, [folder], told=told.append)
    assert [getattr(one, "session", None) for one in told] == ["a"]
    assert [info.stream async for info in store.streams()] == ["a"]


async def test_a_programming_error_ends_the_import(folder: Path) -> None:
    async def importing(store: EventStore, path: Path, **_: Any) -> list[ImportSummary]:
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        await import_paths(MemoryStore(), [folder], importing=importing)


async def test_a_foreign_writer_of_the_same_session_is_no_error_of_the_others(
    folder: Path,
) -> None:
    store = MemoryStore()
    (folder / "a.jsonl").write_bytes(jsonl(CHAT))

    async def importing(_: EventStore, path: Path, **__: Any) -> list[ImportSummary]:
        if path.name == "a.jsonl":
            await load(store, path)
            await store.append("a", [draft("session:end")], NO_STREAM)
        return await import_file(store, path)

    done = await import_paths(store, [folder], importing=importing)
    assert [one.error for one in done.passed_over] == ["WrongExpectedVersion"]
    assert [one.session for one in done.sessions] == ["zz-good"]


class Imports:
    """Imports of a folder into one store, each with the index as the last one saved it."""

    def __init__(self, folder: Path) -> None:
        self.store = MemoryStore()
        self.read: list[str] = []
        self._folder = folder

    async def run(self, folder: Path | None = None, *, read_again: bool = False) -> ImportedPaths:
        """Import the folder; ``read`` are then the names of the files that were read for it."""
        self.read = []
        index = KnownFiles(self._folder.with_suffix(".db"))
        done = await import_paths(
            self.store,
            [folder or self._folder],
            importing=self._import,
            index=index,
            read_again=read_again,
        )
        index.save()
        return done

    async def _import(self, store: EventStore, path: Path, **_: Any) -> list[ImportSummary]:
        self.read.append(path.name)
        return await import_file(store, path)


async def test_a_file_that_has_not_changed_is_told_of_and_not_read_again(folder: Path) -> None:
    (folder / "a.jsonl").write_bytes(jsonl(CHAT) + b"no JSON\n")
    imports = Imports(folder)
    first = await imports.run()
    assert imports.read == ["a.jsonl", GOOD]
    again = await imports.run()
    assert imports.read == []
    assert [one.added for one in again.sessions] == [0, 0]
    assert again.sessions == tuple([structs.replace(one, added=0) for one in first.sessions])
    assert again.sessions[0].warned == 1
    with (folder / "a.jsonl").open("ab") as file:
        file.write(jsonl(CHAT))
    assert [one.session for one in (await imports.run()).sessions] == ["a", "zz-good"]
    assert imports.read == ["a.jsonl"]


async def test_a_file_is_known_however_its_path_is_typed_and_told_of_by_that_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    imports = Imports(folder)
    (first,) = (await imports.run(Path())).sessions
    assert (first.path, imports.read) == (Path(GOOD), [GOOD])
    link = folder.with_name("link")
    link.symlink_to(folder)
    for typed in (folder, link, Path("..") / folder.name, Path(GOOD), folder / GOOD):
        (again,) = (await imports.run(typed)).sessions
        assert imports.read == []
        assert again.path == (typed if typed.name == GOOD else typed / GOOD)
        assert again.session == first.session
    copy = folder / "copy"
    copy.write_bytes((folder / GOOD).read_bytes())
    copy.replace(GOOD)
    for typed in (link, Path()):
        await imports.run(typed)
        assert imports.read == []


async def test_a_file_that_was_only_touched_or_copied_is_known_by_its_digest(folder: Path) -> None:
    good, copy = folder / GOOD, folder / "copy"
    imports = Imports(folder)
    await imports.run()
    os.utime(good, ns=(NOW, NOW))
    await imports.run()
    copy.write_bytes(good.read_bytes())
    copy.replace(good)
    await imports.run()
    assert imports.read == []
    good.write_bytes(good.read_bytes().replace(b'"x"', b'"z"'))
    (changed,) = (await imports.run()).passed_over
    assert (changed.error, imports.read) == ("SourceChanged", [GOOD])


async def test_a_file_is_read_again_when_its_session_changed(folder: Path) -> None:
    imports = Imports(folder)
    await imports.run()
    last = (await records(imports.store, "zz-good"))[-1]
    await imports.store.append("zz-good", [draft("session:signed")], last.position)
    await imports.run()
    assert imports.read == [GOOD]
    await imports.run()
    assert imports.read == []
    await imports.store.delete("zz-good", draft("session:deleted"), last.position + 1)
    (gone,) = (await imports.run()).passed_over
    assert "was deleted" in gone.reason
    imports.store = MemoryStore()
    assert (await imports.run()).total.added > 0


async def test_options_read_a_file_again_and_say_nothing_of_an_import_without_them(
    folder: Path,
) -> None:
    imports = Imports(folder)
    for read_again, read in [(False, 1), (True, 1), (False, 1), (False, 0)]:
        await imports.run(read_again=read_again)
        assert len(imports.read) == read


def test_a_search_finds_each_transcript_once_and_follows_no_link_to_a_folder(
    folder: Path,
) -> None:
    openhands_talk().folder(folder / "run" / "events")
    (folder / "named.jsonl").mkdir()
    (folder / "named.jsonl" / "inner.json").write_text("[]")
    (folder / "again").symlink_to(folder)
    (folder / "again.jsonl").symlink_to(folder)
    (folder / "main" / "subagents").mkdir(parents=True)
    (folder / "main" / "subagents" / "agent-1.jsonl").write_text("")
    (folder / "readme.txt").write_text("")
    found = [one.path.relative_to(folder) for one in find(folder)]
    assert found == [Path("named.jsonl/inner.json"), Path("run/events"), Path(GOOD)]


@pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")
def test_what_may_not_be_read_is_passed_over(folder: Path) -> None:
    """As root may read everything, a process without rights does the search."""
    (folder / "secret.jsonl").write_bytes(jsonl(CHAT))
    (folder / "closed").mkdir()
    (folder / "closed" / "x.jsonl").write_bytes(jsonl(CHAT))
    (folder / "secret.jsonl").chmod(0)
    (folder / "closed").chmod(0)
    program = (
        "import asyncio, json, os\n"
        "from eventctx.importers.many import import_paths\n"
        "from eventctx.stores.memory import MemoryStore\n"
        "if os.geteuid() == 0:\n"
        "    os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "done = asyncio.run(import_paths(MemoryStore(), ['.']))\n"
        "print(json.dumps([[o.path.name, o.error] for o in done.passed_over]))\n"
        "print([one.session for one in done.sessions])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=False
    )
    (folder / "closed").chmod(0o700)
    assert done.returncode == 0, done.stderr
    passed, sessions = done.stdout.splitlines()
    assert json.loads(passed) == [["closed", "UnreadableFile"], ["secret.jsonl", "UnreadableFile"]]
    assert sessions == "['zz-good']"


# -- files of one name ---------------------------------------------------------------------------


def run_of(folder: Path, model: str, said: str, *between: str) -> Path:
    path = folder.joinpath(model, *between, "lamp-7", "lamp-7.traj")
    path.parent.mkdir(parents=True)
    rows = [
        {"role": "user", "content": "The lamp flickers."},
        {"role": "assistant", "content": said},
    ]
    path.write_text(json.dumps({"history": rows, "trajectory": [], "info": {}}))
    return path


async def test_runs_of_one_name_are_sessions_of_their_own(tmp_path: Path) -> None:
    for number in range(9):
        run_of(tmp_path, f"model-{number}", f"answer {number}", *("today",) * (number % 2))
    store = MemoryStore()
    done = await imported(tmp_path, store=store)
    names = [one.session for one in done.sessions]
    assert names[:4] == ["lamp-7", "today.lamp-7", "model-2.lamp-7", "model-3.today.lamp-7"]
    assert (done.total.sessions, done.total.failed) == (9, 0)
    again = await imported(tmp_path, store=store)
    assert [(one.session, one.added) for one in again.sessions] == [(name, 0) for name in names]


async def test_runs_keep_their_names_when_others_come(tmp_path: Path) -> None:
    store = MemoryStore()
    run_of(tmp_path, "model-b", "b")
    run_of(tmp_path, "model-c", "c")
    await imported(tmp_path, store=store)
    run_of(tmp_path, "model-a", "a")
    done = await imported(tmp_path, store=store)
    found = {one.path.parts[-3]: (one.session, one.added > 0) for one in done.sessions}
    assert found == {
        "model-a": ("model-a.lamp-7", True),
        "model-b": ("lamp-7", False),
        "model-c": ("model-c.lamp-7", False),
    }


async def test_a_run_that_ended_early_is_not_mixed_with_a_longer_one(tmp_path: Path) -> None:
    run_of(tmp_path, "model-b", "b")
    short = run_of(tmp_path, "model-a", "")
    rows = [{"role": "user", "content": "The lamp flickers."}]
    short.write_text(json.dumps({"history": rows, "trajectory": []}))
    done = await imported(tmp_path)
    assert [(one.session, one.messages) for one in done.sessions] == [
        ("lamp-7", 1),
        ("model-b.lamp-7", 2),
    ]


async def test_a_copy_in_another_folder_is_the_same_session(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        run_of(tmp_path, folder, "the same")
    assert (await imported(tmp_path)).total.sessions == 1


async def test_runs_that_are_imported_one_by_one_are_sessions_of_their_own(tmp_path: Path) -> None:
    store = MemoryStore()
    paths = [run_of(tmp_path, f"model-{number}", f"answer {number}") for number in range(9)]
    names = [(await import_file(store, path))[0].session for path in paths]
    assert names == ["lamp-7", *(f"model-{number}.lamp-7" for number in range(1, 9))]
    again = [(await import_file(store, path))[0] for path in reversed(paths)]
    assert [(one.session, one.added) for one in again] == [(name, 0) for name in reversed(names)]


async def test_a_run_that_was_written_anew_in_its_place_is_no_other_one(tmp_path: Path) -> None:
    store = MemoryStore()
    path = run_of(tmp_path, "model-a", "first")
    await import_file(store, path)
    path.write_text(path.read_text().replace("first", "other"))
    with pytest.raises(SourceChanged):
        await import_file(store, path)


async def test_a_run_of_a_name_that_was_taken_over_is_another_session(tmp_path: Path) -> None:
    store = MemoryStore()
    await import_file(store, run_of(tmp_path, "model-a", "a"), take_over=True)
    (other,) = await import_file(store, run_of(tmp_path, "model-b", "b"))
    assert other.session == "model-b.lamp-7"
