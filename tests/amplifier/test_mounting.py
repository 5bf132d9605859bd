"""Mounting as the kernel does it: by entry point, from a source folder, twice, and taken back."""

from __future__ import annotations

import logging
import threading
import tomllib
from pathlib import Path
from typing import Any

import pytest
from amplifier_core import AmplifierSession
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation import ContextValidator, OrchestratorValidator
from amplifier_core.validation.behavioral import ContextBehaviorTests
from amplifier_core.validation.structural import ContextStructuralTests

import eventctx
from eventctx.adapters.amplifier import mount, persistent, simple
from eventctx.adapters.amplifier.config import names_of_persistent, names_of_simple, own_names, read
from eventctx.testing import ScriptedAmplifierProvider
from tests.amplifier.given import events, records_of
from tests.amplifier.hosts import LikeBasic, Loader, mounting, session

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "eventctx" / "amplifier_source"
MODULES = ["context-eventctx", "context-eventctx-simple", "context-eventctx-persistent"]


@pytest.fixture
async def context_module() -> Any:
    """What the kernel's own contract tests are run against."""
    coordinator = MockCoordinator()
    cleanup = await mount(coordinator, {"store": "memory://"})
    yield coordinator.get("context")
    await cleanup()


class TestTheKernelsBehaviour(ContextBehaviorTests):
    """The kernel's behavioural tests of context modules."""


class TestTheKernelsStructure(ContextStructuralTests):
    """The kernel's structural tests of context modules."""

    @pytest.fixture
    def module_path(self) -> Path:
        return SOURCE / "amplifier_module_context_eventctx"


@pytest.mark.parametrize("module", MODULES)
async def test_the_kernels_validator_finds_nothing_wrong(module: str) -> None:
    name = f"amplifier_module_{module.replace('-', '_')}"
    found = await ContextValidator().validate(SOURCE / name, config={"store": "memory://"})
    assert found.passed, [check for check in found.checks if not check.passed]


@pytest.mark.parametrize("module", MODULES)
async def test_a_session_runs_on_each_entry_point(module: str, tmp_path: Path) -> None:
    provider = ScriptedAmplifierProvider("Hi.")
    config = {"store": str(tmp_path / "contexts.db")}
    async with session(provider, context=module, config=config) as host:
        assert await host.execute("Hello") == "Hi."
    assert len(await records_of(tmp_path / "contexts.db")) > 5


class Source:
    def __init__(self, place: Path) -> None:
        self._place = place

    def resolve(self) -> Path:
        return self._place


class FolderResolver:
    """A resolver of the kernel's that finds every context module in one folder."""

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
        return Source(SOURCE)


