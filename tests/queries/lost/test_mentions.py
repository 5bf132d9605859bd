"""Whether a summary mentions an item: rule by rule, what is found and what is not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.messages.mentions import Mentions
from tests.how_much import some

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


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("Implement spotter-gqc", True),
        ("Keep old code\n  for reference!", True),
        ("btw, can we keep the old code around for reference?", False),
        ("Keep old code for references", False),
        ("continue", True),
        ("check", False),
        ("只用中文回答", False),
        ("请始终用中文回答", True),
    ],
)
def test_a_persons_sentence_is_found_word_for_word_alone(sentence: str, found: bool) -> None:
    assert SUMMARY.quotes(sentence) == found


@pytest.mark.parametrize(
    ("sentence", "found"),
    [
        ("btw, can we keep the old code around for reference?", True),
        ("continue", True),
        ("passes", False),
        ("check", False),
        ("Never touch the migrations of the database.", False),
        ("The existing type has only one field that we need to keep here.", False),
        ("the existing type has only tokensBefore", True),
    ],
)
def test_a_decision_is_found_by_most_of_its_words(sentence: str, found: bool) -> None:
    assert SUMMARY.decision(sentence) == found


@pytest.mark.parametrize(
    ("command", "found"),
    [
        ("cd /r && npm run check 2>&1 | tail -5", True),
        ("npm run checks", False),
        ("vitest run test/foo.test.ts", True),
        ("vitest run test/bar.test.ts", False),
        ("jest test/foo.test.ts", False),
        ("bd show fum-1.3", False),
        ("git status", False),
    ],
)
def test_a_command_is_found_as_it_is_or_with_all_that_tells_it_from_others(
    command: str, found: bool
) -> None:
    assert SUMMARY.command(command) == found


@pytest.mark.parametrize(
    ("error", "found"),
    [
        ("** (RuntimeError) no :secret_key_base configuration found", True),
        ("src/a.ts(53,3): error TS2339: Property 'tokensAfter' of 'CompactionEntry'", True),
        ("Assertion with =~ failed", False),
        ("", False),
    ],
)
def test_a_failure_is_found_by_its_error_and_not_by_the_path_before_it(
    error: str, found: bool
) -> None:
    assert SUMMARY.failure(error) == found


LETTERS = st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=8)
WORD = st.tuples(LETTERS, st.sampled_from(["", "_"]), LETTERS).map("".join)


@settings(max_examples=some(30, 100))
@given(st.lists(WORD, min_size=4, max_size=12), st.lists(WORD, max_size=20))
def test_what_stands_in_a_summary_is_found(words: list[str], around: list[str]) -> None:
    sentence = " ".join(words)
    mentions = Mentions([f"{' '.join(around)}. {sentence}. {' '.join(around)}"])
    assert mentions.quotes(sentence)
    assert mentions.command(sentence)
    assert all(mentions.name(word) for word in words)
