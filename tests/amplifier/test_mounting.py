"""Mounting as the kernel does it, what a mount plan sets, its sinks, and others' configurations."""

from __future__ import annotations

import asyncio
import json
import logging
import re
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
from hypothesis import HealthCheck, given
from hypothesis import settings as checks
from hypothesis import strategies as st

import eventctx
from eventctx.adapters import amplifier
from eventctx.adapters.amplifier import mount, persistent, simple
from eventctx.adapters.amplifier.config import (
    ADAPTER,
    READ_BY_NOBODY,
    names_of_persistent,
    names_of_simple,
    own_names,
    read,
)
from eventctx.adapters.amplifier.leniency import CONVERTED
from eventctx.testing import Reply, ScriptedAmplifierProvider
from tests.amplifier.given import events, records_of
from tests.amplifier.hosts import LikeBasic, Loader, mounted, mounting, session, tool
from tests.how_much import some
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
    @pytest.fixture
    def module_path(self) -> Path:
        return SOURCE / "amplifier_module_context_eventctx"


@pytest.mark.parametrize("module", MODULES)
async def test_the_kernels_validator_finds_nothing_wrong(module: str) -> None:
    name = f"amplifier_module_{module.replace('-', '_')}"
    found = await ContextValidator().validate(SOURCE / name, config={"store": "memory://"})
    assert found.passed, [check for check in found.checks if not check.passed]


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
    here = SimpleNamespace(resolve=lambda *_, **__: SimpleNamespace(resolve=lambda: SOURCE))
    await host.coordinator.mount("module-source-resolver", here)
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


# -- configurations of context-simple and context-persistent ---------------------------------------


LOG = "eventctx.adapters.amplifier"
NAMES = [own_names, names_of_simple, names_of_persistent]

THEIRS = {
    *("max_tokens", "max_tokens_fallback", "compact_threshold", "target_usage"),
    *("protected_recent", "protected_tool_results", "truncate_chars", "output_reserve_fraction"),
    *("token_meter", "max_tool_result_bytes", "compaction_notice_enabled"),
    *("compaction_notice_token_reserve", "compaction_notice_verbosity"),
    *("compaction_notice_min_level", "truncate_boundary", "memory_files", "transcript_path"),
}
"""Every setting that a release of context-simple or context-persistent reads."""

DOCUMENTED = {
    *("max_messages", "auto_compact", "compaction_threshold", "storage_path"),
    *("compaction_strategy", "export_on_compact"),
}
"""Settings that their documents name, and that no release of 2026 reads."""


def taken(names: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The values that settings and policy have for these names, in the adapter's own words."""
    made = read(config, names)
    own = {"compaction_threshold": "compact_threshold", "target": "target_usage"}
    found = {}
    for name in config:
        word = own.get(name, name)
        found[name] = getattr(made.settings if hasattr(made.settings, word) else made.policy, word)
    return found


# -- what is used instead ------------------------------------------------------------------------


TOKENS = [(2e5, 200_000), ("200000", 200_000), (1_500.7, 1_500), (float("inf"), 10**12)]
USED: dict[str, list[tuple[Any, Any]]] = {
    "max_tokens": [*TOKENS, (0, None), (True, None)],
    "max_tokens_fallback": [(None, 200_000)],
    "compact_threshold": [(1.5, 1.0), ("0.8", 0.8), (0, 0.92), ("high", 0.92), (1e-300, 0.001)],
    "compaction_threshold": [(1.5, 1.0)],
    "target_usage": [(0, 0.5), (0.92, 0.5)],
    "target": [(2, 0.5)],
    "auto_compact": [("yes", True), (0, False)],
    "export_on_compact": [("true", True)],
    "protected_recent": [(30, 1.0), (-0.1, 0.0)],
    "protected_tool_results": [(-3, 0), (4.0, 4)],
    "truncate_chars": [(-1, 0)],
}
"""What is used in the place of values that those modules accept, by setting."""


@pytest.mark.parametrize("name", USED)
@pytest.mark.parametrize("names", NAMES)
def test_a_value_that_they_accept_is_converted_with_a_warning(
    name: str, names: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for value, used in USED[name]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, LOG):
            found = taken(names, {name: value})[name]
        assert (found, type(found)) == (used, type(used)), value
        (line,) = [one for one in caplog.messages if f"setting {name!r}: " in one]
        assert "was given" in line and "is used: " in line


@pytest.mark.parametrize("names", NAMES)
def test_a_value_that_works_is_used_in_silence(
    names: Any, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"max_tokens": 150_000, "max_tokens_fallback": 100_000, "compact_threshold": 1}
    given |= {"target_usage": 0.45, "auto_compact": False, "protected_recent": 0}
    given |= {"protected_tool_results": 0, "truncate_chars": 0}
    with caplog.at_level(logging.WARNING, LOG):
        assert taken(names, given) == given
        assert taken(names, {"max_tokens": None}) == {"max_tokens": None}
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("given", "threshold", "target"),
    [
        ({"compact_threshold": 0.4}, 0.4, 0.2),
        ({"compact_threshold": 0.8, "target_usage": 0.8}, 0.8, 0.5),
        ({"compaction_threshold": 0.3, "target": 0.6}, 0.3, 0.15),
        ({"compact_threshold": 0.3, "compaction_threshold": 0.9, "target_usage": 0.1}, 0.3, 0.1),
        ({"target": 0.1, "target_usage": 0.2}, 0.92, 0.2),
    ],
)
def test_a_target_that_is_not_below_the_threshold_is_lowered(
    given: dict[str, Any], threshold: float, target: float, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, LOG):
        made = read(given, own_names)
    assert (made.settings.compact_threshold, made.settings.target_usage) == (threshold, target)
    assert caplog.messages


