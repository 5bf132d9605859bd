"""Where a provider's client comes from, and what is said when there is none."""

from __future__ import annotations

import importlib
import subprocess
import sys
from typing import Any

import pytest

import eventctx
from eventctx.orchestrators.protocol import Ids, Request
from eventctx.orchestrators.providers import anthropic as anthropic_module
from eventctx.orchestrators.providers import openai_chat
from eventctx.orchestrators.providers.sdk_calling import is_older
from tests.orchestrators.providers.kits import ANTHROPIC, KITS, Kit
from tests.orchestrators.providers.server import Server, json_reply

LOWEST = {"anthropic": anthropic_module.LOWEST, "openai": openai_chat.LOWEST}


def sdk_of(kit: Kit) -> str:
    return "anthropic" if kit is ANTHROPIC else "openai"


def test_without_the_sdk_its_extra_is_named(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, sdk_of(kit), None)
    with pytest.raises(eventctx.InvalidSetting, match=rf"eventctx\[{sdk_of(kit)}\]"):
        kit.provider(None)


def test_an_sdk_that_is_too_old_is_named(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.import_module(sdk_of(kit)), "__version__", "0.9.1")
    with pytest.raises(eventctx.InvalidSetting, match=r"0\.9\.1 is too old"):
        kit.provider(None)


@pytest.mark.parametrize(
    ("version", "older"),
    [
        ("0.46.9", True),
        ("0.47", False),
        ("0.47.0b1", False),
        ("0.100", False),
        ("1.0", False),
        ("0.9", True),
    ],
)
def test_versions_are_numbers(version: str, older: bool) -> None:
    assert is_older(version, "0.47") is older


def test_the_lowest_releases_are_those_of_the_extras() -> None:
    import tomllib
    from pathlib import Path

    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    assert extras["anthropic"] == [f"anthropic>={LOWEST['anthropic']}"]
    assert extras["openai"] == [f"openai>={LOWEST['openai']}"]


async def test_without_a_client_one_is_made_from_the_environment(
    kit: Kit, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = server.url if kit is ANTHROPIC else f"{server.url}/v1"
    monkeypatch.setenv(f"{sdk_of(kit).upper()}_BASE_URL", base)
    monkeypatch.setenv(f"{sdk_of(kit).upper()}_API_KEY", "from-the-environment")
    server.replies = [json_reply(kit.text)]
    provider: Any = kit.provider(None)
    request = Request([{"role": "user", "content": "hello"}], Ids("s"))
    assert (await provider.complete(request)).text == "Fair enough."
    headers = server.requests[0].headers
    assert "from-the-environment" in (
        headers.get("x-api-key", "") + headers.get("authorization", "")
    )
    await provider.aclose()


@pytest.mark.parametrize("kit", KITS[1:], ids=lambda kit: kit.name)
def test_without_a_key_no_client_is_made(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(eventctx.InvalidSetting, match="environment"):
        kit.provider(None)


async def test_a_request_without_a_key_is_a_setting_to_correct(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
    provider: Any = ANTHROPIC.provider(None)
    with pytest.raises(eventctx.InvalidSetting, match="API key"):
        await provider.complete(Request([{"role": "user", "content": "hello"}], Ids("s")))
    await provider.aclose()


@pytest.mark.parametrize("thing", [3, "key", object()])
def test_what_is_no_client_is_refused(kit: Kit, thing: object) -> None:
    with pytest.raises(eventctx.InvalidSetting, match="Async"):
        kit.provider(thing)


def test_importing_the_providers_loads_no_sdk() -> None:
    program = (
        "import sys; from eventctx.orchestrators.providers import "
        "anthropic, openai_chat, openai_responses; "
        "print(*{'anthropic', 'openai'} & sys.modules.keys())"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == ""
