"""What must never happen on a page, whatever a test does on it.

A watched page notes errors on its console, exceptions, dialogs, other windows, violations of its
content security policy, and every request to another origin. ``clean`` raises when there is one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Error,
    Page,
    Request,
)

from tests.browser.inspecting import Inspector

_NOTE_VIOLATIONS: Final = """
window.violations = [];
document.addEventListener('securitypolicyviolation', (event) => {
  window.violations.push(
    `${event.effectiveDirective} ${event.blockedURI} ${event.sample} ${event.sourceFile}`);
});
"""

_INERT: Final = ("data", "blob", "about")
"""Schemes of requests that reach nobody."""


class Watch:
    """Everything of a browser context that no test may cause."""

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self.found: list[str] = []
        self.expected: list[str] = []
        """Parts of console errors that a test causes on purpose, such as a server that is gone."""

    async def over(self, context: BrowserContext) -> None:
        """Watch every page of a context from its first line on."""
        await context.add_init_script(_NOTE_VIOLATIONS)
        context.on("request", self._requested)
        context.on("console", self._logged)
        context.on("weberror", lambda raised: self._raised(raised.error))
        context.on("page", self._opened)

    async def clean(self, *pages: Page) -> None:
        """Raise if anything was noted, or if a page's policy was violated."""
        for page in pages:
            if page.is_closed() or not page.url.startswith(("http", "file")):
                continue
            violations: list[str] = await page.evaluate("() => window.violations")
            self.found += [f"content security policy: {one}" for one in violations]
        if self.found:
            raise AssertionError("\n".join(self.found))

    def _opened(self, page: Page) -> None:
        page.on("dialog", self._asked)
        page.on("popup", lambda other: self.found.append(f"another window: {other.url}"))

    async def _asked(self, dialog: Dialog) -> None:
        self.found.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    def _raised(self, error: Error) -> None:
        self.found.append(f"exception: {error.message}\n{error.stack or ''}")

    def _requested(self, request: Request) -> None:
        to = urlsplit(request.url)
        if to.scheme not in _INERT and f"{to.scheme}://{to.netloc}" != self._origin:
            self.found.append(f"a request off the origin: {request.url}")

    def _logged(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        place: Any = message.location
        line = f"console {message.type}: {message.text} ({place.get('url', '')})"
        if not any(part in line for part in self.expected):
            self.found.append(line)


@asynccontextmanager
async def shown(browser: Browser, inspector: Inspector) -> AsyncIterator[tuple[Page, Watch]]:
    """A watched page of a server, which must have been clean at the end."""
    watch = Watch(inspector.origin)
    context = await browser.new_context(base_url=inspector.origin)
    await watch.over(context)
    page = await context.new_page()
    await page.goto(inspector.invitation)
    yield page, watch
    await watch.clean(page)
    await context.close()
