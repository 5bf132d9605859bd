"""The checks of the context contract: a sound module passes all, a broken one fails its own."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from eventctx.errors import InvalidSetting
from eventctx.testing.contract import coordinator as coordinators
from eventctx.testing.contract.checks import CHECKS
from eventctx.testing.contract.examining import examine, names_in_order
from eventctx.testing.contract.subject import Subject, Target, entry_points_of, resolve, sandbox
from eventctx.testing.contract.validating import validate
from eventctx.testing.contract.verdicts import Finding, all_required_hold
from tests.testing.modules.broken_contexts import FAULTS
from tests.testing.modules.like_contract import LikeContract
from tests.testing.modules.like_simple import LikeSimple
from tests.testing.modules.mutants import MUTANTS, REFUSALS
from tests.testing.modules.sound_context import SoundContext

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
MODULES = "tests.testing.modules"
SOUND = f"{MODULES}.sound_context"
BROKEN = f"{MODULES}.broken_contexts"
HAS_CORE = coordinators.core_version() is not None


async def found(given: str, folder: Path, **config: Any) -> list[Finding]:
    return [one async for one in examine(resolve(given, ROOT), config, folder, seconds=20)]


def failed(findings: list[Finding]) -> list[str]:
    return [one.check for one in findings if one.verdict == "does not hold"]


def seen(findings: list[Finding], check: str) -> str:
    return next(one.seen for one in findings if one.check == check)


async def test_a_sound_module_passes_every_check_in_the_stand_in_too(tmp_path, monkeypatch):
    findings = await found(SOUND, tmp_path / "real")
    assert failed(findings) == []
    own = [one for one in findings if one.source == "eventctx"]
    assert [one.check for one in own] == names_in_order()
    assert [one.check for one in own if one.verdict == "not checked"] == ["entry_point"]
    assert all_required_hold(findings)
    monkeypatch.setattr(coordinators, "core_version", lambda: None)
    monkeypatch.setattr("eventctx.testing.contract.examining.core_version", lambda: None)
    findings = await found(SOUND, tmp_path / "stand in")
    assert failed(findings) == []
    assert (findings[-1].source, findings[-1].verdict) == ("amplifier-core", "not checked")
    assert "pip install 'eventctx[amplifier]'" in findings[-1].seen


SEEN = {
    "leaves_a_thread": r"threads still run: left-behind",
    # The line of the module that raises, so that its author finds it.
    "raises": r"raised RuntimeError: no licence \(broken_contexts\.py:\d+\)",
    "Synchronous": r"clear\(\) is not async",
}
"""Broken modules, and all that is said of them: what is seen tells what is wrong."""


@pytest.mark.parametrize("name", FAULTS)
async def test_a_broken_module_fails_exactly_the_check_of_its_rule(name, tmp_path, monkeypatch):
    monkeypatch.setattr("eventctx.testing.contract.hosting._PATIENCE", 2)
    findings = await found(f"{BROKEN}:{name}", tmp_path)
    assert failed(findings) == [FAULTS[name]]
    assert re.fullmatch(SEEN.get(name, ".+"), seen(findings, FAULTS[name]), flags=re.DOTALL)
    if name == "raises":
        assert seen(findings, "pairs") == "mount_point does not hold"
    required = {check.name for check in CHECKS if check.level == "required"}
    assert all_required_hold(findings) == (FAULTS[name] not in required)


def test_every_check_is_failed_by_some_broken_module():
    broken = {*FAULTS.values(), *(check for check, _ in (*MUTANTS.values(), *REFUSALS.values()))}
    # An entry point is declared in a project, and has tests of its own below.
    assert broken == {check.name for check in CHECKS} - {"entry_point"}


@pytest.mark.parametrize(
    ("name", "seconds", "expected"),
    [
        ("hangs", 2, "it did not return within 2 s"),
        ("times_out", 20, r"raised TimeoutError: no lock \(broken_contexts\.py:\d+\)"),
        ("cancels", 20, r"raised CancelledError: no lock \(broken_contexts\.py:\d+\)"),
    ],
)
async def test_an_endless_check_is_ended_an_error_names_its_line(name, seconds, expected, tmp_path):
    target = resolve(f"{BROKEN}:{name}", ROOT)
    findings = [one async for one in examine(target, {}, tmp_path, seconds=seconds)]
    assert re.fullmatch(expected, seen(findings, "clearing"))
    assert name != "hangs" or failed(findings) == ["clearing"]


async def test_a_module_that_blocks_its_thread_is_ended_and_not_tried_for_ever(monkeypatch):
    monkeypatch.setattr("eventctx.testing.contract.validating._GRACE", 0.5)
    findings = await validate(f"{BROKEN}:never_adds", {"blocks": True}, seconds=2)
    assert failed(findings) == ["transcript", "exactness", "sessions_apart"]
    for check in failed(findings):
        assert "blocked its thread" in seen(findings, check)
    assert seen(findings, "compacts") == "3 checks did not return"


async def test_a_file_that_a_setting_names_is_no_leak(tmp_path):
    home = tmp_path / "leaves_nothing" / "home" / ".context-cache"
    assert failed(await found(f"{BROKEN}:leaves_a_file", tmp_path, file=str(home))) == []


@pytest.mark.parametrize("name", ["amplifier", "amplifier.simple", "amplifier.persistent"])
async def test_our_own_modules_keep_the_contract(name, tmp_path):
    findings = await found(f"eventctx.adapters.{name}:mount", tmp_path)
    own = [one for one in findings if one.source == "eventctx"]
    assert [(one.check, one.seen) for one in own if one.verdict == "does not hold"] == []


# -- what is checked -----------------------------------------------------------------------------


def package(folder: Path, entry: str | None, name: str = "amplifier_module_demo") -> Path:
    place = folder / name
    place.mkdir(parents=True)
    sound = Path(ROOT, *SOUND.split(".")).with_suffix(".py").read_text()
    place.joinpath("__init__.py").write_text(sound)
    if entry is not None:
        text = f'[project]\nname = "demo"\n[project.entry-points."amplifier.modules"]\n{entry}\n'
        folder.joinpath("pyproject.toml").write_text(text)
    return folder


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Tests stand in the repository; what one imports from its own folder is forgotten again."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("amplifier_module_"):
            del sys.modules[name]


@pytest.mark.parametrize("module", ["amplifier_module_demo", "amplifier_module_demo.module"])
async def test_a_repository_is_checked_as_a_host_would_load_it(module, tmp_path):
    package(tmp_path / "repo", f'context-demo = "{module}:mount"')
    findings = await found(str(tmp_path / "repo"), tmp_path / "work")
    if module == "amplifier_module_demo":
        assert {one.verdict for one in findings} == {"holds"}
    else:
        assert failed(findings) == ["entry_point"]
        assert "amplifier_module_demo:mount" in seen(findings, "entry_point")


async def test_a_module_that_cannot_be_imported_fails_that_check_and_no_other_is_made(tmp_path):
    package(tmp_path / "repo", None)
    (tmp_path / "repo" / "amplifier_module_demo" / "__init__.py").write_text("import no_such_thing")
    findings = await found(str(tmp_path / "repo"), tmp_path / "work")
    own = [one for one in findings if one.source == "eventctx"]
    assert failed(own) == ["imports"]
    raised = "raised ModuleNotFoundError: No module named 'no_such_thing' (__init__.py:1)"
    assert seen(own, "imports") == raised
    assert {one.verdict for one in own[1:]} == {"not checked"}


def test_a_module_may_be_named_in_many_ways(tmp_path):
    package(tmp_path / "repo", None)
    folder, init = "repo/amplifier_module_demo", "repo/amplifier_module_demo/__init__.py"
    for given in ("repo", folder, init):
        target = resolve(given, tmp_path)
        assert (target.module, target.attribute) == ("amplifier_module_demo", "mount")
        assert target.path == tmp_path / "repo" / "amplifier_module_demo"
    (tmp_path / "lone.py").write_text("")
    assert resolve("lone.py", tmp_path).module == "lone"
    assert resolve(SOUND, tmp_path).path is None
    assert resolve(f"{SOUND}:other", tmp_path).attribute == "other"
    assert entry_points_of(resolve(SOUND, tmp_path), None) is None


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("no_such_module", "found none of them"),
        ("no such thing", "found none of them"),
        ("context-of-nobody", "found none of them"),
        ("notes.txt", "not Python"),
        ("empty", "does not look into src/"),
        ("two", "expected one package, found amplifier_module_a, amplifier_module_b"),
    ],
)
def test_what_is_no_module_is_refused(given, says, tmp_path):
    (tmp_path / "notes.txt").write_text("")
    (tmp_path / "empty" / "src").mkdir(parents=True)
    for name in ("amplifier_module_a", "amplifier_module_b"):
        package(tmp_path / "two", None, name)
    with pytest.raises(InvalidSetting, match=says):
        resolve(given, tmp_path)


# -- in a process of its own ---------------------------------------------------------------------


async def test_a_module_that_ends_its_process_fails_that_check_and_the_rest_is_checked():
    findings = await validate(f"{BROKEN}:dies")
    assert failed(findings) == ["replacing"]
    assert seen(findings, "replacing") == "its process ended with code 7: these are my last words"
    assert [one.check for one in findings[: len(names_in_order())]] == names_in_order()


WRITES = """
print('{"kind":"ended"}', flush=True)
import os
for one in range(3, 20):
    try: os.write(one, b'[1]\\nno finding\\n')
    except OSError: pass
