"""What a process loads when it starts, and what it offers to a shell that completes a line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from eventctx.cli.later import CommandLater
from eventctx.cli.main import cli
from tests.cli.conftest import say

ROOT = Path(__file__).resolve().parents[2]

_LOADED = "import sys\nprint(*sys.modules)\n"
_FIRST_OPEN = """
import asyncio, sys
import eventctx

async def main():
    async with eventctx.open(sys.argv[1]) as engine:
        context = await engine.session("first")
        await context.add_message({"role": "user", "content": "Count the files."})

asyncio.run(main())
"""
_RUN = """
import sys
from eventctx.cli.main import cli

for command in sys.argv[1:]:
    try:
        cli(command.split())
    except SystemExit as end:
        assert end.code == 0, end.code
"""


def loaded_by(program: str, *arguments: object) -> set[str]:
    """The modules that a fresh interpreter holds after ``program``."""
    command = [sys.executable, "-c", program + _LOADED, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_importing_the_package_loads_its_list_of_names_and_no_more() -> None:
    loaded = loaded_by("import eventctx\n")
    ours = {name for name in loaded if name.startswith("eventctx")}
    assert ours == {"eventctx", "eventctx.lazy_names"}
    assert loaded.isdisjoint({"asyncio", "msgspec", "logging", "hashlib"})


POLICIES = "custom importance ladder native pipeline simple summarize truncate"
NOT_FOR_A_MESSAGE = """
session.requests session.compaction_run session.erasure.erasing search.recall queries.requests
queries.verify projections.timeline.fold projections.explain.changes importers comparison.compare
log.naming
"""
NOT_OURS = "difflib opentelemetry structlog rich click http email"


def test_a_first_message_loads_its_policy_and_no_more_than_it_uses(tmp_path: Path) -> None:
    loaded = loaded_by(_FIRST_OPEN, tmp_path / "contexts.db")
    assert "eventctx.policies.workset" in loaded
    assert loaded.isdisjoint(f"eventctx.policies.{name}" for name in POLICIES.split())
    assert loaded.isdisjoint(f"eventctx.{name}" for name in NOT_FOR_A_MESSAGE.split())
    assert loaded.isdisjoint(NOT_OURS.split())


LIGHT = "copy delete erase export fork lost prune restore sessions sign stats verify"


@pytest.mark.slow
def test_the_help_of_a_command_loads_no_engine_and_nothing_that_prints_its_answer() -> None:
    loaded = loaded_by(_RUN, *[f"{name} --help" for name in cli.commands])
    assert "eventctx.cli.commands.audit" in loaded
    assert loaded.isdisjoint({"eventctx.engine", "sqlite3"})
    assert loaded.isdisjoint({"rich", "pygments", "difflib", "starlette", "uvicorn", "anyio"})
    assert loaded.isdisjoint({"eventctx.importers.recording", "eventctx.importers.many"})


def test_the_help_of_most_used_commands_loads_neither_loop_nor_view() -> None:
    loaded = loaded_by(_RUN, *[f"{name} --help" for name in LIGHT.split()])
    assert "eventctx.cli.commands.lost" in loaded and "asyncio" not in loaded
    assert loaded.isdisjoint({"eventctx.queries.requests", "eventctx.queries.key_frames"})
    assert len([name for name in loaded if name.startswith("eventctx.")]) < 120


def test_the_program_says_what_it_is_without_its_engine() -> None:
    loaded = loaded_by(_RUN, "--version")
    assert "eventctx.cli.main" in loaded
    assert loaded.isdisjoint({"eventctx.engine", "eventctx.log", "eventctx.cli.commands"})
    assert loaded.isdisjoint({"asyncio", "msgspec", "rich"})


def test_a_command_is_listed_with_its_own_name_and_line() -> None:
    for name, later in cli.commands.items():
        assert isinstance(later, CommandLater)
        command = later.load()
        assert command.name == name
        assert command.get_short_help_str(200) == later.get_short_help_str(200)
        assert (command.hidden, command.deprecated) == (False, False)


def test_a_checkout_without_symbolic_links_says_what_to_do(tmp_path: Path) -> None:
    package = tmp_path / "eventctx"
    (package / "cli").mkdir(parents=True)
    for name in ("__init__.py", "__init__.pyi", "lazy_names.py", "cli/__init__.py", "cli/start.py"):
        (package / name).write_bytes((ROOT / "eventctx" / name).read_bytes())
    (package / "projections").write_text("../projections")
    program = [sys.executable, "-c", "from eventctx.cli.start import main; main()"]
    done = subprocess.run(program, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert "made without symbolic links" in done.stderr
    assert "git config core.symlinks true && git checkout -- eventctx" in done.stderr


@pytest.fixture
def store(tmp_path: Path) -> Path:
    for name in ("alpha-1", "alpha-2", "beta"):
        say(tmp_path / "s.db", name, f"Words of {name}\x1b[2J\nmore")
    return tmp_path / "s.db"


def completed(line: str, store: Path, shell: str = "bash") -> list[str]:
    """What the program offers to a shell for the last word of ``line``."""
    words = line.split(" ")
    given = {
        "EVENTCTX_STORE": str(store),
        "_EVENTCTX_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1) if shell == "bash" else words[-1],
    }
    done = CliRunner().invoke(cli, env=given, prog_name="eventctx")
    assert (done.exit_code, done.stderr) == (0, "")
    return [one.partition(",")[2] for one in done.stdout.splitlines() if one]


def test_commands_and_sessions_of_the_store_are_completed(store: Path, tmp_path: Path) -> None:
    assert completed("eventctx se", store) == ["search", "sessions", "setup"]
    assert completed("eventctx lost al", store) == ["alpha-1", "alpha-2"]
    assert completed("eventctx why b", store) == ["beta"]
    assert completed("eventctx lost zz", store) == []
    assert "--compaction" in completed("eventctx lost --comp", store)
    line = f"eventctx --store {store} audit al"
    assert completed(line, tmp_path / "none.db") == ["alpha-1", "alpha-2"]


def test_a_store_that_cannot_be_read_completes_to_nothing(tmp_path: Path) -> None:
    assert completed("eventctx lost a", tmp_path / "none.db") == []
    assert completed("eventctx lost a", tmp_path) == []
    (tmp_path / "text.db").write_text("no store")
    assert completed("eventctx lost a", tmp_path / "text.db") == []
    assert not (tmp_path / "none.db").exists()


def test_a_title_stands_beside_a_name_and_controls_no_terminal(store: Path, run) -> None:
    run("sessions", "--store", store)
    shown = completed("eventctx lost be", store, "fish")
    assert shown == ["beta\tWords of beta\\x1b[2J more"]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_a_real_bash_completes_a_session(store: Path, tmp_path: Path) -> None:
    program = tmp_path / "eventctx"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m eventctx.cli "$@"\n')
    program.chmod(0o755)
    script = """
    eval "$(_EVENTCTX_COMPLETE=bash_source eventctx)"
    COMP_WORDS=(eventctx transcript alpha) COMP_CWORD=2
    _eventctx_completion eventctx
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "EVENTCTX_STORE": str(store)}
    environment["PATH"] = f"{tmp_path}:{environment['PATH']}"
    bash = ["bash", "--norc", "-c", script]
    done = subprocess.run(bash, env=environment, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["alpha-1", "alpha-2"], done.stderr


def test_an_empty_name_is_no_folder_to_import(run, store: Path) -> None:
    run("import", "", "--store", store).fails("found an empty name")
