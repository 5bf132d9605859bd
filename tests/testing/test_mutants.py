"""Faults in sound modules: the check of the broken rule finds each, in modules of any build."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eventctx.testing.contract.checks import CHECKS
from eventctx.testing.contract.examining import examine
from eventctx.testing.contract.subject import Subject, Target, resolve, sandbox
from eventctx.testing.contract.verdicts import all_required_hold
from tests.testing.modules.like_contract import LikeContract
from tests.testing.modules.like_simple import LikeSimple
from tests.testing.modules.mutants import MUTANTS, REFUSALS
from tests.testing.modules.sound_context import SoundContext

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MODULES = "tests.testing.modules"

CLASSES: dict[str, Any] = {
    "sound": SoundContext,
    "like context-simple": LikeSimple,
    "like the contract": LikeContract,
}

CANNOT = {
    # It has no set_system_prompt_factory(), and one view for every budget.
    ("like the contract", "ignores_the_factory"),
    ("like the contract", "tells_of_the_first_alone"),
}
"""Faults that a base cannot have."""

SILENT = {"without_role", "events", "contribution"}
"""What context-simple leaves out: it takes any message, and tells in words of its own."""

PAIRS = [(base, name) for name in MUTANTS for base in CLASSES if (base, name) not in CANNOT]


def subject(base: str, kind: Any, refuses: Any = None) -> Subject:
    async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
        config = dict(config or {})
        if refuses is not None and refuses(config):
            raise ValueError("this setting is not mine")
        given = int(config.get("max_tokens", 100_000)) if base == "sound" else config
        await coordinator.mount("context", kind(coordinator.hooks, given))

    return Subject(Target("it", "it"), None, mount, {})


async def test_what_is_seen_shows_where_two_messages_differ(tmp_path):
    _, make = MUTANTS["parses_arguments"]
    seen = await verdict("transcript", subject("sound", make(SoundContext)), tmp_path)
    assert seen.startswith("get_messages(): 'tool_calls' of message 7 is …")
    assert "'arguments': {'path': 'x'}" in seen
    assert """expected …""" in seen
    assert """'arguments': '{"path": "x"}'""" in seen


async def verdict(check_name: str, one: Subject, folder: Path) -> str:
    """What the check saw; empty where its rule holds."""
    (check,) = [check for check in CHECKS if check.name == check_name]
    assert check.level == "required"
    with sandbox(folder):
        try:
            await check.run(one)
        except Exception as error:
            return str(error)
    return ""


async def seen_in_sound(check: str, base: str, folder: Path) -> str:
    if (check, base) not in SEEN_IN_SOUND:
        SEEN_IN_SOUND[check, base] = await verdict(check, subject(base, CLASSES[base]), folder)
    return SEEN_IN_SOUND[check, base]


SEEN_IN_SOUND: dict[tuple[str, str], str] = {}
"""What a check saw in a base without a fault, which many tests ask for."""


@pytest.mark.parametrize(("base", "name"), PAIRS)
async def test_a_fault_fails_the_required_check_of_its_rule(base, name, tmp_path):
    check, make = MUTANTS[name]
    kind = CLASSES[base]
    assert await seen_in_sound(check, base, tmp_path / "sound") == ""
    assert await verdict(check, subject(base, make(kind)), tmp_path / "broken") != ""


@pytest.mark.parametrize("name", REFUSALS)
async def test_a_refused_setting_fails_a_required_check_that_names_it(name, tmp_path):
    check, refuses = REFUSALS[name]
    seen = await verdict(check, subject("sound", SoundContext, refuses), tmp_path)
    assert "it raised ValueError: this setting is not mine" in seen
    assert seen.startswith("with {'")


@pytest.mark.parametrize(
    ("name", "recommendations"),
    [
        ("like_contract", {"giant_result", "own_messages"}),
        ("like_simple", {*SILENT, "giant_result", "own_messages"}),
    ],
)
async def test_what_follows_the_documents_of_amplifier_keeps_all_that_is_required(
    name, recommendations, tmp_path
):
    findings = [
        one async for one in examine(resolve(f"{MODULES}.{name}", ROOT), {}, tmp_path, seconds=20)
    ]
    failed = {one.check for one in findings if one.verdict == "does not hold"}
    assert all_required_hold(findings)
    assert failed == recommendations


async def test_a_setting_that_stops_the_mount_without_an_error_is_named_too(tmp_path):
    async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
        if "compact_threshold" not in (config or {}):
            await coordinator.mount("context", SoundContext(coordinator.hooks, 100_000))

    seen = await verdict("known_settings", Subject(Target("it", "it"), None, mount, {}), tmp_path)
    assert "'compact_threshold': 0.92" in seen
    assert "nothing at the mount point 'context'" in seen
