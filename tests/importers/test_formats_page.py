"""The page that says what is read of each format."""

from __future__ import annotations

from pathlib import Path

from eventctx.importers.format_table import FORMATS

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = "reference/import-formats.md"


def test_every_format_has_a_row() -> None:
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    assert [name for name in FORMATS if f"\n| `{name}` |" not in text] == []
