"""Checks that a request says what the model is told and thought.

The system prompt and the question are in it, and thinking as it came: its API takes no other.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from eventctx.testing.contract.compacting import BUDGETS, ROOMY, ROUNDS
from eventctx.testing.contract.conversations import (
    RESULT,
    Row,
    characters,
    is_told,
    payload_of,
    short,
    talk,
)
from eventctx.testing.contract.subject import MountedModule, Subject, mounted
from eventctx.testing.contract.verdicts import NotChecked, sees

_RULES: Final = "Write tests before the code, and keep every function short. " * 40
PROMPT: Final = f"You are careful and brief. {_RULES}That is all."
"""Long, as prompts are: a context must not shorten it as if it were a tool result."""

OTHERS: Final = (
    "Notes of the project: it is written in Python.",
    "The user decided to use PostgreSQL.",
)
"""Two more system messages: one after the prompt, and one in the middle of the conversation."""


def _with_rules() -> list[Row]:
    rows = talk(ROUNDS)
    users = [place for place, row in enumerate(rows) if row["role"] == "user"]
    rows.insert(users[len(users) // 2], {"role": "system", "content": OTHERS[1]})
    return [_rule(PROMPT), _rule(OTHERS[0]), *rows[1:]]


def _rule(text: str) -> Row:
    return {"role": "system", "content": text}


async def system_stays(subject: Subject) -> None:
    """The system prompt is in every request.

    Contract, "Validation Checklist": "Preserves system messages during compaction". It recommends
    that; an agent that forgets what it is told to be is of no use, so it is required here.
    """
    async with mounted(subject) as one:
        await one.add([_rule(PROMPT), *talk(ROUNDS)[1:]])
        await _check_texts(one, PROMPT)


async def all_system_stay(subject: Subject) -> None:
    """Other system messages are in every request, too: memory, decisions, a host's reminders."""
    async with mounted(subject) as one:
        await one.add(_with_rules())
        await _check_texts(one, *OTHERS)


async def resumed(subject: Subject) -> None:
    """Messages that were set are sent like those that were added: within budget, with the rules.

    Contract, "set_messages()": "Set messages directly (for session resume)", with their count.
    """
    rows = [_rule(PROMPT), *talk(ROUNDS)[1:]]
    async with mounted(subject) as one:
        await one.context.set_messages(copy.deepcopy(rows))
        whole, sent = characters(rows), characters(await one.request(BUDGETS[-1]))
        where = f"a request of {BUDGETS[-1]:,} tokens after set_messages()"
        sees(sent < whole * 0.9, f"{where} has {sent:,} of {whole:,} characters")
        await _check_texts(one, PROMPT)


async def _check_texts(one: MountedModule, *texts: str) -> None:
    for budget in (ROOMY, *BUDGETS):
        view = await one.request(budget)
        for text in texts:
            there = is_told(view, text)
            seen = f"a request of {budget:,} tokens lacks the system message {short(text)}"
            sees(there, seen)


async def system_factory(subject: Subject) -> None:
    """The prompt of a factory is in every request.

    A host gives its prompt to ``set_system_prompt_factory()`` where a context has that method, and
    stores no system message then.
    """
    async with mounted(subject) as one:
        made = await _give_factory(one)
        await one.add(talk(ROUNDS)[1:])
        for budget in (ROOMY, *BUDGETS):
            view = await one.request(budget)
            there = made and is_told(view, made[-1])
            sees(there, f"the factory's prompt is not in a request of {budget:,} tokens")


async def fresh_prompt(subject: Subject) -> None:
    """The factory is called for every request: what it reads may have changed."""
    async with mounted(subject) as one:
        made = await _give_factory(one)
        await one.add(talk(1)[1:])
        for number in range(1, 4):
            before = len(made)
            view = await one.request()
            sees(len(made) > before, f"the factory was not called for request {number}")
            sees(is_told(view, made[-1]), f"request {number} has an older prompt")


async def _give_factory(one: MountedModule) -> list[str]:
    """Give the context a factory; returns the list of the prompts that it will have made."""
    made: list[str] = []

    async def prompt() -> str:
        made.append(f"{PROMPT} Today is day {len(made) + 1}.")
        return made[-1]

    give = getattr(one.context, "set_system_prompt_factory", None)
    if give is None:
        raise NotChecked("it has no set_system_prompt_factory(), so hosts store the prompt")
    await give(prompt)
    return made


