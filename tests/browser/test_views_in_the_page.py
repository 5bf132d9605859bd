"""The views that the page derives by itself are those of the engine, for every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import pytest_asyncio

import eventctx
from eventctx.projections.audit import ViewCounts
from tests.browser import stores
from tests.browser.chromium import in_the_browser
from tests.browser.conftest import Visit

pytestmark = in_the_browser

_DERIVE: Final = """async (session) => {
  const { MessageMarks, STANDINGS, Timeline, viewDigest } = await import('/page/main.js');
  const ask = async (what) => {
    const answer = await fetch(`/api/s/${encodeURIComponent(session)}/${what}`);
    return answer.json();
  };
  const timeline = Timeline.from(await ask('timeline'));
  const marks = new MessageMarks((await ask('digests')).messages);
  const found = [];
  for (let request = 0; request < timeline.requests.count; request++) {
    const counts = {};
    for (const code of timeline.standings(request)) {
      counts[STANDINGS[code]] = (counts[STANDINGS[code]] ?? 0) + 1;
    }
    found.push({
      position: timeline.requests.position[request],
      numbers: Array.from(timeline.view(request), (id) => timeline.entry(id).number),
      digest: await viewDigest(timeline, request, marks),
      sums: timeline.sums(request).reduce((sum, one) => sum + one, 0),
      messages: timeline.requests.messages[request],
      counts,
    });
  }
  return found;
}"""


@pytest_asyncio.fixture(loop_scope="session", params=[stores.DEMO, *stores.RECORDED])
async def session(request: pytest.FixtureRequest) -> str:
    """The demonstration and two recorded sessions, one after the other."""
    if request.param in stores.RECORDED and stores.recorded_folder() is None:
        pytest.skip("no recorded sessions here; set EVENTCTX_SESSIONS to their folder")
    return str(request.param)


async def test_every_view_of_the_page_is_the_engines(
    visit: Visit, store: Path, session: str
) -> None:
    page = await visit()
    derived: list[dict[str, Any]] = await page.evaluate(_DERIVE, session)
    async with eventctx.open(store) as engine:
        audit = await engine.audit(session)
        assert [one["position"] for one in derived] == [row.position for row in audit.requests]
        assert derived
        for one, row in zip(derived, audit.requests, strict=True):
            view = await engine.request_view(session, position=row.position)
            assert one["numbers"] == [
                getattr(entry.ref, "number", None) for entry in view.entries
            ], row.position
            assert one["digest"] == view.digest, row.position
            assert one["sums"] == one["messages"], row.position
            assert _counts(one["counts"]) == _without_later(row.counts), row.position


def _counts(standings: dict[str, int]) -> dict[str, int]:
    """Standings by the words of the audit, which count those that are in a session's past."""
    words = {"whole": "kept", "set": "omitted", "cleared": "omitted", "replaced": "omitted"}
    found: dict[str, int] = {}
    for standing, count in standings.items():
        if standing != "not_added":
            word = words.get(standing, standing)
            found[word] = found.get(word, 0) + count
    return found


def _without_later(counts: ViewCounts) -> dict[str, int]:
    return {name: count for name, count in counts._asdict().items() if count}
