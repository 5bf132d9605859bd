"""The checks of thinking in requests: its API takes it back only as it came."""

from __future__ import annotations

from typing import Any, Final

from eventctx.testing.contract.compacting import BUDGETS, ROOMY, ROUNDS
from eventctx.testing.contract.conversations import RESULT, Row, short
from eventctx.testing.contract.subject import Subject, mounted
from eventctx.testing.contract.verdicts import sees

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
