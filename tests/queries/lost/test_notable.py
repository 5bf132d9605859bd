"""What is notable in a message, and whether a summary mentions it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.messages.call_effects import core, files_of, identifying, read_effect
from eventctx.messages.extracts import decisions, names_in, words_of_person
from eventctx.messages.mentions import Mentions
from eventctx.messages.parts import Part, read_parts
from eventctx.messages.tool_results import outcome_of, text_of_result
from tests.how_much import some

# -- sentences -----------------------------------------------------------------------------------


def test_the_words_of_a_person_are_those_that_no_harness_wrote() -> None:
    content = [
        {"type": "text", "text": "<system-reminder>Never say so.</system-reminder>"},
        {"type": "text", "text": "<system-reminder>no</system-reminder>Fix the login."},
        {"type": "text", "text": "<task>\nMind the tests.</task>"},
    ]
    words = words_of_person({"role": "user", "content": content})
    assert words.split("\n") == [" Fix the login.", "", "", "Mind the tests.", ""]


@pytest.mark.parametrize(
    "sentence",
    [
        "I'll use a queue for the events here.",
        "Let me take a set instead of a list.",
        "Let's go with the second of the two.",
    ],
)
def test_a_sentence_that_states_a_choice_is_a_decision(sentence: str) -> None:
    assert list(decisions(f"Now I read the file. {sentence}")) == [sentence]
    text = "I'll look at the file. The tests pass. Instead. This takes a set instead of a list."
    assert list(decisions(text)) == []


# -- files and commands --------------------------------------------------------------------------


ADDS = "*** Begin Patch\n*** Add File: n.py\n+x"
UPDATES = "*** Begin Patch\n*** Update File: a.py\n@@\n"


def effect(name: str, arguments: Any, form: str = "anthropic") -> Any:
    if form == "anthropic":
        block = {"type": "tool_use", "id": "a", "name": name, "input": arguments}
        [part] = read_parts({"role": "assistant", "content": [block]})
    else:
        text = msgspec.json.encode(arguments).decode()
        call = {"id": "a", "type": "function", "function": {"name": name, "arguments": text}}
        [part] = read_parts({"role": "assistant", "content": None, "tool_calls": [call]})
    return read_effect(part)


@pytest.mark.parametrize("form", ["anthropic", "chat"])
@pytest.mark.parametrize(
    ("name", "arguments", "files"),
    [
        ("Read", {"file_path": "/r/a.py", "limit": 3}, [("/r/a.py", "read")]),
        ("Write", {"file_path": "/r/a.py", "content": "x"}, [("/r/a.py", "written")]),
        ("Edit", {"file_path": "a.py", "old_string": "x"}, [("a.py", "edited")]),
        ("NotebookEdit", {"notebook_path": "a.ipynb"}, [("a.ipynb", "edited")]),
        ("edit", {"path": "./src//a.ts", "oldText": "x", "newText": "y"}, [("src/a.ts", "edited")]),
        ("mcp__files__read_file", {"path": "a.py"}, [("a.py", "read")]),
        ("str_replace_editor", {"command": "view", "path": "/w/a.py"}, [("/w/a.py", "read")]),
        ("file_editor", {"command": "str_replace", "path": "/w/a.py"}, [("/w/a.py", "edited")]),
        ("file_editor", {"command": "create", "path": "/w/a.py"}, [("/w/a.py", "written")]),
        ("open", {"path": "a.py", "line_number": 3}, [("a.py", "read")]),
        ("Grep", {"pattern": "x", "path": "src"}, []),
        ("apply_patch", {"input": ADDS}, [("n.py", "written")]),
        ("shell", {"command": ["apply_patch", UPDATES]}, [("a.py", "edited")]),
        ("exec_command", {"cmd": "cat a.py", "workdir": "/r"}, [("/r/a.py", "read")]),
        ("bash", {"command": "cd /r && sed -n '1,5p' a.py"}, [("a.py", "read")]),
    ],
)
def test_the_files_of_a_call_are_read_from_its_arguments(
    form: str, name: str, arguments: Any, files: list[tuple[str, str]]
) -> None:
    assert list(effect(name, arguments, form).files) == files


@pytest.mark.parametrize(
    ("name", "arguments", "command"),
    [
        ("Bash", {"command": "npm test"}, "npm test"),
        ("exec_command", {"cmd": "ls"}, "ls"),
        ("shell", {"command": ["bash", "-lc", "make -j2"]}, "make -j2"),
        ("Bash", {"command": "cat a.py"}, None),
        ("Bash", {"command": "cat a.py && npm test"}, "cat a.py && npm test"),
        ("Bash", {"command": ""}, None),
    ],
)
def test_the_command_of_a_call(name: str, arguments: Any, command: str | None) -> None:
    assert effect(name, arguments).command == command


HEREDOC = "cat > a.py <<'EOF'\ncat b.py > c.py\nEOF\ncat d.py"


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("cat a.py b.py", [("a.py", "read"), ("b.py", "read")]),
        ("head -n 20 a.py | grep x", [("a.py", "read")]),
        ("sed -i 's/a/b/' a.py", [("a.py", "edited")]),
        ("sed -i '' 's|from \"a|from \"b|g' a.py", [("a.py", "edited")]),
        (HEREDOC, [("a.py", "written"), ("d.py", "read")]),
        ("echo hi | tee -a a.txt", [("a.txt", "written")]),
        ("make > out.log 2>&1", [("out.log", "written")]),
        ("cat *.py $X `ls`", []),
        ("cat 'a b.py'", [("a b.py", "read")]),
        ("ls 2>/dev/null", []),
    ],
)
def test_of_shell_commands_only_sure_files_count(
    command: str, files: list[tuple[str, str]]
) -> None:
    assert list(files_of(command)) == files


def test_the_core_of_a_command_is_without_what_stands_around_it() -> None:
    assert core("cd /r && FOO=1 timeout 60 npm test 2>&1 | tail -20") == "npm test"
    assert core("npm  run\ncheck") == "npm run check"
    assert core("cd /r") == "cd /r"
    assert identifying("npx vitest run test/a.test.ts --bail") == ("npx vitest", ["test/a.test.ts"])


# -- outcomes ------------------------------------------------------------------------------------


def result_of(text: str) -> Part:
    [part] = read_parts({"role": "tool", "tool_call_id": "a", "content": text})
    return part


NO_FUNCTION = "TypeError: x is not a function"
NO_A = "Exit code 1\nfrom a import ValidationError\nTraceback (last)\nImportError: no a"


GONE = '{"error": {"message": "gone"}, "output": "gone", "success": false}'


@pytest.mark.parametrize(
    ("text", "status", "failed", "error"),
    [
        (f"Exit code 1\nrunning\n{NO_FUNCTION}", 1, True, NO_FUNCTION),
        ("running\n\nCommand exited with code 2", 2, True, "running"),
        ("Wall time: 1 s\nProcess exited with code 0\nOutput:\nerror", 0, False, ""),
        ('{"output": "no", "metadata": {"exit_code": 3}}', 3, True, None),
        ("<returncode>127</returncode>\n<output>\nsh: no foo\n", 127, True, "sh: no foo"),
        (NO_A, 1, True, "ImportError: no a"),
        ("bad\n[The command completed with exit code 1.]", 1, True, "bad"),
        ("all fine, error none", None, False, ""),
        ("Error: no such file", None, True, "no such file"),
        ("Error executing tool: went wrong", None, True, "went wrong"),
        (GONE, None, True, "gone"),
    ],
)
def test_the_outcome_of_a_command_or_of_a_result_that_says_so_where_no_field_can_say_it(
    text: str, status: int | None, failed: bool, error: str | None
) -> None:
    found = outcome_of(result_of(text), text_of_result(result_of(text)))
    assert (found.status, found.failed) == (status, failed)
    assert error is None or found.error == error
    if status is None:
        block = {"type": "tool_result", "tool_use_id": "a", "content": text}
        [part] = read_parts({"role": "user", "content": [block]})
        assert not outcome_of(part, text_of_result(part)).failed


def test_names_are_long_and_marked() -> None:
    text = "validate_session in core/view.py at 3fa9c1d, port 4000, ticket 123456, understandable"
    assert names_in(text) == {"validate_session", "core/view.py", "3fa9c1d", "123456"}


def _words(text: str) -> str:
    return words_of_person({"role": "user", "content": f"Hi {text}"})


@pytest.mark.parametrize(
    ("read", "piece"),
    [
        *[(core, piece) for piece in (" ", " | tail", "cd x && ", "; echo x")],
        *[(files_of, piece) for piece in ("cat <<A\n", "cat a > b\n")],
        *[(_words, piece) for piece in ("<a>", "<a x", "<br>b", "<a>b</a>")],
        *[(names_in, piece) for piece in (".", "a.", "#")],
        (lambda text: Mentions([text]).failure(f"an error in {text}"), "a"),
        (lambda text: read_effect(_patch(text)), " "),
    ],
)
def test_a_long_text_is_read_in_linear_time(read: Callable[[str], Any], piece: str) -> None:
    """With the square of it, most of these took 5 to 60 seconds."""
    text = f"ls {piece * (60_000 // len(piece))} x"
    started = time.process_time()
    read(text)
    assert time.process_time() - started < 2


def _patch(path: str) -> Part:
    return Part("call", (), f"*** Begin Patch\n*** Add File: {path}", name="apply_patch")


def test_the_patch_of_a_custom_tool_and_of_the_responses_api() -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n*** Delete File: b.py\n*** End Patch"
    custom = {"type": "custom_tool_call", "call_id": "a", "name": "apply_patch", "input": patch}
    operation = {"type": "create_file", "path": "n.py", "diff": "+x"}
    item = {"type": "apply_patch_call", "call_id": "a", "operation": operation}
    [patches], [creates] = read_parts(custom), read_parts(item)
    assert [path for path, _ in read_effect(patches).files] == ["a.py", "b.py"]
    assert read_effect(creates).files == (("n.py", "written"),)


# -- what a summary mentions, rule by rule -------------------------------------------------------


SUMMARY = Mentions(
    [
        """# Where we are
