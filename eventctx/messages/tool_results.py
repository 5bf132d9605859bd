"""The result of a tool: whether the call failed, with which status, and why.

Three readers, from the plainest form to the least: a host's value or a copy of it (``failure_of``),
the text of a result in a message (``outcome_of``), and a message in the user's role that is the
result of an action in a model's text (``observes``).

*Failures.* A tool of Amplifier returns a failure as a value, ``ToolResult(success=False,
error=…)``, and its host reports that value like any other. A listener gets a copy of it, in one of
these forms:

    {"success": false, "output": …, "error": …}   the fields, as JSON (loop-streaming, loop-events)
    "Error: no such file" | "Failed"              the text of the value (loop-basic)
    "{'success': False, …}"                       the text of a dict (loop-streaming, loop-events)

``failure_of`` reads values and their fields; ``failure_of_copy`` reads the texts too, and
``failure_of_row`` the text of a stored row, which some loops make from the same copy. A text that
the tool itself returned is content, whatever its first word is, so only a reader of copies may look
into texts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec

from eventctx.messages.encoding import decode_json
from eventctx.messages.facts import Facts
from eventctx.messages.parts import Part, parts_of_result, read_parts
from eventctx.text import pattern

KIND: Final = "ToolFailed"
"""The type of a failure whose result names none."""

NO_REASON: Final = "the tool gave no reason"

TOOL_RESULT: Final = frozenset(("success", "output", "error", "content"))
"""The fields of Amplifier's ``ToolResult``."""

_RAISED: Final = ("Error executing tool: ", "Internal error executing tool: ")
_DENIED: Final = "Denied by hook: "

_MOST_DECODED: Final = 1_000_000
"""Longest text, in characters, that is decoded only to see whether it reports a failure."""


class ToolFailure(NamedTuple):
    """The type and the text of a failure. The text may be long, and may hold lone surrogates."""

    kind: str
    message: str


def failure_of(result: object) -> ToolFailure | None:
    """The failure that a tool's value or a dict of its fields reports; None where it reports none.

    Only a ``success`` that is ``False`` is a failure: an error of a success is content.
    """
    if isinstance(result, Mapping):
        given: Mapping[Any, Any] = result
    elif isinstance(result, str | bytes | int | float | list | tuple | None):
        return None
    else:
        fields = ("success", "output", "error")
        given = {name: getattr(result, name, None) for name in fields}
    if given.get("success") is not False:
        return None
    error = given.get("error")
    kind = error.get("type") if isinstance(error, Mapping) else None
    message = _reason(error) or _reason(given.get("output")) or NO_REASON
    return ToolFailure(kind if isinstance(kind, str) and kind else KIND, message)


def failure_of_copy(result: object) -> ToolFailure | None:
    """The same for a host's copy of the value, which may be its text (see above)."""
    if not isinstance(result, str):
        return failure_of(result)
    if result == "Failed":
        return ToolFailure(KIND, NO_REASON)
    if result.startswith("Error: "):
        return ToolFailure(KIND, result.removeprefix("Error: ") or NO_REASON)
    if not result.startswith("{") or len(result) > _MOST_DECODED:
        return None
    if result.startswith("{'success': False") or result.endswith(", 'success': False}"):
        return ToolFailure(KIND, result)
    return failure_of(_decode(result)) if '"success"' in result else None


def failure_of_row(text: str) -> ToolFailure | None:
    """The failure in the text of a row that has no field for one; None where it tells none.

    Besides the forms above these are the words that loops have for calls without a result. A JSON
    object counts only with a ``ToolResult``'s fields: commands print other ones.
    """
    if text.startswith(_DENIED):
        return ToolFailure(KIND, text)
    for words in _RAISED:
        if text.startswith(words):
            return ToolFailure(KIND, text.removeprefix(words) or NO_REASON)
    if text.startswith("{"):
        given = _decode(text) if '"success"' in text and len(text) <= _MOST_DECODED else None
        return (
            failure_of(given) if isinstance(given, dict) and given.keys() <= TOOL_RESULT else None
        )
    return failure_of_copy(text)


