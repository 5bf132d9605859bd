"""A message of any dialect as parts that a person can read, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from eventctx.cli.output.plain import number, one_line
from eventctx.cli.output.screen import Screen

PartKind = Literal["text", "thinking", "call", "result", "image", "other"]

LINES: Final = 12
"""Lines of one part that a terminal shows unless all are asked for."""

LINE_CHARACTERS: Final = 400
"""Characters of one such line; minified JSON has lines of megabytes."""

_RESULT_ROLES: Final = ("tool", "function")
_ROLE_STYLES: Final = {
    "system": "magenta",
    "developer": "magenta",
    "user": "bold green",
    "assistant": "bold cyan",
    "tool": "yellow",
    "function": "yellow",
}


class Part(NamedTuple):
    """A piece of a message: its kind, a title such as a tool's name, and its text."""

    kind: PartKind
    title: str
    text: str


def role_of(message: Mapping[str, Any]) -> str:
    """The role, or the type of an item that has none."""
    role = message.get("role")
    return role if isinstance(role, str) else str(message.get("type", "?"))


def role_style(role: str) -> str:
    """How a role is coloured."""
    return _ROLE_STYLES.get(role, "cyan" if role.endswith(("_call", "reasoning")) else "yellow")


def parts(message: Mapping[str, Any]) -> list[Part]:
    """The parts of a message in its order; what is not understood is shown as JSON."""
    found = list(_parts(message))
    return found or [Part("text", "", "")]


def _parts(message: Mapping[str, Any]) -> Iterator[Part]:
    if not isinstance(message.get("role"), str):
        yield from _item(message)
        return
    reasoning = message.get("reasoning_content")
    if isinstance(reasoning, str) and reasoning:
        yield Part("thinking", "", reasoning)
    content = message.get("content")
    answers = message["role"] in _RESULT_ROLES
    title = str(message.get("tool_call_id") or message.get("name") or "") if answers else ""
    if isinstance(content, str):
        if content or answers:
            yield Part("result" if answers else "text", title, content)
    elif isinstance(content, list):
        for block in content:
            yield from _block(block, answers, title)
    elif content is not None:
        yield Part("other", "content", _json(content))
    yield from _calls(message)


def _calls(message: Mapping[str, Any]) -> Iterator[Part]:
    calls = message.get("tool_calls")
    shown = {
        block.get("id")
        for block in (message["content"] if isinstance(message.get("content"), list) else ())
        if isinstance(block, dict) and block.get("type") in ("tool_use", "tool_call")
    }
    for call in calls if isinstance(calls, list) else ():
        if not isinstance(call, dict) or (call.get("id") in shown and call.get("id")):
            continue
        function = call.get("function")
        inner = function if isinstance(function, dict) else call
        name = inner.get("name") or inner.get("tool") or "?"
        yield Part("call", str(name), arguments(inner.get("arguments", inner.get("args"))))
    legacy = message.get("function_call")
    if isinstance(legacy, dict):
        yield Part("call", str(legacy.get("name", "?")), arguments(legacy.get("arguments")))


def _block(block: object, answers: bool, title: str) -> Iterator[Part]:
    if isinstance(block, str):
        yield Part("result" if answers else "text", title, block)
        return
    if not isinstance(block, dict):
        yield Part("other", "", _json(block))
        return
    match block.get("type"):
        case "text" | "input_text" | "output_text":
            yield Part("result" if answers else "text", title, str(block.get("text", "")))
        case "thinking" | "reasoning":
            yield Part("thinking", "", str(block.get("thinking", block.get("text", ""))))
        case "redacted_thinking":
            yield Part("thinking", "", f"[redacted, {len(str(block.get('data', '')))} characters]")
        case "tool_use" | "tool_call":
            name = block.get("name") or block.get("tool") or "?"
            yield Part("call", str(name), arguments(block.get("input", block.get("arguments"))))
        case "tool_result":
            yield _result(block)
        case "image" | "image_url" | "input_image":
            yield Part("image", "", f"[image, {number(len(_json(block)))} characters of JSON]")
        case kind:
            yield Part("other", str(kind or ""), _json(block))


