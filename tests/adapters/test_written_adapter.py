"""The adapter of the how-to passes the contract, as a reader who copied it would see."""

from __future__ import annotations

import importlib
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from eventctx.testing import AdapterContract

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "how-to" / "write-an-adapter.md"

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def written() -> Any:
    """The page's code as a module of a folder of its own, which another process can import."""
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
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
