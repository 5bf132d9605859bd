"""GitHub Copilot CLI's chat, as the program makes it of its events.

The messages are those of OpenAI's chat. The reasoning's text stands in ``reasoning_content``; its
encrypted form stays in the rest of the event. Which messages a truncation leaves out follows the
program's own rule: the oldest answers go, each with the results of its calls, and prompts stay.
"""

from __future__ import annotations

from typing import Any, Final

from eventctx.importers.source.lines import count, list_or_empty, object_or_empty, text_or_none
from eventctx.importers.source.lines import without as left
from eventctx.importers.source.values import encode

_SUMMARY: Final = (
    "{} summarized to free up context.\n{}\nHere is a summary of the prior context:\n"
    "<summary>\n{}\n</summary>\n"
)
_ASKED: Final = (
    "\nYou were originally given instructions from a user over one or more turns. "
    "Here were the user messages:\n{}\n"
)
_MOST_CHARACTERS: Final = 30_000
_MOST_MESSAGES: Final = 20
_LAST: Final = 0.8
"""The share of the last prompts in those that a summary repeats."""


def answer_of(about: dict[str, Any]) -> tuple[dict[str, Any] | None, dict[str, Any]]:
    """The message of an answer, None for an empty one, and the rest of the event's data."""
    message: dict[str, Any] = {"role": "assistant", "content": None}
    rest = dict(about)
    if isinstance(about.get("content"), str) and about["content"]:
        message["content"] = rest.pop("content")
    if isinstance(about.get("reasoningText"), str) and about["reasoningText"]:
        message["reasoning_content"] = rest.pop("reasoningText")
    calls, requests = [], []
    for request in list_or_empty(about.get("toolRequests")):
        call = _call_of(request)
        requests.append(request if call is None else left(request, "arguments"))
        calls += [] if call is None else [call]
    if calls:
        message["tool_calls"] = calls
        rest["toolRequests"] = requests
    return (message if len(message) > 2 or message["content"] else None), rest


def _call_of(request: object) -> dict[str, Any] | None:
    one = object_or_empty(request)
    name, call = one.get("name"), one.get("toolCallId")
    if not isinstance(name, str) or not isinstance(call, str):
        return None
    given = one.get("arguments")
    arguments = given if isinstance(given, str) else encode(given).decode()
    if one.get("type") == "custom":
        return {"id": call, "type": "custom", "custom": {"name": name, "input": arguments}}
    return {"id": call, "type": "function", "function": {"name": name, "arguments": arguments}}


def result_of(about: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The message of a tool's result, and the rest of the event's data."""
    rest = dict(about)
    result, error = object_or_empty(about.get("result")), object_or_empty(about.get("error"))
    text = "" if about.get("success") is True else "Tool execution failed"
    if about.get("success") is True and isinstance(result.get("content"), str):
        text = result["content"]
        rest["result"] = left(result, "content")
    elif about.get("success") is not True and text_or_none(error.get("message")):
        text = error["message"]
        rest["error"] = left(error, "message")
    return {"role": "tool", "tool_call_id": about["toolCallId"], "content": text}, rest


def duration_of(about: dict[str, Any]) -> int | None:
    """How long the call for a summary took, in nanoseconds; the event has milliseconds."""
    took = object_or_empty(about.get("compactionTokensUsed")).get("duration")
    return count(took) * 1_000_000 or None


def summary_of(summary: str, asked: list[str], *, manual: bool) -> dict[str, Any]:
    """The message in place of the messages that a compaction took out."""
    begins = "The conversation history has been"
    if not manual:
        begins = "Some of the conversation history has been"
    prompts = _ASKED.format(_prompts(asked)) if asked else ""
    return {"role": "user", "content": _SUMMARY.format(begins, prompts, summary)}


def _prompts(asked: list[str]) -> str:
    """The prompts that a summary repeats: the first ones and the last ones."""
    few = len(asked) <= _MOST_MESSAGES and sum(map(len, asked)) <= _MOST_CHARACTERS
    if few or len(asked) == 1:
        return "\n".join([_prompt(one) for one in asked])
    last = _fitting(asked[::-1], int(_MOST_MESSAGES * _LAST), int(_MOST_CHARACTERS * _LAST))[::-1]
    rest = asked[: len(asked) - len(last)]
    first = _fitting(
        rest, round(_MOST_MESSAGES * (1 - _LAST)), round(_MOST_CHARACTERS * (1 - _LAST))
    )
    omitted = len(rest) - len(first)
    between = [f"... {omitted} messages omitted ..."] if omitted else []
    return "\n".join([*map(_prompt, first), *between, *map(_prompt, last)])


def _fitting(texts: list[str], most: int, characters: int) -> list[str]:
    taken: list[str] = []
    for text in texts[:most]:
        if sum(map(len, taken)) + len(text) > characters:
            break
        taken.append(text)
    return taken or [text[:characters] for text in texts[:1]]


def _prompt(text: str) -> str:
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}...<truncated>..."
    return f"<user_message>\n{text}\n</user_message>"


class Rounds:
    """The places of the answers and of their calls' results, as far as they are in the context."""

    def __init__(self) -> None:
        self._rounds: list[list[int]] = []
        self._of_call: dict[str, list[int]] = {}
        self._results: set[str] = set()

    def answered(self, place: int, message: dict[str, Any]) -> None:
        """Note an answer in this place, and the calls in it."""
        places = [place]
        self._rounds.append(places)
        for call in message.get("tool_calls", ()):
            self._of_call[call["id"]] = places
            self._results.discard(call["id"])

    def took(self, call: str, place: int) -> bool:
        """Note a call's result in this place; False if the call has one already."""
        if call in self._results:
            return False
        self._results.add(call)
        if call in self._of_call:
            self._of_call[call].append(place)
        return True

    def round_before(self, place: int) -> int:
        """The place from which messages stay, so that a result there stays with its call."""
        split = [places[0] for places in self._rounds if places[0] < place and places[-1] >= place]
        return min(split, default=place)

    def oldest(self, messages: int) -> frozenset[int]:
        """The places of so many messages, in whole rounds, from the oldest on."""
        gone: set[int] = set()
        for places in self._rounds:
            if len(gone) >= messages:
                break
            gone.update(places)
        return frozenset(gone)

    def forget_before(self, place: int) -> None:
        """Forget the rounds before this place."""
        self._rounds = [places for places in self._rounds if places[0] >= place]

    def forget(self, gone: frozenset[int]) -> None:
        """Forget the rounds that begin in these places."""
        self._rounds = [places for places in self._rounds if places[0] not in gone]


class Agents:
    """Which subagent an event is of, by the id of the call that began it.

    Old releases name that call in each event; new ones name the agent, and the call where it began.
    """

    def __init__(self) -> None:
        self._calls: dict[str, str] = {}
        self._owners: dict[str, str | None] = {}

    def of(self, row: dict[str, Any]) -> str | None:
        """The subagent of the next event; None for the main session."""
        about, own = object_or_empty(row.get("data")), text_or_none(row.get("agentId"))
        call = text_or_none(about.get("toolCallId"))
        if row.get("type") == "subagent.started" and call is not None:
            if own is not None:
                self._calls[own] = call
            return self._owners.get(call)
        agent = text_or_none(about.get("parentToolCallId"))
        if own is not None:
            agent = self._calls.get(own, agent or own)
        if row.get("type") == "assistant.message":
            for request in list_or_empty(about.get("toolRequests")):
                asked = object_or_empty(request).get("toolCallId")
                if isinstance(asked, str):
                    self._owners[asked] = agent
        return agent
