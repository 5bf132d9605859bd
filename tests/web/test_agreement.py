"""For every request, the browser derives the view that the engine derives: two implementations.

Numbers, places of bodies, tokens, standings with their causes, tokens by group, digests, and a
person's words out of view: of a whole document, and of one in pieces.
"""

from __future__ import annotations

import asyncio
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings

from eventctx.engine import Engine
from eventctx.stores.memory import MemoryStore
from tests.children import started
from tests.faults.counts import FULL
from tests.how_much import MOST_MESSAGES, some
from tests.queries.test_explaining_any_session import STEPS, in_short, play
from tests.test_recorded_sessions import SESSIONS as RECORDED
from tests.test_recorded_sessions import imported
from tests.web import documents
from tests.web.made_sessions import SESSIONS as MADE
from tests.web.node import PAGE_TESTS, node

pytestmark = pytest.mark.xdist_group("agreement")


Agrees = Callable[[documents.Agreement], None]


@pytest.fixture(scope="module")
def browser_agrees() -> Iterator[Agrees]:
    """A process that answers for files, so that each session does not start one."""
    command = [node(), str(PAGE_TESTS / "answer.mjs")]
    with started(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:

        def agrees(said: documents.Agreement) -> None:
            """Raise where the browser derives something else, with what it is."""
            assert process.stdin is not None and process.stdout is not None
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "said.json").write_bytes(msgspec.json.encode(said))
                process.stdin.write(f"{folder}/said.json\n")
                process.stdin.flush()
                assert process.stdout.readline() == "\n"

        yield agrees


@pytest.mark.parametrize("name", RECORDED)
async def test_the_browser_agrees_on_every_request_of_a_recorded_session(
    name: str, recorded_sessions: Path, browser_agrees: Agrees
) -> None:
    engine, sessions = await imported(recorded_sessions / name)
    assert sessions
    for session in sessions:
        if FULL or len(await engine.transcript(session)) <= MOST_MESSAGES:
            browser_agrees(await documents.agreement(engine, session))


@cache
def made(name: str) -> documents.Agreement:
    async def agreement() -> documents.Agreement:
        return await documents.agreement(*await MADE[name]())

    return asyncio.run(agreement())


@pytest.mark.parametrize("name", MADE)
def test_the_browser_agrees_on_every_request_of_a_made_session(
    name: str, browser_agrees: Agrees
) -> None:
    browser_agrees(made(name))


def test_the_made_sessions_have_entries_of_every_kind() -> None:
    found = [made(name)["document"] for name in MADE]
    kinds = {extra["kind"] for one in found for extra in one["extras"]}
    assert kinds == {"shortened", "stripped", "partial", "insertion", "synthetic", "opening"}
    whats = {one["legends"]["what"][code] for one in found for code in one["changes"]["what"]}
    assert whats == set(found[0]["legends"]["what"])
    assert sum(len(one["recounts"]) for one in found) > 3
    assert any(one["parent"] is not None for one in found)


async def played(steps: list[tuple[str, Any]]) -> documents.Agreement:
    engine = Engine(MemoryStore())
    options = {"max_tokens": 3_000, "on_overflow": "send_floor", "summarizer": in_short}
    ctx = await engine.session("s", policy="ladder", **options)
    await play(ctx, steps)
    return await documents.agreement(engine, "s", pieces=4)


@settings(max_examples=some(15, 60))
@given(steps=STEPS)
def test_the_browser_agrees_on_every_request_of_any_session(
    browser_agrees: Agrees, steps: list[tuple[str, Any]]
) -> None:
    browser_agrees(asyncio.run(played(steps)))