@pytest.mark.parametrize(
    ("config", "policy"),
    [
        ({"compaction_strategy": "progressive"}, "ladder"),
        ({"compaction_strategy": "summary"}, "summarize"),
        ({"compaction_strategy": "aggressive"}, None),
        ({"compaction_strategy": "custom"}, None),
        ({"compaction_strategy": ["smart"]}, None),
        ({"policy": None, "compaction_strategy": "smart"}, "importance"),
        ({"compaction_strategy": "smart", "policy": "simple"}, "simple"),
    ],
)
def test_a_strategy_of_theirs_never_keeps_a_session_from_beginning(
    config: dict[str, Any], policy: str | None
) -> None:
    for names in NAMES:
        default = "simple" if names is names_of_simple else "workset"
        assert read(config, names).policy.name == (default if policy is None else policy)


def test_a_setting_without_a_counterpart_is_told_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, LOG):
        read(dict.fromkeys(READ_BY_NOBODY, "x"), own_names)
    for name, why in READ_BY_NOBODY.items():
        assert f"setting {name!r} has no effect here: {why}" in caplog.messages


async def test_a_session_of_simple_is_sent_system_messages_and_the_last_ten(path: Path) -> None:
    provider = ScriptedAmplifierProvider(*[f"answer {n} " * 140 for n in range(9)])
    limited: Any = {"config": {"max_tokens": 3_000, "transcript_path": False}}
    async with session(provider, context="context-eventctx-simple", store=path, **limited) as host:
        context = host.coordinator.get("context")
        await context.add_message({"role": "system", "content": "Be brief."})
        for number in range(9):
            await host.execute(f"question {number}")
    (compaction,) = events(await records_of(path), "context:post_compact")
    assert (compaction.strategy, compaction.fallback) == ("simple", None)
    sent = next(rows for rows in provider.messages[1:] if "answer 0" not in str(rows))
    assert sent[0]["content"] == "Be brief."
    asked = [row["content"] for row in sent if row["role"] == "user"]
    assert asked == [f"question {number}" for number in range(len(asked))], "their words stay"
    assert [row["role"] for row in sent[-10:]] == ["assistant", "user"] * 5
    assert not [row for row in sent[:-10] if row["role"] == "assistant"]


# -- any configuration ---------------------------------------------------------------------------

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.integers(min_value=1, max_value=300_000),
    st.floats(min_value=0, max_value=1),
    st.sampled_from(["", "0.8", "200000", "1e3", "-5", "many", "nan", "inf", "yes", "smart"]),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
"""What YAML can put behind a name."""

ANY_NAME = sorted(
    {*CONVERTED, *READ_BY_NOBODY, *THEIRS, *DOCUMENTED}
    - {"memory_files", "transcript_path", "storage_path"}
)


@checks(
    max_examples=some(15, 300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(config=st.dictionaries(st.sampled_from(ANY_NAME), ODD, max_size=6))
def test_any_configuration_of_theirs_mounts_and_serves_a_request(config: dict[str, Any]) -> None:
    nowhere = {"transcript_path": False, "stamp_messages": False}

    async def served(module: Any) -> list[dict[str, Any]]:
        async with mounted({**config, **nowhere}, module=module) as context:
            await context.add_message({"role": "user", "content": "Hello"})
            return list(await context.get_messages_for_request())

    for module in (amplifier, simple, persistent):
        assert asyncio.run(served(module)) == [{"role": "user", "content": "Hello"}]


# -- the page ------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "reference" / "amplifier.md"


def test_the_page_has_every_setting_of_both_modules_and_none_that_is_not_handled() -> None:
    page = PAGE.read_text(encoding="utf-8")
    _, _, part = page.partition("## Settings of context-simple and context-persistent")
    part, _, _ = part.partition("\n## ")
    cells = [row.split("|")[1] for row in part.splitlines() if row.startswith("| `")]
    listed = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    handled = {*CONVERTED, *READ_BY_NOBODY, *ADAPTER, "storage_path"}
    assert listed - handled == set()
    assert THEIRS | DOCUMENTED | set(READ_BY_NOBODY) | set(CONVERTED) <= listed
