"""Files of memory and a factory of the system prompt: both reach the model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import pytest
from amplifier_core import HookResult
from amplifier_core.testing import MockCoordinator

import eventctx
from eventctx.adapters.amplifier import persistent
from eventctx.testing import Reply, ScriptedAmplifierProvider
from tests.amplifier.given import audited, events, records_of
from tests.amplifier.hosts import mounted, session, tool

MODULES = ["context-eventctx", "context-eventctx-simple", "context-eventctx-persistent"]


PROMPT = "context:system_prompt_set"
HELLO = {"role": "user", "content": "Hello"}


def row_of(name: str, text: str) -> str:
    return f"[Context from {name}]\n\n{text}"


def sent_by(provider: Any, number: int = 0) -> list[tuple[str, Any]]:
    return [(one.role, one.content) for one in provider.requests[number].messages]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder of the host, with a user's folder in it."""
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def request_rows(folder: Path, files: Any, **config: Any) -> list[str]:
    """The contents of the first request of a session with these memory files."""
    config = {"store": str(folder / "contexts.db"), "memory_files": files, **config}
    async with mounted(config, module=persistent) as context:
        await context.add_message(HELLO)
        return [row["content"] for row in await context.get_messages_for_request()]


@pytest.mark.parametrize("module", MODULES)
async def test_each_file_is_a_system_row_first_in_every_request(module: str, folder: Path) -> None:
    (folder / "AGENTS.md").write_text("Use tabs.\n")
    (folder / "home" / "AGENTS.md").write_text("Speak German.\n")
    config = {"store": "contexts.db", "memory_files": ["./AGENTS.md", "~/AGENTS.md"]}
    provider = ScriptedAmplifierProvider(Reply(calls=[("read", {"page": 1})]), "Done.")
    async with session(provider, tool("read", "page"), context=module, config=config) as host:
        await host.execute("Hello")
        transcript = await host.coordinator.get("context").get_messages()
    memory = [row_of("AGENTS.md", text) for text in ("Use tabs.\n", "Speak German.\n")]
    for number in (0, 1):
        expected = [*[("system", one) for one in memory], ("user", "Hello")]
        assert sent_by(provider, number)[:3] == expected
    assert [row["role"] for row in transcript] == ["user", "assistant", "tool", "assistant"]
    assert len(events(await records_of(folder / "contexts.db"), PROMPT)) == 1


async def test_a_resumed_session_has_no_file_twice_and_records_a_changed_one(folder: Path) -> None:
    config = {"store": "contexts.db", "memory_files": ["AGENTS.md"]}
    kept: list[dict[str, Any]] = []
    for text in ("Use tabs.", "Use tabs.", "Use spaces."):
        (folder / "AGENTS.md").write_text(text)
        provider = ScriptedAmplifierProvider("Hi.")
        async with session(provider, context=MODULES[2], config=config) as host:
            context = host.coordinator.get("context")
            if kept:
                await context.set_messages(kept)
            await host.execute("Hello")
            kept = await context.get_messages()
        system = [content for role, content in sent_by(provider) if role == "system"]
        assert system == [row_of("AGENTS.md", text)]
    assert len(events(await records_of(folder / "contexts.db"), PROMPT)) == 2
    requests = (await audited(folder / "contexts.db")).requests
    assert [one.breaks for one in requests] == [(), (), ("insertion",)]


async def test_a_session_resumed_without_its_file_keeps_the_recorded_text(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "home" / "AGENTS.md").write_text("Speak German.")
    (folder / "AGENTS.md").write_text("Use tabs.")
    files = ["AGENTS.md", "~/AGENTS.md"]
    before = await request_rows(folder, files)
    (folder / "home" / "AGENTS.md").unlink()
    after = await request_rows(folder, files)
    memory = [row_of("AGENTS.md", text) for text in ("Use tabs.", "Speak German.")]
    assert after[:2] == before[:2] == memory
    assert "home/AGENTS.md cannot be read and stays as it was recorded" in caplog.text
    assert len(events(await records_of(folder / "contexts.db", "test-session"), PROMPT)) == 1


