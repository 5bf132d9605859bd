"""Each question of the how-to on finding out why has one command and at most three clicks."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Locator, Page, expect

from tests.browser import stores
from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit
from tests.browser.inspecting import answer_of, path_of
from tests.browser.settling import settled

pytestmark = in_the_browser

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "find-out-why.md"


def questions() -> dict[str, tuple[str, list[str]]]:
    """The rows of the page's first table: by question its command, and the clicks."""
    found = {}
    for line in PAGE.read_text(encoding="utf-8").split("\n## ")[0].splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        command = re.match(r"`eventctx (.+?)`", cells[1]) if len(cells) == 3 else None
        if command is not None:
            found[cells[0]] = (command[1], cells[2].replace("*", "").split(", "))
    return found


ANSWERS: Final = {
    "What did the model see on turn N?": ("What the model was sent", "position"),
    "Why is message M not in view, since when, by whom?": (
        *("the threshold was reached", "Dropped at compaction 1"),
    ),
    "What was lost, and is it in a summary?": ("in the summary", "36 in the summary"),
    "Was an instruction dropped?": ("sent unchanged", "Instructions 21 in view"),
    "What did it read of a file, and was that changed since?": ("read 1×", "read 1×"),
    "Was it sent so, or is it rebuilt?": ("The view verifies.", "Prepared by eventctx"),
    "Is the log whole, and who signed it?": ("receipt", "Nobody signed it."),
    "Who said it?": ("(a tool's result)", "context:message_added"),
    "What did it cost?": ("requests in 13 turns", "read from cache"),
    "Which requests began differently, so that a cache missed?": ("compaction @110", "×: 2.6, "),
    "What differs between two requests?": ("least_needed", "only in B"),
    "How do I get it back?": ("back in view", "eventctx restore demo"),
}
"""By question, what the command prints of the demonstration, and what the page shows at last."""


async def test_every_question_has_an_answer_here() -> None:
    assert list(questions()) == list(ANSWERS)


@pytest.mark.parametrize("question", questions())
async def test_one_command_answers_a_question(question: str, tmp_path: Path, store: Path) -> None:
    words = shlex.split(questions()[question][0])
    if words[0] == "restore":  # the store of all tests is only read
        copy = tmp_path / "copy.db"
        await answer_of("copy", store, copy, stores.DEMO)
        store = copy
    given = {"SESSION": stores.DEMO, "N": "2", "M": "3"}
    printed = await answer_of(*(given.get(word, word) for word in words), "--store", store)
    assert ANSWERS[question][0] in printed


@pytest.mark.parametrize("question", questions())
async def test_a_question_is_answered_by_at_most_three_clicks(question: str, visit: Visit) -> None:
    session, clicks = stores.DEMO, questions()[question][1]
    if clicks == ["in money"]:  # only a recorded session names models that have a price
        if stores.recorded_folder() is None:
            pytest.skip("no recorded sessions here")
        session = "claude-code"
    page = await settled(await visit(path_of(session)))
    await expect(page.locator(".waiting")).to_have_count(0)
    assert len(clicks) <= 3
    if "the message" in clicks:
        rows = page.locator("ctx-transcript ctx-virtual-list")
        await rows.evaluate("list => list.scrollTo(0, 0)")
    for step in clicks:
        await clicked(page, step).click()
    await expect(page.get_by_role("main")).to_contain_text(ANSWERS[question][1])


def clicked(page: Page, step: str) -> Locator:
    """What a step of the table names."""
    named = re.compile(f"^{step}")
    link, button = page.get_by_role("link", name=named), page.get_by_role("button", name=named)
    others = {
        "a bar of the curve": page.get_by_role("slider", name="Cursor: a request of the river"),
        "the message": page.locator("ctx-transcript [data-number='3'] .row-text"),
        "its box": page.get_by_role("checkbox").first,
        "All": page.get_by_role("group", name="List").get_by_role("button", name="All"),
    }
    return others.get(step) or link.or_(button).or_(page.get_by_role("tab", name=named)).first
