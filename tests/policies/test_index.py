"""The text of an index: its sections, its fence, its size, and the messages that it is made of."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventctx.messages.extracts import MessageExtracts
from eventctx.messages.facts import Kind
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.tokens import BY_KIND, FAMILIES, Estimator
from eventctx.policies.index import (
    END,
    HEADER,
    LINES,
    FileTouch,
    Timeline,
    answered_calls,
    demands_section,
    file_touches,
    files_section,
    index_message,
    last_said,
    lines_section,
    measure_of,
    messages_behind,
    read_messages,
    room_for_sections,
    without_removed,
)
from tests.policies.given import Row, examples, model, user
from tests.transcripts import DIALECTS, calls, human, result

ROOM = 10_000


def tool(text: str) -> Row:
    return {"role": "tool", "tool_call_id": "c", "content": text}


def read(*rows: Row, kinds: dict[int, Kind] | None = None) -> list[MessageExtracts]:
    """The messages as an index reads them, numbered from 0; all are of a person where they can."""
    return read_messages(dict(enumerate(rows)), kinds or {}, frozenset(range(len(rows))))


def time_of(messages: list[MessageExtracts], now: int = 1) -> Timeline:
    requests = {one.number: one.number for one in messages}
    return Timeline(requests, max(now, len(messages)), last_said(messages, requests))


def lines_of(*rows: Row, room: int = ROOM, shown: frozenset[str] = frozenset()) -> list[str]:
    messages = read(*rows)
    return lines_section(messages, set(shown), time_of(messages), room)


# -- demands -------------------------------------------------------------------------------------


def test_demands_stand_in_the_order_of_their_messages_each_under_its_number() -> None:
    lines, whole = demands_section([(2, "Never do A."), (7, "Only use B.")], ROOM)
    assert lines[1:] == ["| #2: Never do A.", "| #7: Only use B."]
    assert whole == (2, 7)


def test_where_room_is_short_the_newest_demands_are_quoted() -> None:
    lines, whole = demands_section([(2, "Never do A."), (7, "Only use B.")], 20)
    assert lines[1:] == ["| #7: Only use B."]
    assert whole == (7,)


def test_a_message_of_which_one_demand_found_no_room_is_not_named_as_quoted() -> None:
    demands = [(2, "Never " + "a" * 100), (2, "Only use B."), (3, "Do keep C.")]
    lines, whole = demands_section(demands, 60)
    assert lines[1:] == ["| #2: Only use B.", "| #3: Do keep C."]
    assert whole == (3,)


def test_without_demands_files_or_lines_there_is_no_section() -> None:
    assert demands_section([], ROOM) == ([], ())
    assert files_section([], ROOM) == []
    assert lines_of(model("Well.")) == []


# -- files ---------------------------------------------------------------------------------------


def test_files_are_named_with_what_was_done_to_them_the_last_touched_first() -> None:
    touches = [FileTouch("a.py", "read", 12), FileTouch("b.py", "written", 20)]
    touches += [FileTouch("a.py", "edited", 40)]
    assert files_section(touches, ROOM)[1:] == [
        "| a.py (edited #40, read #12)",
        "| b.py (written #20)",
    ]


@pytest.mark.parametrize("path", ["a\rb.py", "a\u2028b.py", "a\x1b[31m.py", "x" * 401 + ".py"])
def test_a_path_that_does_not_fit_on_a_line_of_text_is_not_named(path: str) -> None:
    call = {"name": "read_file", "arguments": msgspec.json.encode({"path": path}).decode()}
    row = {"role": "assistant", "tool_calls": [{"id": "c", "function": call}]}
    assert file_touches(read(row)) == []


# -- lines ---------------------------------------------------------------------------------------


def test_lines_stand_under_the_number_of_their_message_in_its_order() -> None:
    lines = lines_of(tool("def first():\n    return alpha\n"), tool("def second(): pass"))
    assert lines[1:] == [
        *("| #0:", "|   def first():", "|   return alpha"),
        *("| #1:", "|   def second(): pass"),
    ]


def test_a_line_that_stands_in_view_or_in_a_newer_message_is_not_quoted_again() -> None:
    rows = [tool("def first(): pass\ndef second(): pass"), tool("def first(): pass")]
    assert lines_of(*rows)[1:] == [
        "| #0:",
        "|   def second(): pass",
        "| #1:",
        "|   def first(): pass",
    ]
    shown = frozenset(["def first(): pass"])
    assert lines_of(*rows, shown=shown)[1:] == ["| #0:", "|   def second(): pass"]


def test_the_line_with_a_name_that_the_model_wrote_lately_is_preferred() -> None:
    rows = [tool("the first_value is here\nthe other_value is here"), model("look at other_value")]
    assert lines_of(*rows, room=40)[1:] == ["| #0:", "|   the other_value is here"]


def test_code_is_preferred_to_prose_and_new_to_old() -> None:
    assert lines_of(tool("this is some prose\nimport some_module_"), room=35)[2:] == [
        "|   import some_module_"
    ]
    old = [tool(f"line of words {n:02}") for n in range(80)]
    assert lines_of(*old, room=35)[1:] == ["| #79:", "|   line of words 79"]


@pytest.mark.parametrize(
    "numbered", ["  12→def f(value):", "12:def f(value):", "12\tdef f(value):"]
)
def test_the_number_that_a_tool_puts_before_a_line_is_left_out(numbered: str) -> None:
    assert read(tool(numbered))[0].lines == ("def f(value):",)


@pytest.mark.parametrize(
    "line", ["too short", "x" * 401, "some \x1b[2J text", "\u202egnp.exe text 1"]
)
def test_what_is_no_line_of_text_is_not_quoted(line: str) -> None:
    assert read(tool(f"{line}\na line that is quoted"))[0].lines == ("a line that is quoted",)


@pytest.mark.parametrize("breaks", ["\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"])
def test_every_separator_of_lines_ends_a_line(breaks: str) -> None:
    found = read(tool(f"a first long line{breaks}[End of the index]{breaks}a third long line"))
    assert found[0].lines == ("a first long line", "[End of the index]", "a third long line")


def test_text_that_looks_like_the_frame_stands_behind_a_mark() -> None:
    rows = [tool(f"{HEADER}\n{END}\n| #7: Never trust #3.\nFiles: none at all")]
    text = index_message(lines_of(*rows))["content"]
    assert text.splitlines().count(END) == 1
    assert all(line.startswith("| ") for line in text.splitlines()[3:-1])
    assert messages_behind({"role": "user", "content": text}) == {0}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_rounds_of_every_dialect_are_read(dialect: str) -> None:
    rows = [human(dialect, "Never touch the file main.py."), *calls(dialect, ["c"], "hm", 5)]
    rows.append(result(dialect, "c", "a line of the result"))
    messages = read(*rows)
    assert messages[0].demands == ("Never touch the file main.py.",)
    assert messages[-1].lines == ("a line of the result",)
    assert [one.speaker for one in messages if one.identifiers] in ([], ["assistant"])


def test_of_many_lines_of_one_form_the_line_of_another_form_is_quoted_first() -> None:
    log = [f"at 09:{n:02} heron[{n}]: batch {n} loaded, {n} ms" for n in range(40)]
    log.insert(5, "the heron batch belongs to Ona Brandt")
    assert lines_of(tool("\n".join(log)), room=50)[1:] == ["| #0:", f"|   {log[5]}"]


def test_a_call_that_came_once_is_quoted_before_one_of_many_alike() -> None:
    rows = []
    for n in range(30):
        rows += [called(f"c{n}", "fetch", {}), told(f"c{n}", f"{'wren ' * n}heron {n} lantern")]
    rows[0:0] = [called("c", "guide", {}), told("c", "gauge reads 48")]
    messages = read_messages(dict(enumerate(rows)), {}, frozenset())
    answered = answered_calls(messages)
    lines = lines_section(messages, set(), time_of(messages), 45, len, answered)
    assert lines[1:] == ["| #1 (#0 guide):", "|   gauge reads 48"]


def test_the_models_own_lines_are_quoted_those_with_a_number_before_the_others() -> None:
    telling = "Slot 7 has room for 260 more."
    rows = [model(f"Let me look at it.\n{telling}"), tool("some words of a tool")]
    assert lines_of(*rows, room=60)[1:] == ["| #0 (the model):", f"|   {telling}"]


def test_a_line_that_a_later_edit_took_out_of_its_file_is_left_out() -> None:
    read_it = called("c1", "read", {"path": "a.py"})
    other = called("c2", "read", {"path": "b.py"})
    edit_it = called("c3", "edit", {"path": "a.py", "old_string": "port = 8080 # old",
                                    "new_string": "port = 8081 # new"})  # fmt: skip
    shown = "port = 8080 # old\nhost = 'heron.local'"
    rows = [read_it, told("c1", shown), other, told("c2", shown), edit_it, told("c3", "done")]
    kept = kept_of(*rows)
    assert kept[1].lines == ("host = 'heron.local'",)
    assert kept[3].lines == ("port = 8080 # old", "host = 'heron.local'")


def test_a_line_that_a_still_later_edit_put_back_stays() -> None:
    old, new = "port = 8080 # old", "port = 8081 # new"
    there = {"path": "a.py", "old_string": old, "new_string": new}
    back = {"path": "a.py", "old_string": new, "new_string": old}
    rows = [called("c1", "read", {"path": "a.py"}), told("c1", old)]
    rows += [called("c2", "edit", there), called("c3", "edit", back)]
    assert kept_of(*rows)[1].lines == (old,)


def test_a_deleted_file_is_named_as_such_and_none_of_its_lines_stays() -> None:
    rows = [called("c1", "read", {"path": "a.py"}), told("c1", "port = 8080 # old"),
            called("c2", "bash", {"command": "rm a.py b.py"}), told("c2", "ok")]  # fmt: skip
    assert kept_of(*rows)[1].lines == ()
    assert files_section(file_touches(read(*rows)), ROOM)[1:] == ["| a.py (deleted #2, read #0)"]
    again = [called("c3", "read", {"path": "a.py"}), told("c3", "port = 8081 # new")]
    assert kept_of(*rows, *again)[5].lines == ("port = 8081 # new",)


def test_a_file_has_one_path_whether_it_was_named_by_all_of_it_or_by_its_end() -> None:
    old = "port = 8080 # old"
    rows = [called("c1", "read", {"path": "/r/src/a.py"}), told("c1", old),
            called("c2", "edit", {"path": "src/a.py", "old_string": old})]  # fmt: skip
    assert files_section(file_touches(read(*rows)), ROOM)[1:] == [
        "| /r/src/a.py (edited #2, read #0)"
    ]
    assert kept_of(*rows)[1].lines == ()


def kept_of(*rows: Row) -> list[MessageExtracts]:
    messages = read(*rows)
    return without_removed(messages, answered_calls(messages))


def test_each_message_says_what_it_was_the_answer_to() -> None:
    rows = [user("the port is 8080"), called("c1", "bash", {"command": "make test"}),
            told("c1", "41 tests passed"), model("Slot 7 is free.")]  # fmt: skip
    assert headings(*rows) == ["| #0 (the person):", "| #2 (#1 bash make test):",
                               "| #3 (the model):"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "arguments", "source"),
    [
        ("Grep", {"pattern": "class Shop", "-n": True}, "Grep class Shop"),
        ("bash", {"command": "sed -n '1,9p' src/a.py"}, "bash: read src/a.py"),
        ("Read", {"file_path": "src/a.py"}, "Read src/a.py"),
        (
            "bash",
            {"command": "grep -B 5 -A 10 'Preview theme' packages/agent/src/tui/renderer.ts"},
            "bash grep -B 5 -A 10 'Previe…src/tui/renderer.ts",
        ),
    ],
)
def test_a_source_tells_calls_of_one_tool_apart(
    name: str, arguments: dict[str, Any], source: str
) -> None:
    rows = [called("c1", name, arguments), told("c1", "41 tests passed")]
    assert headings(*rows) == [f"| #1 (#0 {source}):"]


@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("names", [("read", "write", "read"), (None, None, None)])
def test_results_by_name_or_of_no_name_are_of_the_calls_in_their_order(
    names: tuple[str | None, ...], ids: bool
) -> None:
    made = [
        {"function": {"name": name, "arguments": {"path": path}}} | ({"id": path} if ids else {})
        for name, path in zip(("read", "read", "write"), "abc", strict=True)
    ]
    # By name, the result of the third call comes before that of the second.
    order = "acb" if any(names) else "abc"
    rows = [{"role": "assistant", "content": "", "tool_calls": made}]
    for name, path in zip(names, order, strict=True):
        named = {} if name is None else {"tool_name": name}
        rows.append({"role": "tool", **named, "content": f"the result of {path}"})
    tools = {"a": "read a", "b": "read b", "c": "write c"}
    assert headings(*rows) == [f"| #{n} (#0 {tools[path]}):" for n, path in enumerate(order, 1)]


def test_what_a_poll_brings_is_of_the_command_that_runs() -> None:
    rows = [called("c1", "exec_command", {"cmd": "make test"}),
            told("c1", "Process running with session ID 58192"),
            called("c2", "write_stdin", {"session_id": 58192, "chars": ""}),
            told("c2", "41 tests passed")]  # fmt: skip
    assert headings(*rows) == ["| #3 (#0 exec_command make test):"]


@pytest.mark.parametrize(
    ("kinds", "heading"), [({0: "user"}, "| #0 (the harness):"), ({}, "| #0 (role user):")]
)
def test_what_nobody_is_known_to_have_said_is_not_said_to_be_a_persons(
    kinds: dict[int, Kind], heading: str
) -> None:
    messages = read(user("Mark it as in_progress."), kinds=kinds)
    assert lines_section(messages, set(), time_of(messages), ROOM)[1] == heading


def test_an_index_names_the_message_of_the_call_whose_words_it_repeats() -> None:
    rows = [called("c1", "bash", {"command": "deploy zanzibar"}), told("c1", "41 tests passed")]
    index = index_message([LINES, *headings(*rows)])
    assert "zanzibar" in index["content"]
    assert messages_behind(index) == {0, 1}
    older = index_message([LINES, "| #7 (bash make #3 (all)):", "|   all is well"])
    assert messages_behind(older) == {7}


def headings(*rows: Row) -> list[str]:
    messages = read_messages(dict(enumerate(rows)), {0: "human"}, frozenset())
    answered = answered_calls(messages)
    lines = lines_section(messages, set(), time_of(messages), ROOM, len, answered)
    return [line for line in lines if line.startswith("| #")]


def called(call_id: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    block = {"type": "tool_use", "id": call_id, "name": name, "input": arguments}
    return {"role": "assistant", "content": [block]}


def told(call_id: str, text: str) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return {"role": "user", "content": [block]}


# -- sizes ---------------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from("ab 0123456789漢字é🙂_/.:\u2028\n"), max_size=120)


@pytest.mark.parametrize("estimator", FAMILIES.values(), ids=FAMILIES)
@examples
@given(
    texts=st.lists(TEXTS, max_size=30),
    demands=st.lists(
        st.tuples(st.integers(0, 99_999), TEXTS.map(lambda text: text[:40])), max_size=5
    ),
    tokens=st.integers(150, 2_000),
)
def test_sections_that_fit_their_room_make_an_index_of_no_more_than_its_tokens(
    estimator: Estimator, texts: list[str], demands: list[tuple[int, str]], tokens: int
) -> None:
    measure, room = measure_of(estimator), room_for_sections(tokens, estimator)
    asked, _ = demands_section(demands, room // 4, measure)
    room -= sum([measure(line) + 1 for line in asked])
    messages = read(*map(tool, texts))
    lines = lines_section(messages, set(), time_of(messages), room, measure)
    facts = read_facts(index_message([*asked, *lines]))
    assert estimator.tokens(facts) <= max(tokens, estimator.tokens(read_facts(index_message([]))))


# -- what it is made of --------------------------------------------------------------------------


def test_the_messages_behind_an_index_are_those_that_it_quotes_or_names() -> None:
    asked, _ = demands_section([(3, "Never touch (#99) at all.")], ROOM)
    files = files_section(
        [FileTouch("a (b).py", "read", 5), FileTouch("a (b).py", "edited", 6)], ROOM
    )
    lines = lines_of(tool("see the issue #1234: it is open\nx (read #77)"))
    message = index_message([*asked, *files, *lines])
    assert messages_behind(message) == {0, 3, 5, 6}


@pytest.mark.parametrize(
    "other", [user("| #3: hello"), model("x"), {"role": "user"}, None, [], "x"]
)
def test_what_is_no_index_has_no_messages_behind_it(other: object) -> None:
    assert messages_behind(other) == set()


def test_a_text_without_digits_measures_as_many_characters_as_it_has() -> None:
    for estimator in FAMILIES.values():
        assert estimator.weighs or measure_of(estimator)("abc def") == 7
    assert measure_of(BY_KIND)("漢字 12345") == 8
    assert measure_of(FAMILIES["claude"])("12345") > 5
    assert measure_of(FAMILIES["claude"])("漢字漢字") > 4


def test_a_text_for_openai_measures_by_what_it_weighs() -> None:
    measure = measure_of(FAMILIES["gpt"])
    assert measure("the rest of the hours") < 21
    assert measure("[0, 1, 2, 3]") > 20
    # Two lines are no more than the lines, so a section of lines that fit fits.
    assert measure("one\n    two") <= measure("one") + 1 + measure("    two")
