"""Observations of agents whose actions are text: a program's answer in a message of role user.

Such an agent (mini-swe-agent and SWE-agent without tool calls, OpenHands for models without them,
ReAct loops) writes its action into its text, and gets the result as the next message, in the
user's role. No call id ties the two together. An observation is a result, not a person's words.

It is told by form, and only behind an action: the whole text must look as programs write it, from
its beginning to its end where the form has one. So what a person pastes beside words of their own
stays a person's.
"""

from __future__ import annotations

import re
from typing import Any, Final, Literal, NamedTuple

from eventctx.messages.parts import read_parts
from eventctx.text import pattern

Observing = Literal["by_form", "after_actions", "never"]
"""When a message in role user behind a model's action in text is its observation."""

ActionForm = Literal["", "block", "line"]
"""How a model wrote an action into its text: as a block, or as a line ``Action: …``."""

_LINE: Final = pattern(r"^[ \t*#]*Action(?: \d+)?\**:", re.MULTILINE)
_BLOCK: Final = pattern(
    r"```|~~~|<(?:function=|function_calls>|invoke |tool_call>|tool_code>|execute_\w+>|command>"
    r"|bash>|code>)"
)

_MOST_OF_AN_END: Final = 2_000
"""Characters at the end of a text in which the end of its form is looked for."""


class _Form(NamedTuple):
    """How an observation begins and, unless its own text does, ends."""

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
