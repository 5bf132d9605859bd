"""The reference of the inspector has every route and every column, and no other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

import eventctx
from eventctx.hooks.result_redactor import ResultRedactor
from eventctx.web.answers import PageAnswers
from eventctx.web.app import SCREENS
from eventctx.web.follow import MOST_STREAMS
from eventctx.web.serving import MOST_CONNECTIONS
from tests.web.made_sessions import SESSIONS
from tests.web.test_agreement import made

TEXT: Final = (Path(__file__).parents[2] / "docs/reference/inspect.md").read_text(encoding="utf-8")
TABLES: Final = ("messages", "extras", "requests", "compactions", "changes")


async def test_every_route_is_in_the_reference() -> None:
    async with eventctx.open() as engine:
        answers = PageAnswers(engine, "memory://", None, ResultRedactor(reveal=False))
        routes = {route.path.replace("{name}", "NAME") for route in answers.routes()}
        await answers.close()
    listed = set(re.findall(r"^\| `(/api/[^`?]+)", TEXT, flags=re.MULTILINE))
    assert listed == routes
    assert all(f"`/{screen}`" in TEXT or f"/{screen}`" in TEXT for screen in SCREENS)


def test_the_limits_of_the_reference_are_those_of_the_server() -> None:
    assert f"{MOST_STREAMS} streams, {MOST_CONNECTIONS} connections" in TEXT


@pytest.mark.xdist_group("agreement")  # which makes the documents, too
def test_every_key_of_a_timeline_is_in_the_reference() -> None:
    found: dict[str, set[str]] = {name: set() for name in ("", *TABLES)}
    for known in map(made, SESSIONS):
        for document in (known["document"], *known["deltas"]):
            found[""] |= document.keys() - set(TABLES)
            for name in TABLES:
                found[name] |= _keys(document[name])
    for name in ("messages", "requests"):
        found[name] -= {"first"}  # the number of a document's first row is no column
    assert {name: _listed(name) for name in found} == found


def _keys(part: Any) -> set[str]:
    return set(part) if isinstance(part, dict) else {key for row in part for key in row}


def _listed(name: str) -> set[str]:
    """Keys that the section's table of that name has; without a name its first one."""
    section = TEXT.partition("\n## The timeline document\n")[2]
    if name:
        section = section.partition(f"\n`{name}`, ")[2]
    rows = section.partition("|---|---|\n")[2].partition("\n\n")[0].splitlines()
    return {key for row in rows for key in re.findall(r"`(\w+)`", row.split("|")[1])}
