"""Makes the two pictures of the page that the README and the tutorial show.

``python -m tests.browser.pictures [FOLDER]`` plays the demonstration into a store of its own, looks
at it in Chromium, and writes PNG files of at most 200 kB into ``docs/pictures``.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from playwright.async_api import Browser, Page, expect

from tests.browser import chromium
from tests.browser.inspecting import inspecting, output_of, path_of
from tests.browser.settling import settled
from tests.browser.stores import DEMO

FOLDER: Final = Path(__file__).resolve().parents[2] / "docs" / "pictures"
MOST_BYTES: Final = 200_000
WIDTH: Final = 1280
LOOK: Final[Any] = {"color_scheme": "light", "reduced_motion": "reduce"}


class Picture(NamedTuple):
    """A picture's file, the place that it shows, and how much of it."""

    file: str
    path: str
    height: int


PICTURES: Final = (
    Picture("inspect-session.png", path_of(DEMO, at=111, msg=3, tab="why"), height=780),
    Picture("inspect-lost.png", path_of(DEMO, "lost"), height=840),
)


@asynccontextmanager
async def demonstrated() -> AsyncIterator[tuple[Path, Browser]]:
    """A store of its own in which the demonstration was played, and a browser."""
    path = chromium.found()
    if path is None:
        sys.exit(chromium.MISSING)
    with tempfile.TemporaryDirectory(prefix="eventctx-pictures-") as place:
        # The receipts of a store that nobody keeps stay out of the user's own folder.
        os.environ["XDG_STATE_HOME"] = place
        # The user's own store, as it were: then no command on the page has to name it.
        os.environ["EVENTCTX_STORE"] = str(Path(place) / "demo.db")
        await output_of("demo", "--store", os.environ["EVENTCTX_STORE"])
        async with chromium.started(path) as browser:
            yield Path(place) / "demo.db", browser


async def make(folder: Path) -> list[Path]:
    async with demonstrated() as (store, browser), inspecting(store) as inspector:
        page = await browser.new_page(base_url=inspector.origin, **LOOK)
        await page.goto(inspector.invitation)
        return [await _picture(page, picture, folder) for picture in PICTURES]


async def _picture(page: Page, picture: Picture, folder: Path) -> Path:
    await page.set_viewport_size({"width": WIDTH, "height": picture.height})
    await page.goto(picture.path)
    await settled(page)
    # Rows stand there before their texts, and a request before its digest is verified.
    await expect(page.locator(".waiting")).to_have_count(0)
    await expect(page.get_by_text("verifying…")).to_have_count(0)
    if "/lost" in picture.path:
        await expect(page.locator(".lost-answer")).to_be_visible()
    return await shot(page, folder / picture.file)


async def shot(page: Page, path: Path) -> Path:
    """Write what the page shows into a file, which must be small; its path."""
    await page.screenshot(path=path, animations="disabled", caret="hide", scale="css")
    size = (await asyncio.to_thread(path.stat)).st_size
    assert size <= MOST_BYTES, f"{path.name} has {size:,} bytes, more than {MOST_BYTES:,}"
    return path


def main(make: Callable[[Path], Coroutine[Any, Any, list[Path]]]) -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for path in asyncio.run(make(folder)):
        sys.stdout.write(f"{path}  {path.stat().st_size:,} bytes\n")


if __name__ == "__main__":
    main(make)
