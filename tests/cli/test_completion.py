"""A shell completes commands and names of sessions; nothing it is offered can fail it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from eventctx.cli.main import cli
from tests.cli.conftest import say

ROOT = Path(__file__).resolve().parents[2]


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


def test_commands_and_sessions_of_the_store_that_is_named_are_completed(
    store: Path, tmp_path: Path
) -> None:
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
