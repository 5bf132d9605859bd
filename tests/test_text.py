"""Text that is safe to show, whatever is in it, and patterns that are compiled late."""

from __future__ import annotations

import gc
import json
import re
from importlib import import_module

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.text import escape, escape_breaks, escape_json, pattern, without_password
from tests.test_imports import HOMES, modules

CONTROLS = [*range(0x09), *range(0x0B, 0x20), *range(0x7F, 0xA0)]
MARKS = [0x61C, *range(0x200B, 0x2010), *range(0x2028, 0x202F), 0x2060, *range(0x2066, 0x206A)]
UNSAFE = {chr(one) for one in (*CONTROLS, *MARKS, 0xFEFF, 0xDC80, *range(0xE0000, 0xE0080))}


@pytest.mark.parametrize("make", [escape, escape_breaks, escape_json])
def test_nothing_unsafe_is_left_and_the_rest_stays(make) -> None:
    for one in sorted(UNSAFE):
        assert not UNSAFE & set(make(f"a{one}b")), hex(ord(one))
    assert make("é ü 😀 ¡ \u2010 \u00a0 日本") == "é ü 😀 ¡ \u2010 \u00a0 日本"


def test_what_no_reader_sees_is_shown_and_layout_stays_unless_it_must_be_one_line() -> None:
    assert escape("pass\u00adword \u180e") == "pass\\xadword \\u180e"
    assert escape("a\n\tb\r\n") == "a\n\tb\\r\n"
    assert escape_breaks("a\n\tb\r\n\x1b\U000e0041") == r"a\n\tb\r\n\x1b\U000e0041"
    assert escape_json('[1,\r"a"]') == '[1, "a"]'  # between values it is layout


@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_escaped_json_has_the_same_value(value: object) -> None:
    for indent in (None, 2):
        written = json.dumps(value, ensure_ascii=False, indent=indent)
        assert json.loads(escape_json(written)) == value


def test_a_url_is_shown_without_its_password() -> None:
    for text, shown in [
        ("http://bob:hunter2@host:4318", "http://bob:[redacted:password]@host:4318"),
        ("'redis://:p@ss@host', x", "'redis://:[redacted:password]@host', x"),
        ("a://u:p@h and b://u:q@i", "a://u:[redacted:password]@h and b://u:[redacted:password]@i"),
        ("bob:hunter2@host:4317", "bob:[redacted:password]@host:4317"),
        ("http://host:4318/a@b", "http://host:4318/a@b"),
        ("http://bob@host", "http://bob@host"),
        (
            "postgresql://h1:1,h2:2/db?user=u&password=a%20b&sslmode=require",
            "postgresql://h1:1,h2:2/db?user=u&password=[redacted:password]&sslmode=require",
        ),
        ("'nats://s3cret@host:4222'", "'nats://[redacted]@host:4222'"),
        ("nats://a:b@h:1,a:c@i:2/?x=1", "nats://a:[redacted:password]@i:2/?x=1"),
        ("nats://h:1,me:pw@i:2", "nats://h:[redacted:password]@i:2"),
        ("nats://tok1@h:1,tok2@i:2", "nats://[redacted]@h:1,[redacted]@i:2"),
        ("tls://h?name=A&token=t0k", "tls://h?name=A&token=[redacted:password]"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
    ]:
        assert without_password(text) == shown
        assert without_password(shown) == shown


# -- patterns that are compiled when they are first used -------------------------------------------


LIBRARY = re.compile(r"^\s*(?:from|import) (\w+)", re.MULTILINE)
"""What a module imports, told by its lines: to parse all modules takes seconds."""


def test_a_pattern_does_all_that_a_compiled_one_does_which_is_made_once_when_it_is_used() -> None:
    word = pattern(r"(\w)\w*", re.ASCII)
    assert word.findall("one two") == ["o", "t"]
    assert word.sub("-", "one two") == "- -"
    assert word.pattern == r"(\w)\w*"
    assert word.flags & re.ASCII
    assert word.search("one") is not None
    assert vars(word)["search"] == re.compile(r"(\w)\w*", re.ASCII).search
    broken = pattern("(")
    with pytest.raises(re.error):
        broken.search("")


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