def answer_of_copy(result: object) -> str | None:
    """The text in a host's copy: of a ``ToolResult``'s fields their output; None without one."""
    if isinstance(result, Mapping) and "success" in result and result.keys() <= TOOL_RESULT:
        result = result.get("output")
    if result is None or isinstance(result, str):
        return result
    try:
        return json.dumps(result, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return None


def _decode(text: str) -> object:
    try:
        return decode_json(text)
    except msgspec.DecodeError:
        return None


def _reason(value: object) -> str:
    """A reason in words: a text, the message of an error, else the value as JSON; "" for none."""
    if isinstance(value, Mapping):
        message = value.get("message", value.get("msg"))
        if isinstance(message, str) and message:
            return message
    if isinstance(value, str) or not value:
        return value if isinstance(value, str) else ""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return ""


# -- observations --------------------------------------------------------------------------------
# An agent whose actions are text (mini-swe-agent and SWE-agent without tool calls, OpenHands for
# models without them, ReAct loops) gets the result as the next message, in the user's role. No call
# id ties the two together. An observation is a result, not a person's words. Its form tells it, and
# only after an action: the whole text must look as programs write it, from its beginning to its end
# where the form has one. So what a person pastes among words of their own stays a person's.

Observing = Literal["by_form", "after_actions", "never"]
"""The rule by which a message in role user after a model's action in text is its observation."""

ActionForm = Literal["", "block", "line"]
"""The form of an action in a model's text: a block, or a line ``Action: …``."""

_LINE: Final = pattern(r"^[ \t*#]*Action(?: \d+)?\**:", re.MULTILINE)
_BLOCK: Final = pattern(
    r"```|~~~|<(?:function=|function_calls>|invoke |tool_call>|tool_code>|execute_\w+>|command>"
    r"|bash>|code>)"
)

_MOST_OF_AN_END: Final = 2_000
"""Characters at the end of a text in which the end of its form is looked for."""


class _Form(NamedTuple):
    """The beginning of an observation and, where the form has one, its end."""

    begins: re.Pattern[str]
    ends: re.Pattern[str] | None = None
    behind: ActionForm = ""


def _form(begins: str, ends: str | None = None, behind: ActionForm = "") -> _Form:
    closing = None if ends is None else pattern(ends + r"\s*\Z")
    return _Form(pattern(r"\s*(?:" + begins + ")"), closing, behind)


_FORMS: Final = (
    _form(r"(?:<exception>[^<]*</exception>\s*)?<returncode>-?\d+</returncode>", r"</\w+>"),
    _form(r'\{\s*"returncode":\s*-?\d', r"\}"),
    _form(r"The last command <command>", r"interactive input\."),
    _form(r"", r"\(Current directory: [^\n]*\)\s*bash-\$"),
    _form(r"Your command ran successfully and did not produce any output\.", r"any output\."),
    _form(r"EXECUTION RESULT of \[\w+\]:"),
    _form(r"OBSERVATION:\s*\n"),
    _form(r"Observation(?: \d+)?:\s*\nExecution logs:"),
    _form(r"Observation(?: \d+)?:", behind="line"),
    _form(r"exitcode: -?\d+ \(execution \w+\)"),
)
"""Forms of mini-swe-agent, SWE-agent, OpenHands, smolagents, ReAct loops and AutoGen, in order."""

_ELEMENT: Final = pattern(
    r"\s*<(tool_response|tool_result|tool_results|tool_output|function_result|function_results"
    r"|observation|execution_result)>"
)
"""Elements in which programs answer models that were trained to call tools in their text."""

FIRST: Final = frozenset("<{TEOYe \t\r\n")
LAST: Final = frozenset("$ \t\r\n")
"""A text that begins with none of ``FIRST`` and ends with none of ``LAST`` has no form above."""


def action_in(texts: list[str]) -> ActionForm:
    """The form of the action in a model's texts; empty if they hold none."""
    # Few texts hold the words that every form has, and one character is found far quicker still.
    if any("A" in text and "Action" in text and _LINE.search(text) for text in texts):
        return "line"
    for text in texts:
        fenced = ("`" in text and "```" in text) or ("~" in text and "~~~" in text)
        if (fenced or "<" in text) and _BLOCK.search(text):
            return "block"
    return ""


def observes(message: dict[str, Any], action: str) -> bool:
    """Whether a message has the form of an observation of the action directly before it."""
    parts = read_parts(message)
    if message.get("role") != "user" or any(part.kind in ("call", "result") for part in parts):
        return False
    text = "".join([part.value for part in parts if part.kind == "text"])
    return bool(action) and has_form(text, action)


def by_person(message: dict[str, Any], facts: Facts, before: Facts | None = None) -> bool:
    """Whether a message holds a person's words (or an image).

    ``facts`` are the message's. A row of tool results that ends in a person's words counts; an
    observation does not: it follows an action in the text of ``before``, the message before it.
    """
    if not facts.human or before is None or not before.action:
        return facts.human
    return not observes(message, before.action)


def has_form(text: str, action: str) -> bool:
    """Whether a text is written as an observation is, from its beginning to its end."""
    if not text or (text[0] not in FIRST and text[-1] not in LAST):
        return False
    element = _ELEMENT.match(text)
    if element is not None:
        return text.rstrip().endswith(f"</{element[1]}>")
    end = text[-_MOST_OF_AN_END:]
    return any(
        form.begins.match(text) is not None
        and (form.ends is None or form.ends.search(end) is not None)
        and form.behind in ("", action)
        for form in _FORMS
    )


# -- outcomes ------------------------------------------------------------------------------------
# Programs write the status in forms of their own: ``Exit code 1`` (Claude Code), ``Process exited
# with code 1`` and JSON with ``exit_code`` (Codex), ``Command exited with code 1`` (pi),
# ``<returncode>1</returncode>`` (mini-swe-agent), ``completed with exit code 1`` (OpenHands). They
# put it near the beginning or the end, so only these are searched.

_NEAR: Final = 400

_STATUS: Final = pattern(
    r"(?:^\s*Exit code:? ?|Process exited with code |Command exited with code "
    r"|(?:completed|finished|failed) with exit code |<returncode>|\"exit_code\": ?"
    r"|\"returncode\": ?)(-?\d{1,10})",
    re.MULTILINE,
)
_RAISED_ERROR: Final = pattern(
    r"^(?:\*\* \()?(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception)\b|\berror(?: \w+|\[\w+\])?: "
)
_ERROR: Final = pattern(
    r"\b\w*(?:Error|Exception)\b|\b(?:error|fatal|panic|failed|failure|cannot|denied)\b"
    r"|\bFAIL(?:ED)?\b|not found|No such file",
)
_NO_ERROR: Final = pattern(r"\b(?:0|no) (?:errors?|failed|failures?)\b", re.IGNORECASE)
_ABOUT: Final = pattern(
    r"^[\W_]*(?:exit code|process exited|command exited|traceback \(|chunk id|wall time|output:"
    r"|original token|<returncode>|<output>)|^\d+\s*[│|]|^> \S+@\S+ \w",
    re.IGNORECASE,
)


class CallOutcome(NamedTuple):
    """The end of a call; ``status`` is None where no exit status is told."""

    status: int | None = None
    failed: bool = False
    error: str = ""


def text_of_result(part: Part) -> str:
    """The text of a result; of several blocks, their texts on lines of their own."""
    value = part.value
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join([one for one in value.values() if isinstance(one, str)])
    texts: list[str] = []
    for inner in parts_of_result(part):
        if inner.kind == "text":
            texts.append(inner.value)
        elif inner.kind == "result":
            texts.append(text_of_result(inner))
    return "\n".join(texts)


def outcome_of(part: Part, text: str) -> CallOutcome:
    """The outcome that a result tells, with the text of it."""
    found = _STATUS.search(text[:_NEAR]) or _STATUS.search(text[-_NEAR:])
    status = int(found[1]) if found else None
    if isinstance(part.value, dict) and isinstance(part.value.get("exit_code"), int):
        status = part.value["exit_code"]
    # A message of role "tool" has no field for a failure; there the text is all that tells of it.
    told = failure_of_row(text) if part.dialect is None and not part.type else None
    failed = part.failed or status not in (None, 0) or told is not None
    said = text if told is None else told.message
    return CallOutcome(status, failed, _error_line(said) if failed else "")


def _error_line(text: str) -> str:
    """The first line that names an error, else the first that says anything."""
    if "\n" not in text:
        text = text.replace("\\n", "\n")  # a program that prints its message as JSON
    lines = [" ".join(line.split()) for line in text.splitlines()]
    told = [line for line in lines if line and not _ABOUT.search(line)]
    raised = next((line for line in told if _RAISED_ERROR.search(line)), None)
    if raised is not None:
        return raised
    for place, line in enumerate(told):
        if _ERROR.search(line) and not _NO_ERROR.search(line):
            return f"{line} {told[place + 1]}" if line.endswith(":") and told[place + 1 :] else line
    return told[0] if told else ""
