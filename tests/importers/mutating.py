"""Small sessions of every format, and random mutations of their JSON.

``Mutants(folder, name).run(count, seed)`` makes ``count`` mutants, the same ones for the same seed,
imports them, and checks the promises that hold for every file, whatever is in it.
"""

from __future__ import annotations

import copy
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from eventctx.engine import Engine
from eventctx.errors import TranscriptError
from eventctx.importers.load import ImportSummary
from eventctx.log.codec import raw_of
from eventctx.log.record import Record
from eventctx.stores.memory import MemoryStore
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
from tests.importers.given import ClaudeCode, Codex, call, forked, load, records, text, thinking
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

# -- the sessions --------------------------------------------------------------------------------


def _claude_code() -> list[Row]:
    log = ClaudeCode().progress(agentId="a1").user("start here")
    log.answer("m1", thinking("hmmm", "sig=")).answer("m1", call("t1", command="list"))
    log.result("t1", "first result").answer("m2", text("finished"), stop_reason="end_turn")
    log.system("compact_boundary", compactMetadata={"trigger": "auto", "preTokens": 9})
    log.user("In short, this", isCompactSummary=True).answer("m3", call("t2")).result("t2")
    return log.answer("m4", text("good")).system("turn_duration").user("thanks").rows


def _codex() -> list[Row]:
    log = Codex(model_provider="openai").event("task_started", model_context_window=9000)
    log.line("turn_context", model="gpt-test").says("user", "start here").calls("c1").counted(
        10, 10
    )
    log.output("c1").says("assistant", "finished").event("task_complete").says("user", "more")
    user = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "unit"}]}
    log.counted(20, 30).line("compacted", replacement_history=[user], message="")
    return log.says("assistant", "finally").counted(30, 60).rows


def _pi() -> list[Row]:
    log = Pi(tree=True).user("start here").answer(text("on it"), pi_call("t1"), stop="toolUse")
    log.result("t1").answer(stop="aborted").entry("model_change").user("again")
    log.answer(text("fine")).entry("compaction", summary="Short", firstKeptEntryId="e6").user("on")
    log.answer(text("more")).back_to("e8").user("other").answer(text("yeah"))
    return log.answer(stop="error", errorMessage="boom").user("last").rows


def _openhands() -> list[Row]:
    log = OpenHands().system().user("start here").action("c1", "r1").event("TokenEvent")
    log.action("c2", "r1").seen("c1").seen("c2", is_error=True).says("finished")
    log.event("CondensationRequest").condensed("e2", "e4", "e5", summary="Short", summary_offset=2)
    return log.user("more").action("c4", "r4").event("ConversationErrorEvent", code="boom").rows


def _amplifier_log() -> list[Row]:
    log = AmplifierLog().prompt("start here").request(passing_reminder())
    log.response(call("t1"), call("t2")).tool("t1").tool("t2", success=False).request()
    log.response(text("finished")).event("orchestrator:complete").prompt("more")
    log.event("context:compaction", after_messages=2)
    log.talk = log.talk[-1:]
    log.request().response(call("t3")).tool("t3")
    return log.event("content_block:end", block=text("streamed")).event("session:end").rows