The user asked to "Implement spotter-gqc" and prefers **E2E tests only**.
- Keep old code for reference
1. continue
She asked to run bd show fum-1. Then fum-1.3 came.
Files: `src/core/agent-session.ts` (885 lines), tui-renderer.ts, lib/index.ts.bak
Ran `npm run check` - passes. vitest on test/foo.test.ts: all green.
Error: missing secret_key_base in the test config, added.
No `tokensAfter` in CompactionEntry: the existing type has only tokensBefore.
用户说请始终用中文回答。
"""
    ]
)
OLD_CODE = "btw, can we keep the old code around for reference?"
ALL = "The existing type has only one field that we need to keep here."
NO_KEY = "** (RuntimeError) no :secret_key_base configuration found"
NO_PROPERTY = "src/a.ts(53,3): error TS2339: Property 'tokensAfter' of 'CompactionEntry'"


@pytest.mark.parametrize(
    ("path", "alone", "found"),
    [
        ("/home/me/repo/src/core/agent-session.ts", True, True),
        ("/home/me/repo/src/tui/tui-renderer.ts", True, True),
        ("/home/me/repo/src/tui/tui-renderer.ts", False, False),
        ("core/agent-session.ts", True, True),
        ("src/session.ts", True, False),
        ("lib/index.ts", True, False),
    ],
)
def test_a_file_is_found_by_the_end_of_its_path(path: str, alone: bool, found: bool) -> None:
    assert SUMMARY.file(path, alone=alone) == found


CASES: list[tuple[Callable[[str], bool], str, bool]] = [
    # A person's sentence is found word for word alone,
    (SUMMARY.quotes, "Implement spotter-gqc", True),
    (SUMMARY.quotes, "Keep old code\n  for reference!", True),
    (SUMMARY.quotes, OLD_CODE, False),
    (SUMMARY.quotes, "Keep old code for references", False),
    (SUMMARY.quotes, "continue", True),
    (SUMMARY.quotes, "check", False),
    (SUMMARY.quotes, "只用中文回答", False),
    (SUMMARY.quotes, "请始终用中文回答", True),
    # a decision by most of its words,
    (SUMMARY.decision, OLD_CODE, True),
    (SUMMARY.decision, "continue", True),
    (SUMMARY.decision, "passes", False),
    (SUMMARY.decision, "check", False),
    (SUMMARY.decision, "Never touch the migrations of the database.", False),
    (SUMMARY.decision, ALL, False),
    (SUMMARY.decision, "the existing type has only tokensBefore", True),
    # a command as it is or with all that tells it from others,
    (SUMMARY.command, "cd /r && npm run check 2>&1 | tail -5", True),
    (SUMMARY.command, "npm run checks", False),
    (SUMMARY.command, "vitest run test/foo.test.ts", True),
    (SUMMARY.command, "vitest run test/bar.test.ts", False),
    (SUMMARY.command, "jest test/foo.test.ts", False),
    (SUMMARY.command, "bd show fum-1.3", False),
    (SUMMARY.command, "git status", False),
    # and a failure by its error, not by the path before it.
    (SUMMARY.failure, NO_KEY, True),
    (SUMMARY.failure, NO_PROPERTY, True),
    (SUMMARY.failure, "Assertion with =~ failed", False),
    (SUMMARY.failure, "", False),
]


@pytest.mark.parametrize(("rule", "text", "found"), CASES)
def test_sentences_decisions_commands_and_failures_are_found_each_by_its_rule(
    rule: Callable[[str], bool], text: str, found: bool
) -> None:
    assert rule(text) == found


LETTERS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=8)
WORD = st.tuples(LETTERS, st.sampled_from(["", "_"]), LETTERS).map("".join)


@settings(max_examples=some(30, 100))
@given(st.lists(WORD, min_size=4, max_size=12), st.lists(WORD, max_size=20))
def test_what_stands_in_a_summary_is_found(words: list[str], around: list[str]) -> None:
    sentence = " ".join(words)
    mentions = Mentions([f"{' '.join(around)}. {sentence}. {' '.join(around)}"])
    assert mentions.quotes(sentence) and mentions.command(sentence)
    assert all(mentions.name(word) for word in words)
