"""Mounting as the kernel does it, what a mount plan sets, and its sinks."""

from __future__ import annotations

import json
import logging
import threading
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from amplifier_core import AmplifierSession
from amplifier_core.testing import MockCoordinator
from amplifier_core.validation import ContextValidator
from amplifier_core.validation.behavioral import ContextBehaviorTests
from amplifier_core.validation.structural import ContextStructuralTests

import eventctx
from eventctx.adapters.amplifier import mount, persistent, simple
from eventctx.adapters.amplifier.config import names_of_simple, own_names, read
from eventctx.testing import Reply, ScriptedAmplifierProvider
from tests.amplifier.given import records_of
from tests.amplifier.hosts import LikeBasic, Loader, mounted, mounting, session, tool
from tests.services.receiver import Receiver

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "eventctx" / "amplifier_source"
MODULES = ["context-eventctx", "context-eventctx-simple", "context-eventctx-persistent"]


@pytest.fixture
async def context_module() -> AsyncIterator[Any]:
    """What the kernel's own contract tests are run against."""
    async with mounted() as context:
        yield context


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


class FolderResolver:
    """A resolver of the kernel's that finds every context module in one folder."""

    def resolve(self, module_id: str, source_hint: Any = None, profile_hint: Any = None) -> Any:
        return SimpleNamespace(resolve=lambda: SOURCE)


