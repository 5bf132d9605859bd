"""What a process loads when it starts: what it uses, and nothing besides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from eventctx.cli.later import CommandLater
from eventctx.cli.main import cli

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
OTHER_POLICIES = (
    *("custom", "importance", "ladder", "native", "pipeline", "simple", "summarize", "truncate"),
)


def loaded_by(program: str, *arguments: object) -> set[str]:
    """The modules that a fresh interpreter holds after ``program``."""
    command = [sys.executable, "-c", program + _LOADED, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


@pytest.fixture(scope="module")
def at_first_open(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """What is loaded once a file was opened and a message is in it."""
    return loaded_by(_FIRST_OPEN, tmp_path_factory.mktemp("start") / "contexts.db")


def test_importing_the_package_loads_its_list_of_names_and_no_more() -> None:
    loaded = loaded_by("import eventctx\n")
    assert {name for name in loaded if name.startswith("eventctx")} == {
        "eventctx",
        "eventctx.lazy_names",
    }
    assert loaded.isdisjoint({"asyncio", "msgspec", "logging", "hashlib"})


def test_a_first_message_loads_no_policy_that_was_not_chosen(at_first_open: set[str]) -> None:
    assert "eventctx.policies.workset" in at_first_open
    assert at_first_open.isdisjoint(f"eventctx.policies.{name}" for name in OTHER_POLICIES)


NOT_FOR_A_MESSAGE = (
    "eventctx.session.requests",
    "eventctx.session.compaction_run",
    "eventctx.session.erasure.erasing",
    "eventctx.search.recall",
    "eventctx.queries.requests",
    "eventctx.queries.verify",
    "eventctx.projections.timeline.fold",
    "eventctx.projections.explain.changes",
    "eventctx.importers",
    "eventctx.comparison.compare",
    "eventctx.log.naming",
    "difflib",
    "opentelemetry",
    "structlog",
    "rich",
    "click",
    "http",
    "email",
)


def test_a_first_message_loads_no_more_than_it_uses(at_first_open: set[str]) -> None:
    assert at_first_open & set(NOT_FOR_A_MESSAGE) == set()


_HELP = """
import sys
from eventctx.cli.main import cli

for command in sys.argv[1:]:
    try:
        cli([command, "--help"])
    except SystemExit as end:
        assert end.code == 0, end.code
"""
LIGHT = (
    *("copy", "delete", "erase", "export", "fork", "lost", "prune", "restore"),
    *("sessions", "sign", "stats", "verify"),
)


@pytest.mark.slow
def test_the_help_of_a_command_loads_no_engine_and_nothing_that_prints_its_answer() -> None:
    loaded = loaded_by(_HELP, *cli.commands)
    assert "eventctx.cli.commands.audit" in loaded
    assert loaded.isdisjoint({"eventctx.engine", "sqlite3"})
    assert loaded.isdisjoint({"rich", "pygments", "difflib", "starlette", "uvicorn", "anyio"})
    assert loaded.isdisjoint({"eventctx.importers.recording", "eventctx.importers.many"})


def test_the_help_of_most_used_commands_loads_neither_loop_nor_view() -> None:
    loaded = loaded_by(_HELP, *LIGHT)
    assert "eventctx.cli.commands.lost" in loaded
    assert loaded.isdisjoint(
        {"asyncio", "eventctx.queries.requests", "eventctx.queries.key_frames"}
    )
    assert len([name for name in loaded if name.startswith("eventctx.")]) < 120


def test_the_program_says_what_it_is_without_its_engine() -> None:
    program = """
import sys
from eventctx.cli.main import cli

try:
    cli(["--version"])
except SystemExit as end:
    assert end.code == 0, end.code
"""
    loaded = loaded_by(program)
    assert "eventctx.cli.main" in loaded
    assert loaded.isdisjoint(
        {"eventctx.engine", "eventctx.log", "eventctx.cli.commands", "asyncio", "msgspec", "rich"}
    )


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
    program = "from eventctx.cli.start import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 2
    assert "made without symbolic links" in done.stderr
    assert "git config core.symlinks true && git checkout -- eventctx" in done.stderr
