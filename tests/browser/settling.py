"""Goes to a place in an open page; tells when a page is done, and what it shows."""

from __future__ import annotations

from typing import Final

from playwright.async_api import Page, expect

_UNSAFE: Final = (
    "[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200b-\\u200f\\u2028-\\u202e\\u2060\\u2066-\\u2069"
    "\\ufeff\\ud800-\\udfff\\u{e0000}-\\u{e007f}]"
)
"""Characters that control or reorder what is shown; the list of ``eventctx.text``."""

_FIND_UNSAFE: Final = f"""() => {{
  const unsafe = new RegExp('{_UNSAFE}', 'u');
  const found = [];
  const note = (where, text) => {{
    const match = unsafe.exec(text);
    if (match) found.push(`${{where}}: U+${{match[0].codePointAt(0).toString(16)}} in ` +
      JSON.stringify(text.slice(Math.max(0, match.index - 20), match.index + 20)));
  }};
  note('title', document.title);
  const walk = document.createTreeWalker(document, NodeFilter.SHOW_ELEMENT | NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {{
    const node = walk.currentNode;
    if (node.nodeType === Node.TEXT_NODE) note(`text of ${{node.parentNode.nodeName}}`, node.data);
    else for (const {{name, value}} of node.attributes) {{
      const unseen = name === 'href' || name.startsWith('data-') || node.nodeName === 'OPTION';
      if (!unseen) note(`${{node.nodeName}} ${{name}}`, value);
    }}
  }}
  return found;
}}"""

NOTE_FIRST_THEME: Final = """document.addEventListener('readystatechange', () => {
  if (document.readyState !== 'loading') // then nothing of the HTML is there
    window.firstTheme ??= getComputedStyle(document.documentElement).colorScheme;
});"""
"""A script for a page: it notes its theme after the HTML was read, before a module runs."""


async def choose_dark(page: Page) -> None:
    """Choose the dark theme in a page with that of the system."""
    await page.get_by_role("button", name="Theme: system").click()
    await page.get_by_role("button", name="Theme: light").click()
    await expect(page.get_by_role("button", name="Theme: dark")).to_be_visible()


_SETTLED: Final = """() => {
  const seen = (one) => one !== null && one.checkVisibility({ visibilityProperty: true });
  return seen(document.querySelector('main')) && document.querySelector('[aria-busy=true]') === null
    && seen(document.querySelector('h1, h2, h3'));
}"""


async def settled(page: Page) -> Page:
    """Wait until the page has a heading and none of its parts is still busy."""
    # It looks at each frame; Playwright's expectations wait for up to a second between looks.
    await page.wait_for_function(_SETTLED, timeout=60_000)
    return page


async def unsafe_characters(page: Page) -> list[str]:
    """Where the page holds a character that should have been shown as an escape."""
    found: list[str] = await page.evaluate(_FIND_UNSAFE)
    return found


_FITS: Final = "() => document.documentElement.scrollWidth <= document.documentElement.clientWidth"


async def fits(page: Page) -> bool:
    """Whether the document is no wider than its window: a wider one scrolls sideways."""
    return bool(await page.evaluate(_FITS))


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
