"""Recorded sessions of every format, mutated: imported without a loss, or refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.counts import report, trials
from tests.importers.growing import SESSIONS
from tests.importers.mutating import Mutants

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", SESSIONS)
async def test_a_mutated_session_is_imported_whole_or_refused(name: str, tmp_path: Path) -> None:
    count = trials("mutants of a format")
    ended = await Mutants(tmp_path, name).run(count, seed=1)
    assert ended.total() == count
    # Of JSONL only the odd line is kept as it is; half a document is refused, as ATIF is one.
    whole = name.endswith(("-list", "-document", "swe-agent", "atif"))
    assert ended["imported"] >= count * (0.4 if whole else 0.8)
    report(f"mutants of {name}", ended)
