"""Type checkers accept what is right and refuse a misspelt setting, by the package's own types."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import msgspec
import pytest

from eventctx.hooks import registry
from eventctx.log.events import CATALOGUE, EventName, EventPattern
from eventctx.policies.named import ALIASES as POLICY_ALIASES
from eventctx.policies.named import POLICIES, PolicyName, settings_of_policy
from eventctx.session.settings import ALIASES, NAMES, SessionSettings, Settings
from tests.pages import blocks_of

ROOT = Path(__file__).parent.parent
USES = ROOT / "tests" / "typing_cases" / "uses.py"


def refused() -> set[int]:
    """The lines of the cases that a checker must refuse, from 1."""
    lines = USES.read_text(encoding="utf-8").splitlines()
    return {number for number, line in enumerate(lines, 1) if line.endswith("# refused")}


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_mypy_refuses_what_is_misspelt_and_nothing_else() -> None:
    output = run("mypy", "--no-error-summary", "--hide-error-context", str(USES))
    errors = [line for line in output.splitlines() if ": error:" in line]
    assert {int(line.split(":")[1]) for line in errors} == refused(), output


@pytest.mark.skipif(
    importlib.util.find_spec("basedpyright") is None, reason="basedpyright is not installed"
)
def test_pyright_refuses_what_is_misspelt_and_nothing_else(tmp_path: Path) -> None:
    config = tmp_path / "pyrightconfig.json"
    options = {"include": [str(USES)], "typeCheckingMode": "standard"}
    config.write_text(json.dumps(options), encoding="utf-8")
    output = run(
        *("basedpyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(config))
    )
    found = json.loads(output)["generalDiagnostics"]
    lines = {one["range"]["start"]["line"] + 1 for one in found if one["severity"] == "error"}
    assert lines == refused(), output


def test_mypy_accepts_the_agent_of_the_readme(tmp_path: Path) -> None:
    blocks = [one.text for one in blocks_of(ROOT / "README.md") if "async def ask" in one.text]
    program = tmp_path / "agent.py"
    program.write_text(blocks[0], encoding="utf-8")
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", str(program)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_typed_names_are_those_of_policies_and_events() -> None:
    assert set(get_args(PolicyName)) == {*POLICIES, *POLICY_ALIASES}
    assert set(get_args(EventName)) == set(CATALOGUE)
    patterns = {name for one in get_args(EventPattern) for name in get_args(one)}
    assert patterns == set(registry._PATTERNS)


def test_the_typed_settings_are_those_of_sessions_and_policies() -> None:
    of_policies = {name for policy in POLICIES for name in settings_of_policy(policy)}
    # A policy is given by its own argument, and a scorer's choice by giving a scorer.
    known = {*NAMES, *ALIASES, *of_policies} - {"policy", "scorer"}
    assert set(SessionSettings.__annotations__) == known


def test_the_typed_settings_have_the_types_of_the_sessions_own() -> None:
    typed = get_type_hints(SessionSettings)
    for field in msgspec.structs.fields(Settings):
        assert typed[field.name] == get_type_hints(Settings)[field.name], field.name
    for name in ("compaction_threshold", "target"):
        assert typed[name] == typed[ALIASES[name]]
    assert get_origin(typed["policies"]) is not None
    assert str in get_args(typed["compaction_strategy"])
