"""A file of each format with every difficulty that a growing file can have."""

from __future__ import annotations

import json
from typing import Any

from tests.importers.agents import (
    AmplifierLog,
    Copilot,
    Cursor,
    OpenHands,
    Pi,
    cursor_call,
    pi_call,
)
from tests.importers.given import ClaudeCode, Codex, call, jsonl, text, thinking
from tests.importers.outputs import ClaudeStream, CodexExec
from tests.importers.terminal_agents import Gemini, Qwen, answers, calls, says, thought, told, tool


def claude_code() -> bytes:
    """A session with every difficulty that a growing file can have."""
    log = ClaudeCode()
    log.line("queue-operation", operation="enqueue", uuid=..., isSidechain=...)
    log.progress(hook="é").user("go")
    log.answer("m1", text("\n")).answer("m1", thinking("hm", "sig=")).answer("m1", call("t1"))
    beside = {"uuid": ..., "isSidechain": ...}
    log.line("queue-operation", operation="enqueue", content="wait", **beside)
    log.line("queue-operation", operation="enqueue", content="no", **beside)
    log.line("queue-operation", operation="remove", **beside)
    log.progress(agentId="a1").result("t1", "one 😀").answer("m1", call("t2"), output=9)
    log.line("queue-operation", operation="remove", content="no", **beside)
    log.line("attachment", attachment={"type": "queued_command", "prompt": [text("no")]})
    log.user("a skill", isMeta=True).result("t2", "two")
    log.answer("m2", text("end"), stop_reason="end_turn").answer("m2", text("more"))
    log.system("turn_duration").user("[Request interrupted by user]").line("hologram")
    log.user("again").answer("m3", call("t3")).result("t3").answer("m3", call("t4"))
    log.system("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 9})
    log.user("In short", isCompactSummary=True).result("t4", is_error=True)
    log.answer("m4", text("x")).progress(output="y" * 300_000).user("three").result("lost")
    data = log.answer("m5", text("bye")).system("turn_duration").data()
    broken = data.replace(b'{"isSidechain":false', b'{"broken":\n{"isSidechain":false', 3)
    return broken.replace(b"}\n{", b"}{", 2)


def codex() -> bytes:
    log = Codex().event("task_started", model_context_window=9).says("user", "x")
    log.calls("c1").calls("c2").counted(10, 10).output("c1").output("c2")
    log.says("assistant", "y").event("task_complete").says("user", "z").calls("c3")
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "u"}]}
    log.output("c3").counted(20, 30).line("compacted", replacement_history=[user], message="")
    log.event("user_message", message="and?").event("agent_message", message="so").calls("c4")
    log.output("c4").event("agent_message", message="end").says("assistant", "end").counted(30, 60)
    return log.event("agent_message", message="at last").event("turn_aborted").data()


def chat() -> bytes:
    rows: list[dict[str, Any]] = [{"role": "system", "content": "s"}]
    for turn in range(3):
        rows += [
            {"role": "user", "content": f"turn {turn}"},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "name": "f", "arguments": "{}", "call_id": f"c{turn}"},
            {"type": "function_call_output", "call_id": f"c{turn}", "output": "x"},
            {"role": "assistant", "content": "done"},
        ]
    return jsonl([*rows, {"no": "message"}, {"role": "user", "content": "last"}])


def pi() -> bytes:
    log = Pi(tree=True).user("go").answer(text("on it"), pi_call("t1"), stop="toolUse")
    log.result("t1").answer(stop="aborted").entry("model_change").user("again")
    log.answer(text("😀")).entry("compaction", summary="S", firstKeptEntryId="e6").user("on")
    log.answer(text("x")).back_to("e8").user("other").answer(text("y")).back_to("e2").user("more")
    return log.answer(stop="error", errorMessage="boom").user("last").data()


def openhands() -> bytes:
    log = OpenHands().system().user("go").action("c1", "r1").event("TokenEvent").action("c2", "r1")
    log.seen("c1").seen("c2").action("c3", "r2").seen("c3", is_error=True).says("done")
    log.event("CondensationRequest").condensed(
        "e2", "e4", "e5", "e6", summary="S", summary_offset=2
    )
    log.user("more").action("c4", "r4").event("ConversationErrorEvent", code="x").user("last")
    return log.data()


def amplifier() -> bytes:
    log = AmplifierLog().prompt("go").request().response(call("t1"), call("t2"))
    log.tool("t1").tool("t2", success=False).request().response(text("done"))
    log.event("orchestrator:complete").prompt("more").event("provider:request").event("llm:request")
    log.event("llm:response", usage={"input_tokens": 5})
    log.event("content_block:end", block=text("streamed")).event("prompt:complete").prompt("and")
    log.event("context:compaction", after_messages=2)
    log.talk = log.talk[-1:]
    return log.request().response(call("t3")).tool("t3").event("session:end").data()


def stored() -> bytes:
    stamp = {"timestamp": "2026-01-01T10:00:00+00:00"}
    rows = [json.loads(line) for line in chat().splitlines()]
    return jsonl([{**row, **stamp} for row in rows if "role" in row])


