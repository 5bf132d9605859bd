"""The text of an index: its sections, its fence, its size, and the messages that it is made of."""

from __future__ import annotations

from typing import Any

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
from tests.policies.given import Row, called, examples, model, told, user
from tests.transcripts import DIALECTS, calls, human, result

ROOM = 10_000
LONG = [(2, "Never " + "a" * 100), (2, "Only B."), (3, "Do keep C.")]


def tool(text: str) -> Row:
    return {"role": "tool", "tool_call_id": "c", "content": text}


def read(*rows: Row, kinds: dict[int, Kind] | None = None) -> list[MessageExtracts]:
    """The messages as an index reads them, numbered from 0; all are of a person where they can."""
    return read_messages(dict(enumerate(rows)), kinds or {}, frozenset(range(len(rows))))


def section(messages: list[MessageExtracts], room: int = ROOM, *more: Any, shown: Any = ()) -> Any:
    """The lines that an index quotes of these messages."""
    requests = {one.number: one.number for one in messages}
    time = Timeline(requests, max(1, len(messages)), last_said(messages, requests))
    return lines_section(messages, {*shown}, time, room, *more)


def lines_of(*rows: Row, room: int = ROOM, shown: Any = ()) -> list[str]:
    found: list[str] = section(read(*rows), room, shown=shown)
    return found


# -- demands -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("demands", "room", "said", "whole"),
    [
        ([(2, "Never A."), (7, "Only B.")], ROOM, ["| #2: Never A.", "| #7: Only B."], (2, 7)),
        ([(2, "Never A."), (7, "Only B.")], 20, ["| #7: Only B."], (7,)),
        # Of which one demand found no room, a message is not named as quoted.
        (LONG, 60, ["| #2: Only B.", "| #3: Do keep C."], (3,)),
    ],
)
def test_demands_stand_in_order_under_their_numbers_the_newest_where_room_is_short(
    demands: list[tuple[int, str]], room: int, said: list[str], whole: tuple[int, ...]
) -> None:
    lines, quoted = demands_section(demands, room)
    assert (lines[1:], quoted) == (said, whole)


# -- files ---------------------------------------------------------------------------------------


def test_files_are_named_with_what_was_done_to_them_the_last_touched_first() -> None:
    touched = [("a.py", "read", 12), ("b.py", "written", 20), ("a.py", "edited", 40)]
    named = ["| a.py (edited #40, read #12)", "| b.py (written #20)"]
    assert files_section([FileTouch(*one) for one in touched], ROOM)[1:] == named
    # Without demands, files or lines there is no section.
    assert demands_section([], ROOM) == ([], ())
    assert files_section([], ROOM) == lines_of(model("Well.")) == []


@pytest.mark.parametrize("path", ["a\rb.py", "a\u2028b.py", "a\x1b[31m.py", "x" * 401 + ".py"])
def test_a_path_that_does_not_fit_on_a_line_of_text_is_not_named(path: str) -> None:
    assert file_touches(read(called("c", "read_file", {"path": path}))) == []


# -- lines ---------------------------------------------------------------------------------------


def test_lines_stand_under_the_number_of_their_message_in_its_order_and_only_once() -> None:
    first, second = "|   def first(): pass", "|   def second(): pass"
    lines = lines_of(tool("def first(): pass\n    return alpha\n"), tool("def second(): pass"))
    assert lines[1:] == ["| #0:", first, "|   return alpha", "| #1:", second]
    rows = [tool("def first(): pass\ndef second(): pass"), tool("def first(): pass")]
    assert lines_of(*rows)[1:] == ["| #0:", second, "| #1:", first]
    in_view = frozenset(["def first(): pass"])
    assert lines_of(*rows, shown=in_view)[1:] == ["| #0:", second]


NAMED = [tool("the first_value is here\nthe other_value is here"), model("look at other_value")]
MODELS = "| #0 (the model):"
LOG = [f"at 09:{n:02} heron[{n}]: batch {n} loaded, {n} ms" for n in range(40)]
OTHER = "the heron batch belongs to Ona Brandt"
TELLING = "Slot 7 has room for 260 more."