@pytest.mark.parametrize("module", MODULES)
async def test_a_source_folder_is_mounted_twice_and_leaves_one_session(
    module: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "contexts.db"
    config = {"store": str(path), "read_by_nobody": 1}
    plan = {
        "session": {
            "orchestrator": "loop-test",
            "context": {"module": module, "source": "here", "config": config},
        },
        "providers": [{"module": "provider-test"}],
    }
    given = {
        "loop-test": mounting("orchestrator", LikeBasic()),
        "provider-test": mounting("providers", ScriptedAmplifierProvider("Hi."), "scripted"),
    }
    host = AmplifierSession(plan, session_id="session-1")
    await host.coordinator.mount("module-source-resolver", FolderResolver())
    host.coordinator.loader = Loader(host.coordinator, given)
    await host.initialize()
    assert caplog.text.count("'read_by_nobody' is unknown") == 2
    assert not path.exists(), "nothing is opened before the first turn"
    assert await host.execute("Hello") == "Hi."
    await host.cleanup()
    async with eventctx.open(path) as engine:
        assert [info.stream for info in await engine.sessions()] == ["session-1"]


async def test_a_mount_that_is_taken_back_leaves_nothing(tmp_path: Path) -> None:
    before, coordinator = threading.active_count(), MockCoordinator()

    def handlers() -> dict[str, Any]:
        return {event: names for event, names in coordinator.hooks.list_handlers().items() if names}

    at_first = handlers()
    cleanup = await mount(coordinator, {"store": str(tmp_path / "no" / "contexts.db")})
    assert handlers() != at_first
    await cleanup()
    await cleanup()
    assert handlers() == at_first
    assert not (tmp_path / "no").exists()
    assert threading.active_count() == before


# -- configurations ------------------------------------------------------------------------------


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


def test_unknown_settings_are_logged_and_ignored(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "eventctx.adapters.amplifier"):
        made = read({"read_by_nobody": True, "max_tokns": 5, 1: 2}, own_names)  # type: ignore[dict-item]
    assert made.settings.max_tokens is None
    assert "'max_tokns' is unknown and has no effect; did you mean 'max_tokens'?" in caplog.text
    assert "'read_by_nobody' is unknown" in caplog.text
    assert "setting 1 is unknown" in caplog.text


STORES = "", "mysql://here", "a\0b", "~nobody-of-this-name/contexts.db"
WRONG: list[Any] = [
    *({"store": one} for one in STORES),
    *({"on_overflow": "ignore"}, {"reserve_tokens": "many"}, {"memory_files": 5}),
    *({"transcript_path": 5}, {"policy": {"name": "ladder"}}, {"policy": "best"}),
    *({"durability": "maybe"}, {"store": "postgresql://here", "durability": "full"}),
    *({"record_sent": 1}, {"adviser": 5}, {"policy": "smart", "scorer": "somebody"}),
    *({"storage_path": 3}, ["max_tokens"], "memory://"),
]


@pytest.mark.parametrize("config", WRONG)
async def test_a_setting_of_a_wrong_type_is_a_clear_error_at_mount(config: Any) -> None:
    for module in (mount, simple.mount, persistent.mount):
        with pytest.raises(eventctx.InvalidSetting, match="expected"):
            await module(MockCoordinator(), config)


async def test_a_relative_store_is_in_the_folder_that_was_current_at_mount(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    names = "contexts.db", "./contexts.db", "sqlite:///contexts.db", str(tmp_path / "contexts.db")
    assert len({read({"store": store}, own_names).store for store in names}) == 1
    async with session(ScriptedAmplifierProvider("Hi."), store="contexts.db") as host:
        monkeypatch.chdir(tmp_path / "elsewhere")
        await host.execute("Hello")
    assert await records_of(tmp_path / "contexts.db")


# -- the source folder ---------------------------------------------------------------------------


def test_every_entry_point_has_a_module_in_the_source_folder() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = {
        f"amplifier_module_{name.replace('-', '_')}": point.partition(":")[0]
        for name, point in project["entry-points"]["amplifier.modules"].items()
    }
    assert points.keys() == {place.name for place in SOURCE.iterdir() if place.is_dir()}
    source = tomllib.loads((SOURCE / "pyproject.toml").read_text(encoding="utf-8"))
    assert set(source["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]) == points.keys()
    for folder, module in points.items():
        written = (SOURCE / folder / "__init__.py").read_text(encoding="utf-8")
        assert f"from {module} import mount" in written


# -- log and otlp in a mount plan ------------------------------------------------------------------


async def run(path: Path, session_id: str = "session-1", **config: Any) -> None:
    provider = ScriptedAmplifierProvider(Reply(calls=[("read", {"n": 1})]), "Done.")
    named: Any = {"config": config, "session_id": session_id}
    async with session(provider, tool("read"), store=path, **named) as host:
        await host.execute("Read.")


async def test_a_mount_plan_writes_each_record_to_its_log_file(tmp_path: Path, path: Path) -> None:
    file = tmp_path / "logs" / "eventctx.log"
    await run(path, log={"file": str(file), "level": "debug"})
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["event"] for line in lines] == [record.type for record in await records_of(path)]
    assert {line["session_id"] for line in lines} == {"session-1"}
    assert "Read." not in file.read_text()


@pytest.mark.parametrize("setting", [None, "debug,json"])
async def test_the_environment_or_the_words_in_the_plan_write_to_standard_error(
    setting: str | None,
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    if setting is None:
        monkeypatch.setenv("EVENTCTX_LOG", "debug,json")
    await run(path, log=setting)
    assert b'"event":"context:request_prepared"' in capfdbinary.readouterr().err


async def test_a_mount_plan_sends_spans_of_every_session_in_its_dialect(path: Path) -> None:
    with Receiver() as receiver:
        await run(path, otlp=receiver.http)
        await run(path, "session-2", otlp=receiver.http)
        spans = receiver.spans
    turns = {one.span_id for one in await records_of(path) if one.type == "prompt:submit"}
    assert turns <= {span.span_id for span in spans}
    assert "read" in {span.attributes.get("gen_ai.tool.name") for span in spans}
    assert len({span.trace_id for span in spans}) == 2
    with Receiver() as receiver:
        await run(path, "session-3", otlp={"url": receiver.http, "dialect": "openinference"})
        kinds = {span.attributes["openinference.span.kind"] for span in receiver.spans}
    assert kinds == {"AGENT", "LLM", "TOOL"}


NO_DIALECT = {"otlp": {"url": "http://x:1", "dialect": "y"}}


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"log": "loud"}, r"log: expected debug, .*console, found 'loud'"),
        ({"log": {"file": 3}}, "log.file: expected a text, found 3"),
        ({"otlp": 4318}, "otlp: expected a collector's URL, found 4318"),
        ({"otlp": {"dialect": "openinference"}}, "with url and dialect, found one with dialect"),
        (NO_DIALECT, "dialect: expected one of genai, openinference, found 'y'"),
        ({"otlp": "localhost"}, "OTLP: expected http://HOST:4318"),
    ],
)
def test_a_wrong_setting_is_told_at_mount(config: dict[str, Any], problem: str) -> None:
    with pytest.raises(eventctx.InvalidSetting, match=problem):
        read(config, own_names)