@pytest.mark.parametrize("module", MODULES)
async def test_a_source_folder_is_mounted_twice_and_leaves_one_session(
    module: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "contexts.db"
    config = {"store": str(path), "read_by_nobody": 1}
    provider = ScriptedAmplifierProvider("Hi.")
    plan = {
        "session": {
            "orchestrator": "loop-test",
            "context": {"module": module, "source": "here", "config": config},
        },
        "providers": [{"module": "provider-test"}],
    }
    given = {
        "loop-test": mounting("orchestrator", LikeBasic()),
        "provider-test": mounting("providers", provider, "scripted"),
    }
    host = AmplifierSession(plan, session_id="session-1")
    await host.coordinator.mount("module-source-resolver", FolderResolver())
    host.coordinator.loader = Loader(host.coordinator, given)
    await host.initialize()
    mounts = [one for one in caplog.records if "'read_by_nobody' is unknown" in one.getMessage()]
    assert len(mounts) == 2
    assert not path.exists(), "nothing is opened before the first turn"
    assert await host.execute("Hello") == "Hi."
    await host.cleanup()
    async with eventctx.open(path) as engine:
        assert [info.stream for info in await engine.sessions()] == ["session-1"]


async def test_a_mount_that_is_taken_back_leaves_nothing(tmp_path: Path) -> None:
    before = threading.active_count()
    coordinator = MockCoordinator()
    handlers = coordinator.hooks.list_handlers()
    cleanup = await mount(coordinator, {"store": str(tmp_path / "no" / "contexts.db")})
    assert coordinator.hooks.list_handlers() != handlers
    await cleanup()
    await cleanup()
    left = {event: names for event, names in coordinator.hooks.list_handlers().items() if names}
    assert left == {event: names for event, names in handlers.items() if names}
    assert not (tmp_path / "no").exists()
    assert threading.active_count() == before


async def test_the_store_is_closed_with_its_last_session(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "contexts.db"
    coordinator = MockCoordinator()
    cleanup = await mount(coordinator, {"store": str(path)})
    await coordinator.get("context").add_message({"role": "user", "content": "a"})
    threads = threading.active_count()
    await cleanup()
    assert threading.active_count() < threads
    assert path.exists()


# -- configurations ------------------------------------------------------------------------------


def test_the_configuration_of_the_hosts_default_bundle_is_taken() -> None:
    config = {"max_tokens": 300_000, "compact_threshold": 0.8, "auto_compact": True}
    made = read(config, own_names)
    assert made.settings.max_tokens == 300_000
    assert made.settings.compact_threshold == 0.8
    assert made.settings.on_overflow == "send_floor"
    assert made.policy.name == "workset"


def test_without_a_limit_the_providers_window_is_the_budget() -> None:
    assert read(None, own_names).settings.max_tokens is None


def test_the_configuration_of_context_simple_is_taken() -> None:
    config = {"max_messages": 100, "max_tokens": 5_000, "compact_threshold": 0.9}
    made = read({**config, "auto_compact": False}, names_of_simple)
    assert (made.policy.name, made.policy.max_messages) == ("simple", 100)
    assert made.settings.auto_compact is False
    few = read({"max_messages": 4}, names_of_simple)
    assert (few.policy.max_messages, few.policy.keep_recent) == (4, 4)  # type: ignore[attr-defined]
    newer = {"protected_recent": 0.2, "protected_tool_results": 3, "truncate_chars": 99}
    ladder: Any = read(newer, names_of_simple).policy
    assert (ladder.protected_recent, ladder.protected_tool_results) == (0.2, 3)
    assert ladder.truncate_chars == 99


@pytest.mark.parametrize(
    ("strategy", "policy"), [("simple", "simple"), ("smart", "importance"), ("custom", "custom")]
)
def test_the_configuration_of_context_persistent_is_taken(
    strategy: str, policy: str, tmp_path: Path
) -> None:
    config = {"storage_path": str(tmp_path / "ctx"), "compaction_strategy": strategy}
    custom = {"function": "tests.amplifier.test_mounting:keep_all"} if strategy == "custom" else {}
    made = read({**config, **custom, "export_on_compact": True}, names_of_persistent)
    assert made.policy.name == policy
    assert made.store == str(tmp_path / "ctx" / "contexts.db")
    assert made.settings.storage_path == str(tmp_path / "ctx" / "exports")
    assert made.settings.export_on_compact is True


def keep_all(visible: Any, budget: Any, state: Any) -> Any:
    from eventctx.policies.proposals import keep_only

    return keep_only(visible, [ref.number for ref in visible.messages])


def test_exports_may_be_in_the_users_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read({"storage_path": "~/x"}, own_names).settings.storage_path == str(tmp_path / "x")


def test_unknown_settings_are_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "eventctx.adapters.amplifier"):
        made = read({"read_by_nobody": True, "max_tokns": 5, 1: 2}, own_names)  # type: ignore[dict-item]
    assert made.settings.max_tokens is None
    assert "'max_tokns' is unknown and has no effect; did you mean 'max_tokens'?" in caplog.text
    assert "'read_by_nobody' is unknown" in caplog.text
    assert "setting 1 is unknown" in caplog.text


@pytest.mark.parametrize(
    "config",
    [
        {"on_overflow": "ignore"},
        {"reserve_tokens": "many"},
        {"memory_files": 5},
        {"memory_files": [5]},
        {"transcript_path": 5},
        {"stamp_messages": "yes"},
        {"store": 5},
        {"store": ""},
        {"store": "mysql://here"},
        {"store": "postgresql://here", "durability": "full"},
        {"store": "nats://here", "durability": "replicated"},
        {"store": "sqlite:///"},
        {"store": "a\0b"},
        {"store": "~nobody-of-this-name/contexts.db"},
        {"storage_path": "~nobody-of-this-name"},
        {"policy": {"name": "ladder"}},
        {"policy": ["ladder"]},
        {"durability": "maybe"},
        {"record_sent": 1},
        {"adviser": 5},
        {"adviser": ""},
        {"policy": "smart", "scorer": "somebody"},
        {"policy": "best"},
        {"policy": 7},
        {"keep_turns": "4"},
        {"storage_path": 3},
        ["max_tokens"],
        "memory://",
    ],
)
async def test_a_setting_of_a_wrong_type_is_a_clear_error_at_mount(config: Any) -> None:
    for module in (mount, simple.mount, persistent.mount):
        with pytest.raises(eventctx.InvalidSetting, match="expected"):
            await module(MockCoordinator(), config)


async def test_the_host_reads_why_it_cannot_begin() -> None:
    with pytest.raises(RuntimeError, match=r"context manager.*durability: expected 'full'"):
        async with session(ScriptedAmplifierProvider(), config={"durability": "maybe"}):
            pass


async def test_the_default_store_is_that_of_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTCTX_STORE", str(tmp_path / "mine.db"))
    async with session(ScriptedAmplifierProvider("Hi."), config={"max_tokens": 9_000}) as host:
        await host.execute("Hello")
    (prepared,) = events(await records_of(tmp_path / "mine.db"), "context:request_prepared")
    assert prepared.budget == 9_000


@pytest.mark.parametrize("given", ["~/a/contexts.db", "sqlite:///~/a/contexts.db"])
@pytest.mark.parametrize("by", ["setting", "environment"])
async def test_a_store_in_the_users_folder_is_found_there(
    given: str, by: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("EVENTCTX_STORE", given)
    config = {"store": given} if by == "setting" else {"max_tokens": 9_000}
    async with session(ScriptedAmplifierProvider("Hi."), config=config) as host:
        await host.execute("Hello")
    assert await records_of(tmp_path / "a" / "contexts.db")


async def test_a_relative_store_is_in_the_folder_that_was_current_at_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    stores = (
        "contexts.db",
        "./contexts.db",
        "sqlite:///contexts.db",
        str(tmp_path / "contexts.db"),
    )
    assert len({read({"store": store}, own_names).store for store in stores}) == 1
    async with session(ScriptedAmplifierProvider("Hi."), config={"store": "contexts.db"}) as host:
        monkeypatch.chdir(tmp_path / "elsewhere")
        await host.execute("Hello")
    assert await records_of(tmp_path / "contexts.db")


async def test_export_on_compact_writes_to_the_folder_of_context_persistent(
    tmp_path: Path,
) -> None:
    config = {"storage_path": str(tmp_path), "export_on_compact": True, "max_tokens": 1_000}
    script = [f"answer {number} " * 30 for number in range(10)]
    provider = ScriptedAmplifierProvider(*script)
    async with session(provider, context=MODULES[2], config=config) as host:
        for number in range(10):
            await host.execute(f"question {number} " * 30)
    assert list((tmp_path / "exports").iterdir())


# -- the source folder ---------------------------------------------------------------------------


def test_every_entry_point_has_a_module_in_the_source_folder() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = project["entry-points"]["amplifier.modules"]
    folders = {f"amplifier_module_{name.replace('-', '_')}" for name in points}
    assert folders == {place.name for place in SOURCE.iterdir() if place.is_dir()}
    source = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(source["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == folders
    for name, point in points.items():
        folder = f"amplifier_module_{name.replace('-', '_')}"
        written = (SOURCE / folder / "__init__.py").read_text(encoding="utf-8")
        assert f"from {point.partition(':')[0]} import mount" in written


@pytest.mark.parametrize("loop", ["basic", "streaming", "events"])
async def test_the_kernels_validator_finds_nothing_wrong_with_an_orchestrator(loop: str) -> None:
    place = SOURCE / f"amplifier_module_loop_eventctx_{loop}"
    found = await OrchestratorValidator().validate(place, config={})
    assert found.passed, [check for check in found.checks if not check.passed]
