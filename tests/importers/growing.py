"""A file of each format with every difficulty that a growing file can have."""

from __future__ import annotations

from typing import Any

from tests.importers.agents import (
    AmplifierLog,
    ClineTask,
    Copilot,
    Cursor,
    OpenHands,
    Pi,
    cursor_call,
    passing_reminder,
    pi_call,
)
from tests.importers.given import ClaudeCode, Codex, call, jsonl, text, thinking
from tests.importers.outputs import Atif, ClaudeStream, CodexExec, seen
from tests.importers.terminal_agents import (
    Gemini,
    OpenCode,
    Qwen,
    answers,
    calls,
    ran,
    says,
    thought,
    told,
    tool,
)

Row = dict[str, Any]


def _claude_code() -> list[Row]:
    log = ClaudeCode()
    log.line("queue-operation", operation="enqueue", uuid=..., isSidechain=...)
    log.progress(hook="é").user("move")
    log.answer("m1", text("\n")).answer("m1", thinking("hmmm", "sig=")).answer("m1", call("t1"))
    beside = {"uuid": ..., "isSidechain": ...}
    log.line("queue-operation", operation="enqueue", content="wait", **beside)
    log.line("queue-operation", operation="enqueue", content="nope", **beside)
    log.line("queue-operation", operation="remove", **beside)
    log.progress(agentId="a1").result("t1", "one 😀").answer("m1", call("t2"), output=9)
    log.line("queue-operation", operation="remove", content="nope", **beside)
    log.line("attachment", attachment={"type": "queued_command", "prompt": [text("nope")]})
    log.user("a skill", isMeta=True).result("t2", "both")
    log.answer("m2", text("over"), stop_reason="end_turn").answer("m2", text("more"))
    log.system("turn_duration").user("[Request interrupted by user]").line("hologram")
    log.user("again").answer("m3", call("t3")).result("t3").answer("m3", call("t4"))
    log.system("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 9})
    log.user("In short", isCompactSummary=True).result("t4", is_error=True)
    log.answer("m4", text("fine")).progress(output="y" * 300_000).user("three").result("lost")
    return log.answer("m5", text("ciao")).system("turn_duration").rows


def claude_code() -> bytes:
    """Three of its lines are preceded by half a line, and two have no line end."""
    data = jsonl(_claude_code())
    broken = data.replace(b'{"isSidechain":false', b'{"broken":\n{"isSidechain":false', 3)
    return broken.replace(b"}\n{", b"}{", 2)


def _codex() -> list[Row]:
    log = Codex().event("task_started", model_context_window=9).says("user", "find")
    log.calls("c1").calls("c2").counted(10, 10).output("c1").output("c2")
    log.says("assistant", "yeah").event("task_complete").says("user", "zoom").calls("c3")
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "unit"}]}
    log.output("c3").counted(20, 30).line("compacted", replacement_history=[user], message="")
    log.event("user_message", message="what?").event("agent_message", message="fits").calls("c4")
    log.output("c4").event("agent_message", message="over").says("assistant", "over")
    return log.counted(30, 60).event("agent_message", message="at last").event("turn_aborted").rows


def _chat() -> list[Row]:
    rows: list[dict[str, Any]] = [{"role": "system", "content": "s"}]
    for turn in range(3):
        rows += [
            {"role": "user", "content": f"turn {turn}"},
            {"type": "reasoning", "summary": []},
            {"type": "function_call", "name": "f", "arguments": "{}", "call_id": f"c{turn}"},
            {"type": "function_call_output", "call_id": f"c{turn}", "output": "x"},
            {"role": "assistant", "content": "done"},
        ]
    return [*rows, {"no": "message"}, {"role": "user", "content": "last"}]


def _pi() -> list[Row]:
    log = Pi(tree=True).user("move").answer(text("on it"), pi_call("t1"), stop="toolUse")
    log.result("t1").answer(stop="aborted").entry("model_change").user("again")
    log.answer(text("😀")).entry("compaction", summary="Sums", firstKeptEntryId="e6").user("also")
    log.answer(text("fine")).back_to("e8").user("other").answer(text("yeah")).back_to("e2")
    return log.user("more").answer(stop="error", errorMessage="boom").user("last").rows


def _openhands() -> list[Row]:
    log = OpenHands().system().user("move").action("c1", "r1").event("TokenEvent")
    log.action("c2", "r1").seen("c1").seen("c2").action("c3", "r2")
    log.seen("c3", is_error=True).says("done")
    forgotten = ("e2", "e4", "e5", "e6")
    log.event("CondensationRequest").condensed(*forgotten, summary="Sums", summary_offset=2)
    log.user("more").action("c4", "r4").event("ConversationErrorEvent", code="x").user("last")
    return log.rows


