"""Goes to a place in a page that is open, without loading it again."""

from __future__ import annotations

from typing import Final

from playwright.async_api import Page

_GO: Final = """async (path) => {
  const painted = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  document.querySelector('dialog[open]')?.close();
  localStorage.clear();
  // By way of another screen: what the page shows, and what it knows of a session, is made anew.
  for (const place of [path === '/' ? '/s/demo' : '/', path]) {
    history.pushState(null, '', place);
    dispatchEvent(new PopStateEvent('popstate'));
    await painted();
  }
  // Tab begins at the top of the page.
  document.body.tabIndex = -1;
  document.body.focus();
  document.body.removeAttribute('tabindex');
  delete window.stops;
  await painted();
}"""


async def walk(page: Page, path: str) -> Page:
    """Bring the page to ``path``; it then is as one that was just loaded there."""
    await page.evaluate(_GO, path)
    return page
