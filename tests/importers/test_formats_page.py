"""The page that says what is read of each format."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventctx.importers.format_table import FORMATS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("reference/import-formats.md", "how-to/import-and-audit-a-session.md")


@pytest.mark.parametrize("page", PAGES)
def test_every_format_has_a_row(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert [name for name in FORMATS if f"\n| `{name}` |" not in text] == []
