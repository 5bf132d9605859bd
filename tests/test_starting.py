"""What a process loads when it starts: what it uses, and nothing besides."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

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
UNUSED_POLICIES = ("custom", "importance", "pipeline", "simple", "summarize", "truncate")


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
    assert at_first_open.isdisjoint(f"eventctx.policies.{name}" for name in UNUSED_POLICIES)