async def test_what_is_no_text_is_skipped(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    (folder / "good.md").write_text("Use tabs.")
    (folder / "blank.md").write_text(" \n")
    (folder / "latin.md").write_bytes("Grüße".encode("latin-1"))
    (folder / "folder.md").mkdir()
    os.mkfifo(folder / "pipe.md")
    names = ["missing.md", "blank.md", "latin.md", "folder.md", "pipe.md", "good.md"]
    assert await request_rows(folder, names) == [row_of("good.md", "Use tabs."), "Hello"]
    for name in ("missing.md", "latin.md", "folder.md", "pipe.md"):
        (line,) = [one for one in caplog.messages if name in one]
        assert "cannot be read and is skipped" in line
    assert "blank.md" not in caplog.text


async def test_a_path_of_no_file_is_skipped(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert await request_rows(folder, ["", "a\0b", "~nobody-of-this-name/a"]) == ["Hello"]
    assert caplog.text.count("names no file and is skipped") == 3


@pytest.mark.parametrize("given", ["AGENTS.md", {"AGENTS.md": None}, ["AGENTS.md", "AGENTS.md"]])
async def test_a_path_a_mapping_and_a_repeated_path_are_read_as_text(
    given: Any, folder: Path
) -> None:
    (folder / "AGENTS.md").write_bytes(b"a\r\nb\rc\n")
    assert await request_rows(folder, given) == [row_of("AGENTS.md", "a\nb\nc\n"), "Hello"]


async def test_files_that_fill_the_budget_are_refused_at_mount_by_name(folder: Path) -> None:
    async def mount(*files: str, max_tokens: int) -> None:
        config = {"memory_files": files, "max_tokens": max_tokens}
        await (await persistent.mount(MockCoordinator(), {"store": "memory://", **config}))()

    (folder / "AGENTS.md").write_text("x" * 5_000)
    (folder / "PROJECT.md").write_text("x" * 4_000)
    with pytest.raises(eventctx.InvalidSetting, match=r"AGENTS\.md \(~1,250\).*PROJECT\.md"):
        await mount("AGENTS.md", "PROJECT.md", max_tokens=2_000)
    await mount("AGENTS.md", "PROJECT.md", max_tokens=3_000)
    (folder / "AGENTS.md").write_text("x" * 50_000)
    with pytest.raises(eventctx.InvalidSetting, match=r"AGENTS\.md \(more than ~2,000\)"):
        await mount("AGENTS.md", max_tokens=2_000)


async def test_files_are_measured_in_characters_and_not_in_bytes(folder: Path) -> None:
    (folder / "AGENTS.md").write_text("汉" * 3_900, encoding="utf-8")
    rows = await request_rows(folder, ["AGENTS.md"], max_tokens=1_000)
    assert rows[0] == row_of("AGENTS.md", "汉" * 3_900)
    (folder / "AGENTS.md").write_text("汉" * 4_001, encoding="utf-8")
    with pytest.raises(eventctx.InvalidSetting, match="expected files that fit into max_tokens"):
        await request_rows(folder, ["AGENTS.md"], max_tokens=1_000)


# -- a factory of the system prompt ----------------------------------------------------------------


async def test_the_factorys_text_replaces_stored_system_messages_but_a_hooks(path: Path) -> None:
    async def factory() -> str:
        return "You help."

    def inject(event: str, data: dict[str, Any]) -> Any:
        return HookResult(
            action="inject_context", context_injection="Mind the tabs.", suppress_output=True
        )

    provider = ScriptedAmplifierProvider("a", "b")
    async with session(provider, store=path, hooks={"prompt:submit": inject}) as host:
        context = host.coordinator.get("context")
        await context.add_message({"role": "system", "content": "stored"})
        await host.execute("Hello")
        await context.set_system_prompt_factory(factory)
        await host.execute("Hello")
        transcript = [row["content"] for row in await context.get_messages()]
    assert transcript[:2] == ["stored", "Mind the tabs."]
    before, after = ([row["content"] for row in rows] for rows in provider.messages)
    assert before == ["stored", "Mind the tabs.", "Hello"]
    assert after[:3] == ["You help.", "Mind the tabs.", "Hello"]
    assert "stored" not in after
    await audited(path)


async def test_a_factory_that_fails_leaves_the_last_prompt_and_a_word_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    factory = AsyncMock(side_effect=["You help.", ValueError("no file"), 7, None])
    async with mounted() as context:
        await context.set_system_prompt_factory(factory)
        await context.add_message(HELLO)
        for _ in range(4):
            rows = await context.get_messages_for_request()
            assert [row["content"] for row in rows] == ["You help.", "Hello"]
        assert "no file" in caplog.text
        assert "expected a text" in caplog.text
        with pytest.raises(eventctx.InvalidSetting):
            await context.set_system_prompt_factory("You help.")
