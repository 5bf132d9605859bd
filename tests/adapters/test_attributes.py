"""What the span of a model call says, by adapter: the table of ``docs/reference/adapters.md``.

Each adapter's contract takes its row from here.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from eventctx.testing.adapter_contract.findings import KNOWN_OF_CALLS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "adapters.md"

_ALL: Final = frozenset(KNOWN_OF_CALLS)
_ID, _REASONS = "gen_ai.response.id", "gen_ai.response.finish_reasons"
_MODEL, _STREAM, _SERVER = "gen_ai.request.model", "gen_ai.request.stream", "server.address"

KNOWN: Final = {
    "OpenAI Agents SDK": _ALL - {_REASONS},
    "LangChain, LangGraph": _ALL,
    "Pydantic AI": _ALL,
    "Google ADK": _ALL - {_SERVER, _ID},
    "Strands Agents": _ALL - {_ID},
    "Microsoft Agent Framework": _ALL,
    "Clients of Anthropic's and OpenAI's SDKs": _ALL,
}


def test_the_page_shows_the_attributes_that_each_contract_holds() -> None:
    table = PAGE.read_text(encoding="utf-8").partition("## What the span of a model call says")[2]
    head, _, *rows = re.findall(r"^\|(.+)\|$", table.partition("\n## ")[0], re.MULTILINE)
    names = re.findall(r"`([^`]+)`", head)
    shown = {}
    for row in rows:
        adapter, *marks = [one.strip() for one in row.split("|")]
        shown[adapter] = {name for name, mark in zip(names, marks, strict=True) if mark == "✓"}
    assert set(names) == _ALL
    assert shown == KNOWN
