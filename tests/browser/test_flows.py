"""What a person comes for: when did it forget my instruction, and why; and the how-to's rows."""

from __future__ import annotations

import asyncio
import csv
import io
import re
import shlex
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Browser, BrowserContext, Locator, Page, Route, StorageState, expect

import eventctx
from tests.browser import stores
from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit
from tests.browser.inspecting import Inspector, answer_of, path_of
from tests.browser.settling import settled
from tests.browser.test_accessibility import broken_rules

pytestmark = in_the_browser

DEMO: Final = stores.DEMO


async def test_three_clicks_lead_to_when_it_was_forgotten_and_why(visit: Visit) -> None:
    page = await settled(await visit())
    await page.get_by_role("table").get_by_title(stores.CHAT, exact=True).click()
    await page.get_by_role("link", name=re.compile("of your messages (is|are) not in view")).click()
    await expect(page.get_by_role("heading", name="not in view").first).to_be_visible()
    card = page.get_by_role("article", name="Message 2", exact=True)
    await expect(card).to_contain_text(stores.FORGOTTEN)
    await expect(card).to_contain_text("the policy ranked it lower")
    await card.get_by_role("link", name="Why message 2 is not in view").click()
    await expect(page).to_have_url(re.compile(r"/s/a%20long%20chat\?.*msg=2\b.*tab=why"))
    why = page.locator("ctx-drawer")
    await expect(why).to_contain_text("#2")
    await expect(why).to_contain_text(re.compile("dropped at compaction", re.IGNORECASE))
    await expect(why).to_contain_text("the policy ranked it lower")


async def test_a_link_gives_its_place_again_and_back_the_last(visit: Visit, load: Visit) -> None:
    page = await settled(await visit(path_of(DEMO)))
    await page.keyboard.press("Shift+ArrowLeft")
    await expect(page).to_have_url(re.compile(r"at=616\b"))
    again = await settled(await load(page.url))
    assert again.url == page.url
    for one in (page, again):
        where = one.get_by_role("group", name="The request at the cursor")
        await expect(where).to_contain_text("turn 13, iteration 2")
    await page.get_by_role("link", name="Integrity").click()
    await expect(page.get_by_role("heading", name="Integrity").first).to_be_visible()
    await page.go_back()
    await expect(page).to_have_url(again.url)
    await expect(page.locator("ctx-session")).to_be_visible()


async def test_two_marked_requests_are_compared(visit: Visit, store: Path) -> None:
    page = await settled(await visit(path_of(DEMO, at=330)))
    for key in ("a", "Shift+ArrowRight", "b", "c"):
        await page.keyboard.press(key)
    await expect(page).to_have_url(re.compile(r"/s/demo/compare\?.*cmp=\d+"))
    partner, at = (int(re.findall(rf"{key}=(\d+)", page.url)[0]) for key in ("cmp", "at"))
    async with eventctx.open(store) as engine:
        diff = await engine.diff(DEMO, partner, at, by="position")
    gone = [one.number for one in diff.differences if one.kind == "dropped"]
    assert gone
    await expect(page.get_by_role("heading", name="Compare two requests")).to_be_visible()
    for number in gone[:3]:
        await expect(page.locator("ctx-compare")).to_contain_text(f"#{number}")


async def test_what_was_lost_is_brought_back_by_a_command(visit: Visit, store: Path) -> None:
    page = await settled(await visit(path_of(stores.TOLD, "lost")))
    card = page.get_by_role("article", name="Message 0", exact=True)
    await expect(card.locator("mark")).to_have_text(stores.DEMAND)
    async with eventctx.open(store, read_only=True) as engine:
        items = (await engine.lost(DEMO)).items
    files = {one.number for one in items if one.kind == "file" and one.state.value != "whole"}
    page = await settled(await visit(path_of(DEMO, "lost")))
    await page.get_by_role("button", name=re.compile("^Files ")).click()
    await page.get_by_role("button", name="Compaction", exact=True).click()
    await expect(page.locator(".lost-kind h3").first).to_contain_text("Compaction 1")
    await page.get_by_role("button", name=re.compile("^Choose these")).click()
    chosen = page.get_by_role("region", name="What is chosen")
    numbers = " ".join(map(str, sorted(files)))
    await expect(chosen.locator("code")).to_contain_text(f"eventctx restore demo {numbers} ")
    assert await broken_rules(page) == []
    await page.get_by_role("checkbox", name=re.compile(f"#{min(files)} ")).first.uncheck()
    fewer = " ".join(map(str, sorted(files)[1:]))
    await expect(chosen.locator("code")).to_contain_text(f"eventctx restore demo {fewer} ")
    await chosen.get_by_role("button", name="Choose none").click()
    await expect(chosen).to_be_hidden()
    await expect(page.get_by_role("checkbox", checked=True)).to_have_count(0)


