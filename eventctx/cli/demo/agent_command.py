"""``demo --agent``: an agent with tools runs, is killed in mid-tool, goes on, and is audited."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Any, Final

from eventctx.cli.commands.audit import show_audit
from eventctx.cli.commands.replay import bar
from eventctx.cli.commands.verify import show_verifications
from eventctx.cli.demo.agent import BUDGET, GOING_ON, TASKS, model_for, open_session, run_task
from eventctx.cli.demo.killing import SIGNAL, run_and_kill
from eventctx.cli.demo.stage import Compactions, show_commands
from eventctx.cli.output import opening
from eventctx.cli.output.plain import number, plural
from eventctx.cli.output.program import FOUND, CommandFailed, run
from eventctx.cli.output.screen import Screen
from eventctx.documents.audit import of_turn
from eventctx.engine import open_engine
from eventctx.log.codec import decode_event
from eventctx.log.record import Record
from eventctx.messages.parts import call_names
from eventctx.projections.view.entries import SYNTHETIC_TEXTS
from eventctx.queries.verification.whole_store import StoreVerification

_BAR: Final = 16
_DIED: Final = len(TASKS)
"""The turn that the process dies in."""


def show_agent(screen: Screen, url: str) -> None:
    """The whole demonstration, on a new session of the store. Raises TurnError, StoreError."""
    session = run(_introduced(screen, url))
    stage = _Stage(screen)
    run_and_kill(url, session, stage.took)
    screen.blank()
    screen.line(
        (f"The process was killed by {SIGNAL}", "bold red"),
        ", while ask_person waited for an answer. What is not on disk is gone.",
    )
    screen.line("A new process opens the session, and the agent goes on.")
    screen.blank()
    sound = run(_gone_on(screen, url, session, stage))
    name = shlex.quote(session)
    show_commands(
        screen,
        url,
        [
            ("turn 3, whose tool has a beginning and no end", f"trace {name} --turn {_DIED}"),
            ("what the model was sent before it died", f"view {name} --turn {_DIED}"),
            ("what it was sent afterwards", f"view {name} --turn {_DIED + 1} --iteration 1"),
            ("the records around the kill", f"log {name}"),
        ],
    )
    if not sound:
        raise CommandFailed(FOUND)


async def _introduced(screen: Screen, url: str) -> str:
    async with open_engine(url, receipts=False) as engine:
        session = await opening.free_name(engine, "agent")
    screen.line(("eventctx demo --agent", "bold"))
    screen.blank()
    screen.line(
        "An agent reads eventctx's own source with tools that really run; its model is a script. "
        "It is a process of its own, whose hooks say what is printed here. A request has "
        f"{number(BUDGET)} tokens, less than what the agent reads."
    )
    screen.blank()
    return session


async def _gone_on(screen: Screen, url: str, session: str, stage: _Stage) -> bool:
    async with open_engine(url, receipts=False) as engine:
        engine.on("*", stage.took)
        context = await open_session(engine, session, BUDGET)
        response = await run_task(context, GOING_ON, model_for(GOING_ON))
        screen.line((response.text, "italic"), indent=2)
        view = await engine.request_view(session, _DIED + 1, 1)
        audit = await engine.audit(session)
        died = await engine.request_view(session, _DIED)
        verification = await engine.verify(session)
    screen.blank()
    screen.line(("What the model was sent of the call that has no result", "bold"))
    for text in _made_up(view.messages):
        screen.line(text, indent=2)
    screen.blank()
    screen.line((f"The audit of turn {_DIED}", "bold"))
    show_audit(screen, of_turn(audit, _DIED))
    screen.line(
        "Its request, derived again from the log, "
        + ("has the digest" if died.verified else "does not have the digest")
        + " that was recorded before the process died."
    )
    screen.blank()
    show_verifications(screen, StoreVerification((verification,), ()))
    return verification.ok and bool(died.verified)


def _made_up(messages: Sequence[dict[str, Any]]) -> list[str]:
    """The synthetic results of a view, which are not in the log, behind their tools' names."""
    names = {call: name for message in messages for call, name in call_names(message).items()}
    return [
        f"{names[block['tool_use_id']]}: {block['content']}"
        for message in messages
        if isinstance(message["content"], list)
        for block in message["content"]
        if str(block.get("content")).startswith(SYNTHETIC_TEXTS)
    ]


class _Stage:
    """Prints each record when it arrives. It is an observer like any that a user registers."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._compactions = Compactions(screen)
        self._open: set[str | None] = set()

    def took(self, record: Record) -> None:
        """Print a record that the hooks received."""
        event: Any = decode_event(record)
        match record.type:
            case "prompt:submit":
                self._open.clear()
                prompt = (*TASKS, GOING_ON)[event.number - 1].prompt
                self._screen.line((f"turn {event.number}  ", "bold green"), (prompt, "bold"))
            case "context:post_compact":
                self._compactions.compacted(record)
            case "context:request_prepared":
                self._screen.line(
                    *bar(event.tokens, BUDGET, _BAR),
                    f" the model is asked: {plural(event.messages, 'message')}, "
                    f"{number(event.tokens)} tokens",
                    indent=2,
                )
            case "tool:pre":
                self._open.add(record.span_id)
                many = len(self._open)
                at_once = f", {many} at once" if many > 1 else ""
                self._screen.line(f"→ {event.name}", (f" runs{at_once}", "dim"), indent=6)
            case "tool:post":
                self._open.discard(record.span_id)
                self._screen.line(f"← {event.name}", (" has ended", "dim"), indent=6)