async def latest_stays(subject: Subject) -> None:
    """The person's latest message is in every view.

    Contract, "Compaction Strategies": "Keep N most recent messages", and so in each strategy.
    """
    wishes = "Write it down in full sentences, and do not leave out anything. " * 5
    latest = {"role": "user", "content": f"And what did you find in all of them? {wishes}"}
    async with mounted(subject) as one:
        await one.add(talk(ROUNDS))
        # A context that keeps the view of an earlier request must find what is new.
        await one.request(BUDGETS[-1])
        await one.add([dict(latest)])
        for budget in BUDGETS:
            view = await one.request(budget)
            there = any(payload_of(row) == latest for row in view)
            sees(there, f"a request of {budget:,} tokens lacks it: {short(latest)}")
        # It is the latest also while the model works on it.
        await one.add(talk(1)[2:5])
        for budget in BUDGETS:
            view = await one.request(budget)
            there = any(payload_of(row) == latest for row in view)
            seen = f"a request of {budget:,} tokens, with results after it, lacks it"
            sees(there, f"{seen}: {short(latest)}")


_THINKING: Final = ("thinking", "redacted_thinking")


def _thoughtful(rounds: int) -> list[Row]:
    """Tasks with a tool call each, every answer with a signed thought. The last task is open."""
    rows: list[Row] = [{"role": "system", "content": "You are careful and brief."}]
    for number in range(rounds):
        result = RESULT * 2 if number < rounds - 1 else "Nothing."
        call = f"call_{number}"
        words = {"type": "text", "text": f"Let me look for task {number}."}
        block = {"type": "tool_call", "id": call, "name": "read", "input": {"path": "x"}}
        calls = [{"id": call, "tool": "read", "arguments": {"path": "x"}}]
        asking = [_thought(f"{number}a"), words, block]
        rows += [
            {"role": "user", "content": f"Task {number}: look around in folder {number}."},
            {"role": "assistant", "content": asking, "tool_calls": calls},
            {"role": "tool", "tool_call_id": call, "content": f"{number}: {result}"},
        ]
        answer = [_thought(f"{number}b"), {"type": "text", "text": f"Task {number} is done."}]
        rows.append({"role": "assistant", "content": answer})
    return rows[:-1]


def _thought(name: str) -> dict[str, Any]:
    return {"type": "thinking", "thinking": f"Thought {name}.", "signature": f"c2ln{name}+/=="}


async def thinking(subject: Subject) -> None:
    """Thinking in a request is what was added, and that of the open tool call is there.

    Specification of context managers, "Preserve Thinking Continuity". A compaction may leave out
    the thinking before it, whole; what the model thinks afterwards must reach it again.
    """
    rows = _thoughtful(ROUNDS)
    await _continued(subject, rows, ROOMY, before=len(rows))
    for budget in BUDGETS:
        await _continued(subject, rows, budget, before=len(rows) - 3)


async def open_thinking(subject: Subject) -> None:
    """A compaction that falls inside a tool loop leaves the thinking that the loop is at.

    Same section: the next message "MUST include thinking with signature". The model is not named
    here, so a context cannot know it for one that takes no thinking back after a change.
    """
    rows = _thoughtful(ROUNDS)
    for budget in BUDGETS:
        await _continued(subject, rows, budget, before=len(rows))


async def _continued(subject: Subject, rows: list[Row], budget: int, before: int) -> None:
    """Request, add the rows from ``before`` on, and request again."""
    added = [block for row in rows for block in _thoughts(row)]
    flat = {_flattened(row) for row in rows if isinstance(row["content"], list)}
    wanted, where = _thoughts(rows[-2]), f"a request of {budget:,} tokens"
    async with mounted(subject) as one:
        await one.add(rows[:before])
        views = [await one.request(budget)]
        await one.add(rows[before:])
        views.append(await one.request(budget))
    for row in (row for view in views for row in view):
        for block in _thoughts(row):
            sees(block in added, f"{where} has thinking that was not added: {short(block)}")
        text = row.get("content")
        is_flat = isinstance(text, str) and text in flat
        sees(not is_flat, f"{where} has a message's blocks as a text: {short(row)}")
    there = any(_thoughts(row) == wanted for row in views[-1])
    sees(there, f"{where} lacks the thinking before the open tool call: {short(wanted)}")


def _thoughts(row: Row) -> list[Any]:
    content = row.get("content")
    blocks = content if isinstance(content, list) else ()
    return [one for one in blocks if isinstance(one, dict) and one.get("type") in _THINKING]


def _flattened(row: Row) -> str:
    return "".join(block.get("text", "") for block in row["content"])
