"""A message is read where it stands: unfolded in its place, with its markup or raw."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio
from playwright.async_api import Locator, Page, expect

import eventctx
from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit
from tests.browser.inspecting import path_of
from tests.browser.settling import fits, settled
from tests.browser.test_accessibility import COLOURS, broken_rules

pytestmark = in_the_browser

SESSION: Final = "reading"

ASKED: Final = """# The parser

It is **slow**, see [the report](https://elsewhere.invalid/report "of May").

1. first

2. second

| size | time |
|---|---|
| 1 MB | 9 s |

```python
def parse(text):
    return text.split("\\n")  # slow
```
"""

DIFF: Final = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n"


def _png() -> bytes:
    def chunk(name: bytes, data: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(name + data))
        return struct.pack(">I", len(data)) + name + data + check

    rows = zlib.compress(b"".join(b"\0" + b"\x80\x20\xf0" * 64 for _ in range(32)))
    head = struct.pack(">IIBBBBB", 64, 32, 8, 2, 0, 0, 0)
    mark = b"\x89PNG\r\n\x1a\n"
    return mark + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _of(data: bytes, media: str, **more: str) -> dict[str, Any]:
    coded = base64.b64encode(data).decode()
    return {**more, "source": {"type": "base64", "media_type": media, "data": coded}}


def _call(name: str, **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": name, "input": given}


def _result(name: str, content: str) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": name, "content": content}]


SAID: Final[list[tuple[str, Any]]] = [
    ("system", "Be brief."),
    ("user", ASKED),
    (
        "assistant",
        [
            {"type": "text", "text": "שלום, זה **חשוב**."},
            _call("query", path="a.py", deep={"er": [1, {"x": None}]}),
        ],
    ),
    ("user", _result("query", json.dumps({"files": [{"name": "a.py"}], "ok": True}))),
    ("assistant", [_call("diff")]),
    ("user", _result("diff", DIFF)),
    (
        "user",
        [
            {"type": "text", "text": "Look at these."},
            _of(_png(), "image/png", type="image"),
            _of(b"Some notes", "text/plain", type="document", title="notes.txt"),
            _of(b"%PDF-1.4", "application/pdf", type="document", title="paper.pdf"),
        ],
    ),
]
"""Each message's role and content."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def told(store: Path) -> None:
    """In the store of all tests, a session all of which is in its one request."""
    async with eventctx.open(store, durability="normal") as engine:
        ctx = await engine.session(SESSION, max_tokens=50_000)
        async with ctx.turn() as turn, turn.iteration():
            for role, content in SAID:
                await ctx.add_message({"role": role, "content": content})
            await ctx.get_messages_for_request()


@pytest_asyncio.fixture(loop_scope="session")
async def page(visit: Visit, told: None) -> Page:
    return await settled(await visit(path_of(SESSION)))


def row(page: Page, number: int, pane: str = "ctx-transcript") -> Locator:
    return page.locator(f"{pane} [data-number='{number}']")


@pytest.mark.parametrize("pane", ["ctx-transcript", "ctx-sent"])
async def test_a_click_unfolds_a_message_and_its_head_folds_it(page: Page, pane: str) -> None:
    message = row(page, 2, pane)
    await expect(message.locator(".message.line")).to_be_visible()
    await message.locator(".row-text").click()
    await expect(message.locator(".part.call")).to_be_visible()
    await message.locator(".part.words").click()
    await expect(message.locator(".part.call")).to_be_visible()
    await message.locator(".row-kind").click()
    await expect(message.locator(".message.line")).to_be_visible()


async def test_enter_unfolds_the_message_that_has_the_focus_and_keeps_the_focus(page: Page) -> None:
    await page.keyboard.press("n")
    await row(page, 1).locator("xpath=..").focus()
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await expect(row(page, 2).locator(".part.call")).to_be_visible()
    button = row(page, 2).get_by_role("button", name="Message 2, all of it")
    await expect(button).to_have_attribute("aria-expanded", "true")
    await page.keyboard.press("Enter")
    await expect(row(page, 2).locator(".message.line")).to_be_visible()
    await page.keyboard.press("ArrowUp")
    await expect(row(page, 1).locator("xpath=..")).to_be_focused()


async def test_markdown_is_rendered_and_raw_shows_what_was_written_for_good(page: Page) -> None:
    text = row(page, 1).locator(".row-text")
    await expect(text.locator("strong")).to_have_text("slow")
    await expect(text.locator("ol > li")).to_have_count(2)
    await expect(text.locator("th")).to_have_text(["size", "time"])
    await expect(text.locator("pre .k").first).to_contain_text("def")
    await page.keyboard.press("r")
    await expect(text.locator(".text")).to_contain_text("It is **slow**, see [the report](https://")
    await page.reload()
    await settled(page)
    await expect(text.locator(".text")).to_contain_text("It is **slow**")
    await page.get_by_role("button", name="raw").click()
    await expect(text.locator("strong")).to_have_text("slow")
    # A link shows its address before it may be opened.
    await text.get_by_role("button", name="the report").click()
    await expect(text.locator(".asked code")).to_have_text("https://elsewhere.invalid/report")
    await expect(text.get_by_role("button", name="Open https://elsewhere.invalid")).to_be_visible()


async def test_arguments_and_results_are_trees_that_fold_and_diffs_coloured(page: Page) -> None:
    await row(page, 2).locator(".row-text").click()
    call = row(page, 2).locator(".part.call")
    await expect(call.locator(".json-key").first).to_have_text("path")
    deep = call.locator("details").first
    await expect(deep).to_have_attribute("open", "")
    await deep.locator("summary").first.click()
    await expect(deep).not_to_have_attribute("open", "")
    await row(page, 3).locator(".row-text").click()
    await expect(row(page, 3).locator(".json-key")).to_have_text(["files", "ok"])
    await page.keyboard.press("r")
    await expect(row(page, 3).locator(".part.result")).to_contain_text('{"files": [{"name"')
    await page.keyboard.press("r")
    await row(page, 5).locator(".row-text").click()
    await expect(row(page, 5).locator(".ins")).to_have_text("+three\n")
    await expect(row(page, 5).locator(".del")).to_have_text("-two\n")


async def test_images_and_documents_are_shown_or_saved_and_messages_copied(page: Page) -> None:
    await row(page, 6).scroll_into_view_if_needed()
    image = row(page, 6).get_by_role("img")
    await expect(image).to_be_visible()
    assert await image.evaluate("image => image.naturalWidth") == 64
    await expect(row(page, 6)).to_contain_text("Some notes")
    async with page.expect_download() as saved:
        await row(page, 6).get_by_role("button", name="Save paper.pdf").click()
    download = await saved.value
    assert download.suggested_filename == "paper.pdf"
    assert Path(await download.path()).read_bytes() == b"%PDF-1.4"  # noqa: ASYNC240
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await row(page, 1).hover()
    await row(page, 1).get_by_role("button", name="Copy: this message").click()
    await expect(page.get_by_role("status").get_by_text("Copied.")).to_be_visible()
    assert await page.evaluate("() => navigator.clipboard.readText()") == ASKED


@pytest.mark.parametrize("width", [390, 1600])
async def test_unfolded_messages_fit_and_break_no_rule_of_axe(page: Page, width: int) -> None:
    await page.set_viewport_size({"width": width, "height": 800})
    for key in ("1", "1", "3", "4"):
        await page.keyboard.press(key)
    await expect(page.locator(".waiting")).to_have_count(0)
    assert await broken_rules(page) == []
    await page.emulate_media(color_scheme="dark")
    assert await broken_rules(page, only=COLOURS) == []
    assert await fits(page)
