"""The how-to of traces leads through the demonstration's own spans: its tags, order, numbers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.browser.inspecting import program

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "trace-a-compaction-in-jaeger.md"
SHOWN_TURN = 7

_TAG = re.compile(
    r"`((?:eventctx|gen_ai|verify|error)\.[a-z_.]+[a-z_]|compaction)(?:=([^`]+)|\.…)?`"
)
_SHORT = re.compile(r"`(\.[a-z_]+)`")

Span = dict[str, Any]


@pytest.fixture(scope="module")
def spans(tmp_path_factory: pytest.TempPathFactory) -> list[Span]:
    """All spans of the shipped demonstration, as ``eventctx trace demo --json`` has them."""
    store = tmp_path_factory.mktemp("howto") / "demo.db"
    _printed("demo", "--store", store)
    lines = _printed("trace", "demo", "--json", "--store", store).splitlines()
    return [msgspec.json.decode(line) for line in lines]


def _printed(*words: object) -> str:
    command = [str(word) for word in program(*words)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _lines_with_tags() -> list[str]:
    """The rows of the page's tables: what it tells a reader to search for, or to read."""
    return [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("|")]


def _named() -> set[tuple[str, str | None]]:
    """The tags of the page's tables, with the value where one stands beside it."""
    named: set[tuple[str, str | None]] = set()
    for line in _lines_with_tags():
        last = ""
        for key, value in _TAG.findall(line):
            named.add((key, value or None))
            last = key
        named |= {(last.rpartition(".")[0] + short, None) for short in _SHORT.findall(line)}
    return named


def _as_searched(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _compactions(spans: list[Span]) -> list[Span]:
    """The compactions of the turn that the page shows, in the order of time."""
    (turn,) = [one for one in spans if one["attributes"].get("eventctx.turn.number") == SHOWN_TURN]
    found = [
        one
        for one in spans
        if one["trace_id"] == turn["trace_id"] and one["name"] == "compact workset"
    ]
    return sorted(found, key=lambda one: one["start"])


def test_every_tag_of_the_page_is_on_a_span_of_the_demonstration(spans: list[Span]) -> None:
    on_spans = {
        (key, _as_searched(value)) for span in spans for key, value in span["attributes"].items()
    }
    keys = {key for key, _ in on_spans}
    named = _named()
    assert len(named) > 12
    for key, value in named:
        if value is None:
            assert any(one == key or one.startswith(f"{key}.") for one in keys), key
        else:
            assert (key, value) in on_spans, f"{key}={value}"


def test_the_message_that_the_page_asks_about_is_named_by_the_second_compaction(
    spans: list[Span],
) -> None:
    asked = re.findall(r"^\$ eventctx why demo (\d+)$", PAGE.read_text("utf-8"), flags=re.MULTILINE)
    assert len(asked) == 1
    tags = _compactions(spans)[1]["attributes"]
    assert tags["compaction"].startswith("over budget: ")
    assert re.search(rf"#{asked[0]}\b", tags["compaction"])
    assert asked[0] in re.split("[,-]", tags["eventctx.compaction.dropped.numbers"])
