"""The public API is what this file says: a change to it is a change here, on purpose."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import eventctx
import eventctx.adapters.kit as kit
import eventctx.orchestrators
import eventctx.testing
from eventctx.engine import Engine

pytestmark = pytest.mark.check

PACKAGE = Path(eventctx.__file__).parent
GOLDEN = Path(__file__).parent / "golden" / "public-api.txt"


KIT = (kit.HostSession, kit.HostReporter, kit.GivenEngine, kit.OpenSessions)
"""The classes of the kit, whose methods an adapter calls."""


def described() -> str:
    lines = sorted(name for name in eventctx.__all__ if name != "__version__")
    entered = (eventctx.Context, eventctx.Turn, eventctx.Iteration)
    for owner in (eventctx.Reader, Engine, *entered, *KIT):
        lines.append("")
        for name, member in sorted(vars(owner).items()):
            if not name.startswith("_") and callable(member):
                lines.append(f"{owner.__name__}.{name}{inspect.signature(member)}")
    for package in (eventctx.orchestrators, eventctx.testing, kit):
        lines += ["", *(f"{package.__name__}.{name}" for name in sorted(package.__all__))]
    lines += ["", f"open{inspect.signature(eventctx.open)}"]
    return "\n".join(lines) + "\n"


def test_the_public_api_is_as_recorded() -> None:
    assert described() == GOLDEN.read_text(), (
        "the public API changed; if on purpose: python -c "
        "'import tests.test_public_api as t; t.GOLDEN.write_text(t.described())'"
    )


def test_every_public_name_can_be_had_also_by_a_star_and_is_documented() -> None:
    pages = GOLDEN.parents[2] / "docs" / "reference"
    written = "".join([(pages / f"{name}.md").read_text() for name in ("orchestrators", "testing")])
    for package in (eventctx, eventctx.orchestrators, eventctx.testing):
        names: dict[str, object] = {}
        exec(f"from {package.__name__} import *", names)  # noqa: S102
        assert names.keys() - {"__builtins__"} == set(package.__all__) <= set(dir(package))
        for name in set(package.__all__) - {"__version__"}:
            assert inspect.getdoc(getattr(package, name)), name
            assert package is eventctx or f"`{name}`" in written, name


def test_every_name_method_and_argument_of_the_kit_is_documented() -> None:
    page = (GOLDEN.parents[2] / "docs" / "reference" / "adapter-kit.md").read_text(encoding="utf-8")
    for name in kit.__all__:
        assert inspect.getdoc(getattr(kit, name)), name
        assert f"`{name}" in page or f" {name}(" in page, name
    called = [
        (f"{owner.__name__}.{name}", name, member)
        for owner in KIT
        for name, member in vars(owner).items()
        if not name.startswith("_") and inspect.isfunction(member)
    ] + [(name, name, getattr(kit, name)) for name in kit.__all__ if name.islower()]
    for whole, name, member in called:
        entries = [one for one in page.split("`") if re.search(rf"\b{name}\(", one)]
        arguments = [one for one in inspect.signature(member).parameters if one != "self"]
        assert any(all(one in entry for one in arguments) for entry in entries), (whole, arguments)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_thing"):
        eventctx.no_such_thing  # noqa: B018


def test_the_names_can_be_had_from_a_package_in_an_archive(tmp_path: Path) -> None:
    archive = tmp_path / "eventctx.zip"
    with zipfile.ZipFile(archive, "w") as zipped:
        for name in ("__init__.py", "__init__.pyi", "errors.py", "lazy_names.py", "version.py"):
            zipped.write(PACKAGE / name, f"eventctx/{name}")
    program = f"import sys; sys.path.insert(0, {str(archive)!r}); import eventctx as e; "
    program += "print(e.__version__, e.InvalidSetting('x'), 'open' in dir(e))"
    command = [sys.executable, "-I", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"{eventctx.__version__} x True\n", done.stderr