"""


def module(folder: Path, before: str) -> str:
    """A file with a module that does something when it is imported and is sound otherwise."""
    path = folder / "context_of_test.py"
    path.write_text(f"{before}\nfrom {SOUND} import *\nfrom {SOUND} import mount\n")
    return str(path)


async def test_a_module_that_ends_its_process_with_success_has_not_passed(tmp_path):
    findings = await validate(module(tmp_path, "import os; os._exit(0)"))
    assert failed(findings) == (["imports", "validator"] if HAS_CORE else ["imports"])
    assert seen(findings, "imports") == "its process ended with code 0"
    assert not all_required_hold(findings)


@pytest.mark.parametrize(
    "before",
    ["import os, time\nif os.fork() == 0: time.sleep(1_000)", "import os\nos.fork()", WRITES],
)
async def test_what_a_module_forks_or_writes_where_findings_go_changes_no_verdict(before, tmp_path):
    findings = await validate(module(tmp_path, before))
    assert failed(findings) == []
    own = [one.check for one in findings if one.source == "eventctx"]
    assert own == names_in_order()


async def test_a_validation_that_is_cancelled_leaves_no_process_behind(tmp_path):
    told = tmp_path / "told"
    os.mkfifo(told)
    task = asyncio.create_task(validate(f"{BROKEN}:blocks", {"tell": str(told)}, seconds=1_000))
    pid = int(await asyncio.to_thread(told.read_text))  # waits for the module to write
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


# -- faults in sound modules of any build, found by the check of the broken rule ------------------


CLASSES: dict[str, Any] = {
    "sound": SoundContext,
    "like context-simple": LikeSimple,
    "like the contract": LikeContract,
}

CANNOT = {
    ("like the contract", name) for name in ("ignores_the_factory", "tells_of_the_first_alone")
}
"""Faults that a base cannot have: no set_system_prompt_factory(), and one view for every budget."""

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


async def test_what_is_seen_shows_where_two_messages_differ(tmp_path):
    _, make = MUTANTS["parses_arguments"]
    seen = await verdict("transcript", subject("sound", make(SoundContext)), tmp_path)
    assert seen.startswith("get_messages(): 'tool_calls' of message 7 is …")
    for words in ("'arguments': {'path': 'x'}", "expected …", """'arguments': '{"path": "x"}'"""):
        assert words in seen


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


@pytest.mark.parametrize(("name", "more"), [("like_contract", set()), ("like_simple", SILENT)])
async def test_what_follows_the_documents_of_amplifier_keeps_what_is_required(name, more, tmp_path):
    findings = await found(f"{MODULES}.{name}", tmp_path)
    assert all_required_hold(findings)
    assert {*failed(findings)} == {"giant_result", "own_messages", *more}


async def test_a_setting_that_stops_the_mount_without_an_error_is_named_too(tmp_path):
    async def mount(coordinator: Any, config: dict[str, Any] | None = None) -> None:
        if "compact_threshold" not in (config or {}):
            await coordinator.mount("context", SoundContext(coordinator.hooks, 100_000))

    seen = await verdict("known_settings", Subject(Target("it", "it"), None, mount, {}), tmp_path)
    assert "'compact_threshold': 0.92" in seen
    assert "nothing at the mount point 'context'" in seen
