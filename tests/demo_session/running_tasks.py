"""Tasks of the sample session that are answered by running the code."""

from __future__ import annotations

import re

from agent import Agent, true
from reading_tasks import _grep, _read

_PROBE = """\
import asyncio, tempfile, pathlib, eventctx
async def main():
    folder = pathlib.Path(tempfile.mkdtemp())
    async with eventctx.open(folder / "probe.db") as engine:
        ctx = await engine.session("probe")
        for number in range(20):
            await ctx.add_message({"role": "user", "content": f"message {number}"})
        receipt = (await engine.verify("probe")).receipt
"""


def _python(code: str) -> tuple[str, dict[str, object]]:
    return "run_python", {"code": code}


def imports(agent: Agent) -> None:
    """The cost of importing."""
    agent.asks("Is `import eventctx` cheap? Measure it, and tell me what it loads.")
    agent.does(
        _read("eventctx/__init__.py"),
        _read("eventctx/lazy_names.py"),
        say="What the package does when it is imported.",
    )
    timing = (
        "import subprocess, sys, time\n"
        "def best(code):\n"
        "    times = []\n"
        "    for _ in range(9):\n"
        "        began = time.perf_counter()\n"
        "        subprocess.run([sys.executable, '-c', code], check=True)\n"
        "        times.append(time.perf_counter() - began)\n"
        "    return min(times) * 1000\n"
        "bare = best('pass')\n"
        "for name in ('eventctx', 'eventctx.engine', 'eventctx.stores.sqlite'):\n"
        "    print(f'{name}: {best(\"import \" + name) - bare:.1f} ms above a bare interpreter')\n"
    )
    loaded = agent.does(
        _python("import sys, eventctx\nprint(sorted(m for m in sys.modules if 'eventctx' in m))"),
        _python(
            "import sys, eventctx.engine\nwatched = 'apsw structlog opentelemetry pyee rich "
            "click msgspec'.split()\nprint({name: name in sys.modules for name in watched})"
        ),
        say="What gets loaded, for the package and for the engine.",
    )
    true("eventctx.engine" not in loaded[0], "names are loaded when first used")
    true("'apsw': False" in loaded[1] and "'structlog': False" in loaded[1], "no driver, no sink")
    agent.does(_python("import eventctx\nprint(eventctx.Store)"), say="And a wrong name?")
    measured = agent.does(
        _python(timing),
        think="Measure in fresh processes, take the best of nine, subtract the bare interpreter.",
    )[0]
    took = re.findall(r"(\S+): (\S+) ms", measured)
    agent.answers(
        "Yes. The package's names are loaded on first use (`eventctx/lazy_names.py` reads them "
        "from the stub). Best of nine, above a bare interpreter, on this machine:\n\n"
        + "\n".join(f"* `import {name}`: {value} ms" for name, value in took)
        + "\n\nNeither a database driver (apsw) nor a sink (structlog, OpenTelemetry) is loaded by "
        "the engine; they come when a store or a sink is opened. A name that does not exist is an "
        "ordinary AttributeError."
    )


def compaction(agent: Agent) -> None:
    """A compaction, step by step."""
    agent.asks("Explain what one compaction does, step by step, and run one so that I can see it.")
    agent.does(
        _read("eventctx/policies/planner.py"),
        _read("eventctx/policies/presets.py"),
        _read("eventctx/policies/trigger.py"),
        think="Three small files: the three steps, the policy, and when it is due.",
        say="The steps, the one policy, and the trigger.",
    )
    fit = agent.does(_read("eventctx/policies/fit.py"), say="And the stage behind every policy.")
    true("OLD_CHARACTERS" in fit[0], "fit shortens old results")
    agent.does(_read("eventctx/log/plan.py"), _grep("REASONS", "eventctx"))
    agent.does(_read("eventctx/messages/shorten.py"), say="How a result is cut down.")
    seen = agent.does(
        _python(
            "import asyncio, eventctx\n"
            "async def main():\n"
            "    async with eventctx.open('memory://') as engine:\n"
            "        ctx = await engine.session('small', max_tokens=3000)\n"
            "        said = []\n"
            "        engine.on('context:post_compact', said.append)\n"
            "        for number in range(60):\n"
            "            await ctx.add_message({'role': 'user', 'content': f'{number} ' * 80})\n"
            "            view = await ctx.get_messages_for_request()\n"
            "        for record in said:\n"
            "            print(record.payload.decode()[:420])\n"
            "        print('in the last request:', len(view))\n"
            "        print('in the transcript:', len(await ctx.get_messages()))\n"
            "asyncio.run(main())\n"
        ),
        say="A session with 3,000 tokens for each request, and sixty messages.",
    )[0]
    count = seen.count('"event":"context:post_compact"')
    view = re.search(r"in the last request: (\d+)", seen)
    true(count >= 1 and view is not None and "in the transcript: 60" in seen, "it compacted")
    agent.answers(
        "1. **Due?** `policies/trigger.py`: when the view reaches the threshold (0.92 of the "
        "budget), exceeds the budget, or holds too many messages.\n"
        "2. **Propose.** The policy is pure: `simple` keeps system messages, the latest human "
        "message and the last ten messages, whole tool rounds only, and merges duplicates.\n"
        "3. **Fit.** `policies/fit.py` is behind every policy: oversized results are shortened, "
        "then old results, then old arguments, then the oldest groups are dropped.\n"
        "4. **Complete.** `planner.complete` makes the shortened copies and the plan: runs of "
        "message numbers, each with a disposition and a reason.\n"
        "5. **Record.** `context:pre_compact` and `context:post_compact` are appended; the second "
        "carries the plan. Nothing is deleted.\n\n"
        f"Compactions in my run: {count}. The last request held {view[1] if view else '?'} "
        "messages, while the transcript kept all 60.",
        think="Count the compactions from the output instead of guessing.",
    )


