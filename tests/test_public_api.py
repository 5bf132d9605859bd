"""The public API is what this file says: a change to it is a change here, on purpose."""

from __future__ import annotations

import inspect
from pathlib import Path

import eventctx
import eventctx.orchestrators
import eventctx.testing
from eventctx.engine import Engine

GOLDEN = Path(__file__).parent / "golden" / "public-api.txt"


def described() -> str:
    lines = sorted(name for name in eventctx.__all__ if name != "__version__")
    for owner in (Engine, eventctx.Context, eventctx.Turn, eventctx.Iteration):
        lines.append("")
        for name, member in sorted(vars(owner).items()):
            if not name.startswith("_") and callable(member):
                lines.append(f"{owner.__name__}.{name}{inspect.signature(member)}")
    for package in (eventctx.orchestrators, eventctx.testing):
        lines += ["", *(f"{package.__name__}.{name}" for name in sorted(package.__all__))]
    lines += ["", f"open{inspect.signature(eventctx.open)}"]
    return "\n".join(lines) + "\n"


def test_the_public_api_is_as_recorded() -> None:
    assert described() == GOLDEN.read_text(), (
        "the public API changed; if on purpose: python -c "
        "'import tests.test_public_api as t; t.GOLDEN.write_text(t.described())'"
    )


def test_every_public_name_can_be_had_and_is_documented() -> None:
    for name in eventctx.__all__:
        thing = getattr(eventctx, name)
        if name != "__version__":
            assert inspect.getdoc(thing), name
    assert set(dir(eventctx)) >= set(eventctx.__all__)


def test_every_name_of_orchestrators_and_testing_can_be_had_and_is_documented() -> None:
    pages = GOLDEN.parents[2] / "docs" / "reference"
    written = "".join([(pages / f"{name}.md").read_text() for name in ("orchestrators", "testing")])
    for package in (eventctx.orchestrators, eventctx.testing):
        assert set(dir(package)) >= set(package.__all__)
        for name in package.__all__:
            assert inspect.getdoc(getattr(package, name)), name
            assert f"`{name}`" in written, name


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    try:
        eventctx.no_such_thing  # noqa: B018
    except AttributeError as error:
        assert "no_such_thing" in str(error)
    else:
        raise AssertionError
