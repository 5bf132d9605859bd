"""Writes golden files for the present schema versions. Files of earlier versions are never edited.

Run as ``python -m tests.golden.make`` after adding an event type or a version; what is there
stays as it is.
"""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path

from eventctx.engine import Engine
from eventctx.log import events
from eventctx.log.codec import encode_event
from eventctx.log.plan import Insertion, Plan, Run, Shortening
from eventctx.log.wire import CacheMark, Injected, WireForm
from eventctx.queries.transfer import export_lines
from eventctx.stores.memory import MemoryStore
from eventctx.stores.sqlite import SqliteStore

HERE = Path(__file__).parent

PLAN = Plan(
    through=12,
    runs=(
        Run(0, 0, "kept", "system"),
        Run(1, 9, "dropped", "older"),
        Run(10, 12, "shortened", "x"),
    ),
    shortened=(Shortening(10, 0), Shortening(11, 2, 40)),
    insertions=(Insertion("summary", 1, None, 10, ((1, 9),)),),
)

SAMPLES: list[events.Event] = [
    events.MessageAdded(),
    events.MessagesSet(order=((3, 3), (0, 1))),
    events.Cleared(messages=4),
    events.Pinned(numbers=(1, 5)),
    events.Unpinned(numbers=(5,)),
    events.Restored(messages=(events.Located(2, 7, 0, b"\x01" * 32, b"facts"),)),
    events.Erased(numbers=(2,), bodies=((7, 0), (19, 1)), reason="on request"),
    events.SetIgnored(messages=9, missing_roles=("system",)),
    events.SessionStart(library="0.1.0", settings={"max_tokens": 5, "policy": "simple"}),
    events.SessionStart(library="0.1.0", source="a.jsonl", format="claude-code", imported_at=5),
    events.SessionFork(parent="s", at=9),
    events.SessionLinked(session="t", relation="child", call_id="c1"),
    events.SessionEnd(reason="done"),
    events.PromptSubmit(number=3, agent="coder", trace_id="0af7651916cd43dd8448eb211c80319c"),
    events.PromptComplete(status="error", error="ValueError: x"),
    events.PlanStart(name="outline"),
    events.PlanEnd(status="cancelled"),
    events.ProviderRequest(model="m", provider="p", prepared=4),
    events.ProviderResponse(model="m", response_id="r", finish_reason="end_turn"),
    events.ProviderError(error_type="Timeout", message="slow", status="cancelled"),
    events.ToolPre(name="read", call_id="c1"),
    events.ToolPost(name="read", call_id="c1"),
    events.ToolError(name="read", error_type="OSError", call_id="c1", message="gone"),
    events.PreCompact(
        trigger="threshold",
        strategy="simple",
        strategy_version=1,
        tokens=900,
        messages=30,
        budget=1000,
        threshold=920,
        requested_by="caller",
    ),
    events.PostCompact(
        outcome="applied",
        trigger="budget",
        strategy="simple",
        strategy_version=1,
        tokens_before=900,
        tokens_after=300,
        messages_before=30,
        messages_after=12,
        estimator="by-kind-1",
        factor=1.1,
        budget=1000,
        threshold=920,
        target=500,
        plan=PLAN,
        fallback="ladder",
        duration=12345,
    ),
    events.RequestPrepared(
        renderer=1,
        last_message=12,
        messages=5,
        tokens=300,
        digest="ab" * 32,
        plan=40,
        insertions=(Insertion("system_prompt", 0),),
        breaks=("compaction", "late_result"),
        budget=1000,
        model="m",
        tools_digest="cd" * 32,
        floor_sent=True,
        reconstructed=True,
    ),
    events.UsageReported(
        prompt=100, output=20, cache_read=50, cache_write=30, model="m", prepared=41
    ),
    events.ImportRaw(source="a.jsonl", lines=(3, 9), kinds={"progress": 7}, imported_at=5),
]

HOST_SAMPLES: list[events.Event] = [
    events.SystemPromptSet(unbound=((4, 6),)),
    events.RequestSent(
        prepared=41,
        messages=9,
        additions=(events.Addition(8, 0), events.Addition(8, 1, 17)),
        missing=1,
    ),
]
"""Event types that came with the adapters of hosts."""

EVIDENCE_SAMPLES: list[events.Event] = [
    events.Erased(numbers=(2,), bodies=((7, 0),), unbound=((3, 5),)),
    events.SessionDeleted(position=40, digest="ab" * 32, records=41, reason="on request"),
    events.SessionSigned(position=40, digest="ab" * 32, public_key="cd" * 32, signature="ef" * 64),
]
"""Event types and fields that came with erasure, deletion and signatures."""

TEXT_AGENT_SAMPLES: list[events.Event] = [
    events.MessageAdded(origin="harness", observation=True),
    events.MessagesSet(order=((0, 2),), harness=(0, 1), observations=(1,)),
]
"""Fields that came with agents whose actions are text."""

