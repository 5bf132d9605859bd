"""The adapters' pages: the attributes that each contract holds, and the adapter of the how-to."""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from eventctx.testing import AdapterContract
from eventctx.testing.adapter_contract.findings import KNOWN_OF_CALLS

DOCS = Path(__file__).resolve().parents[2] / "docs"

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
    page = (DOCS / "reference" / "adapters.md").read_text(encoding="utf-8")
    table = page.partition("## What the span of a model call says")[2]
    head, _, *rows = re.findall(r"^\|(.+)\|$", table.partition("\n## ")[0], re.MULTILINE)
    names = re.findall(r"`([^`]+)`", head)
    shown = {}
    for row in rows:
        adapter, *marks = [one.strip() for one in row.split("|")]
        shown[adapter] = {name for name, mark in zip(names, marks, strict=True) if mark == "✓"}
    assert set(names) == _ALL
    assert shown == KNOWN


# -- the how-to's adapter passes the contract, as for a reader who copied it ----------------------


BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def written() -> Any:
    """The page's code as a module of a folder of its own, which another process can import."""
    page = DOCS / "how-to" / "write-an-adapter.md"
    blocks = BLOCK.findall(page.read_text(encoding="utf-8"))
    (Path(FOLDER.name) / "written_adapter.py").write_text("\n".join(blocks), encoding="utf-8")
    sys.path.append(FOLDER.name)
    return importlib.import_module("written_adapter")


FOLDER = tempfile.TemporaryDirectory(prefix="written-adapter-")
module = written()


class TestTheHowTo(AdapterContract):
    driver = module.HostDriver
    streams = module.TestHost.streams
    retries = module.TestHost.retries


def test_the_page_s_own_test_class_is_a_contract() -> None:
    assert issubclass(module.TestHost, AdapterContract)
    assert module.TestHost.driver is module.HostDriver
