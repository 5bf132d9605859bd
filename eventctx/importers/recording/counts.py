"""Counts of a file's contents, and the warnings of its import."""

from __future__ import annotations

from collections import Counter
from typing import Final

from eventctx.importers.source.items import Warned

_KEPT_WARNINGS: Final = 100


class ImportCounts:
    """Counts over the whole file, both of new contents and of those imported before."""

    def __init__(self) -> None:
        self.messages = self.turns = self.calls = self.compactions = 0
        self.unknown: Counter[str] = Counter()
        self.waiting: list[str] = []
        self.warnings: list[str] = []
        self.warned = 0
        self.links: dict[str, str | None] = {}
        self.answered: set[str] = set()
        self.last_compaction: int | None = None

    def warn(self, item: Warned) -> None:
        """Count a warning, and keep the first ones."""
        self.warned += 1
        if len(self.warnings) < _KEPT_WARNINGS:
            self.warnings.append(f"line {item.line}: {item.text}")