WIRE_SAMPLES: list[events.Event] = [
    events.RequestContent(kind="tools", digest="ab" * 32),
    events.RequestContent(
        kind="message",
        numbers=(4, 5),
        injected=(Injected(("content", 1, "text"), 0, 9), Injected(("content",), 17, 40)),
    ),
    events.RequestPrepared(
        renderer=1,
        last_message=12,
        messages=5,
        tokens=300,
        digest="ab" * 32,
        reconstructed=True,
        wire=WireForm(
            rule="claude-code-1",
            digest="ef" * 32,
            tail=((17, 0), (20, 0)),
            messages=7,
            base=12,
            keep=5,
            system=(3, 0),
            tools=(4, 0),
            parameters=(5, 0),
            cache_control=(CacheMark(("messages", 6, "content", 0), {"type": "ephemeral"}),),
            message_tokens=200,
            system_tokens=60,
            tools_tokens=40,
            injected=2,
        ),
    ),
]
"""Event types and fields that came with requests as they were sent."""
MEMORY_SAMPLES: list[events.Event] = [events.SystemPromptSet(unbound=((4, 6),), memory=2)]
"""The field that came with memory behind the system prompt."""

MIRROR_SAMPLES: list[events.Event] = [
    events.SessionTakenOver(source="a.jsonl", format="claude-code"),
    events.PromptMeasured(duration=162_419_000_000),
]
"""Event types that came with imported sessions as mirrors."""
LOST_SAMPLES: list[events.Event] = [
    events.PromptComplete(status="lost", error="ProcessEnded: x"),
    events.PlanEnd(status="lost", error="ProcessEnded: x"),
    events.ProviderError(error_type="ProcessEnded", message="x", status="lost"),
    events.ToolError(
        name="read", error_type="ProcessEnded", call_id="c1", message="x", status="lost"
    ),
]
"""The status that came with the ends of what a killed process left open."""
DROP_IN_SAMPLES: list[events.Event] = [
    events.SystemPromptSet(replaced=((0, 1), (7, 7)), unbound=((3, 5),)),
    events.SetIgnored(messages=9, missing_roles=("system",), ahead=2),
]
"""Fields that came with hosts' prompts in the place of system messages, and with late copies."""
LINK_SAMPLES: list[events.Event] = [
    events.SessionLinked(
        session="t",
        relation="parent",
        call_id="c1",
        trace_id="0af7651916cd43dd8448eb211c80319c",
        span_id="b7ad6b7169203331",
    ),
]

DIFFERENCE_SAMPLES: list[events.Event] = [
    events.RequestSent(
        prepared=41, messages=9, additions=(events.Addition(8, 0),), missing=1, difference=-250
    ),
]
"""A request whose host says by how many tokens it differs."""

UNTOLD_SAMPLES: list[events.Event] = [
    events.RequestSent(prepared=41, messages=9, untold=2),
    events.RequestSent(prepared=41, messages=0, difference=0, untold=0),
]
"""Requests whose hosts tell a count alone, or nothing."""

THINKING_SAMPLES: list[events.Event] = [
    events.RequestPrepared(
        renderer=3,
        last_message=9,
        messages=10,
        tokens=100,
        digest="ab" * 32,
        breaks=("model",),
        unbound=((2, 4),),
    ),
    events.ProviderResponse(
        model="m",
        transformed=(
            events.InputTransformation(
                "thinking_dropped", "messages.1.content.0", "prefix_binding_mismatch"
            ),
        ),
    ),
]
"""A request to another model, and an answer whose API dropped thinking."""

SUSPICION_SAMPLES: list[events.Event] = [
    events.LossSuspected(
        prepared=41,
        kind="prompt",
        tokens=4_000,
        expected=90_000,
        found=86_000,
        cause="edited",
        messages=((6, 6), (8, 10)),
    ),
]
"""A loss that is inferred of a reported prompt."""

HOST_TEXT_SAMPLES: list[events.Event] = [
    events.PreCompact(
        trigger="budget",
        strategy="ladder",
        strategy_version=1,
        tokens=900,
        messages=30,
        hint=0,
        texts=2,
        texts_left_out=1,
    ),
]
"""The fields that came with texts of the host for a compacted view."""

BACKGROUND_SAMPLES: list[events.Event] = [
    events.PreCompact(
        trigger="threshold",
        strategy="summarize",
        strategy_version=3,
        tokens=8_700,
        messages=32,
        background=True,
    ),
    events.PostCompact(
        outcome="stale",
        trigger="threshold",
        strategy="summarize",
        strategy_version=3,
        tokens_before=9_100,
        tokens_after=9_100,
        messages_before=34,
        messages_after=34,
        estimator="generic-1",
        error="the messages that the model had read left the view or changed meanwhile",
    ),
]
"""The field and the outcome that came with compactions in the background."""

DEMAND_SAMPLES: list[events.Event] = [
    events.InstructionWithdrawn(number=12, demand=2, by=40, said_by="model"),
    events.RequestPrepared(
        renderer=1,
        last_message=12,
        messages=5,
        tokens=300,
        digest="ab" * 32,
        insertions=(Insertion("notice", 0, demands=((1, 1), (4, 6))),),
        demands_absent=2,
    ),
]
"""Event types and fields that came with the demands of a person."""

