"""A message of any dialect as parts that a person can read, and how they are shown."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from eventctx.cli.output.plain import abridged, number, one_line
from eventctx.cli.output.screen import Screen
from eventctx.messages.encoding import decode_json
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.parts import (
    SEALED,
    Part,
    PartKind,
    hosted_arguments,
    is_compaction,
    parts_of_result,
    read_parts,
)
from eventctx.messages.tool_rounds import BY_NAME

LINES: Final = 12
"""Lines of one part that a terminal shows unless all are requested."""

LINE_CHARACTERS: Final = 400
"""Characters of one such line; minified JSON has lines of megabytes."""

_ROLE_STYLES: Final = {
    "system": "magenta",
    "developer": "magenta",
    "user": "bold green",
    "assistant": "bold cyan",
    "tool": "yellow",
    "function": "yellow",
}


class ShownPart(NamedTuple):
    """A part of a message as a person reads it: its kind, a title such as a tool's name, a text."""

    kind: PartKind
    title: str
    text: str


def role_of(message: Mapping[str, Any]) -> str:
    """The role, or the type of an item that has none."""
    role = message.get("role")
    return role if isinstance(role, str) else str(message.get("type", "?"))


_NOT_PERSONS: Final = {"result": " (a tool's result)", "user": " (a program's words)"}


def real_speaker(
    message: Mapping[str, Any] | None, *, by_harness: bool = False, observation: bool = False
) -> str:
    """The speaker of a message in the role user, where that is no person; "" of any other."""
    if message is None or message.get("role") != "user":
        return ""
    facts = read_facts(dict(message), by_harness=by_harness, observation=observation)
    return "" if facts.human else _NOT_PERSONS.get(facts.kind, "")


def role_style(role: str) -> str:
    """How a role is coloured."""
    return _ROLE_STYLES.get(role, "cyan" if role.endswith(("_call", "reasoning")) else "yellow")


def shown_parts(message: Mapping[str, Any]) -> list[ShownPart]:
    """The parts of a message in its order; what is not understood is shown as JSON."""
    found = [_shown(part) for part in read_parts(dict(message))]
    if found:
        return found
    # Of thinking that a provider keeps to itself there is an item without a text.
    return [ShownPart("thinking" if message.get("type") == "reasoning" else "text", "", "")]


def _shown(part: Part) -> ShownPart:
    value, call = part.value, ", ".join(part.ids).removeprefix(BY_NAME)
    match part.kind:
        case "text" | "refusal":
            return ShownPart(part.kind, "", value)
        case "thinking" if part.type in SEALED:
            word = "redacted" if part.type == "redacted_thinking" else "encrypted"
            return ShownPart("thinking", "", f"[{word}, {number(len(value))} characters]")
        case "thinking":
            return ShownPart("thinking", "", value)
        case "call":
            return ShownPart("call", part.name or "?", arguments(value))
        case "result":
            title = f"{call} failed" if part.failed else call
            return ShownPart("result", title, _result_text(part))
        case "hosted" if part.type.endswith("_tool_result"):
            return ShownPart("result", call, _json(value.get("content", value.get("output"))))
        case "hosted":
            return ShownPart("call", part.name or "?", arguments(hosted_arguments(part)))
        case "image":
            size = number(len(_json(value)))
            return ShownPart("image", "", f"[image, {size} characters of JSON]")
        case "other" if is_compaction(part) and isinstance(value["content"], str):
            return ShownPart("other", part.type, value["content"])
        case _:
            return ShownPart("other", part.type, value if isinstance(value, str) else _json(value))


def _result_text(part: Part) -> str:
    """The text of a result's content: of a list of blocks, their texts one below the other."""
    return "\n".join([_shown(inner).text for inner in parts_of_result(part)])


def arguments(value: object) -> str:
    """A call's arguments as ``name=value`` pairs; a text that holds JSON is read first."""
    if isinstance(value, str):
        try:
            value = decode_json(value)
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
    for part in shown_parts(message):
        match part.kind:
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
    found = shown_parts(message)
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
            case "refusal":
                _put(screen, "refusal: ", part.text, "", full)
            case _:
                _put(screen, f"{part.title} ", part.text, "dim", full)


def _put(screen: Screen, title: str, text: str, style: str, full: bool) -> None:
    text = text if full else abridged(text)
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
