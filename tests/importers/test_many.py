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
from tests.importers import in_workers
from tests.importers.agents import openhands_talk
from tests.importers.given import CHAT, NOW, ClaudeCode, jsonl, put, text
from tests.importers.taken import FullStore, draft, load, records

DEEP = b"[" * 100_000 + b"]" * 100_000
GOOD = "zz-good.jsonl"
"""The last name, so that all that cannot be read comes before it."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return put(tmp_path / "transcripts" / GOOD, jsonl(CHAT)).parent


async def imported(*paths: Path, store: MemoryStore | None = None) -> ImportedPaths:
    return await import_paths(store or MemoryStore(), paths)


def long_line(path: Path, begin: bytes = jsonl(CHAT) + b'{"role":"user","content":"') -> None:
    with path.open("wb") as file:
        file.write(begin)
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
    "2 GB of nothing": (lambda p: long_line(p, b""), "UnknownFormat", "binary"),
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


async def test_what_is_no_transcript_or_none_yet_is_named_and_no_error(folder: Path) -> None:
    put(folder / "settings.json", b'{"theme": "dark"}')
    put(folder / "title.jsonl", jsonl([{"type": "summary", "summary": "Title", "leafUuid": "x"}]))
    done = await imported(folder)
    other, waiting = done.passed_over
    assert (other.reason, other.error) == ("no transcript: an object with the keys theme", None)
    assert (waiting.reason, waiting.error) == ("line 1: no line names the session yet", None)
    assert done.total.failed == 0
    # Somebody who names the file says that it is one.
    (named,) = (await imported(folder / "settings.json")).passed_over
    assert named.error == "NotATranscript"


async def test_a_deleted_session_is_passed_over(folder: Path) -> None:
    store = MemoryStore()
    await imported(folder, store=store)
    last = (await records(store, "zz-good"))[-1]
    await store.delete("zz-good", draft("session:deleted"), last.position)
    put(folder / "other.jsonl", jsonl(CHAT))
    done = await imported(folder, store=store)
    assert [one.session for one in done.sessions] == ["other"]
    # It is gone on purpose: nothing is wrong with the folder, unless its file is asked for by name.
    (gone,) = done.passed_over
    assert (gone.error, "deleted on purpose" in gone.reason) == (None, True)
    (named,) = (await imported(folder / GOOD, store=store)).passed_over
    assert named.error == "SessionWasDeleted"


async def test_two_files_of_a_session_count_once_and_a_cut_one_is_passed_over(folder: Path) -> None:
    for name in ("a", "b"):
        put(folder / f"{name}.jsonl", ClaudeCode().user("x").answer("m", text("y")).data())
    done = await imported(folder)
    assert [one.added > 0 for one in done.sessions] == [True, False, True]
    assert (done.total.sessions, done.total.messages, done.total.turns) == (2, 3, 2)
    store, path = MemoryStore(), put(folder / "cut.jsonl", jsonl([*CHAT, *CHAT]))
    await imported(folder, store=store)
    put(path, jsonl(CHAT))
    done = await imported(folder, store=store)
    assert [(one.path, one.error) for one in done.passed_over] == [(path, "SourceChanged")]
    assert [one.added for one in done.sessions] == [0, 0, 0]


async def test_a_file_that_vanishes_before_its_turn_is_passed_over(folder: Path) -> None:
    vanishing = put(folder / "vanishing.jsonl", jsonl(CHAT))
    put(folder / "a.jsonl", jsonl(CHAT))

    async def importing(store: EventStore, path: Path, **_: Any) -> list[ImportSummary]:
        vanishing.unlink(missing_ok=True)
        return await import_file(store, path)

    done = await import_paths(MemoryStore(), [folder], importing=importing)
    assert [one.session for one in done.sessions] == ["a", "zz-good"]
    assert [one.error for one in done.passed_over] == ["UnreadableFile"]


async def test_a_subagents_file_that_cannot_be_read_is_passed_over(folder: Path) -> None:
    put(folder / "main.jsonl", ClaudeCode().user("x").answer("m", text("y")).data())
    bad = put(folder / "main" / "subagents" / "agent-a1.jsonl", b"x" * 100)
    bad.with_name("agent-a2.jsonl").symlink_to("/nowhere")
    done = await imported(folder)
    assert [one.format for one in done.sessions] == ["claude-code", "messages"]
    assert {one.path.name for one in done.passed_over} == {"agent-a1.jsonl", "agent-a2.jsonl"}
    assert next(one.error for one in done.passed_over if "a2" in one.path.name) == "UnreadableFile"


async def test_an_error_of_the_store_or_of_ours_ends_the_import(folder: Path) -> None:
    for name in ("a", "b"):
        put(folder / f"{name}.jsonl", jsonl(CHAT))
    store, told = FullStore(), list[ImportSummary | FilePassedOver]()
    with pytest.raises(StoreFull):
        await import_paths(store, [folder], told=told.append)
    assert [getattr(one, "session", None) for one in told] == ["a"]
    assert [info.stream async for info in store.streams()] == ["a"]
    with pytest.raises(KeyError):
        await import_paths(MemoryStore(), [folder], importing=in_workers.fail)


async def test_a_foreign_writer_of_the_same_session_is_no_error_of_the_others(folder: Path) -> None:
    store = MemoryStore()
    put(folder / "a.jsonl", jsonl(CHAT))

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
        self._folder = folder

    async def run(self, folder: Path | None = None, **options: Any) -> ImportedPaths:
        """Import the folder; ``read`` are then the names of the files that were read for it."""
        self.read: list[str] = []
        index, paths = KnownFiles(self._folder.with_suffix(".db")), [folder or self._folder]
        options |= {"importing": self._import, "index": index}
        done = await import_paths(self.store, paths, **options)
        index.save()
        return done

    async def _import(self, store: EventStore, path: Path, **_: Any) -> list[ImportSummary]:
        self.read.append(path.name)
        return await import_file(store, path)


async def test_a_file_that_has_not_changed_is_told_of_and_not_read_again(folder: Path) -> None:
    path = put(folder / "a.jsonl", jsonl(CHAT) + b"no JSON\n")
    imports = Imports(folder)
    first = await imports.run()
    assert imports.read == ["a.jsonl", GOOD]
    again = await imports.run()
    assert imports.read == []
    assert again.sessions == tuple([structs.replace(one, added=0) for one in first.sessions])
    assert again.sessions[0].warned == 1
    put(path, path.read_bytes() + jsonl(CHAT))
    assert [one.session for one in (await imports.run()).sessions] == ["a", "zz-good"]
    assert imports.read == ["a.jsonl"]
    # Options read a file again, and say nothing of an import without them.
    for read_again, read in [(True, 2), (False, 2), (False, 0)]:
        await imports.run(read_again=read_again)
        assert len(imports.read) == read


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
        assert (imports.read, again.session) == ([], first.session)
        assert again.path == (typed if typed.name == GOOD else typed / GOOD)
    put(folder / "copy", (folder / GOOD).read_bytes()).replace(GOOD)
    for typed in (link, Path()):
        await imports.run(typed)
        assert imports.read == []


async def test_a_file_that_was_only_touched_or_copied_is_known_by_its_digest(folder: Path) -> None:
    good, imports = folder / GOOD, Imports(folder)
    await imports.run()
    os.utime(good, ns=(NOW, NOW))
    await imports.run()
    put(folder / "copy", good.read_bytes()).replace(good)
    await imports.run()
    assert imports.read == []
    put(good, good.read_bytes().replace(b'"x"', b'"z"'))
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


def test_a_search_finds_each_transcript_once_and_follows_no_link_to_a_folder(folder: Path) -> None:
    openhands_talk().folder(folder / "run" / "events")
    for name in ("named.jsonl/inner.json", "main/subagents/agent-1.jsonl", "readme.txt"):
        put(folder / name, b"[]")
    for name in ("again", "again.jsonl"):
        (folder / name).symlink_to(folder)
    found = [one.path.relative_to(folder) for one in find(folder)]
    assert found == [Path("named.jsonl/inner.json"), Path("run/events"), Path(GOOD)]


@pytest.mark.skipif(os.name != "posix", reason="rights are those of POSIX")
def test_what_may_not_be_read_is_passed_over(folder: Path) -> None:
    """As root may read everything, a process without rights does the search."""
    put(folder / "secret.jsonl", jsonl(CHAT)).chmod(0)
    closed = put(folder / "closed" / "x.jsonl", jsonl(CHAT)).parent
    closed.chmod(0)
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
    closed.chmod(0o700)
    assert done.returncode == 0, done.stderr
    passed, sessions = done.stdout.splitlines()
    assert json.loads(passed) == [["closed", "UnreadableFile"], ["secret.jsonl", "UnreadableFile"]]
    assert sessions == "['zz-good']"


def run_of(folder: Path, model: str, *said: str, between: tuple[str, ...] = ()) -> Path:
    rows = [{"role": "user", "content": "The lamp flickers."}]
    rows += [{"role": "assistant", "content": one} for one in said]
    data = json.dumps({"history": rows, "trajectory": [], "info": {}}).encode()
    return put(folder.joinpath(model, *between, "lamp-7", "lamp-7.traj"), data)


async def test_runs_of_one_name_are_sessions_of_their_own(tmp_path: Path) -> None:
    for number in range(9):
        day = ("today",) * (number % 2)
        run_of(tmp_path, f"model-{number}", f"answer {number}", between=day)
    store = MemoryStore()
    done = await imported(tmp_path, store=store)
    names = [one.session for one in done.sessions]
    assert names[:4] == ["lamp-7", "today.lamp-7", "model-2.lamp-7", "model-3.today.lamp-7"]
    assert (done.total.sessions, done.total.failed) == (9, 0)
    again = await imported(tmp_path, store=store)
    assert [(one.session, one.added) for one in again.sessions] == [(name, 0) for name in names]


async def test_runs_that_are_imported_one_by_one_are_sessions_of_their_own(tmp_path: Path) -> None:
    store, paths = MemoryStore(), [run_of(tmp_path, f"model-{n}", f"{n}") for n in range(9)]
    names = [(await import_file(store, path))[0].session for path in paths]
    assert names == ["lamp-7", *(f"model-{number}.lamp-7" for number in range(1, 9))]
    again = [(await import_file(store, path))[0] for path in reversed(paths)]
    assert [(one.session, one.added) for one in again] == [(name, 0) for name in reversed(names)]
    # One that was written anew in its place is no other one.
    paths[0].write_text(paths[0].read_text().replace('"0"', '"9"'))
    with pytest.raises(SourceChanged):
        await import_file(store, paths[0])


async def test_runs_keep_their_names_when_others_come(tmp_path: Path) -> None:
    store = MemoryStore()
    run_of(tmp_path, "model-b", "b")
    run_of(tmp_path, "model-c", "c")
    await imported(tmp_path, store=store)
    run_of(tmp_path, "model-a", "a")
    done = await imported(tmp_path, store=store)
    found = [(one.path.parts[-3][-1], one.session, one.added > 0) for one in done.sessions]
    kept = [("b", "lamp-7", False), ("c", "model-c.lamp-7", False)]
    assert sorted(found) == [("a", "model-a.lamp-7", True), *kept]


async def test_a_copy_is_the_same_session_and_another_run_is_another(tmp_path: Path) -> None:
    for model in ("a", "b"):
        run_of(tmp_path / "copies", model, "the same")
    assert (await imported(tmp_path / "copies")).total.sessions == 1
    run_of(tmp_path / "runs", "model-a")
    run_of(tmp_path / "runs", "model-b", "b")
    done = await imported(tmp_path / "runs")
    found = [(one.session, one.messages) for one in done.sessions]
    assert found == [("lamp-7", 1), ("model-b.lamp-7", 2)]
    store = MemoryStore()
    await import_file(store, run_of(tmp_path, "model-a", "a"), take_over=True)
    (other,) = await import_file(store, run_of(tmp_path, "model-b", "b"))
    assert other.session == "model-b.lamp-7"
