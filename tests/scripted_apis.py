"""Anthropic's and OpenAI's APIs on this machine, for the pages that show their SDKs.

A page's code runs as it stands: the SDKs take the address from the environment. What is asked is
held to the rules of the real API, and answered by a script: with tools, the model calls the first
one for each file that the last prompt names, all at once, and then tells of the results; without,
it says what ``ANSWERS`` has for the prompt.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.api_answers import Body, Said, chat, claude, response
from tests.orchestrators.providers.server import ReceivedRequest, Reply, json_reply, refused
from tests.scripted_http import Form, environment, in_form, serving

ANSWERS = {
    "capital of Switzerland": "Bern.",
    "picture": "A red square.",
    "this PDF": "An invoice over 40 francs.",
    "ummar": "The files 0 to 6 were read; nothing was found.",
}


@contextmanager
def answering(received: list[Body] | None = None) -> Iterator[dict[str, str]]:
    """The environment in which the SDKs ask this server; ``received`` gets what it is asked."""

    def answer(request: ReceivedRequest) -> Reply:
        if received is not None:
            received.append(request.body)
        return _answer(request)

    with serving(answer) as server:
        yield environment(server.url)


def _answer(request: ReceivedRequest) -> Reply:
    problem = refused(ReceivedRequest(request.path, {}, request.body))
    if problem:
        error = {"type": "invalid_request_error", "message": problem}
        return json_reply({"type": "error", "error": error}, 400)
    if request.path.endswith("/messages"):
        form: Form = claude
        said = _said(request.body, request.body["messages"], "toolu")
    elif request.path.endswith("/chat/completions"):
        form = chat
        said = _said(request.body, request.body["messages"], "call")
    else:
        form = response
        said = _said(request.body, request.body["input"], "call")
    return in_form(form, request.body, said)


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or [])


def _thought(rows: list[Body], tools: bool) -> tuple[list[str], str]:
    """The files that the model wants to read, or else what it says."""
    last = rows[-1]
    results = last.get("role") == "tool" or last.get("type") == "function_call_output"
    if isinstance(last.get("content"), list):
        results |= last["content"][0].get("type") == "tool_result"
    if results:
        return [], "Both check a path; only one of them writes."
    prompt = _text(last.get("content"))
    if tools:
        return re.findall(r"\w+\.py", prompt), "Done."
    return [], next((said for known, said in ANSWERS.items() if known in prompt), "Done.")


def _said(body: Body, rows: list[Body], prefix: str) -> Said:
    files, text = _thought(rows, bool(body.get("tools")))
    # An API never gives one id twice in a conversation.
    calls = [(f"{prefix}_{len(rows)}_{n}", "read", {"path": f}) for n, f in enumerate(files)]
    thinking = "One by one." if body.get("thinking") else None
    return Said("" if calls else text, calls, thinking, cached=100)