def _result(block: Mapping[str, Any]) -> Part:
    call = str(block.get("tool_use_id", block.get("tool_call_id", "")))
    content = block.get("content", block.get("output"))
    failed = block.get("is_error") is True
    return Part("result", f"{call} failed" if failed else call, flat_text(content))


def _item(message: Mapping[str, Any]) -> Iterator[Part]:
    """An item of the Responses dialect, which has a type where others have a role."""
    kind = str(message.get("type", ""))
    if kind == "reasoning":
        summary = message.get("summary")
        texts = [flat_text([one]) for one in summary] if isinstance(summary, list) else []
        sealed = message.get("encrypted_content")
        if isinstance(sealed, str):
            texts.append(f"[encrypted, {number(len(sealed))} characters]")
        yield Part("thinking", "", "\n".join(texts))
    elif kind.endswith("_output"):
        yield Part("result", str(message.get("call_id", "")), flat_text(message.get("output")))
    elif kind.endswith("_call"):
        given = message.get("arguments", message.get("input", message.get("action")))
        yield Part("call", str(message.get("name", kind)), arguments(given))
    else:
        yield Part("other", kind, _json({k: v for k, v in message.items() if k != "type"}))


def flat_text(content: object) -> str:
    """The text of a content: of a list of blocks, their texts one below the other."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(part.text for block in content for part in _block(block, False, ""))
    return _json(content)


def arguments(value: object) -> str:
    """A call's arguments as ``name=value`` pairs; a text that holds JSON is read first."""
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return str(value)
    if isinstance(value, dict):
        return ", ".join(f"{name}={_value(item)}" for name, item in value.items())
    return "" if value is None else _json(value)


def _value(value: object) -> str:
    if isinstance(value, str) and "\n" in value:
        return value if value.endswith("\n") else value + "\n"
    return _json(value)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def snippet(message: Mapping[str, Any] | None, width: int) -> str:
    """A message on one line of at most ``width`` characters."""
    if message is None:
        return "[erased]"
    texts: list[str] = []
    for part in parts(message):
        match part.kind:
            case "text":
                texts.append(part.text)
            case "thinking":
                texts.append(f"(thinking) {part.text}" if len(texts) == 0 else "")
            case "call":
                texts.append(f"→ {part.title}({part.text})")
            case "result":
                texts.append(f"← {part.text}")
            case _:
                texts.append(part.text)
    return one_line("  ".join(text[: width + 80] for text in texts if text), width)


def show(screen: Screen, message: Mapping[str, Any] | None, *, full: bool) -> None:
    """A message's parts, indented; a terminal shows long ones in part unless ``full``."""
    if message is None:
        screen.line(("[erased]", "dim italic"), indent=2)
        return
    found = parts(message)
    for part in found:
        if part.kind == "text" and len(found) > 1 and not part.text.strip():
            continue
        match part.kind:
            case "thinking":
                _put(screen, "thinking: ", part.text, "dim italic", full)
            case "call":
                _put(screen, f"→ {part.title} ", part.text, "cyan", full)
            case "result":
                _put(screen, f"← {part.title} ", part.text, "yellow", full)
            case "text":
                _put(screen, "", part.text, "", full)
            case _:
                _put(screen, f"{part.title} ", part.text, "dim", full)


def _put(screen: Screen, title: str, text: str, style: str, full: bool) -> None:
    lines = text.split("\n")
    while len(lines) > 1 and not lines[-1].strip():
        lines.pop()
    whole = full or not screen.live
    cut = 0
    if not whole:
        cut = max(0, len(lines) - LINES)
        # One more line is shorter than the note about it.
        cut = 0 if cut == 1 else cut
        lines = lines[: len(lines) - cut]
    more_lines = title.strip() and len(lines) > 1
    if more_lines:
        screen.line((title.rstrip(), style or "bold"), indent=2)
        title = ""
    for line in lines:
        surplus = 0 if whole else max(0, len(line) - LINE_CHARACTERS)
        shown = line[: len(line) - surplus].expandtabs(4)
        tail = f"… {number(surplus)} more characters" if surplus else ""
        body = "" if style in ("cyan", "yellow") and title == "" else style
        screen.line((title, style), (shown, body), (tail, "dim"), indent=4 if more_lines else 2)
        title = ""
    if cut:
        screen.line((f"… {number(cut)} more lines (--full shows them)", "dim"), indent=4)
