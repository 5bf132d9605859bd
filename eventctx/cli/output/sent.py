"""A request as it was sent: system prompt, tools, texts of the client, and its proof."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import msgspec

from eventctx.cli.output.messages import role_of, role_style, show
from eventctx.cli.output.plain import number, one_line, plural, size
from eventctx.log.naming import message_name, position_name, ranges_name
from eventctx.messages.overlap import runs_of_numbers

if TYPE_CHECKING:
    from eventctx.cli.output.screen import Screen
    from eventctx.projections.figures import RequestFigures
    from eventctx.queries.requests import RequestView
    from eventctx.queries.sent import SentForm, SentMessage
    from eventctx.queries.view import Proof


_SHOWN_TOOLS = 12


def show_beside(screen: Screen, sent: SentForm, figures: RequestFigures, full: bool) -> None:
    """System prompt and tool definitions, folded to a line each unless ``full``.

    Their tokens are those of the request's figures, which share out the provider's count.
    """
    if sent.system is not None:
        _show_folded(screen, "system prompt", sent.system, figures.system)
        if full:
            show(screen, {"role": "system", "content": sent.system}, full=True)
            screen.blank()
    show_tools(screen, sent.tools, figures.tools, full)


def show_tools(screen: Screen, tools: Any, tokens: int | None, full: bool) -> None:
    """The tool definitions, folded to a line unless ``full``."""
    if tools is None:
        return
    tools = tools if isinstance(tools, list) else [tools]
    _show_folded(screen, plural(len(tools), "tool definition"), tools, tokens)
    names = [_tool_name(one) for one in tools]
    if full:
        for name, one in zip(names, tools, strict=True):
            screen.line((f"{name} ", "cyan"), msgspec.json.encode(one).decode(), indent=2)
    else:
        more = f", and {len(names) - _SHOWN_TOOLS} more" if len(names) > _SHOWN_TOOLS else ""
        screen.line((one_line(", ".join(names[:_SHOWN_TOOLS]), 400) + more, "dim"), indent=2)
    screen.blank()


def show_sent_messages(screen: Screen, sent: SentForm, full: bool) -> None:
    """The messages as they were sent, each with the transcript's messages that it carries."""
    for place, one in enumerate(sent.messages):
        role = "erased" if one.message is None else role_of(one.message)
        screen.line((f"[{place}] ", "dim"), (role, role_style(role)), (f"  {_origin(one)}", "dim"))
        show(screen, one.message if full else _folded(one), full=full)
        screen.blank()


def _show_folded(screen: Screen, title: str, value: Any, tokens: int | None) -> None:
    about = "" if tokens is None else f" · ~{number(tokens)} tokens"
    length = size(len(msgspec.json.encode(value)))
    screen.line((title, "bold"), f" · {length}{about}", (" · --full shows all of it", "dim"))


def _tool_name(tool: Any) -> str:
    """A tool's name in any dialect; its type where it has none."""
    found = tool if isinstance(tool, dict) else {}
    inner = found.get("function")
    named = inner if isinstance(inner, dict) else found
    return str(named.get("name") or found.get("type") or "?")


def _origin(one: SentMessage) -> str:
    if not one.numbers:
        return "in no transcript: the program's own"
    return f"message {ranges_name(runs_of_numbers(one.numbers))}"


def _folded(one: SentMessage) -> dict[str, Any] | None:
    """The message with a line in place of each text that the program put into it."""
    if one.message is None or not one.injected:
        return one.message
    found: Any = copy.deepcopy(one.message)
    # From the end, so that the places of the texts before stay what they are.
    for text in sorted(one.injected, key=lambda text: (text.place, text.start), reverse=True):
        try:
            holder = found
            for step in text.place[:-1]:
                holder = holder[step]
            whole = holder[text.place[-1]]
            holder[text.place[-1]] = (
                whole[: text.start].rstrip("\n")
                + _in_its_place(whole[text.start : text.end], bool(text.start))
                + whole[text.end :]
            )
        except (LookupError, TypeError):
            continue  # erased, or written by a later release
    return dict(found)


def _in_its_place(text: str, follows: bool) -> str:
    begins = one_line(text, 60)
    length = number(len(text))
    begins_line = "\n" if follows else ""
    return f"{begins_line}[put in by the program, {length} characters: {begins}]"


def show_proof(screen: Screen, view: RequestView, proof: Proof) -> None:
    """Show the proof in words: the digest, every body, and the erased messages."""
    recorded = view.prepared.digest
    if view.sent is not None:
        _show_sent(screen, view, view.sent)
    if view.known == "reconstructed":
        screen.line("An importer inferred the request: the file does not hold what was sent.")
    if proof.digest_matches and view.known != "prepared":
        screen.line("The transcript's view was derived again, and is the one that the import made,")
        screen.line(f"at position {view.position}:")
        screen.whole(recorded)
    elif proof.digest_matches:
        screen.line("The view was derived again from the log, and has the digest that was recorded")
        screen.line(f"before the request left, {position_name(view.position)}:")
        screen.whole(recorded)
    else:
        screen.line(("The view that the log gives is not the one that was sent.", "bold red"))
        screen.whole(f"recorded {recorded}")
        screen.whole(f"derived  {view.digest}")
    entries = plural(len(view.entries), "message")
    if proof.edited:
        places = ", ".join(map(position_name, proof.edited))
        screen.line(
            (f"Of {entries}, these were changed after they were stored: ", "bold red"),
            f"those in the records at {places}.",
        )
    else:
        screen.line(
            f"{plural(proof.bodies, 'stored content')} of {entries} have their own digests."
        )
    if proof.erased:
        numbers = ", ".join(map(message_name, proof.erased))
        screen.line(f"Erased on purpose, so that only their digests could be compared: {numbers}.")
    if proof.ok and view.known == "reconstructed":
        screen.line(("The view is consistent.", "bold"), " What was sent, nothing proves.")
    elif proof.ok and (view.sent is None or view.sent.holds):
        screen.line(("The view verifies.", "bold green"))
    else:
        screen.line(("The view DOES NOT VERIFY", "bold red"), "; `verify` says what was changed.")


def _show_sent(screen: Screen, view: RequestView, sent: SentForm) -> None:
    """Show whether the request that was rebuilt is the one that the program sent."""
    wire = view.prepared.wire
    recorded = "" if wire is None else wire.digest
    if sent.holds:
        screen.line("The request was rebuilt from the log, message by message. Each had the hash")
        screen.line("that the program recorded when it sent it; since then the digest is the same:")
        screen.whole(recorded)
    elif sent.digest == recorded:
        screen.line(("Contents of the request were changed after they were stored.", "bold red"))
    else:
        screen.line(("The request that the log gives is not the one that was sent.", "bold red"))
        screen.whole(f"recorded {recorded}")
        screen.whole(f"rebuilt  {sent.digest}")