def _amplifier() -> list[Row]:
    log = AmplifierLog().prompt("move").request(passing_reminder()).response(call("t1"), call("t2"))
    log.tool("t1").tool("t2", success=False).request().response(text("done"))
    log.event("orchestrator:complete").prompt("more").event("provider:request").event("llm:request")
    log.event("llm:response", usage={"input_tokens": 5})
    log.event("content_block:end", block=text("streamed")).event("prompt:complete").prompt("then")
    log.event("context:compaction", after_messages=2)
    log.talk = log.talk[-1:]
    return log.request().response(call("t3")).tool("t3").event("session:end").rows


def _stored() -> list[Row]:
    stamp = {"timestamp": "2026-01-01T10:00:00+00:00"}
    return [{**row, **stamp} for row in _chat() if "role" in row]


def _copilot() -> list[Row]:
    log = Copilot(selectedModel="m").user("move").system().event("assistant.turn_start", turnId="0")
    log.used("api-4", 50).answer("on it", "t1", "t2", apiCallId="api-4").result("t1", "😀")
    log.result("t2", success=False, error={"message": "nope"}).result("t2").event("hook.start")
    log.event("session.compaction_start").answer("fits", "t3", chunkIndex=0, apiCallId="x")
    log.answer("far", apiCallId="x", chunkIndex=1).compacted("In short").result("t3")
    log.user("more", source="agent-1").system("Be long.").event("session.error", errorType="query")
    log.user("again").answer("", "t4").agent("a1").event("subagent.started", toolCallId="t4")
    log.user("look", source="agent-cp-1").agent(None).result("t4")
    log.event("session.truncation", messagesRemovedDuringTruncation=2).answer("done")
    back = log.rows[-6]["id"]
    log.event("session.snapshot_rewind", upToEventId=back, eventsRemoved=6).user("other")
    log.answer("").answer("well").event("session.context_cleared", initialMessage="anew")
    log.event("hologram").event("session.hologram").event("abort", reason="user").user("last")
    return log.rows


def _cursor() -> list[Row]:
    log = Cursor().user("move").answer(text("on it"), cursor_call(command="one"), cursor_call())
    log.says("user", {"type": "tool_result", "tool_use_id": "x", "content": "😀"})
    log.answer(text("fits")).ended().user("more").answer(cursor_call()).ended("error")
    log.rows.append({"no": "message"})
    return log.says("user", text("<system_reminder>be good</system_reminder>")).user("last").rows


def _gemini() -> list[Row]:
    log = Gemini().anew(told("m0", says("<session_context>\nToday"))).user("move", "m1")
    log.answer("on it", own="m2").sets(lastUpdated="x").answer("on it", tool("c1"), own="m2")
    log.results(answers("c1")).answer("seen").record("info", "a note").user("more")
    log.answer("", own="n9").record("warning", "slow").record("gemini", "", toolCalls=[tool("c2")])
    log.user("System: Please continue.").answer("well 😀", own="m12").rewind("m12").user("again")
    log.answer("sure").anew(told("m0", says("<session_context>\nLater")))
    kept = told("k1", says("sure"), kind="gemini")
    log.anew(told("m0", says("<session_context>\nLater")), told("k0", says("In short")), kept)
    log.user("also").answer("fits", tool("c3", "long")).answer("then", tool("c4", status="error"))
    return log.record("hologram", "?").user("last").rows


def _qwen() -> list[Row]:
    log = Qwen().user("move").system("ui_telemetry")
    log.answer(thought("hmmm"), calls("c1"), calls("c2"))
    log.result("c1").result("c2", status="error").answer(says("done")).user("more")
    log.answer(says("wrong")).back_to("u6").system("rewind", truncatedCount=2).user("again")
    log.answer(calls("c3")).user("wait", subtype="mid_turn_user_message").result("c3")
    log.compressed(("user", says("In short")), ("model", says("Got it."))).user("also")
    log.answer(says("😀")).user("a note", subtype="notification", provenance="system")
    log.back_to("gone").user("lost").record("hologram").answer(calls("c4")).result("c4")
    return log.answer(says("ciao")).system("turn_result").user("last").rows