@pytest.mark.parametrize(
    ("rows", "room", "preferred"),
    [
        (NAMED, 40, ["| #0:", "|   the other_value is here"]),
        (
            [tool("this is some prose\nimport some_module_")],
            35,
            ["| #0:", "|   import some_module_"],
        ),
        (
            [tool(f"line of {n:02} words") for n in range(80)],
            35,
            ["| #79:", "|   line of 79 words"],
        ),
        ([tool("\n".join([*LOG[:5], OTHER, *LOG[5:]]))], 50, ["| #0:", f"|   {OTHER}"]),
        (
            [model(f"Let me see.\n{TELLING}"), tool("a tool's words")],
            60,
            [MODELS, f"|   {TELLING}"],
        ),
    ],
    ids=["a name that the model wrote", "code", "new", "of another form", "the model's own number"],
)
def test_what_tells_most_is_preferred(rows: list[Row], room: int, preferred: list[str]) -> None:
    assert lines_of(*rows, room=room)[1:] == preferred


NO_LINES = ("too short", "x" * 401, "some \x1b[2J text", "\u202egnp.exe text")
THREE = ("a first long line", "[End of the index]", "a third long line")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        *((f"{number}def f(value):", ("def f(value):",)) for number in ("  12→", "12:", "12\t")),
        *((f"{line}\na line that is quoted", ("a line that is quoted",)) for line in NO_LINES),
        *((end.join(THREE), THREE) for end in ("\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029")),
    ],
)
def test_a_line_ends_at_separators_and_has_no_number(text: str, lines: tuple[str, ...]) -> None:
    assert read(tool(text))[0].lines == lines


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


def test_a_call_that_came_once_is_quoted_before_one_of_many_alike() -> None:
    rows = [called("c", "guide", {}), told("c", "gauge reads 48")]
    for n in range(30):
        rows += [called(f"c{n}", "fetch", {}), told(f"c{n}", f"{'wren ' * n}heron {n} lantern")]
    messages = read_messages(dict(enumerate(rows)), {}, frozenset())
    answered = answered_calls(messages)
    lines = section(messages, 45, len, answered)
    assert lines[1:] == ["| #1 (#0 guide):", "|   gauge reads 48"]


OLD, NEW, HOST = "port = 8080 # old", "port = 8081 # new", "host = 'heron.local'"


def kept_of(*rows: Row) -> list[tuple[str, ...]]:
    messages = read(*rows)
    return [one.lines for one in without_removed(messages, answered_calls(messages))]


def reading(path: str, text: str, call_id: str = "c1") -> list[Row]:
    return [called(call_id, "read", {"path": path}), told(call_id, text)]


def edits(path: str, old: str, new: str) -> Row:
    return called("c9", "edit", {"path": path, "old_string": old, "new_string": new})


def test_a_line_that_a_later_edit_took_out_of_its_file_is_left_out_unless_it_was_put_back() -> None:
    rows = [*reading("a.py", f"{OLD}\n{HOST}"), *reading("b.py", f"{OLD}\n{HOST}", "c2")]
    kept = kept_of(*rows, edits("a.py", OLD, NEW), told("c9", "done"))
    assert (kept[1], kept[3]) == ((HOST,), (OLD, HOST))
    again = [edits("a.py", OLD, NEW), edits("a.py", NEW, OLD)]
    assert kept_of(*reading("a.py", OLD), *again)[1] == (OLD,)


def test_a_deleted_file_is_named_as_such_and_a_file_has_one_path_however_it_was_named() -> None:
    deletes = [called("c2", "bash", {"command": "rm a.py b.py"}), told("c2", "ok")]
    rows = [*reading("a.py", OLD), *deletes]
    assert files_section(file_touches(read(*rows)), ROOM)[1:] == ["| a.py (deleted #2, read #0)"]
    kept = kept_of(*rows, *reading("a.py", NEW, "c3"))
    assert (kept[1], kept[5]) == ((), (NEW,))
    rows = [*reading("/r/src/a.py", OLD), edits("src/a.py", OLD, "")]
    named = ["| /r/src/a.py (edited #2, read #0)"]
    assert files_section(file_touches(read(*rows)), ROOM)[1:] == named
    assert kept_of(*rows)[1] == ()


def headings(*rows: Row) -> list[str]:
    messages = read_messages(dict(enumerate(rows)), {0: "human"}, frozenset())
    answered = answered_calls(messages)
    lines = section(messages, ROOM, len, answered)
    return [line for line in lines if line.startswith("| #")]