def _chat() -> list[Row]:
    function = {"name": "look", "arguments": '{"path": "here"}'}
    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    return [
        {"role": "system", "content": "be good"},
        {"role": "user", "content": "start here"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call1", "type": "function", "function": function}],
            "usage": usage,
            "model": "test-model",
        },
        {"role": "tool", "tool_call_id": "call1", "content": "listing"},
        {"role": "assistant", "content": [text("finished"), call("call2", path="here")]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call2"}]},
        {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "call3"},
        {"type": "function_call_output", "call_id": "call3", "output": "nothing"},
        {"role": "user", "content": "more please", "timestamp": 1_700_000_000.5},
    ]


def _stamped() -> list[Row]:
    stamp = {"timestamp": "2026-01-01T10:00:00+00:00"}
    return [{**row, **stamp} for row in _chat() if "role" in row]


def _transcript() -> list[Row]:
    stamp = {"metadata": {"timestamp": "2026-01-01T10:00:00+00:00"}}
    return [{**row, **stamp} for row in _chat() if "role" in row]


def _swe_agent() -> Row:
    rows = [*_chat()[:4], {"role": "assistant", "content": "done", "action": "submit"}]
    steps = [{"action": "look", "observation": "listing", "response": "text"}]
    config = {"agent": {"model": {"name": "test-model"}}}
    info = {"exit_status": "submitted", "model_stats": {"api_calls": 1}}
    return {"history": rows, "trajectory": steps, "info": info, "replay_config": config}


def _mini_swe_agent() -> Row:
    usage = {"prompt_tokens": 100, "completion_tokens": 7, "prompt_tokens_details": {"cached": 5}}
    response = {"id": "r1", "model": "m", "usage": usage, "choices": [{"finish_reason": "stop"}]}
    extra = {"response": response, "timestamp": 1_700_000_000.5}
    rows = [*_chat()[:2], {"role": "assistant", "content": "look", "extra": extra}]
    leave = {"role": "exit", "content": "diff", "extra": {"exit_status": "Submitted"}}
    info = {"exit_status": "Submitted"}
    return {
        "messages": [*rows, leave],
        "info": info,
        "trajectory_format": "mini-swe-agent-1.1",
    }


def _request_log() -> Row:
    choice = {"finish_reason": "stop", "message": {"role": "assistant", "content": "hello"}}
    usage = {"prompt_tokens": 50, "completion_tokens": 3}
    response = {"id": "r1", "model": "m", "choices": [choice], "usage": usage, "created": 5}
    return {"messages": _chat(), "response": response, "context_window": 200_000, "cost": 0.5}


def _copilot() -> list[Row]:
    log = Copilot(selectedModel="test-model").user("start here", transformedContent="start here!")
    log.system().used("api-3", 50, cacheReadTokens=20).answer("on it", "t1", apiCallId="api-3")
    log.result("t1", "listing").event("session.compaction_start").answer("more", "t2")
    log.compacted("Short").result("t2", success=False, error={"message": "broken"})
    log.event("session.truncation", messagesRemovedDuringTruncation=2).answer("fine")
    log.user("again").answer("well", reasoningText="thinking").event("abort", reason="user")
    log.event("session.snapshot_rewind", upToEventId=log.rows[-3]["id"], eventsRemoved=3)
    return log.user("last").event("session.context_cleared", initialMessage="anew").rows


def _cursor() -> list[Row]:
    log = Cursor().user("start here").answer(text("on it"), cursor_call(command="list"))
    log.says("user", {"type": "tool_result", "content": "listing"}).answer(text("finished"))
    return log.ended().user("more").answer(cursor_call(path="here"), text("fine")).rows


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


def _gemini() -> Gemini:
    log = Gemini().user("start here", "first").answer("on it", own="second")
    log.answer("on it", tool("call1", agentId="helper"), own="second").results(answers("call1"))
    log.record("info", "notice").answer("finished", thoughts=[{"description": "hmmm"}])
    return log.user("more please").record("gemini", "", toolCalls=[tool("call2", status="error")])


def _gemini_lines() -> list[Row]:
    log = _gemini()
    log.anew(told("first", says("Short")), told("third", says("finished"), kind="gemini"))
    return log.user("other", "other").answer("yeah").rewind("other").user("last").rows


def _gemini_document() -> Row:
    log = _gemini()
    return {**log.head, "messages": log.rows[1:]}


def _qwen() -> list[Row]:
    log = Qwen().user("start here").system("ui_telemetry").answer(thought("hmmm"), calls("call1"))
    log.result("call1", status="error").answer(says("finished")).user("wrong").back_to("u4")
    log.system("rewind", truncatedCount=1).user("again").answer(says("fine"))
    log.compressed(("user", says("Short")), ("model", says("fine"))).user("more please")
    return log.answer(calls("call2")).result("call2").answer(says("yeah")).rows


def _opencode() -> Row:
    pruned = {"start": 1, "end": 2, "compacted": 1_767_261_602_700}
    log = OpenCode().user("start here").answer(ran("call1", "listing", time=pruned))
    log.answer({"type": "text", "text": "finished"}, {"type": "patch", "files": ["here"]})
    log.user({"type": "compaction", "auto": True})
    log.answer({"type": "text", "text": "Short"}, summary=True).user("more please")
    log.answer({"type": "text", "text": "half"}, error={"name": "MessageAbortedError"})
    return {"info": log.head, "messages": log.messages}


def _claude_stream() -> list[Row]:
    log = ClaudeStream().user("start here").answer("m1", thinking("hmmm", "sig="))
    log.answer("m1", call("t1", command="list")).event("message_delta", usage={"output_tokens": 9})
    log.result("t1", "first result").answer("m2", text("finished")).over()
    log.system("compact_boundary", compact_metadata={"trigger": "auto", "pre_tokens": 9})
    log.user("In short, this", isSynthetic=True).answer("m3", call("t2")).result("t2")
    return log.answer("m4", text("good")).over("error_max_turns", errors=["enough"]).rows


def _codex_exec() -> list[Row]:
    log = CodexExec().turn().says("hmmm", "reasoning").runs("a", "list").ran("a", "listing")
    todo = [{"text": "start here", "completed": False}]
    log.item("started", "todo_list", "t", items=todo)
    asked = {"server": "store", "tool": "find", "arguments": {"name": "jars"}}
    found = {"content": [{"type": "text", "text": "three jars"}]}
    log.item("completed", "mcp_tool_call", **asked, result=found, status="completed")
    return log.says("finished").over().turn().line("turn.failed", error={"message": "boom"}).rows


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
    log.acts(
        "on it", "c1", "c2", prompt=100, reasoning_content="hmmm", observation=seen((None, "x"))
    )
    image = {"type": "image", "source": {"media_type": "image/png", "path": "shot.png"}}
    log.acts(
        "look", "c3", prompt=120, observation=seen(("c3", [{"type": "text", "text": "y"}, image]))
    )
    told = {"context_management": {"type": "compaction", "boundary": "replace"}}
    log.step("system", "shortened", extra=told, observation=seen((None, "In short, this")))
    log.acts("finished", prompt=50)
    return log.document(notes="all of it", subagent_trajectories=["none"])


SESSIONS: dict[str, tuple[str, Callable[[], list[Row] | Row]]] = {
    "claude-code": ("claude-code", _claude_code),
    "claude-stream": ("claude-stream", _claude_stream),
    "codex": ("codex", _codex),
    "codex-exec": ("codex-exec", _codex_exec),
    "codex-exec-events": ("codex-exec", _codex_events),
    "atif": ("atif", _atif),
    "gemini-cli": ("gemini-cli", _gemini_lines),
    "gemini-document": ("gemini-cli", _gemini_document),
    "qwen-code": ("qwen-code", _qwen),
    "opencode-document": ("opencode", _opencode),
    "pi": ("pi", _pi),
    "copilot": ("copilot", _copilot),
    "cursor": ("cursor", _cursor),
    "cline-list": ("cline", _cline_task),
    "cline-document": ("cline", _cline_session),
    "openhands": ("openhands", _openhands),
    "openhands-folder": ("openhands", _openhands),
    "openhands-list": ("openhands", lambda: {"history": _openhands()}),
    "amplifier-events": ("amplifier", _amplifier_log),
    "amplifier-transcript": ("amplifier", _transcript),
    "context-persistent": ("context-persistent", _stamped),
    "messages": ("messages", _chat),
    "messages-document": ("messages", _request_log),
    "swe-agent": ("swe-agent", _swe_agent),
    "mini-swe-agent": ("mini-swe-agent", _mini_swe_agent),
}
"""By the name of a wrapping: the format, and a session of it as rows, or as one document."""

# -- the mutations -------------------------------------------------------------------------------

DEEP = "[" * 100_000 + "]" * 100_000

VALUES = (
    *("{}", '{"type":"object","id":["x"]}', "[]", '["one",2]', "null", "true", "false", "0", "-1"),
    *("1e308", "-1e308", "1e999", "NaN", "-Infinity", "0.1", str(2**31), str(2**53 + 1)),
    *(str(2**62), str(2**63 - 1), str(2**63), str(2**64 - 1), str(2**64), str(-(2**63) - 1)),
    *("9" * 400, "9" * 5000, '""', '" "', '"\\ud800"', '"a\\udc00b"', '"\\u0000"', '"text"'),
    *('"-1"', '"9999-12-31T23:59:59-23:59"', '"0001-01-01T00:00:00+23:59"', '"../../etc/x"'),
    *('"role"', '"user"', '"assistant"', '"x' + "y" * 300 + '"'),
    *("[" * depth + '"inside"' + "]" * depth for depth in (150, 240, 300, 600)),
    *('{"a":' * depth + '"inside"' + "}" * depth for depth in (150, 240, 300, 600)),
)
_HOLE = "@hole@"


def _holders(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a value: the object or list, and the key or index."""
    keys = value.keys() if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _holders(value[key])


def _replaced(row: Row, rng: random.Random) -> bytes:
    holder, key = rng.choice(list(_holders(row)))
    holder[key] = _HOLE
    value = DEEP if rng.random() < 0.01 else rng.choice(VALUES)
    return json.dumps(row).replace(f'"{_HOLE}"', value).encode()


def _deleted(row: Row, rng: random.Random) -> bytes:
    holder, key = rng.choice(list(_holders(row)))
    del holder[key]
    return json.dumps(row).encode()


def _repeated(row: Row, rng: random.Random) -> bytes:
    holder, key = rng.choice([one for one in _holders(row) if isinstance(one[0], dict)])
    items = list(holder.items())
    holder.clear()
    for name, value in items:
        if name == key:
            holder[_HOLE] = 0
        holder[name] = value
    earlier = rng.choice((f'"earlier{rng.randrange(10**6)}"', f'["earlier{rng.randrange(10**6)}"]'))
    return json.dumps(row).replace(f'"{_HOLE}": 0', f"{json.dumps(key)}: {earlier}").encode()


def _cut(row: Row, rng: random.Random) -> bytes:
    data = json.dumps(row).encode()
    return data[: rng.randrange(len(data))]


def _flipped(row: Row, rng: random.Random) -> bytes:
    data = bytearray(json.dumps(row).encode())
    for _ in range(rng.choice((1, 1, 2, 5))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data).replace(b"\n", b" ")


_MUTATIONS = (_replaced, _replaced, _replaced, _deleted, _repeated, _cut, _flipped)


def _mutated(row: Row, rng: random.Random) -> bytes:
    return rng.choice(_MUTATIONS)(copy.deepcopy(row), rng)


def _rows(name: str) -> list[Row]:
    """The session as lines, each with a word of its own; a document is one line."""
    made = SESSIONS[name][1]()
    if name == "cline-list":
        rows: Any = made
        return [rows["list"]]
    if isinstance(made, dict):
        return [made]
    return [{**row, "aside": f"line{number:04}"} for number, row in enumerate(made)]


def mutants(name: str, count: int, seed: int) -> Iterator[list[bytes]]:
    """Files of a format with one to three mutations, as lines."""
    return mutants_of(_rows(name), name, count, seed)


def mutants_of(rows: list[Row], name: str, count: int, seed: int) -> Iterator[list[bytes]]:
    """Files of these rows with one to three mutations, as lines."""
    plain = [json.dumps(row).encode() for row in rows]
    rng = random.Random(f"{name} {seed}")  # noqa: S311 - the same mutants for the same seed
    for _ in range(count):
        lines = list(plain)
        for place in rng.choices(range(len(rows)), k=rng.choice((1, 1, 2, 3))):
            lines[place] = _mutated(rows[place], rng)
        if len(rows) > 1 and rng.random() < 0.05:
            lines.insert(rng.choice((0, len(lines) // 2)), rng.choice((b"[" * 100_000, b"\xff{")))
        yield lines


# -- the promises --------------------------------------------------------------------------------

_WORD = re.compile(rb"(?<![\\A-Za-z0-9_.-])(?:[A-Za-z_][A-Za-z0-9_]{3,}|[1-9][0-9]{18,})")

_OF_THE_FORM = frozenset(
    (
        *(b"replacement_history", b"toolCall", b"arguments", b"llm_message", b"system_prompt"),
        *(b"history", b"trajectory", b"messages", b"extra", b"thought", b"observation"),
        *(b"transformedContent", b"summaryContent", b"reasoningText"),
        *(b"functionCall", b"functionResponse", b"response", b"output", b"args", b"parts", b"true"),
        *(b"steps", b"subagent_trajectories"),
    )
)
"""Words of the formats' own structure, in place of which our records have theirs."""


def _write(folder: Path, name: str, lines: list[bytes]) -> Path:
    if name != "openhands-folder":
        path = folder / "file.jsonl"
        path.write_bytes(b"\n".join(lines) + b"\n")
        return path
    path = folder / "events"
    path.mkdir(exist_ok=True)
    for old in path.iterdir():
        old.unlink()
    for number, line in enumerate(lines):
        (path / f"event-{number:05d}-e{number}.json").write_bytes(line)
    return path


def _kept(found: list[Record]) -> bytes:
    """All that an import has kept of its file."""
    bodies = [body.data or b"" for record in found for body in record.bodies]
    raw = [raw_of(record) or b"" for record in found if record.type == "import:raw"]
    return b"\n".join([*bodies, *raw])


async def _promises(
    store: MemoryStore, path: Path, lines: list[bytes], done: ImportSummary
) -> None:
    session = done.session
    assert session is not None
    kept = _kept(await records(store, session))
    # A member that is null says no more than one that is missing.
    said = [line.replace(b'": null', b'"').replace(b'":null', b'"') for line in lines]
    words = {word for line in said for word in _WORD.findall(line)} - _OF_THE_FORM
    missing = {word for word in words if word not in kept}
    assert not missing, f"lost: {missing}"
    again = await load(store, path, format=done.format, complete=True)
    assert again.added == 0
    engine = Engine(store)
    verified = await engine.verify(session)
    assert not verified.problems, verified.problems
    context = await forked(engine, session)
    assert await context.get_messages_for_request() is not None
    await context.close()


class Mutants:
    """Imports mutants of one format, and checks what is promised of every import."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.format = SESSIONS[name][0]

    async def run(self, count: int, seed: int) -> Counter[str]:
        """Import ``count`` mutants; how many imports ended in which way."""
        ended: Counter[str] = Counter()
        for number, lines in enumerate(mutants(self.name, count, seed)):
            ended[await self.survives(lines, number)] += 1
        return ended

    async def survives(self, lines: list[bytes], number: int = 0) -> str:
        """Import a file, and check what is promised; how the import ended.

        No exception but a ``TranscriptError``. After an import: no word of the file is lost, a
        second import adds nothing, the log verifies, and the session's next request can be made.
        In turn, by ``number``, it is also imported as one that may grow, or of no named format.
        """
        path = _write(self.folder, self.name, lines)
        ended = "imported"
        other = ((self.format, False), (None, False), (None, True))[number % 3]
        for chosen, complete in ((self.format, True), other):
            store = MemoryStore()
            try:
                done = await load(store, path, format=chosen, complete=complete)
            except TranscriptError as error:
                ended = type(error).__name__ if chosen and complete else ended
                continue
            if complete and done.session is not None and done.format == self.format:
                await _promises(store, path, lines, done)
        return ended