def _claude_stream() -> list[Row]:
    log = ClaudeStream().system("hook_started").user("move", isReplay=True)
    log.answer("m1", thinking("hmmm", "sig=")).answer("m1", call("t1"))
    log.event("message_delta", usage={"output_tokens": 90})
    log.result("t1", "one 😀").answer("m2", text("over")).over()
    log.answer("m3", call("t2")).result("t2")
    log.system("compact_boundary", compact_metadata={"trigger": "auto", "pre_tokens": 9})
    log.user("In short", isSynthetic=True).answer("m4", text("fine")).line("hologram")
    log.system("compact_boundary").answer("m5", text("yeah"))
    log.over("error_max_turns", errors=["nope"])
    return log.user("again").answer("m6", text("ciao")).over().rows


def _codex_exec() -> list[Row]:
    log = CodexExec().turn().says("hmmm", "reasoning").runs("a").runs("b").ran("b", code=2).ran("a")
    todo = [{"text": "one", "completed": False}]
    log.item("started", "todo_list", "t", items=todo).item("completed", "todo_list", "t", items=[])
    log.item("completed", "file_change", changes=[{"path": "x", "kind": "add"}], status="completed")
    log.item("completed", "web_search", query="q").says("done").over()
    log.turn().item("completed", "hologram").runs("c")
    return log.line("turn.failed", error={"message": "nope"}).line("error", message="nope").rows


# -- documents, and other wrappings --------------------------------------------------------------