async def test_a_session_that_sent_nothing_says_so_once(visit: Visit, store: Path) -> None:
    async with eventctx.open(store) as engine:
        ctx = await engine.session("unsent")
        await ctx.add_message({"role": "user", "content": "Never touch the migrations."})
    page = await settled(await visit(path_of("unsent", "lost")))
    await expect(page.get_by_role("heading", name="Nothing was sent yet")).to_be_visible()
    await expect(page.locator("ctx-lost")).not_to_contain_text("in view")
    page = await settled(await visit(path_of("unsent", "integrity")))
    integrity = page.locator("ctx-integrity")
    await expect(integrity).to_contain_text("Nothing was sent yet.")
    await expect(integrity).not_to_contain_text("0 views")
    page = await settled(await visit(path_of("unsent")))
    assert await broken_rules(page) == []


@pytest.mark.skipif(stores.recorded_folder() is None, reason="no recorded sessions here")
async def test_rebuilt_requests_are_consistent_and_not_verified(visit: Visit) -> None:
    page = await settled(await visit(path_of("claude-code", "integrity")))
    await page.get_by_role("button", name=re.compile("^Check .* here$")).click()
    verdict = page.locator(".verdict").filter(has_text="derived in this browser")
    await expect(verdict).to_contain_text("consistent")
    await expect(verdict).not_to_contain_text(re.compile("verified", re.IGNORECASE))
    page = await settled(await visit(path_of("claude-code")))
    await expect(page.locator(".head-known summary")).to_have_text("reconstructed, consistent")


async def test_a_fork_leads_to_where_it_began_and_a_hit_to_its_message(visit: Visit) -> None:
    page = await settled(await visit("/search?q=%22two tables%22"))
    await page.get_by_role("link", name="#2", exact=True).click()
    await expect(page).to_have_url(re.compile(r"/s/a%20long%20chat\?msg=2$"))
    page = await settled(await visit(path_of(stores.FORK)))
    await page.get_by_role("link", name="demo at @300").click()
    await expect(page).to_have_url(re.compile(r"/s/demo\?at=300"))
    await expect(page.get_by_role("heading", name="demo", exact=True)).to_be_visible()


async def test_messages_are_chosen_by_who_spoke_a_tool_and_a_failure(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO, "search")))
    says = page.locator("ctx-search .lead")
    await page.get_by_label("Failed results").check()
    await expect(says).to_have_text(re.compile(r"^5 messages; marked on the river"))
    tool = page.get_by_role("textbox", name="Tool")
    await tool.fill("grep")
    await tool.press("Tab")
    await expect(page).to_have_url(re.compile(r"tab=errors\+tool-grep"))
    await expect(says).to_have_text(re.compile("^1 message; marked on the river"))
    by = page.get_by_role("combobox", name="Said by")
    await by.select_option("person")
    await expect(says).to_have_text("No message is like that in this session.")
    await page.get_by_label("Failed results").uncheck()
    await by.select_option("model")
    await expect(says).to_have_text(re.compile(r"^\d+ messages"))
    await expect(page.locator(".hit").first).to_contain_text("grep")
    await page.get_by_role("searchbox").fill("xylophone")
    await expect(says).to_have_text("Nothing like that holds “xylophone” in this session.")


async def test_two_sessions_are_compared_and_two_policies_played_over_one(visit: Visit) -> None:
    page = await settled(await visit(path_of(DEMO, "compare")))
    await page.get_by_role("link", name="Two sessions").click()
    other = page.get_by_role("combobox", name="With session")
    await other.fill(stores.FORK)
    await other.press("Enter")
    for words in ("messages alike", f"Only in demo, never added to {stores.FORK}"):
        await expect(page.locator("ctx-compare")).to_contain_text(words)
    await page.get_by_role("link", name="This as JSON").is_visible()
    await page.get_by_role("link", name="Session", exact=True).click()
    await expect(page).to_have_url(re.compile("/s/demo$"))
    page = await settled(await visit(path_of(DEMO, "compare", tab="policies")))
    await page.get_by_role("combobox", name="Policy B").select_option("truncate")
    await page.get_by_role("button", name="Play").click()
    table = page.get_by_role("region", name="What each policy keeps")
    for policy in ("whole", "workset", "truncate", "hindsight"):
        await expect(table.get_by_role("rowheader", name=policy)).to_be_visible()


