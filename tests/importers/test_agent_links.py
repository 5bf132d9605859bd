"""The spans of an imported subagent lead to the call that started it, or to its compaction."""

from __future__ import annotations

from pathlib import Path

import eventctx
from eventctx.importers.load import import_file
from eventctx.queries.spans import spans

MAIN = "258c7280-ae70-4798-800f-63464d01a85d"


async def test_a_subagent_links_to_its_call_and_a_summarizer_to_the_compaction(
    recorded_sessions: Path, tmp_path: Path
) -> None:
    source = recorded_sessions / "claude-code" / "spotter-258c7280" / f"{MAIN}.jsonl"
    async with eventctx.open(tmp_path / "s.db") as engine:
        await import_file(engine.store, source, complete=True)
        again = await import_file(engine.store, source, complete=True)
        named = {}
        links = {}
        async for info in engine.each_session():
            found = [one async for one in spans(engine.store, info.stream)]
            named |= {(one.trace_id, one.span_id): one.name for one in found}
            links[info.stream] = [
                (link.trace_id, link.span_id)
                for one in found
                for link in one.links
                if link.attributes.get("eventctx.link.session") == MAIN
            ]
    assert not any(summary.added for summary in again)
    assert [named[link] for link in links[f"{MAIN}.agent-a881341"]] == ["execute_tool Task"]
    assert [named[link] for link in links[f"{MAIN}.agent-acompact-fffbd0"]] == ["compact imported"]
    assert links[MAIN] == []
