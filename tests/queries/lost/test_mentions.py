"""Whether a summary mentions an item: rule by rule, what is found and what is not."""

from __future__ import annotations

from collections.abc import Callable

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
