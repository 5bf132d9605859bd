"""Rules of Anthropic's Messages API for calls and results: the client's tools and the server's."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from eventctx.testing.strict_provider.claude_request import (
    SERVER_CALLS,
    ClaudeBlock,
    ClaudeRequest,
    MergedMessage,
)
from eventctx.testing.strict_provider.rule import Found, Rule

_ID: Final = re.compile(r"[a-zA-Z0-9_-]+\Z")
_SERVER_ID: Final = re.compile(r"srvtoolu_[a-zA-Z0-9_]+\Z")


def _check_answered(request: ClaudeRequest) -> Iterator[Found]:
    for turn, following in _neighbours(request):
        answered = {_result_id(block) for block in following.of_type("tool_result")}
        missing = [_id(block) for block in turn.of_type("tool_use") if _id(block) not in answered]
        if missing:
            yield f"messages.{turn.number}", _unanswered(turn, missing)


def _check_results_first(request: ClaudeRequest) -> Iterator[Found]:
    for turn, following in _neighbours(request):
        calls = {_id(block) for block in turn.of_type("tool_use")}
        other = False
        late = []
        for block in following.blocks:
            if block.type != "tool_result":
                other = True
            elif other and _result_id(block) in calls:
                late.append(_result_id(block))
        if late:
            yield f"messages.{turn.number}", _unanswered(turn, late)


def _unanswered(turn: MergedMessage, ids: list[str]) -> str:
    return (
        f"messages.{turn.number}: `tool_use` ids were found without `tool_result` blocks "
        f"immediately after: {', '.join(ids)}. Each `tool_use` block must have a corresponding "
        "`tool_result` block in the next message."
    )


def _check_have_calls(request: ClaudeRequest) -> Iterator[Found]:
    before: set[str] = set()
    for turn in request.turns:
        for block in turn.of_type("tool_result") if turn.role == "user" else ():
            if _result_id(block) not in before:
                yield (
                    block.path,
                    (
                        f"{block.path}: unexpected `tool_use_id` found in `tool_result` blocks: "
                        f"{_result_id(block)}. Each `tool_result` block must have a corresponding "
                        "`tool_use` block in the previous message."
                    ),
                )
        before = {_id(block) for block in turn.of_type("tool_use")}


def _check_one_result(request: ClaudeRequest) -> Iterator[Found]:
    for turn in request.turns:
        seen: set[str] = set()
        for block in turn.of_type("tool_result"):
            if _result_id(block) in seen:
                yield (
                    block.path,
                    (
                        f"{block.path}: each tool_use must have a single result. Found multiple "
                        f"`tool_result` blocks with id: {_result_id(block)}"
                    ),
                )
            seen.add(_result_id(block))


def _check_unique(request: ClaudeRequest) -> Iterator[Found]:
    seen: set[str] = set()
    for _, block in request.blocks():
        if block.type == "tool_use" or block.type in SERVER_CALLS:
            if "id" in block.fields and _id(block) in seen:
                yield block.path, f"{block.path}: `tool_use` ids must be unique"
            seen.add(_id(block))


def _check_id_form(request: ClaudeRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        if block.type in ("tool_use", "mcp_tool_use"):
            name = "id"
        elif block.type in ("tool_result", "mcp_tool_result"):
            name = "tool_use_id"
        else:
            continue
        if name in block.fields and not _ID.match(str(block.fields[name])):
            path = f"{block.path}.{block.type}.{name}"
            yield path, f"{path}: String should match pattern '^[a-zA-Z0-9_-]+$'"


def _check_server_id_form(request: ClaudeRequest) -> Iterator[Found]:
    for _, block in request.blocks():
        if block.type != "server_tool_use" or "id" not in block.fields:
            continue
        if not _SERVER_ID.match(_id(block)):
            path = f"{block.path}.server_tool_use.id"
            yield path, f"{path}: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'"


def _check_server_answered(request: ClaudeRequest) -> Iterator[Found]:
    loops = request.loops()
    for loop in loops:
        for place, turn in enumerate(loop):
            for call in turn.of_type(*SERVER_CALLS):
                if _server_answer(call, loop[place:]) is not None:
                    continue
                # The API goes on with an open call, if only results of the client came since.
                open_at_end = loop is loops[-1] and all(
                    later.role == "assistant" or later.only_results for later in loop[place:]
                )
                if not open_at_end:
                    yield (
                        f"messages.{turn.number}",
                        (
                            f"messages.{turn.number}: `{call.fields.get('name')}` tool use with id "
                            f"`{_id(call)}` was found without a corresponding "
                            f"`{_result_type(call)}` block"
                        ),
                    )


def _check_results_alone(request: ClaudeRequest) -> Iterator[Found]:
    for loop in request.loops():
        for place, turn in enumerate(loop[:-1]):
            following = loop[place + 1]
            if turn.role != "assistant" or following.only_results:
                continue
            for call in turn.of_type(*SERVER_CALLS):
                later = _server_answer(call, loop[place + 1 :])
                if later is not None and _server_answer(call, [turn]) is None:
                    yield (
                        f"messages.{following.number}",
                        (
                            f"messages.{turn.number}: `{call.fields.get('name')}` tool use with id "
                            f"`{_id(call)}` was found without a corresponding "
                            f"`{_result_type(call)}` block"
                        ),
                    )


def _check_server_have_calls(request: ClaudeRequest) -> Iterator[Found]:
    for loop in request.loops():
        called: set[str] = set()
        for turn in loop:
            for block in turn.blocks:
                if block.type in SERVER_CALLS:
                    called.add(_id(block))
                elif block.is_server_result and _result_id(block) not in called:
                    yield block.path, _without_call(block)


def _without_call(block: ClaudeBlock) -> str:
    call = "mcp_tool_use" if block.type == "mcp_tool_result" else "server_tool_use"
    return (
        f"{block.path}: unexpected `tool_use_id` found in `{block.type}` blocks: "
        f"{_result_id(block)}. Each `{block.type}` block must have a corresponding `{call}` "
        "block before it."
    )


def _check_server_kind(request: ClaudeRequest) -> Iterator[Found]:
    calls = {_id(block): block for _, block in request.blocks() if block.type in SERVER_CALLS}
    for _, block in request.blocks():
        call = calls.get(_result_id(block)) if block.is_server_result else None
        if call is not None and block.type != _result_type(call):
            yield (
                block.path,
                (
                    f"{block.path}: `{call.fields.get('name')}` tool use with id `{_id(call)}` was "
                    f"found without a corresponding `{_result_type(call)}` block"
                ),
            )


def _neighbours(request: ClaudeRequest) -> Iterator[tuple[MergedMessage, MergedMessage]]:
    """Each assistant turn with the one after it, which is empty at the end."""
    for place, turn in enumerate(request.turns):
        if turn.role == "assistant":
            following = request.turns[place + 1 : place + 2]
            yield turn, following[0] if following else MergedMessage(turn.number + 1, "user", ())


def _server_answer(call: ClaudeBlock, turns: list[MergedMessage]) -> ClaudeBlock | None:
    for turn in turns:
        for block in turn.blocks:
            if block.is_server_result and _result_id(block) == _id(call):
                return block
    return None


def _result_type(call: ClaudeBlock) -> str:
    if call.type == "mcp_tool_use":
        return "mcp_tool_result"
    name = str(call.fields.get("name"))
    return f"{'tool_search' if name.startswith('tool_search') else name}_tool_result"


def _id(block: ClaudeBlock) -> str:
    return str(block.fields.get("id"))


def _result_id(block: ClaudeBlock) -> str:
    return str(block.fields.get("tool_use_id"))


_SERVER_TOOLS: Final = "Server tools; error: tool use … was found without a corresponding … block"

RULES: Final = (
    Rule(
        "anthropic/calls-answered",
        "anthropic",
        "Every tool_use has its tool_result in the next message, merged with its neighbours.",
        "Handle tool calls; error: `tool_use` ids were found without `tool_result` blocks",
        _check_answered,
    ),
    Rule(
        "anthropic/results-first",
        "anthropic",
        "Results are first in the content of the message that has them.",
        "Handle tool calls: tool_result blocks must come first",
        _check_results_first,
    ),
    Rule(
        "anthropic/results-have-calls",
        "anthropic",
        "A tool_result answers a tool_use of the message before it.",
        "error: unexpected `tool_use_id` found in `tool_result` blocks",
        _check_have_calls,
    ),
    Rule(
        "anthropic/one-result-a-call",
        "anthropic",
        "A call has one result.",
        "error: each tool_use must have a single result",
        _check_one_result,
    ),
    Rule(
        "anthropic/call-ids-unique",
        "anthropic",
        "No two calls of a request have one id.",
        "error: `tool_use` ids must be unique",
        _check_unique,
    ),
    Rule(
        "anthropic/call-id-form",
        "anthropic",
        "Ids of calls are letters, digits, `_` and `-`.",
        "error: String should match pattern '^[a-zA-Z0-9_-]+$'",
        _check_id_form,
    ),
    Rule(
        "anthropic/server-call-id-form",
        "anthropic",
        "Ids of server tools' calls begin with `srvtoolu_`.",
        "error: String should match pattern '^srvtoolu_[a-zA-Z0-9_]+$'",
        _check_server_id_form,
    ),
    Rule(
        "anthropic/server-calls-answered",
        "anthropic",
        "A server tool's call has its result in the same answer, which may go on over several "
        "messages (pause_turn); only the last answer may leave it open.",
        _SERVER_TOOLS,
        _check_server_answered,
    ),
    Rule(
        "anthropic/results-alone-while-open",
        "anthropic",
        "While a server tool's call is open, the client's message has results and nothing else.",
        _SERVER_TOOLS,
        _check_results_alone,
    ),
    Rule(
        "anthropic/server-results-have-calls",
        "anthropic",
        "A server tool's result comes after its call, in the same answer.",
        "error: block must have a corresponding `server_tool_use` block before it",
        _check_server_have_calls,
    ),
    Rule(
        "anthropic/server-result-kind",
        "anthropic",
        "A server tool's result has the type of its tool: web_search_tool_result for web_search.",
        _SERVER_TOOLS,
        _check_server_kind,
    ),
)