async def test_tables_are_saved_as_csv(visit: Visit) -> None:
    tables = {}
    places = {"sessions": "/", "requests": path_of(DEMO), "lost": path_of(DEMO, "lost")}
    for name, path in places.items():
        page = await settled(await visit(path))
        async with page.expect_download() as saving:
            await page.get_by_role("button", name=f"Save as CSV: {name}").click()
        saved = await saving.value
        assert saved.suggested_filename == f"{name}.csv"
        text = await asyncio.to_thread(Path(await saved.path()).read_bytes)
        tables[name] = list(csv.DictReader(io.StringIO(text.decode(), newline=""), strict=True))
    assert DEMO in {row["session"] for row in tables["sessions"]}
    assert len(tables["requests"]) == 79 and tables["requests"][0]["request"] == "1.1"
    assert {row["state"] for row in tables["lost"]} == {"gone", "summary"}


async def test_the_list_says_how_far_it_is_meanwhile(visit: Visit, context: BrowserContext) -> None:
    await settled(await visit())  # the server has made a list before
    page = await context.new_page()
    told = asyncio.Event()

    async def hold(route: Route) -> None:
        await told.wait()
        await route.continue_()

    await page.route("**/api/sessions", hold)
    await page.goto("/")
    await expect(page.get_by_text(re.compile(r"^Reading \d+ of \d+ sessions …$"))).to_be_visible()
    told.set()
    await expect(page.get_by_role("table")).to_be_visible()
    await page.close()


async def test_a_page_of_which_a_file_does_not_arrive_says_so(
    browser: Browser, inspector: Inspector, signed_in: StorageState
) -> None:
    context = await browser.new_context(storage_state=signed_in, base_url=inspector.origin)
    page = await context.new_page()
    await page.route("**/page/main.js", lambda route: route.abort())
    await page.goto("/")
    await expect(page.get_by_role("alert")).to_have_text("This page did not load whole. Reload it.")
    await page.unroute_all()
    await page.reload()
    await expect(page.get_by_role("table")).to_be_visible()
    await expect(page.get_by_text("did not load whole")).to_be_hidden()
    await context.close()


async def test_the_list_is_sorted_searched_and_filtered_by_its_address(visit: Visit) -> None:
    page = await settled(await visit())
    heads = page.get_by_role("columnheader")
    await expect(heads).to_have_text(["Title", "Project", "Model", "Tokens", "Cost", "Last used"])
    tokens = page.get_by_role("columnheader", name="Tokens")
    await tokens.get_by_role("button").click()
    await expect(tokens).to_have_attribute("aria-sort", "descending")
    await expect(page).to_have_url(re.compile(r"\?tab=tokens-down$"))
    shown = await page.locator(".listed-tokens[role=cell]").all_inner_texts()
    sizes = [float(text.strip("~").replace("k", "e3").replace("M", "e6")) for text in shown if text]
    assert len(sizes) > 3 and sizes == sorted(sizes, reverse=True)
    await page.keyboard.press("/")
    await page.wait_for_url("**/search?tab=tokens-down")
    await page.keyboard.type("column")
    status = page.get_by_role("status").filter(has_text="messages")
    await expect(status).to_have_text(re.compile(r"[\d,]+ messages, in \d+ sessions"))
    await expect(page.get_by_role("heading", name=stores.CHAT)).to_be_visible()
    await page.keyboard.press("Escape")
    await expect(page).to_have_url(re.compile(r"/\?tab=tokens-down$"))
    await expect(page.get_by_role("heading", name="Sessions")).to_be_visible()
    await tokens.get_by_role("button").click()
    await expect(tokens).to_have_attribute("aria-sort", "ascending")
    await page.get_by_label("Has compactions").check()
    await expect(page).to_have_url(re.compile(r"\?tab=tokens-up\+compactions$"))
    await page.get_by_label("to", exact=True).fill("1999-12-31")
    await expect(page.get_by_role("heading", name="No session like that")).to_be_visible()


# -- the questions of the how-to -------------------------------------------------------------------


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
