"""For every request, the browser derives the view that the engine derives: two implementations.

Numbers, places of bodies, tokens, standings with their causes, tokens by group, digests, and a
person's words out of view: of a whole document, and of one in pieces.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from eventctx.engine import Engine
from eventctx.stores.memory import MemoryStore
from tests.test_explaining_any_session import STEPS, in_short, play
from tests.test_recorded_sessions import SESSIONS as RECORDED
from tests.web import documents
from tests.web.made_sessions import SESSIONS as MADE
from tests.web.node import PAGE_TESTS, node, run_tests

AGREEMENT = PAGE_TESTS / "agreement.test.mjs"


@pytest.mark.parametrize("name", RECORDED)
def test_the_browser_agrees_on_every_request_of_a_recorded_session(
    name: str, recorded_sessions: Path, tmp_path: Path
) -> None:
    found = asyncio.run(documents.recorded([recorded_sessions / name]))
    assert found
    documents.write(tmp_path, found)
    run_tests(AGREEMENT, EVENTCTX_DOCUMENTS=str(tmp_path))


async def made(name: str) -> documents.Agreement:
    return await documents.agreement(*await MADE[name]())


@pytest.mark.parametrize("name", MADE)
def test_the_browser_agrees_on_every_request_of_a_made_session(name: str, tmp_path: Path) -> None:
    documents.write(tmp_path, {name: asyncio.run(made(name))})
    run_tests(AGREEMENT, EVENTCTX_DOCUMENTS=str(tmp_path))


def test_the_made_sessions_have_entries_of_every_kind() -> None:
    found = [asyncio.run(made(name))["document"] for name in MADE]
    kinds = {extra["kind"] for one in found for extra in one["extras"]}
    assert kinds == {"shortened", "stripped", "partial", "insertion", "synthetic", "opening"}
    whats = {one["legends"]["what"][code] for one in found for code in one["changes"]["what"]}
    assert whats == set(found[0]["legends"]["what"])
    assert sum(len(one["recounts"]) for one in found) > 3
    assert any(one["parent"] is not None for one in found)


@pytest.fixture(scope="module")
def browser_side() -> Iterator[Any]:
    """A process that answers for files, so that each example does not start one."""
    command = [node(), str(PAGE_TESTS / "answer.mjs")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


async def played(steps: list[tuple[str, Any]]) -> documents.Agreement:
    engine = Engine(MemoryStore())
    options = {"max_tokens": 3_000, "on_overflow": "send_floor", "summarizer": in_short}
    ctx = await engine.session("s", policy="ladder", **options)
    await play(ctx, steps)
    return await documents.agreement(engine, "s", pieces=4)


@settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(steps=STEPS)
def test_the_browser_agrees_on_every_request_of_any_session(
    browser_side: Any, steps: list[tuple[str, Any]]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        documents.write(Path(folder), {"any": asyncio.run(played(steps))})
        browser_side.stdin.write(os.path.join(folder, "any.json") + "\n")  # noqa: PTH118 - a line
        browser_side.stdin.flush()
        assert browser_side.stdout.readline().strip() == ""
