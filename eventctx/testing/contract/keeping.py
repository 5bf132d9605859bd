"""Checks of the messages that a context keeps and returns, without any compaction."""

from __future__ import annotations

import asyncio
import copy

from eventctx.testing.contract.conversations import Row, check_same, difference, giant, short, talk
from eventctx.testing.contract.subject import Subject, mounted
from eventctx.testing.contract.verdicts import Broken, sees


async def transcript(subject: Subject) -> None:
    """All added messages are returned, in order, also those beyond what fits a request."""
    rows = talk(3)
    async with mounted(subject) as one:
        await one.add(copy.deepcopy(rows))
        check_same(await one.transcript(), rows, "get_messages()")
    rows = talk(12)
    async with mounted(subject, {"max_tokens": 8_000}) as one:
        await one.add(copy.deepcopy(rows))
        check_same(await one.transcript(), rows, "get_messages() with max_tokens 8,000")
    # People repeat themselves, and files are long.
    again = [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Done."}]
    rows = [*giant(100_000), *again, *again, again[0], again[0]]
    async with mounted(subject) as one:
        await one.add(copy.deepcopy(rows))
        check_same(await one.transcript(), rows, "get_messages() with repeated and long messages")


async def exactness(subject: Subject) -> None:
    """Blocks, thinking with its signature, and keys that a context does not know are kept."""
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln+/==", "visibility": "internal"},
        {"type": "text", "text": "ünïcödé 🙂", "visibility": None},
    ]
    rows: list[Row] = [
        {"role": "user", "content": [{"type": "text", "text": "Look."}], "a_key_of_tomorrow": [1]},
        {"role": "assistant", "content": blocks, "metadata": {"response_id": "r1"}},
    ]
    async with mounted(subject) as one:
        await one.add(copy.deepcopy(rows))
        found = await one.transcript()
    sees(len(found) == len(rows), f"{len(found)} messages, expected {len(rows)}")
    for row, wanted in zip(found, rows, strict=True):
        for key, value in wanted.items():
            seen = row.get(key)
            if key == "metadata" and isinstance(seen, dict):
                seen = {name: seen[name] for name in value if name in seen}
            sees(seen == value, f"{key!r} of a message is {difference(seen, value)}")


async def without_role(subject: Subject) -> None:
    """A message without a role raises ValueError, and is not kept."""
    async with mounted(subject) as one:
        try:
            await one.context.add_message({"content": "Hello"})
        except ValueError:
            pass
        except Exception as error:
            raise Broken(f"it raised {type(error).__name__}, expected ValueError") from error
        else:
            raise Broken("it was accepted")
        sees(not await one.transcript(), "it was refused, and kept")


async def own_list(subject: Subject) -> None:
    """A caller may change a returned list, or one that it gave, without changing the context."""
    rows = talk(1)
    async with mounted(subject) as one:
        given = copy.deepcopy(rows)
        await one.context.set_messages(given)
        given.clear()
        check_same(await one.transcript(), rows, "get_messages() after a list was set and emptied")
    async with mounted(subject) as one:
        await one.add(copy.deepcopy(rows))
        (await one.transcript()).clear()
        (await one.request()).clear()
        check_same(await one.transcript(), rows, "get_messages() after its list was emptied")


async def own_messages(subject: Subject) -> None:
    """A caller may change returned and added messages without changing the context."""
    rows = talk(1)
    given = copy.deepcopy(rows)
    async with mounted(subject) as one:
        await one.add(given)
        for row in (*given, *(await one.transcript()), *(await one.request())):
            row["content"] = "changed by the caller"
        check_same(await one.transcript(), rows, "get_messages() after a caller changed messages")


async def replacing(subject: Subject) -> None:
    """``set_messages`` replaces all messages.

    The new messages have the same system message: a context may keep one that a host leaves out.
    """
    async with mounted(subject) as one:
        await one.add(talk(1))
        wanted = [talk(1)[0], *talk(3)[6:]]
        await one.context.set_messages(copy.deepcopy(wanted))
        check_same(await one.transcript(), wanted, "get_messages() after set_messages()")


async def clearing(subject: Subject) -> None:
    """``clear`` empties the context, which can be used again."""
    async with mounted(subject) as one:
        await one.add(talk(1))
        await one.context.clear()
        left = await one.transcript()
        sees(not left, f"{len(left)} messages are left")
        sees(not await one.request(), "a request still has messages")
        await one.add(talk(1))
        check_same(await one.transcript(), talk(1), "get_messages() after clear() and new messages")


async def concurrency(subject: Subject) -> None:
    """Tasks that add at once lose nothing, and each task's messages keep their order."""
    tasks, each = 8, 25

    async with mounted(subject) as one:

        async def work(task: int) -> None:
            for number in range(each):
                await one.context.add_message({"role": "user", "content": f"{task}: {number}"})

        await asyncio.gather(*(work(task) for task in range(tasks)))
        found = [row["content"] for row in await one.transcript()]
    for task in range(tasks):
        own = [text for text in found if text.startswith(f"{task}: ")]
        wanted = [f"{task}: {number}" for number in range(each)]
        sees(own == wanted, f"of {each} messages of one of {tasks} tasks {short(own)} are there")