ADVISER_SAMPLES: list[events.Event] = [
    events.ProviderResponse(model="small-1", provider="example"),
]
"""The field that came with the provider of a summarizer, which only its answer names."""


PROVIDER_SAMPLES: list[events.Event] = [
    events.PreCompact(
        trigger="provider", strategy="provider", strategy_version=1, tokens=900, messages=5
    ),
    events.PostCompact(
        outcome="applied",
        trigger="provider",
        strategy="provider",
        strategy_version=1,
        tokens_before=900,
        tokens_after=90,
        messages_before=5,
        messages_after=2,
        estimator="claude-4.7-2",
        plan=Plan(
            4,
            (
                Run(0, 0, "kept", "system"),
                Run(1, 3, "summarised", "provider"),
                Run(4, 4, "kept", "provider_summary"),
            ),
        ),
    ),
    events.ProviderResponse(
        model="m",
        transformed=(
            events.InputTransformation(
                "clear_tool_uses_20250919", "messages", "3 cleared tool uses"
            ),
        ),
    ),
]
"""A compaction that an API made by itself, and an edit of its context management."""


def _write(name: str, data: bytes) -> None:
    path = HERE / name
    if not path.exists():
        path.write_bytes(data)


def _write_events(name: str, samples: list[events.Event]) -> None:
    rows = [encode_event(sample) for sample in samples]
    _write(
        name,
        b"".join(
            b'{"type":"%s","version":%d,"payload":%s}\n' % (n.encode(), v, p) for n, v, p in rows
        ),
    )


async def _session(engine: Engine) -> None:
    ctx = await engine.session("golden", max_tokens=1_500)
    async with ctx.turn("turn-1") as turn:
        await ctx.add_message({"role": "system", "content": "Be brief."})
        await ctx.add_message({"role": "user", "content": "Grüße: read a.txt, ten times"})
        for number in range(10):
            async with turn.iteration() as cycle:
                await ctx.get_messages_for_request()
                async with cycle.provider_call("m") as call:
                    await call.usage(100 + number, 7)
                block = {"type": "tool_use", "id": f"c{number}", "name": "read", "input": {}}
                await ctx.add_message({"role": "assistant", "content": [block]})
                async with cycle.tool_call("read", f"c{number}"):
                    pass
                done = {"type": "tool_result", "tool_use_id": f"c{number}", "content": "z" * 500}
                await ctx.add_message({"role": "user", "content": [done]})
    await ctx.set_messages([*await ctx.get_messages(), {"role": "assistant", "content": "Done."}])
    await ctx.close()


async def _stores() -> None:
    ticks = itertools.count(1_700_000_000_000_000_000, 1_000_000)
    draws = itertools.count(1)
    options = {
        "clock": lambda: next(ticks),
        "random": lambda n: next(draws).to_bytes(n, "big"),
    }
    memory = Engine(MemoryStore(), **options)  # type: ignore[arg-type]
    await _session(memory)
    info = await memory.store.head("golden")
    assert info is not None
    lines = [line async for line in export_lines(memory.store, info)]
    _write("export-v1.jsonl", b"\n".join(lines) + b"\n")
    engine = Engine(await SqliteStore.open(HERE / "store-v1.db"), **options)  # type: ignore[arg-type]
    await _session(engine)
    await engine.fork("golden", 9, "branch")
    await engine.close()
    (HERE / "store-v1.db").rename(HERE / "store-v1.sqlite")


if __name__ == "__main__":
    _write_events("events-v1.jsonl", SAMPLES)
    _write_events("events-v1-hosts.jsonl", HOST_SAMPLES)
    _write_events("events-v1-evidence.jsonl", EVIDENCE_SAMPLES)
    _write_events("events-v1-wire.jsonl", WIRE_SAMPLES)
    _write_events("events-v1-mirrors.jsonl", MIRROR_SAMPLES)
    _write_events("events-v1-lost.jsonl", LOST_SAMPLES)
    _write_events("events-v1-memory.jsonl", MEMORY_SAMPLES)
    _write_events("events-v1-drop-in.jsonl", DROP_IN_SAMPLES)
    _write_events("events-v1-host-texts.jsonl", HOST_TEXT_SAMPLES)
    _write_events("events-v1-background.jsonl", BACKGROUND_SAMPLES)
    _write_events("events-v1-text-agents.jsonl", TEXT_AGENT_SAMPLES)
    _write_events("events-v1-demands.jsonl", DEMAND_SAMPLES)
    _write_events("events-v1-advisers.jsonl", ADVISER_SAMPLES)
    _write_events("events-v1-links.jsonl", LINK_SAMPLES)
    _write_events("events-v1-difference.jsonl", DIFFERENCE_SAMPLES)
    _write_events("events-v1-untold.jsonl", UNTOLD_SAMPLES)
    _write_events("events-v1-thinking.jsonl", THINKING_SAMPLES)
    _write_events("events-v1-suspicion.jsonl", SUSPICION_SAMPLES)
    _write_events("events-v1-provider.jsonl", PROVIDER_SAMPLES)
    if not (HERE / "export-v1.jsonl").exists():
        asyncio.run(_stores())
