"""Edits of other programs' settings: what is ours comes and goes, every other byte stays."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.adapters.host_settings import jsonc
from eventctx.adapters.host_settings.parts import (
    JsonPart,
    Part,
    TextPart,
    TomlPart,
    describe,
    has,
    put,
    take_out,
)
from eventctx.errors import InvalidSetting
from tests.how_much import some

SERVER = JsonPart(("mcpServers", "eventctx"), {"command": "eventctx", "args": ["mcp"]})
HOOK = JsonPart(("hooks", "Stop"), {"hooks": [{"command": "eventctx hook codex"}]}, item=True)
TABLE = TomlPart(("mcp_servers", "eventctx"), {"command": "eventctx", "args": ["mcp"]})

LAYOUTS = [
    "{}",
    '{"a": 1}',
    '{"a":1,"mcpServers":{}}',
    '{ "mcpServers": { "x": {"command": "x"} }, "hooks": {"Stop": [{"hooks": []}]} }',
    "{\n  // nothing yet\n}\n",
    '{\n  "a": 1 // one\n}\n',
    '{\n  "a": 1, // one\n}\n',
    '{\n  "a": [1, 2], /* two */\n  "hooks": {\n    "Stop": [] // none\n  }\n  // the end\n}',
    '{\r\n\t"a": {\r\n\t\t"b": [1, 2]\r\n\t}\r\n}\r\n',
    '\ufeff{\n    "mcpServers": {\n        "x": {"command": ""} // mine\n    },\n    "b": 1\n}\n',
    '{\n  "hooks": {\n    "Stop": [\n      {"hooks": []}, // mine\n    ],\n  },\n}\n',
]


def comes_and_goes(text: str, part: JsonPart) -> None:
    done = put(text, part)
    assert has(done, part)
    assert take_out(done, part, text) == text


@pytest.mark.parametrize("text", LAYOUTS)
@pytest.mark.parametrize("part", [SERVER, HOOK])
def test_a_part_of_json_comes_and_goes_and_leaves_every_byte(text: str, part: JsonPart) -> None:
    comes_and_goes(text, part)


def test_a_file_that_is_not_there_becomes_one_and_comments_stay_on_their_lines() -> None:
    wanted, part = '{\n  "a": {\n    "b": 1\n  }\n}\n', JsonPart(("a", "b"), 1)
    assert put(None, part) == put("", part) == put(" \n", part) == wanted
    done = put('{\n  "a": 1 // one\n}\n', JsonPart(("b",), 2))
    assert done == '{\n  "a": 1, // one\n  "b": 2\n}\n'


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=some(50, 200), deadline=None)
@given(
    st.dictionaries(st.text(max_size=5), VALUES, min_size=1, max_size=5),
    st.sampled_from([None, 2, 4, "\t"]),
    st.booleans(),
)
def test_any_settings_in_any_layout(
    plain: dict[str, Any], indent: int | str | None, as_ascii: bool
) -> None:
    text = json.dumps(plain, indent=indent, ensure_ascii=as_ascii)
    assert jsonc.read(text).plain == plain
    for part in (SERVER, HOOK):
        if part.keys[0] not in plain:
            comes_and_goes(text, part)


OWN_HOOK = '{"hooks": {"Stop": [{"hooks": [{"command": "/bin/eventctx hook codex"}]}]}}'


@pytest.mark.parametrize(
    ("part", "text", "says"),
    [
        (SERVER, "{", "line 1: expected a key"),
        (SERVER, '{"a": 1', 'expected "," or "}"'),
        (SERVER, '{\n"a" 1}', "line 2"),
        (SERVER, "{a: 1}", "expected a key in quotes"),
        (SERVER, "{'a': 1}", "expected a key in quotes"),
        (SERVER, '{"a": 1, "a": 2}', "'a' once"),
        (SERVER, '{"a": 1} {}', "the end of the file"),
        (SERVER, '{"a": 01}', "a JSON value"),
        (SERVER, '{"a": "\n"}', "a JSON value"),
        (SERVER, "/* ", "a JSON value"),
        (SERVER, "[" * 300, "200 levels"),
        (SERVER, "[]", "expected an object"),
        (SERVER, '{"mcpServers": []}', "mcpServers: expected an object"),
        (SERVER, '{"mcpServers": {"eventctx": {}}}', "mcpServers.eventctx: expected none yet"),
        (HOOK, OWN_HOOK, "expected no hook of eventctx"),  # a person's is not doubled
        (TABLE, "a = ", "expected TOML"),
        (TABLE, "mcp_servers = {a = {command = 'x'}}\n", "to which a table can be added"),
        (TABLE, "mcp_servers = 3\n", "to which a table can be added"),
        (TABLE, "[mcp_servers.eventctx]\n", "mcp_servers.eventctx: expected none yet"),
    ],
)
def test_what_cannot_be_edited_is_refused(part: Part, text: str, says: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        put(text, part)
    assert says in str(refused.value)


TOML = [
    "",
    'model = "x"',
    'model = "x" # best\r\n\r\n[a]\r\nb = 1\r\n',
    "# mine\n[mcp_servers.other]\ncommand = 'x'\nargs = [\n  'y',\n]\n",
    'mcp_servers.a.command = "x"\n',
]


@pytest.mark.parametrize("text", TOML)
def test_a_table_comes_and_goes(text: str) -> None:
    done = put(text, TABLE)
    assert has(done, TABLE)
    assert done.startswith(text)
    taken = take_out(done, TABLE, text)
    assert taken is not None and taken.rstrip() == text.rstrip()


def test_what_another_program_added_to_a_table_of_ours_goes_with_it_if_it_is_one() -> None:
    done = put("a = 1\n", TABLE)
    done += '\n# trusted\n[projects."/x"]\ntrust_level = "trusted"\n'
    done += '\n[mcp_servers.eventctx.tools.recall]\napproval_mode = "approve"\n'
    left = 'a = 1\n\n# trusted\n[projects."/x"]\ntrust_level = "trusted"\n'
    assert take_out(done, TABLE, "a = 1\n") == left
    with pytest.raises(InvalidSetting, match=r"expected \[mcp_servers.eventctx\] as a table"):
        take_out("mcp_servers = {eventctx = {command = 'x'}}\n", TABLE, None)  # nor torn out


def test_a_file_of_ours_is_never_put_over_another() -> None:
    own = TextPart("ours\n")
    assert put(None, own) == "ours\n"
    assert take_out("ours\n", own, None) is None
    for text in ("theirs\n", "ours, and more\n"):
        with pytest.raises(InvalidSetting):
            put(text, own)
        with pytest.raises(InvalidSetting, match="found it changed"):
            take_out(text, own, None)


def test_with_a_hook_go_its_changes_and_the_containers_that_were_made_for_it_alone() -> None:
    for base in ('{"hooks": {"Stop": []}}', '{"hooks": {}}', "{}", '{"a": 1}'):
        done = put(base, HOOK)
        changed = done.replace("hook codex", "hook codex --store x")
        assert take_out(done, HOOK, base) == take_out(changed, HOOK, base) == base


def test_equal_parts_are_shown_once() -> None:
    start = JsonPart(("hooks", "PreCompact"), HOOK.value, item=True)
    parts: tuple[Part, ...] = (SERVER, start, HOOK, TABLE)
    assert describe(parts) == [
        "[mcp_servers.eventctx]",
        'command = "eventctx"',
        'args = ["mcp"]',
        'mcpServers.eventctx: {"command": "eventctx", "args": ["mcp"]}',
        'hooks.PreCompact, hooks.Stop: an item {"hooks": [{"command": "eventctx hook codex"}]}',
    ]
