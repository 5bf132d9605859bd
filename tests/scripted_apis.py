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


_FORMS: dict[str, tuple[Form, str, str]] = {
    "/messages": (claude, "messages", "toolu"),
    "/chat/completions": (chat, "messages", "call"),
    "/responses": (response, "input", "call"),
}


def _answer(request: ReceivedRequest) -> Reply:
    problem = refused(ReceivedRequest(request.path, {}, request.body))
    if problem:
        error = {"type": "invalid_request_error", "message": problem}
        return json_reply({"type": "error", "error": error}, 400)
    form, rows, prefix = next(
        (one for end, one in _FORMS.items() if request.path.endswith(end)), _FORMS["/responses"]
    )
    return in_form(form, request.body, _said(request.body, request.body[rows], prefix))


def _thought(rows: list[Body], tools: bool) -> tuple[list[str], str]:
    """The files that the model wants to read, or else what it says."""
    last, content = rows[-1], rows[-1].get("content") or ""
    results = last.get("role") == "tool" or last.get("type") == "function_call_output"
    if isinstance(content, list):
        results |= content[0].get("type") == "tool_result"
        content = " ".join(part.get("text", "") for part in content)
    if results:
        return [], "Both check a path; only one of them writes."
    if tools:
        return re.findall(r"\w+\.py", content), "Done."
    return [], next((said for known, said in ANSWERS.items() if known in content), "Done.")


def _said(body: Body, rows: list[Body], prefix: str) -> Said:
    files, text = _thought(rows, bool(body.get("tools")))
    # An API never gives one id twice in a conversation.
    calls = [(f"{prefix}_{len(rows)}_{n}", "read", {"path": f}) for n, f in enumerate(files)]
    thinking = "One by one." if body.get("thinking") else None
    return Said("" if calls else text, calls, thinking, cached=100)