def _conversation() -> list[Row]:
    function = {"name": "look", "arguments": '{"path": "here"}'}
    asked = {"tool_calls": [{"id": "call1", "type": "function", "function": function}]}
    about = {"usage": {"prompt_tokens": 100, "completion_tokens": 7}, "model": "test-model"}
    return [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "start here"},
        {"role": "assistant", "content": None, **asked, **about},
        {"role": "tool", "tool_call_id": "call1", "content": "listing"},
        {"role": "assistant", "content": [text("finished"), call("call2", path="here")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call2"}]},
        {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "call3"},
        {"type": "function_call_output", "call_id": "call3", "output": "nothing"},
        {"role": "user", "content": "more please", "timestamp": 1_700_000_000.5},
    ]


def _transcript() -> list[Row]:
    stamp = {"metadata": {"timestamp": "2026-01-01T10:00:00+00:00"}}
    return [{**row, **stamp} for row in _conversation() if "role" in row]


def _swe_agent() -> Row:
    rows = [*_conversation()[:4], {"role": "assistant", "content": "done", "action": "submit"}]
    steps = [{"action": "look", "observation": "listing", "response": "text"}]
    config = {"agent": {"model": {"name": "test-model"}}}
    info = {"exit_status": "submitted", "model_stats": {"api_calls": 1}}
    return {"history": rows, "trajectory": steps, "info": info, "replay_config": config}


def _mini_swe_agent() -> Row:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached": 5}}
    response = {"id": "r1", "model": "m", "usage": usage, "choices": [{"finish_reason": "stop"}]}
    extra = {"response": response, "timestamp": 1_700_000_000.5}
    rows = [*_conversation()[:2], {"role": "assistant", "content": "look", "extra": extra}]
    leave = {"role": "exit", "content": "diff", "extra": {"exit_status": "Submitted"}}
    info, form = {"exit_status": "Submitted"}, "mini-swe-agent-1.1"
    return {"messages": [*rows, leave], "info": info, "trajectory_format": form}


def _request_log() -> Row:
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
    usage = {"prompt_tokens": 50, "completion_tokens": 3}
    response = {"id": "r1", "model": "m", "choices": [choice], "usage": usage, "created": 5}
    about = {"response": response, "context_window": 200_000, "cost": 0.5}
    return {"messages": _conversation(), **about}


def _cline_task() -> Row:
    task = ClineTask(roo=True).user(text("<task>\nstart here\n</task>")).answer(call("t1"))
    task.user({"type": "tool_result", "tool_use_id": "t1", "content": "listing"})
    task.answer(text("more")).user(text("<feedback>good</feedback>")).answer(text("finished"))
    task.truncated("cut1", 1, 2).user(text("again")).answer(text("well")).condensed("mark", "Short")
    task.user(text("last")).answer(text("done"))
    return {"list": task.rows}


def _cline_session() -> Row:
    usage = {"inputTokens": 50, "outputTokens": 7, "cacheReadTokens": 20, "cacheWriteTokens": 0}
    about = {"modelInfo": {"id": "test-model", "provider": "anthropic"}, "metrics": usage}
    result = {"type": "tool_result", "tool_use_id": "t1", "content": [{"query": "list"}]}
    file = {"type": "file", "path": "/here", "content": "listing"}
    rows = [
        {"role": "user", "content": [text('<user_input mode="act">start here</user_input>'), file]},
        {"role": "assistant", "content": [text("on it"), call("t1")], **about},
        {"role": "user", "content": [result], "ts": 1_760_000_000_000},
        {"role": "assistant", "content": [text("finished")], "id": "last", **about},
    ]
    origin = {"source": "cli", "parentThreadId": "another"}
    head = {"version": 1, "agent": "lead", "sessionId": "cline-1", "origin": origin}
    return {**head, "system_prompt": "be good", "messages": rows}


def _gemini_document() -> Row:
    log = Gemini().user("start here", "first").answer("on it", own="second")
    log.answer("on it", tool("call1", agentId="helper"), own="second").results(answers("call1"))
    log.record("info", "notice").answer("finished", thoughts=[{"description": "hmmm"}])
    log.user("more please").record("gemini", "", toolCalls=[tool("call2", status="error")])
    return {**log.head, "messages": log.rows[1:]}


def _opencode() -> Row:
    pruned = {"start": 1, "end": 2, "compacted": 1_767_261_602_700}
    log = OpenCode().user("start here").answer(ran("call1", "listing", time=pruned))
    log.answer({"type": "text", "text": "finished"}, {"type": "patch", "files": ["here"]})
    log.user({"type": "compaction", "auto": True})
    log.answer({"type": "text", "text": "Short"}, summary=True).user("more please")
    log.answer({"type": "text", "text": "half"}, error={"name": "MessageAbortedError"})
    return {"info": log.head, "messages": log.messages}


def _codex_events() -> list[Row]:
    def event(kind: str, **fields: Any) -> Row:
        return {"id": "1", "msg": {"type": kind, **fields}}

    ran = {"call_id": "c1", "stdout": "listing", "stderr": "", "exit_code": 0}
    usage = {"input_tokens": 70, "cached_input_tokens": 5, "output_tokens": 7}
    return [
        {"model": "test-model", "provider": "openai", "workdir": "here"},
        {"prompt": "start here"},
        event("task_started", model_context_window=9000),
        event("agent_reasoning", text="hmmm"),
        event("exec_command_begin", call_id="c1", command=["list"], cwd="here"),
        event("exec_command_end", **ran),
        event("token_count", info={"last_token_usage": usage}),
        event("agent_message", message="finished"),
        event("task_complete", last_agent_message="finished"),
    ]


def _atif() -> Row:
    log = Atif().step("system", "be good").step("user", "start here")
    beside = {"reasoning_content": "hmmm", "observation": seen((None, "x"))}
    log.acts("on it", "c1", "c2", prompt=100, **beside)
    image = {"type": "image", "source": {"media_type": "image/png", "path": "shot.png"}}
    log.acts("look", "c3", prompt=120, observation=seen(("c3", [text("y"), image])))
    told = {"context_management": {"type": "compaction", "boundary": "replace"}}
    log.step("system", "shortened", extra=told, observation=seen((None, "In short, this")))
    log.acts("finished", prompt=50)
    return log.document(notes="all of it", subagent_trajectories=["none"])


LINES: dict[str, list[Row]] = {
    "claude-code": _claude_code(),
    "claude-stream": _claude_stream(),
    "codex": _codex(),
    "codex-exec": _codex_exec(),
    "copilot": _copilot(),
    "cursor": _cursor(),
    "gemini-cli": _gemini(),
    "qwen-code": _qwen(),
    "pi": _pi(),
    "openhands": _openhands(),
    "amplifier": _amplifier(),
    "context-persistent": _stored(),
    "messages": _chat(),
}
"""A session of each format that is written line by line."""

FILES = {name: jsonl(rows) for name, rows in LINES.items()} | {"claude-code": claude_code()}

SESSIONS: dict[str, tuple[str, list[Row] | Row]] = {
    **{name: (name, rows) for name, rows in LINES.items()},
    "codex-exec-events": ("codex-exec", _codex_events()),
    "atif": ("atif", _atif()),
    "gemini-document": ("gemini-cli", _gemini_document()),
    "opencode-document": ("opencode", _opencode()),
    "cline-list": ("cline", _cline_task()),
    "cline-document": ("cline", _cline_session()),
    "openhands-folder": ("openhands", _openhands()),
    "openhands-list": ("openhands", {"history": _openhands()}),
    "amplifier-transcript": ("amplifier", _transcript()),
    "messages-document": ("messages", _request_log()),
    "swe-agent": ("swe-agent", _swe_agent()),
    "mini-swe-agent": ("mini-swe-agent", _mini_swe_agent()),
}
"""By the name of a wrapping: the format, and a session of it as rows, or as one document."""


def rows_of(name: str) -> list[Any]:
    """The lines of a session's file; a document is one."""
    made = SESSIONS[name][1]
    if isinstance(made, list):
        return made
    return [made["list"] if name == "cline-list" else made]
