"""The output of ``codex exec --json``: what the screen shows of a thread, an item a line.

Messages become items of OpenAI's Responses API, as in a rollout. What the model really called is
not in the output, so a tool is named as its item is: ``command_execution``, ``file_change``. An
item that began is a call, its end the result. A model call is all that was said and called without
a result in between; the counts of tokens are of a whole turn, and so belong to no call. A prompt is
in the output of releases before 0.40 alone; these write the events of the session (``msg``).

A thread that is resumed writes to another file under the same id, so sessions are named after their
files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from eventctx.importers.formats.codex_rows import EVENTS
from eventctx.importers.source.document import stem
from eventctx.importers.source.items import (
    CallEnded,
    Ended,
    FileLine,
    Item,
    Linked,
    MessageItem,
    ModelCall,
    Raw,
    Session,
    TurnBegan,
    TurnEnded,
    Warned,
    never,
)
from eventctx.importers.source.lines import (
    count,
    list_or_empty,
    nanoseconds,
    not_understood,
    object_or_empty,
    parse_rows,
    text_of_content,
    text_or_none,
)
from eventctx.importers.source.values import decode, encode
from eventctx.log.usage import CODEX, Usage, read_usage, with_prompt

_BEGINS: Final = {"thread.started": "thread_id", "session.created": "session_id"}
_ROWS: Final = frozenset(
    (*_BEGINS, "turn.started", "turn.completed", "turn.failed", "error", "request_user_input")
)
_SAID: Final = ("agent_message", "assistant_message", "plan")
_FAILED: Final = ("failed", "declined")
_PLANNED: Final = "Plan updated"
"""The result of every call of ``update_plan``."""

_ARGUMENTS: Final = {
    "command_execution": ("command",),
    "file_change": ("changes",),
    "mcp_tool_call": ("arguments",),
    "collab_tool_call": ("prompt", "receiver_thread_ids"),
}
"""The fields of an item that are what the model asked for, by its type."""


def is_row(value: dict[str, Any]) -> bool:
    """Whether an object is a line of the output, of any release."""
    kind, inner = value.get("type"), value.get("item")
    if isinstance(kind, str):
        named = kind in _BEGINS and isinstance(value.get(_BEGINS[kind]), str)
        typed = isinstance(inner, dict) and ("type" in inner or "item_type" in inner)
        return named or (kind.startswith("item.") and typed)
    event = object_or_empty(value.get("msg")).get("type")
    return isinstance(value.get("id"), str) and isinstance(event, str) and event in EVENTS


def parse(lines: Iterable[FileLine], name: str, ended: Ended = never) -> Iterator[Item]:
    """The items of one output."""
    thread = _Thread(stem(name))
    return parse_rows(lines, decode, thread.row, ())


class _Thread:
    """The state from line to line: which calls wait, and whether the model is answering."""

    def __init__(self, session: str) -> None:
        self.session = session
        self.begun = self.calling = self.in_turn = self.told = False
        self.open: set[str] = set()
        self.model: str | None = None
        self.provider: str | None = None
        self.window: int | None = None

    def row(self, line: int, data: bytes, row: Any) -> Iterator[Item]:
        """The items of one line."""
        value = object_or_empty(row)
        time = nanoseconds(value.get("timestamp"))
        if not self.begun:
            self.begun = True
            yield Session(line, time, self.session)
        item, event, prompt = value.get("item"), value.get("msg"), value.get("prompt")
        if isinstance(item, dict):
            yield from self._item(line, time, data, value, item)
        elif isinstance(event, dict):
            yield from self._event(line, time, data, value, event)
        elif isinstance(prompt, str) and "type" not in value:
            yield Raw(line, "prompt.envelope", encode({**value, "prompt": None}))
            yield from self._begin_turn(line, time, told=True)
            yield MessageItem(line, time, _message("user", prompt))
        else:
            yield from self._plain(line, time, data, value)

    def end(self) -> Iterator[Item]:
        """Nothing waits for more lines."""
        return iter(())

    def _plain(
        self, line: int, time: int | None, data: bytes, row: dict[str, Any]
    ) -> Iterator[Item]:
        kind = text_or_none(row.get("type")) or ("config" if "model" in row else "untyped")
        yield Raw(line, kind, data, kind in _ROWS or kind == "config")
        if kind == "config":
            self.model = text_or_none(row.get("model"))
            self.provider = text_or_none(row.get("provider"))
        elif kind == "turn.started":
            yield from self._close(line, time)
            yield from self._begin_turn(line, time)
        elif kind == "turn.completed":
            yield from self._end_turn(line, time)
        elif kind == "turn.failed":
            told = text_or_none(object_or_empty(row.get("error")).get("message"))
            yield from self._end_turn(line, time, told or kind)

    # -- turns and calls -------------------------------------------------------------------------

    def _begin_turn(self, line: int, time: int | None, *, told: bool = False) -> Iterator[Item]:
        self.in_turn = True
        yield TurnBegan(line, time)
        if not (told or self.told):
            self.told = True
            words = "the prompt is not in the output; the thread's rollout in ~/.codex/sessions"
            yield Warned(line, f"{words} has it")

    def _end_turn(self, line: int, time: int | None, error: str | None = None) -> Iterator[Item]:
        yield from self._close(line, time)
        self.in_turn = False
        yield TurnEnded(line, time, "ok" if error is None else "error", error)

    def _close(self, line: int, time: int | None, usage: Usage | None = None) -> Iterator[Item]:
        if self.calling or usage is not None:
            self.calling = False
            yield CallEnded(line, time, usage)

    def _answer(self, line: int, time: int | None, message: dict[str, Any]) -> Iterator[Item]:
        """Something that the model wrote."""
        if not self.in_turn:
            yield from self._begin_turn(line, time)
        if not self.calling:
            self.calling = True
            yield ModelCall(line, None, self.model, self.provider, context_window=self.window)
        yield MessageItem(line, time, message)

    def _call(
        self, line: int, time: int | None, call: str, name: str, arguments: Any
    ) -> Iterator[Item]:
        self.open.add(call)
        written = encode(arguments).decode()
        message = {"type": "function_call", "name": name, "arguments": written, "call_id": call}
        return self._answer(line, time, message)

    def _result(
        self, line: int, time: int | None, call: str, text: str, *, failed: bool = False
    ) -> Iterator[Item]:
        self.open.discard(call)
        yield from self._close(line, time)
        message = {"type": "function_call_output", "call_id": call, "output": text}
        yield MessageItem(line, time, message, failed)

    # -- items -----------------------------------------------------------------------------------

    def _item(
        self, line: int, time: int | None, data: bytes, row: dict[str, Any], item: dict[str, Any]
    ) -> Iterator[Item]:
        kind = text_or_none(item.get("type")) or text_or_none(item.get("item_type")) or "untyped"
        step = str(row.get("type"))
        name, text = f"{step}/{kind}", item.get("text")
        if kind in _ARGUMENTS:
            yield from self._tool(line, time, row, item, kind)
        elif kind == "todo_list":
            yield Raw(line, name, data)
            # The last line repeats the list; an update is a call of its own.
            if step != "item.completed":
                yield from self._plan(line, time, _plan_of(item))
        elif step != "item.completed" or kind == "error":
            yield Raw(line, name, data)
        elif kind in _SAID and isinstance(text, str):
            yield Raw(line, f"{name}.envelope", encode(_emptied(row, "text")))
            yield from self._answer(line, time, _message("assistant", text))
        elif kind == "reasoning" and isinstance(text, str):
            yield Raw(line, f"{name}.envelope", encode(_emptied(row, "text")))
            yield from self._answer(line, time, _reasoning(text))
        elif kind == "web_search":
            yield Raw(line, name, data)
            yield from self._answer(line, time, _search(item))
        else:
            yield from not_understood(line, name, data, f"an item of type {kind}")

    def _tool(
        self, line: int, time: int | None, row: dict[str, Any], item: dict[str, Any], kind: str
    ) -> Iterator[Item]:
        """A tool's call, and its result once it is over."""
        call = text_or_none(item.get("id")) or f"line-{line}"
        over = row.get("type") == "item.completed" and item.get("status") != "in_progress"
        begins = call not in self.open and (over or row.get("type") == "item.started")
        moved = [*(_ARGUMENTS[kind] if begins else ())]
        if over and isinstance(item.get("aggregated_output"), str):
            moved.append("aggregated_output")
        rest = encode(_emptied(row, *moved))
        yield Raw(line, f"{row.get('type')}/{kind}.envelope", rest)
        if begins:
            arguments = {key: item.get(key) for key in _ARGUMENTS[kind]}
            asked = item.get("arguments") if kind == "mcp_tool_call" else arguments
            yield from self._call(line, time, call, _name_of(item, kind), asked)
        if over:
            failed = item.get("status") in _FAILED
            yield from self._result(line, time, call, _outcome_of(item, kind), failed=failed)
            threads = list_or_empty(item.get("receiver_thread_ids"))
            yield from (Linked(line, time, one, call) for one in threads if isinstance(one, str))

    def _plan(self, line: int, time: int | None, plan: Any) -> Iterator[Item]:
        call = f"plan-{line}"
        yield from self._call(line, time, call, "update_plan", {"plan": plan})
        yield from self._result(line, time, call, _PLANNED)

    # -- events, as releases before 0.40 write them ------------------------------------------------

    def _event(
        self, line: int, time: int | None, data: bytes, row: dict[str, Any], event: dict[str, Any]
    ) -> Iterator[Item]:
        kind = str(event.get("type"))
        known = kind in EVENTS or kind.endswith("_delta") or kind == "session_configured"
        yield Raw(line, f"msg/{kind}", data, known)
        handle = self._EVENTS.get(kind)
        if handle is not None:
            yield from handle(self, line, time, event)

    def _started(self, line: int, time: int | None, event: dict[str, Any]) -> Iterator[Item]:
        self.window = count(event.get("model_context_window")) or self.window
        if not self.in_turn:
            yield from self._begin_turn(line, time)

    def _spoke(self, line: int, time: int | None, event: dict[str, Any]) -> Iterator[Item]:
        text = event.get("message")
        if isinstance(text, str) and text:
            yield from self._answer(line, time, _message("assistant", text))

    def _thought(self, line: int, time: int | None, event: dict[str, Any]) -> Iterator[Item]:
        text = event.get("text")
        if isinstance(text, str) and text:
            yield from self._answer(line, time, _reasoning(text))

    def _began(self, line: int, time: int | None, event: dict[str, Any]) -> Iterator[Item]:
        call = text_or_none(event.get("call_id")) or f"line-{line}"
        asked = object_or_empty(event.get("invocation"))
        if event.get("type") == "exec_command_begin":
            arguments = {"command": event.get("command"), "workdir": event.get("cwd")}
            yield from self._call(line, time, call, "shell", arguments)
        elif event.get("type") == "patch_apply_begin":
            changes = {"changes": event.get("changes")}
            yield from self._call(line, time, call, "apply_patch", changes)
        else:
            name = _name_of(asked, "mcp_tool_call")
            yield from self._call(line, time, call, name, asked.get("arguments"))

    def _ended(self, line: int, time: int | None, event: dict[str, Any]) -> Iterator[Item]:
        call = text_or_none(event.get("call_id"))
        if call is None:
            return
        result = object_or_empty(event.get("result"))
        failed = event.get("exit_code") not in (None, 0) or event.get("success") is False
        texts = [event.get(key) for key in ("formatted_output", "aggregated_output")]
        both = [event.get(key) for key in ("stdout", "stderr")]
        text = next((one for one in texts if isinstance(one, str) and one), None)
        text = text or "".join([one for one in both if isinstance(one, str)])
        if result:
            failed = "Err" in result or object_or_empty(result.get("Ok")).get("isError") is True
            text = _blocks_as_text(object_or_empty(result.get("Ok")).get("content"))
            text = text or str(result.get("Err") or "")
        yield from self._result(line, time, call, text, failed=failed)

    def _searched(self, line: int, time: int | None, event: dict[str, Any]) -> Iterator[Item]:
        return self._answer(line, time, _search(event))

    def _planned(self, line: int, time: int | None, event: dict[str, Any]) -> Iterator[Item]:
        return self._plan(line, time, event.get("plan"))

    def _counted(self, line: int, time: int | None, event: dict[str, Any]) -> Iterator[Item]:
        """This call's tokens; before 0.30 they are in the event itself."""
        info = event.get("info")
        told = info.get("last_token_usage") if isinstance(info, dict) else event
        usage = with_prompt(read_usage(told, CODEX)) if isinstance(told, dict) else None
        if usage is not None:
            yield from self._close(line, time, usage)

    def _completed(self, line: int, time: int | None, event: dict[str, Any]) -> Iterator[Item]:
        return self._end_turn(line, time)

    def _broke_off(self, line: int, time: int | None, event: dict[str, Any]) -> Iterator[Item]:
        if event.get("type") == "turn_aborted":
            yield from self._close(line, time)
            self.in_turn = False
            yield TurnEnded(line, time, "cancelled")
            return
        yield from self._end_turn(line, time, text_or_none(event.get("message")) or "error")

    _EVENTS: Final[dict[str, Callable[[Any, int, int | None, dict[str, Any]], Iterator[Item]]]] = {
        "task_started": _started,
        "agent_message": _spoke,
        "agent_reasoning": _thought,
        "exec_command_begin": _began,
        "patch_apply_begin": _began,
        "mcp_tool_call_begin": _began,
        "exec_command_end": _ended,
        "patch_apply_end": _ended,
        "mcp_tool_call_end": _ended,
        "web_search_end": _searched,
        "plan_update": _planned,
        "token_count": _counted,
        "task_complete": _completed,
        "turn_aborted": _broke_off,
        "error": _broke_off,
    }


