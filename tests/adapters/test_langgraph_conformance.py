"""LangGraph's own suite for checkpoint savers, on each kind of store."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.conformance", reason="langgraph-checkpoint-conformance")

from langgraph.checkpoint.conformance import checkpointer_test, validate

import eventctx
from eventctx.adapters.langgraph import EventctxSaver


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
async def test_langgraphs_suite_passes_whole(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url = "memory://" if kind == "memory" else str(tmp_path / "threads.db")
    if kind == "postgres":
        url = request.getfixturevalue("postgres_url")

    @checkpointer_test(name=f"EventctxSaver on {kind}")
    async def saver() -> AsyncIterator[Any]:
        async with eventctx.open(url) as engine:
            yield EventctxSaver(engine)

    report = await validate(saver)
    assert report.passed_all(), report.to_dict()
    assert {name for name, one in report.results.items() if one.passed} == {
        *("put", "put_writes", "get_tuple", "list", "delete_thread"),
        *("delete_for_runs", "copy_thread", "prune"),
    }
