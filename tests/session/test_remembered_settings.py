"""A session is opened again without settings as it was made."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import eventctx
from eventctx.engine import Engine
from eventctx.policies.presets import Simple
from eventctx.session.settings import SettingsForgotten
from eventctx.stores.memory import MemoryStore
from tests.sessions import USER

MADE: list[dict[str, Any]] = [
    {},
    {"max_tokens": 5_000, "on_overflow": "send_floor"},
    {"policy": "truncate", "keep_recent": 7, "keep_turns": 2},
    {"policy": "importance", "recency_weight": 0.2, "importance_weight": 0.7},
    {"truncate_chars": 99, "compact_threshold": 0.7},
    {"policy": "token-budget", "max_tokens": None, "memory": False},
    {"max_messages": 9, "policy": Simple(keep_recent=3)},
]


async def by_another_process(store: MemoryStore, session: str, **options: Any) -> eventctx.Context:
    return await Engine(store).session(session, **options)


@pytest.mark.parametrize("made", MADE, ids=str)
@pytest.mark.filterwarnings("ignore::eventctx.session.settings.UnknownSetting")
async def test_a_session_keeps_what_it_was_made_with(made: dict[str, Any]) -> None:
    store = MemoryStore()
    first = await by_another_process(store, "s", **made)
    await first.add_message(USER)
    again = await by_another_process(store, "s")
    assert (again.settings, again.policy) == (first.settings, first.policy)


async def test_a_file_keeps_them_and_a_fork_inherits_them(tmp_path: Path) -> None:
    path = tmp_path / "contexts.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s", policy="truncate", keep_recent=3, max_tokens=4_000)
        at = (await ctx.add_message(USER)).position
        await engine.fork("s", at, "fork")
    async with eventctx.open(path) as engine:
        for name in ("s", "fork"):
            again = await engine.session(name)
            assert (again.settings, again.policy) == (ctx.settings, ctx.policy)
            assert await engine.session(name, policy="truncate", keep_recent=3, max_tokens=4_000)


async def test_settings_that_are_given_hold_for_this_opening() -> None:
    store = MemoryStore()
    await by_another_process(store, "s", policy="truncate", max_tokens=4_000)
    other = await by_another_process(store, "s", max_tokens=9_000)
    assert other.settings.max_tokens == 9_000
    assert other.policy.name == "workset"
    again = await by_another_process(store, "s")
    assert (again.settings.max_tokens, again.policy.name) == (4_000, "truncate")


async def test_a_dry_run_uses_what_the_session_was_made_with() -> None:
    store = MemoryStore()
    ctx = await by_another_process(store, "s", policy="truncate", keep_recent=2)
    for _ in range(6):
        await ctx.add_message(USER)
    result = await Engine(store).dry_run("s", force=True)
    assert result.strategy == "truncate"


async def summary(request: eventctx.SummaryRequest) -> str:
    return "what happened"


class Own:
    name = "own"
    version = 1
    max_messages = None

    def propose(self, *arguments: Any) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("made", "missing"),
    [
        ({"policy": Own()}, "does not hold the whole policy 'own'"),
        ({"policy": "pipeline", "policies": ["simple", "truncate"]}, "the whole policy 'pipeline'"),
        ({"policy": "summarize", "summarizer": summary}, "expected summarizer="),
    ],
    ids=["object", "pipeline", "function"],
)
async def test_what_the_log_cannot_keep_is_warned_of(made: dict[str, Any], missing: str) -> None:
    store = MemoryStore()
    await by_another_process(store, "s", max_tokens=5_000, **made)
    with pytest.warns(SettingsForgotten, match=missing):
        again = await by_another_process(store, "s")
    assert (again.settings.max_tokens, again.policy.name) == (5_000, "workset")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (await by_another_process(store, "s", **made)).policy.name != "workset"


async def test_a_given_function_is_enough_for_a_remembered_policy() -> None:
    store = MemoryStore()
    await by_another_process(store, "s", policy="summarize", summarizer=summary, fan_in=3)
    again = await by_another_process(store, "s", summarizer=summary)
    assert (again.policy.name, getattr(again.policy, "fan_in", None)) == ("summarize", 3)
