"""Regular expressions that are compiled when they are first used."""

from __future__ import annotations

import gc
import re
from importlib import import_module

import pytest

from eventctx.text import pattern
from tests.test_imports import HOMES, modules

LIBRARY = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
"""What a module imports, told by its lines: to parse all modules takes seconds."""


def test_a_pattern_does_all_that_a_compiled_one_does() -> None:
    word = pattern(r"(\w)\w*", re.ASCII)
    assert word.findall("one two") == ["o", "t"]
    assert word.sub("-", "one two") == "- -"
    assert word.pattern == r"(\w)\w*"
    assert word.flags & re.ASCII


def test_a_pattern_is_not_compiled_before_it_is_used() -> None:
    broken = pattern("(")
    with pytest.raises(re.error):
        broken.search("")


def test_a_second_use_asks_for_nothing() -> None:
    word = pattern(r"\w+")
    assert word.search("one") is not None
    assert vars(word)["search"] == re.compile(r"\w+").search


@pytest.mark.slow
def test_every_pattern_of_the_package_can_be_compiled() -> None:
    base = "apsw click imagesize markdown_it msgspec platformdirs pyee pygments rich"
    extras = set(HOMES) - set(base.split())
    for name, path in modules().items():
        if extras.isdisjoint(LIBRARY.findall(path.read_text())):
            try:
                import_module(name)
            except ModuleNotFoundError as missing:  # an extra that its package imports
                assert (missing.name or "eventctx").split(".")[0] in extras
    kind: type = type(pattern(""))
    gc.unfreeze()  # objects that were frozen when the tests began are not listed
    found = [one for one in gc.get_objects() if type(one) is kind]
    assert len(found) > 50
    for one in found:
        assert isinstance(re.compile(one.pattern, one.flags), re.Pattern)