def tampering(agent: Agent) -> None:
    """A flipped byte."""
    agent.asks("Prove that tampering shows: change one byte in a stored message and verify it.")
    agent.does(
        _grep(r"class Problem|ProblemKind|def verify", "eventctx/queries/verification/session.py")
    )
    wrong = agent.does(
        _python(_PROBE + "        await engine.store.execute('SELECT 1')\nasyncio.run(main())\n"),
        think="Perhaps the store lets me run SQL.",
        say="A store with twenty messages, then SQL through the store.",
    )[0]
    true("AttributeError" in wrong, "the store has no execute")
    schema = agent.does(
        _grep("CREATE TABLE", "eventctx/stores/sqlite_schema.py"),
        _read("eventctx/stores/sqlite_schema.py", 28, 60),
        think="It does not, and should not. Use apsw on the file, after the engine has closed.",
        say="The store has no such door. I'll go to the file itself; first the tables.",
    )
    true("records" in schema[1], "there is a table records")
    flip = (
        "    import apsw\n"
        "    db = apsw.Connection(str(folder / 'probe.db'))\n"
        "    pos, data = db.execute('SELECT pos, data FROM records WHERE position = 7').get\n"
        "    edited = data.replace(b'message', b'massage')\n"
        "    db.execute('UPDATE records SET data = ? WHERE pos = ?', (edited, pos))\n"
        "    db.close()\n"
        "    async with eventctx.open(folder / 'probe.db') as engine:\n"
        "        for problem in (await engine.verify('probe', receipt)).problems:\n"
        "            print(problem)\n"
        "asyncio.run(main())\n"
    )
    found = agent.does(_python(_PROBE + flip), say="One letter of one message.")[0]
    true("kind='body'" in found and "position=7" in found, "verify finds the body")
    cut = flip.replace(
        "    pos, data = db.execute('SELECT pos, data FROM records WHERE position = 7').get\n"
        "    edited = data.replace(b'message', b'massage')\n"
        "    db.execute('UPDATE records SET data = ? WHERE pos = ?', (edited, pos))\n",
        "    db.execute('DELETE FROM records WHERE position > 17')\n",
    )
    gap = flip.replace(
        "    pos, data = db.execute('SELECT pos, data FROM records WHERE position = 7').get\n"
        "    edited = data.replace(b'message', b'massage')\n"
        "    db.execute('UPDATE records SET data = ? WHERE pos = ?', (edited, pos))\n",
        "    db.execute('DELETE FROM records WHERE position = 7')\n",
    )
    both = agent.does(
        _python(_PROBE + cut),
        _python(_PROBE + gap),
        say="Two worse attacks at the same time: cutting the tail, and taking out one record.",
    )
    true("the tail was cut" in both[0], "the receipt shows the cut")
    true("missing" in both[1] or "position" in both[1], "the gap shows")
    agent.does(_read("eventctx/log/store.py", 50, 100), say="What a receipt holds.")
    agent.answers(
        "All three attacks show:\n\n"
        "* One letter changed in the message at position 7: `verify` reports that body as edited, "
        "at that position.\n"
        "* The last records deleted: the chain of what is left is sound, so only the receipt "
        "shows it. `verify` with the receipt says that the tail was cut.\n"
        "* One record taken out of the middle: found without a receipt.\n\n"
        "A receipt is the session's name, its last position and the digest there; keep it "
        "somewhere else than the store."
    )