def copilot() -> bytes:
    log = Copilot(selectedModel="m").user("go").system().event("assistant.turn_start", turnId="0")
    log.used("api-4", 50).answer("on it", "t1", "t2", apiCallId="api-4").result("t1", "😀")
    log.result("t2", success=False, error={"message": "no"}).result("t2").event("hook.start")
    log.event("session.compaction_start").answer("so", "t3", chunkIndex=0, apiCallId="x")
    log.answer("far", apiCallId="x", chunkIndex=1).compacted("In short").result("t3")
    log.user("more", source="agent-1").system("Be long.").event("session.error", errorType="query")
    log.user("again").answer("", "t4").agent("a1").event("subagent.started", toolCallId="t4")
    log.user("look", source="agent-cp-1").agent(None).result("t4")
    log.event("session.truncation", messagesRemovedDuringTruncation=2).answer("done")
    back = log.rows[-6]["id"]
    log.event("session.snapshot_rewind", upToEventId=back, eventsRemoved=6).user("other")
    log.answer("").answer("well").event("session.context_cleared", initialMessage="anew")
    log.event("hologram").event("session.hologram").event("abort", reason="user").user("last")
    return log.data()


def cursor() -> bytes:
    log = Cursor().user("go").answer(text("on it"), cursor_call(command="one"), cursor_call())
    log.says("user", {"type": "tool_result", "tool_use_id": "x", "content": "😀"})
    log.answer(text("so")).ended().user("more").answer(cursor_call()).ended("error")
    log.rows.append({"no": "message"})
    return log.says("user", text("<system_reminder>be good</system_reminder>")).user("last").data()


def gemini() -> bytes:
    log = Gemini().anew(told("m0", says("<session_context>\nToday"))).user("go", "m1")
    log.answer("on it", own="m2").sets(lastUpdated="x").answer("on it", tool("c1"), own="m2")
    log.results(answers("c1")).answer("seen").record("info", "a note").user("more")
    log.answer("", own="m9").record("warning", "slow").record("gemini", "", toolCalls=[tool("c2")])
    log.user("System: Please continue.").answer("well 😀", own="m12").rewind("m12").user("again")
    log.answer("yes").anew(told("m0", says("<session_context>\nLater")))
    kept = told("k1", says("yes"), kind="gemini")
    log.anew(told("m0", says("<session_context>\nLater")), told("k0", says("In short")), kept)
    log.user("on").answer("so", tool("c3", "long")).answer("then", tool("c4", status="error"))
    return log.record("hologram", "?").user("last").data()


def qwen() -> bytes:
    log = Qwen().user("go").system("ui_telemetry").answer(thought("hm"), calls("c1"), calls("c2"))
    log.result("c1").result("c2", status="error").answer(says("done")).user("more")
    log.answer(says("wrong")).back_to("u6").system("rewind", truncatedCount=2).user("again")
    log.answer(calls("c3")).user("wait", subtype="mid_turn_user_message").result("c3")
    log.compressed(("user", says("In short")), ("model", says("Got it."))).user("on")
    log.answer(says("😀")).user("a note", subtype="notification", provenance="system")
    log.back_to("gone").user("lost").record("hologram").answer(calls("c4")).result("c4")
    return log.answer(says("bye")).system("turn_result").user("last").data()


def claude_stream() -> bytes:
    log = ClaudeStream().system("hook_started").user("go", isReplay=True)
    log.answer("m1", thinking("hm", "sig=")).answer("m1", call("t1"))
    log.event("message_delta", usage={"output_tokens": 90})
    log.result("t1", "one 😀").answer("m2", text("end")).over()
    log.answer("m3", call("t2")).result("t2")
    log.system("compact_boundary", compact_metadata={"trigger": "auto", "pre_tokens": 9})
    log.user("In short", isSynthetic=True).answer("m4", text("x")).line("hologram")
    log.system("compact_boundary").answer("m5", text("y")).over("error_max_turns", errors=["no"])
    return log.user("again").answer("m6", text("bye")).over().data()


def codex_exec() -> bytes:
    log = CodexExec().turn().says("hm", "reasoning").runs("a").runs("b").ran("b", code=2).ran("a")
    todo = [{"text": "one", "completed": False}]
    log.item("started", "todo_list", "t", items=todo).item("completed", "todo_list", "t", items=[])
    log.item("completed", "file_change", changes=[{"path": "x", "kind": "add"}], status="completed")
    log.item("completed", "web_search", query="q").says("done").over()
    log.turn().item("completed", "hologram").runs("c").line("turn.failed", error={"message": "no"})
    return log.line("error", message="no").data()


FILES = {
    "claude-code": claude_code(),
    "claude-stream": claude_stream(),
    "codex": codex(),
    "codex-exec": codex_exec(),
    "copilot": copilot(),
    "cursor": cursor(),
    "gemini-cli": gemini(),
    "qwen-code": qwen(),
    "pi": pi(),
    "openhands": openhands(),
    "amplifier": amplifier(),
    "context-persistent": stored(),
    "messages": chat(),
}