def _emptied(row: dict[str, Any], *moved: str) -> dict[str, Any]:
    """A line without what of its item became a message."""
    return {**row, "item": {**row["item"], **dict.fromkeys(moved)}}


def _message(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def _reasoning(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]}


def _search(item: dict[str, Any]) -> dict[str, Any]:
    action = item.get("action")
    asked = action if isinstance(action, dict) else {"type": "search", "query": item.get("query")}
    return {"type": "web_search_call", "status": "completed", "action": asked}


def _name_of(item: dict[str, Any], kind: str) -> str:
    if kind == "mcp_tool_call":
        return f"mcp__{item.get('server')}__{item.get('tool')}"
    return text_or_none(item.get("tool")) or kind if kind == "collab_tool_call" else kind


def _plan_of(item: dict[str, Any]) -> list[dict[str, Any]]:
    steps = [one for one in list_or_empty(item.get("items")) if isinstance(one, dict)]
    words = {True: "completed", False: "pending"}
    return [
        {"step": one.get("text"), "status": words[one.get("completed") is True]} for one in steps
    ]


def _outcome_of(item: dict[str, Any], kind: str) -> str:
    """The text of a result, as far as the output has it."""
    if kind == "mcp_tool_call":
        error = object_or_empty(item.get("error")).get("message")
        told = _blocks_as_text(object_or_empty(item.get("result")).get("content"))
        return told or text_or_none(error) or ""
    if kind == "collab_tool_call":
        return encode(item.get("agents_states")).decode()
    output = item.get("aggregated_output")
    return output if isinstance(output, str) else text_or_none(item.get("status")) or ""


def _blocks_as_text(content: Any) -> str:
    """The texts of a tool's blocks; all blocks as JSON where one is no text."""
    blocks = list_or_empty(content)
    plain = all(isinstance(object_or_empty(one).get("text"), str) for one in blocks)
    return text_of_content(blocks) if plain else encode(blocks).decode()
