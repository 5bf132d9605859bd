"""What is made beside a store or out of it is for its owner alone."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.adapters.amplifier.engines import Engines
from eventctx.log.private_files import make_folder
from tests.cli.conftest import Run
from tests.sessions import USER, tool_round

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX rights")


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    """An umask that takes nothing away."""
    before = os.umask(0)
    yield
    os.umask(before)


def rights(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


OUTPUTS = {
    "export": ("export", "work", "-o"),
    "jaeger": ("trace", "work", "--jaeger"),
    "otlp": ("trace", "work", "--otlp-file"),
}
HTML = ("inspect", "work", "--html")


@pytest.mark.parametrize("kind", OUTPUTS)
def test_an_output_is_for_its_owner_alone_and_an_older_one_keeps_its_rights(
    run: Run, store: Path, tmp_path: Path, kind: str
) -> None:
    file = tmp_path / "out.jsonl"

    def written() -> int:
        assert run(*OUTPUTS[kind], file).code == 0
        return rights(file)

    assert written() == 0o600
    for chosen in (0o644, 0o440):
        file.chmod(chosen)
        assert written() == chosen
    file.unlink()
    os.umask(0o277)
    assert written() == 0o400


def test_the_default_folder_is_for_its_owner_alone(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "out.jsonl"
    assert run("export", "work", "-o", file).code == 0
    monkeypatch.delenv("EVENTCTX_STORE")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert run("import", file).code == 0
    for made in ("data", "data/eventctx"):
        assert rights(tmp_path / made) == 0o700


async def test_the_folders_of_a_host_are_for_its_owner_alone(tmp_path: Path) -> None:
    engines = Engines()
    store = str(tmp_path / "host" / "deep" / "s.db")
    engine = await engines.acquire(store, "full", "s")
    await engines.release(store, engine, "s")
    assert rights(tmp_path / "host") == rights(tmp_path / "host" / "deep") == 0o700


async def test_an_exported_transcript_is_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "exports" / "here"
    async with eventctx.open() as engine:
        exports: Any = {"export_on_compact": True, "storage_path": str(folder)}
        ctx = await engine.session("s", max_tokens=1_000, **exports)
        for number in range(9):
            for message in (USER, *tool_round(number, 2_000)):
                await ctx.add_message(message)
        await ctx.get_messages_for_request()
    (file,) = folder.iterdir()
    assert file.suffix == ".jsonl"
    assert rights(file) == 0o600
    assert rights(folder) == rights(folder.parent) == 0o700


def test_a_folder_that_exists_keeps_its_rights(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_folder(tmp_path / "one" / "two")
    make_folder(tmp_path / "one" / "two")
    assert [rights(tmp_path / one) for one in (".", "one", "one/two")] == [0o755, 0o700, 0o700]
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "file")


@pytest.mark.parametrize("mode", [0o600, 0o660])
async def test_index_and_losses_have_the_rights_of_their_store(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        path.chmod(mode)
        engine.on("*", lambda record: 1 / 0)
        await (await engine.session("s")).add_message(USER)
        assert len(await engine.recall("hello")) == 1
    made = [tmp_path / "s.db.eventctx-recall", tmp_path / "s.db-losses.jsonl"]
    assert [rights(one) for one in made] == [mode, mode]


@pytest.mark.parametrize("command", [*OUTPUTS.values(), HTML], ids=[*OUTPUTS, "html"])
@pytest.mark.parametrize("way", ["itself", "a symbolic link", "a hard link", "its log"])
def test_no_output_replaces_a_store(run: Run, store: Path, command: tuple[str, ...], way: str):
    given = {"itself": store, "its log": Path(f"{store}-wal")}.get(way, store.with_name("given"))
    if way == "a symbolic link":
        given.symlink_to(store)
    elif way == "a hard link":
        given.hardlink_to(store)
    before = store.read_bytes()
    run(*command, given).fails("found a database; choose another path")
    assert store.read_bytes() == before
    run("sessions").ok()
