"""The type of an error is a class or a code, and its words are told once on a span."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.log import events as ev
from eventctx.projections.trace.attributes import error_of
from eventctx.projections.trace.fold import fold
from eventctx.projections.trace.spans import Span
from tests.hooks.given import PRE, Session, compacted, span


@pytest.mark.parametrize(
    ("recorded", "message", "found"),
    [
        ("OSError", "no disk", ("OSError", "no disk")),
        ("OSError", "OSError: no disk", ("OSError", "no disk")),
        ("429", "slow down", ("429", "slow down")),
        ("httpx.ReadTimeout", "", ("httpx.ReadTimeout", None)),
        ("", "ValueError: no", ("ValueError", "no")),
        ("Error", "mine.NoPlan: it says: nothing", ("mine.NoPlan", "it says: nothing")),
        ("Error", "it broke", ("_OTHER", "it broke")),
        ("could not reach 10.0.0.7", "", ("_OTHER", "could not reach 10.0.0.7")),
        ("could not reach it", "TimeoutError: 5 s", ("TimeoutError", "5 s")),
        ("KeyError: 'a'", None, ("KeyError", "'a'")),
        (None, "gaierror: unknown name", ("gaierror", "unknown name")),
        (None, "exit_cost", ("exit_cost", None)),
        (None, "LimitsExceeded", ("LimitsExceeded", None)),
        (None, "terminated", ("_OTHER", "terminated")),
        (None, "Stopped", ("_OTHER", "Stopped")),
        (None, "fatal: not a repository", ("_OTHER", "fatal: not a repository")),
        (None, "the tool raised ValueError: no", ("_OTHER", "the tool raised ValueError: no")),
        (None, None, ("_OTHER", None)),
        ("x" * 129, "", ("_OTHER", "x" * 129)),
    ],
)
def test_the_type_is_the_recorded_one_or_the_one_that_the_message_names(
    recorded: str | None, message: str | None, found: tuple[str, str | None]
) -> None:
    assert error_of(recorded, message) == found


@given(st.text(max_size=300), st.text(max_size=300))
def test_a_type_is_short_and_has_no_space_whatever_was_recorded(
    recorded: str, message: str
) -> None:
    kind, words = error_of(recorded, message)
    assert 0 < len(kind) <= 128
    assert not any(one.isspace() for one in kind)
    assert words is None or words in message or words == recorded


@pytest.mark.parametrize(
    ("begins", "ends"),
    [
        (ev.ToolPre(name="x"), ev.ToolError(name="x", error_type="OSError", message="no disk")),
        (ev.ProviderRequest(), ev.ProviderError(error_type="Error", message="OSError: no disk")),
        (ev.PromptSubmit(number=1), ev.PromptComplete(status="error", error="OSError: no disk")),
        (ev.PlanStart(), ev.PlanEnd(status="error", error="OSError: no disk")),
        (PRE, compacted("failed", error="OSError: no disk")),
    ],
)
def test_a_failed_span_tells_type_and_words_once(begins: ev.Event, ends: ev.Event) -> None:
    session = Session()
    session.add(begins, span(1))
    session.add(ends, span(1))
    (one,) = fold(session.records)
    assert (one.status, one.attributes["error.type"], one.message) == (
        "error",
        "OSError",
        "no disk",
    )
    assert [text for text in texts(one) if "no disk" in text] == ["no disk"]
    assert [text for text in texts(one) if "OSError" in text] == ["OSError"]


def texts(one: Span) -> list[str]:
    """Every text of a span: its message, its attributes, and those of its events."""
    found: list[Any] = [one.message, *one.attributes.values()]
    for event in one.events:
        found += event.attributes.values()
    return [text for text in found if isinstance(text, str)]
