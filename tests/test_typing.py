"""A type checker accepts what is right and refuses a misspelt setting, by the package's own types.

mypy does so in `make check`: it reports a line of the cases that it ignores without need.
"""

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


def refused() -> set[tuple[str, int]]:
    """The lines of the cases that a checker must refuse, by file name, from 1."""
    lines = USES.read_text(encoding="utf-8").splitlines()
    return {(USES.name, at) for at, line in enumerate(lines, 1) if line.endswith("# type: ignore")}


@pytest.fixture
def agent(tmp_path: Path) -> Path:
    """The agent of the README as a file: a checker accepts every line of it."""
    [block] = [one.text for one in blocks_of(ROOT / "README.md") if "async def ask" in one.text]
    program = tmp_path / "agent.py"
    program.write_text(block, encoding="utf-8")
    return program


@pytest.mark.check
@pytest.mark.skipif(
    importlib.util.find_spec("basedpyright") is None, reason="basedpyright is not installed"
)
def test_pyright_refuses_what_is_misspelt_and_nothing_else(tmp_path: Path, agent: Path) -> None:
    config = tmp_path / "pyrightconfig.json"
    options = {"include": [str(USES), str(agent)], "typeCheckingMode": "standard"}
    config.write_text(json.dumps({**options, "enableTypeIgnoreComments": False}), encoding="utf-8")
    command = (sys.executable, "-m", "basedpyright", "--outputjson", "--pythonpath", sys.executable)
    done = subprocess.run([*command, "-p", str(config)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = [one for one in found if one["severity"] == "error"]
    lines = {(Path(one["file"]).name, one["range"]["start"]["line"] + 1) for one in errors}
    assert lines == refused(), done.stdout


def test_the_typed_names_and_settings_are_those_of_sessions_policies_and_events() -> None:
    assert set(get_args(PolicyName)) == {*POLICIES, *POLICY_ALIASES}
    assert set(get_args(EventName)) == set(CATALOGUE)
    patterns = {name for one in get_args(EventPattern) for name in get_args(one)}
    assert patterns == set(registry._PATTERNS)
    of_policies = {name for policy in POLICIES for name in settings_of_policy(policy)}
    # A policy is given by its own argument, and a scorer's choice by giving a scorer.
    known = {*NAMES, *ALIASES, *of_policies} - {"policy", "scorer"}
    assert set(SessionSettings.__annotations__) == known
    typed = get_type_hints(SessionSettings)
    for field in msgspec.structs.fields(Settings):
        assert typed[field.name] == get_type_hints(Settings)[field.name], field.name
    for name in ("compaction_threshold", "target"):
        assert typed[name] == typed[ALIASES[name]]
    assert get_origin(typed["policies"]) is not None
    assert str in get_args(typed["compaction_strategy"])
