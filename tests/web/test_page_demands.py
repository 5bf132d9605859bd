"""The page finds the demands in a person's message that the engine finds in it."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from eventctx.messages import demands, speaker
from eventctx.messages.demands import demands_in
from tests.web.recorded import all_messages, of_all_messages

SCRIPT = Path(__file__).parent / "page" / "read-demands.mjs"

TEXTS = (
    "Never touch main.py. And keep the old base class!",
    "- Use tabs, please.\n* never spaces, at all\n3) You must not do it again.\n   > leave it so",
    "Don’t stop. Don't ever stop the server! Stop.",
    "```\nnever run this at all\n```\nAlways run the tests first.\n~~~\nyou must not\n~~~",
    "import os and never look back\nfoo() => never do this\nyou must do it;\n$ never run this one",
    "Make sure that it works… I'd like it blue。Please do so！Keep it",
    "Prefer é over è, always. Naïve words must stay naïve.",
    "NEVER DO THAT AGAIN\u2028You should keep this line\x0bleave me this one\x85keep me as well",
    "you must " + "word " * 58,
    "you must " + "word " * 59,
    "must 1234567890123 ok",
    "\n".join([f"You should keep number {n} as it is." for n in range(10)])
    + "\n"
    + "\n".join([f"You must never lose number {n} of it." for n in range(10)]),
    "<system-reminder>You must never do it.</system-reminder>\nPlease keep going with it.",
    "Please keep going with it. <system-reminder>You must never</system-reminder> It should stay.",
    "Please keep it. <bash-input>never do that again",
    "<command-name>x</command-name><command-message>m</command-message>",
    "<command-message>m</command-message><command-args>Never use tabs here.</command-args>",
    "<command-message>m</command-message><command-args></command-args> Keep this one please.",
    "[Request interrupted by user for tool use] You must never do that.",
    "[Request interrupted by user",
    "# AGENTS.md instructions\nNever do it.\n</INSTRUCTIONS>\nBut please keep this one.",
    "This session is being continued from a previous conversation. You must never.",
    "<task-notification>x</task-notification>\nFull transcript available at: /x\nKeep it please.",
    "<b>You must keep this bold</b> and leave that",
    "  \t\n You must keep the blanks before.",
    "You must keep it. " * 7_000,
    "",
    " ",
)


def in_the_page(messages: list[Any]) -> list[list[str]]:
    node = shutil.which("node")
    if node is None:
        if os.environ.get("CI"):
            pytest.fail("node is needed to test the page")
        pytest.skip("node is not installed")
    asked = json.dumps(messages).encode()
    done = subprocess.run([node, str(SCRIPT)], input=asked, capture_output=True, check=True)
    found: list[list[str]] = json.loads(done.stdout)
    return found


def check(messages: list[Any]) -> int:
    """Compare all of them; how many demands there were."""
    found = in_the_page(messages)
    for message, told in zip(messages, found, strict=True):
        assert told == list(demands_in(message)), message
    return sum(map(len, found))


def test_sentences_of_every_kind_are_demands_in_the_page_or_not_as_in_the_engine() -> None:
    assert check([{"role": "user", "content": text} for text in TEXTS]) > 40


def test_what_a_harness_writes_is_nobodys_demand_in_the_page_either() -> None:
    said = "You must never do that again."
    texts = [f"{prefix}{said} {said}" for prefix in speaker.HARNESS_PREFIXES]
    texts += [f"{prefix}{said}</{prefix[1:-1]}>Please keep it so." for prefix in texts]
    texts += [f"Keep this one. {prefix} {said}" for prefix in speaker.HARNESS_PREFIXES]
    names = [prefix[1:-1] for prefix in speaker.HARNESS_PREFIXES if prefix.endswith(">")]
    texts += [f"<{one}>{said}</{one}> Please keep it so." for one in names]
    texts += [f"Please keep it so. <{one}>{said}</{one}> Leave that one." for one in names]
    assert check([{"role": "user", "content": text} for text in texts]) > 100


def test_words_in_any_order_have_the_same_demands_in_the_page() -> None:
    pieces = (
        *demands.STRONG,
        *demands.KEEPING,
        *demands.LASTING,
        *demands.OBLIGING,
        *demands.WISHING,
        *demands.DOUBTS,
        *demands.OTHER_WORDS,
        *demands.OTHER_COMMANDS,
        *demands.CONDITIONS,
        *demands.ACTING,
        *(". ", "! ", "\n", " ", " ", " ", "- ", '" ', "’", "(A", "<b>", "```", "=>", ";", "1. "),
        *(
            "it",
            "the file",
            "X",
            "é",
            "日本",
            "。",
            "不要",
            "?",
            ", ",
            "e.g. ",
            " - ",
            "</system-reminder>",
            "<system-reminder>",
        ),
    )
    dice = random.Random(7)  # noqa: S311
    texts = ["".join(dice.choices(pieces, k=dice.randint(1, 40))) for _ in range(3_000)]
    texts += [" ".join(dice.choices(pieces, k=dice.randint(3, 20))) for _ in range(3_000)]
    assert check([{"role": "user", "content": text} for text in texts]) > 1_000


@of_all_messages
def test_every_recorded_message_has_the_same_demands_in_the_page(recorded_sessions: Path) -> None:
    assert check(all_messages(recorded_sessions)) > 0