def test_each_message_says_what_it_was_the_answer_to() -> None:
    round_ = [called("c1", "bash", {"command": "make test"}), told("c1", "41 tests passed")]
    found = headings(user("the port is 8080"), *round_, model("Slot 7 is free."))
    assert found == ["| #0 (the person):", "| #2 (#1 bash make test):", "| #3 (the model):"]
    # What a poll brings is of the command that runs.
    polled = [called("c1", "exec_command", {"cmd": "make test"}),
              told("c1", "Process running with session ID 58192"),
              called("c2", "write_stdin", {"session_id": 58192, "chars": ""}),
              told("c2", "41 tests passed")]  # fmt: skip
    assert headings(*polled) == ["| #3 (#0 exec_command make test):"]


GREP = "grep -B 5 -A 10 'Preview theme' packages/agent/src/tui/renderer.ts"


@pytest.mark.parametrize(
    ("name", "arguments", "source"),
    [
        ("Grep", {"pattern": "class Shop", "-n": True}, "Grep class Shop"),
        ("bash", {"command": "sed -n '1,9p' src/a.py"}, "bash: read src/a.py"),
        ("Read", {"file_path": "src/a.py"}, "Read src/a.py"),
        ("bash", {"command": GREP}, "bash grep -B 5 -A 10 'Previe…src/tui/renderer.ts"),
    ],
)
def test_a_source_tells_one_tools_calls_apart(
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


def test_what_nobody_is_known_to_have_said_is_not_said_to_be_a_persons() -> None:
    cases: list[tuple[dict[int, Kind], str]] = [({0: "user"}, "the harness"), ({}, "role user")]
    for kinds, speaker in cases:
        found = section(read(user("Mark it as in_progress."), kinds=kinds))
        assert found[1] == f"| #0 ({speaker}):"


def test_an_index_names_the_message_of_the_call_whose_words_it_repeats() -> None:
    rows = [called("c1", "bash", {"command": "deploy zanzibar"}), told("c1", "41 tests passed")]
    index = index_message([LINES, *headings(*rows)])
    assert "zanzibar" in index["content"]
    assert messages_behind(index) == {0, 1}
    older = index_message([LINES, "| #7 (bash make #3 (all)):", "|   all is well"])
    assert messages_behind(older) == {7}


# -- sizes ---------------------------------------------------------------------------------------

TEXTS = st.text(st.sampled_from("ab 0123456789漢字é🙂_/.:\u2028\n"), max_size=120)


@pytest.mark.parametrize("estimator", FAMILIES.values(), ids=FAMILIES)
@examples
@given(
    texts=st.lists(TEXTS, max_size=30),
    demands=st.lists(st.tuples(st.integers(0, 99_999), TEXTS), max_size=5),
    tokens=st.integers(150, 2_000),
)
def test_sections_that_fit_their_room_make_an_index_of_no_more_than_its_tokens(
    estimator: Estimator, texts: list[str], demands: list[tuple[int, str]], tokens: int
) -> None:
    measure, room = measure_of(estimator), room_for_sections(tokens, estimator)
    asked, _ = demands_section(demands, room // 4, measure)
    room -= sum([measure(line) + 1 for line in asked])
    messages = read(*map(tool, texts))
    lines = section(messages, room, measure)
    facts = read_facts(index_message([*asked, *lines]))
    assert estimator.tokens(facts) <= max(tokens, estimator.tokens(read_facts(index_message([]))))


# -- what it is made of --------------------------------------------------------------------------


def test_the_messages_behind_an_index_are_those_that_it_quotes_or_names() -> None:
    asked, _ = demands_section([(3, "Never touch (#99) at all.")], ROOM)
    touched = FileTouch("a (b).py", "read", 5), FileTouch("a (b).py", "edited", 6)
    lines = lines_of(tool("see the issue #1234: it is open\nx (read #77)"))
    message = index_message([*asked, *files_section([*touched], ROOM), *lines])
    assert messages_behind(message) == {0, 3, 5, 6}
    others = [user("| #3: hello"), model("x"), {"role": "user"}, None, [], "x"]
    assert [messages_behind(other) for other in others] == [set()] * 6


def test_a_text_measures_its_characters_or_for_openai_what_it_weighs() -> None:
    for estimator in FAMILIES.values():
        assert estimator.weighs or measure_of(estimator)("abc def") == 7
    assert measure_of(BY_KIND)("漢字 12345") == 8
    assert measure_of(FAMILIES["claude"])("12345") > 5
    assert measure_of(FAMILIES["claude"])("漢字漢字") > 4
    measure = measure_of(FAMILIES["gpt"])
    assert measure("the rest of the hours") < 21
    assert measure("[0, 1, 2, 3]") > 20
    # Two lines are no more than the lines, so a section of lines that fit fits.
    assert measure("one\n    two") <= measure("one") + 1 + measure("    two")
