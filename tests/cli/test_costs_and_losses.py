"""``audit``, ``stats`` and ``lost`` tell costs by the chosen prices, and inferred losses."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import eventctx
from tests.sessions import USER, tool_round

MODEL = "my-model"
PRICES = {"date": "2026-01-02", "models": {MODEL: {"input": 1_000, "output": 0}}}


@pytest.fixture
async def counted(tmp_path: Path) -> Path:
    """A store with a session of six calls; the fifth prompt is 4,000 tokens smaller than sent."""
    path = tmp_path / "counted.db"
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s", max_tokens=200_000)
        await ctx.add_message(USER)
        async with ctx.turn("go") as turn:
            for number in range(6):
                async with turn.iteration() as iteration:
                    await ctx.get_messages_for_request(model=MODEL)
                    async with iteration.provider_call(MODEL, "p") as call:
                        tokens = (await engine.audit("s")).requests[-1].tokens
                        added = 20_000 if number == 0 else 0
                        await call.usage(tokens + added - (4_000 if number == 4 else 0), 10)
                    for message in tool_round(number, size=9_000):
                        await ctx.add_message(message)
    return path


@pytest.mark.parametrize("command", [("audit", "s"), ("stats",)])
def test_a_table_of_ones_own_prices_what_the_bundled_one_does_not_name(
    run: Callable[..., Any], counted: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    table = tmp_path / "prices.json"
    table.write_text(json.dumps(PRICES))
    assert f"No price for 6 calls, of {MODEL}" in run(*command, "--store", counted).out
    priced = run(*command, "--store", counted, "--prices", table).out
    assert "Cost at list prices of 2026-01-02: $" in priced
    assert "No price" not in priced


@pytest.mark.parametrize("command", ["audit", "lost"])
def test_a_loss_that_no_record_tells_of_is_said_at_its_request(
    run: Callable[..., Any], counted: Path, command: str
) -> None:
    out = run(command, "s", "--store", counted).out
    assert "1.5: the provider counted ~4,0" in out
    assert "likely (inferred)" in out
    assert "probably dropped: #2" in out