def catalogue(agent: Agent) -> None:
    """All events."""
    agent.asks("Which events are there, and which of them are on disk before a call returns?")
    table = agent.does(
        _python(
            "from eventctx.log.events import CATALOGUE\n"
            "for row in CATALOGUE.values():\n"
            "    print(f'{row.name:26} {row.family:9} durable={row.durable!s:6} {row.promise}')\n"
        ),
        say="The catalogue is one table, so I can print it.",
    )[0]
    rows = [line for line in table.split("\n") if line.strip()]
    durable = sum("durable=True" in row for row in rows)
    agent.does(
        _read("eventctx/log/events.py", 1, 130),
        _read("eventctx/log/events.py", 130, 300),
        think="Look at the payloads too, to describe the two families correctly.",
    )
    emit = agent.does(
        _grep("_unsent|_in_flight", "eventctx/session/append_queue.py"),
        _read("eventctx/session/turns.py"),
        say="How the events that are not waited for are written.",
    )
    true("_unsent" in emit[0], "unsent events are kept")
    agent.does(_grep(r"class \w+\(Event", "eventctx/log/events.py"))
    agent.answers(
        f"There are {len(rows)} event types in `eventctx/log/events.py`, in two families: "
        "*context* "
        "events change what is in the context, *activity* events say what happened around it.\n\n"
        f"{durable} of them are durable: the call returns when they are on disk. Among these are "
        "`context:message_added`, `context:post_compact` and `context:request_prepared`, so no "
        "request leaves before the record of what it holds is stored. The others "
        "(`tool:pre`, `provider:response` and so on) keep their place in the order, but nobody "
        "waits for them; if one cannot be written, the next durable call raises it."
    )


def forks(agent: Agent) -> None:
    """The cost of a fork."""
    agent.asks("Last one: what does a fork cost, and what do the two sessions still share?")
    agent.does(
        _grep("forked_at", "eventctx"),
        _grep("session:fork", "eventctx"),
        say="Everything that mentions forks.",
    )
    agent.does(_read("eventctx/stores/sqlite_queries.py"), think="How are inherited records read?")
    tried = agent.does(
        _python(
            "import asyncio, tempfile, pathlib, eventctx\n"
            "async def main():\n"
            "    path = pathlib.Path(tempfile.mkdtemp()) / 'forks.db'\n"
            "    async with eventctx.open(path) as engine:\n"
            "        ctx = await engine.session('parent')\n"
            "        for number in range(500):\n"
            "            await ctx.add_message({'role': 'user', 'content': 'x' * 1000})\n"
            "    before = path.stat().st_size\n"
            "    async with eventctx.open(path) as engine:\n"
            "        await engine.fork('parent', 300, 'child')\n"
            "        child = await engine.session('child')\n"
            "        await child.add_message({'role': 'user', 'content': 'another way'})\n"
            "        print('child:', len(await child.get_messages()), 'messages')\n"
            "        print('parent:', len(await engine.transcript('parent')), 'messages')\n"
            "        print('child verifies:', (await engine.verify('child')).ok)\n"
            "    print('bytes added:', path.stat().st_size - before)\n"
            "asyncio.run(main())\n"
        ),
        say="Five hundred messages of a kilobyte, forked in the middle.",
    )[0]
    messages = re.search(r"child: (\d+) messages", tried)
    added = re.search(r"bytes added: (-?\d+)", tried)
    true("parent: 500 messages" in tried and "child verifies: True" in tried, "the fork is sound")
    true(added is not None and int(added[1]) < 100_000, "a fork copies nothing")
    agent.answers(
        "A fork costs one row and one record, `session:fork`; nothing is copied. In my run the "
        f"file grew by {int(added[1]) if added else 0:,} bytes, for a parent of half a megabyte; "
        f"the child then had {messages[1] if messages else '?'} messages, the parent still 500.\n\n"
        "They share everything up to and including the fork position, by reference: the child's "
        "first own record follows at the next position and chains to the parent's digest there, so "
        "`verify` on the child checks the inherited part too. From then on each grows by itself.",
        think="Report the growth as measured, and what the chain means for verification.",
    )


RUNNING = (imports, compaction, tampering, catalogue, forks)
