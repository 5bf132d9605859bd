"""Tasks of the sample session that are answered by reading the code."""

from __future__ import annotations

import re

from agent import Agent, true


def _read(path: str, start: int = 1, end: int | None = None) -> tuple[str, dict[str, object]]:
    given: dict[str, object] = {"path": path, "start": start}
    return "read_file", given if end is None else {**given, "end": end}


def _grep(pattern: str, path: str = "eventctx") -> tuple[str, dict[str, object]]:
    return "grep", {"pattern": pattern, "path": path}


def digests(agent: Agent) -> None:
    """Where records are digested."""
    agent.asks(
        "Where are records digested, and what exactly does a record's digest cover? I want to "
        "know what somebody could change in the database without it being noticed."
    )
    agent.does(
        ("list_files", {"path": "eventctx"}),
        think="I do not know the layout yet. List the files, then look for hashing.",
        say="I'll start with the layout of the package.",
    )
    hits = agent.does(
        _grep(r"sha256|blake2b"),
        _grep(r"def \w*digest"),
        say="Now every place that hashes something.",
    )
    true("record.py" in hits[0] and "chain_digest" in hits[1], "record.py digests records")
    missing = agent.does(_read("eventctx/digest.py"), say="Perhaps there is a module for it.")
    true(missing[0].startswith("Error: no such file"), "there is no digest.py")
    source = agent.does(
        _read("eventctx/log/record.py"),
        think="No digest.py. chain_digest is defined in log/record.py; read all of it.",
    )[0]
    true("_FIXED.pack" in source and "body_digests" in source, "chain_digest packs the fields")
    agent.does(
        _grep("chain_digest", "eventctx"),
        _grep("body_digest", "eventctx"),
        say="Who computes these, and who checks them?",
    )
    checker = agent.does(
        _read("eventctx/queries/verification/session.py"),
        _read("eventctx/stores/rules.py"),
        think="verify.py checks. The stores must compute the digest on append; rules.py is shared.",
    )[0]
    true("GENESIS" in checker, "verify starts at GENESIS")
    facts = agent.does(
        (
            "run_python",
            {
                "code": "from eventctx.log.record import *\n"
                "d = Draft(bytes(16), 'tool:pre', 1, 5, b'{}', (Body(bytes(32), b'facts'),))\n"
                "e = Draft(bytes(16), 'tool:pre', 1, 5, b'{}', (Body(bytes(32), b'other'),))\n"
                "f = Draft(bytes(16), 'tool:pre', 1, 6, b'{}', (Body(bytes(32), b'facts'),))\n"
                "same = chain_digest(GENESIS, 0, d)\n"
                "print('other facts, same digest:', chain_digest(GENESIS, 0, e) == same)\n"
                "print('other time,  same digest:', chain_digest(GENESIS, 0, f) == same)\n"
            },
        ),
        say="I'll try it: the facts beside a body, and the time.",
    )[0]
    true("facts, same digest: True" in facts, "facts are outside the digest")
    true("time,  same digest: False" in facts, "time is inside the digest")
    agent.answers(
        "Records are digested by `chain_digest` in `eventctx/log/record.py`; contents (bodies) by "
        "`body_digest` in the same file, with a random salt of 16 bytes.\n\n"
        "A record's digest is SHA-256 over length-prefixed fields: the digest of the record "
        "before, position, event id, time, schema version, type, turn id, span id, parent span "
        "id, iteration, payload, and the digests of its bodies. `verify` walks the chain from "
        "`GENESIS` (32 zero bytes) and recomputes all of it, and each body's digest.\n\n"
        "Not covered: the session's name and the global position (so that a session can be "
        "moved), and caches: the *facts* of a body, snapshots, checkpoints. I tried both sides: "
        "other facts give the same digest, another time does not. And a tail that is cut off "
        "shows only against a receipt that you kept outside the store.",
        think="The experiment agrees with the docstring. Name what is outside the digest clearly.",
    )


def to_disk(agent: Agent) -> None:
    """From add_message to the disk."""
    agent.asks("Follow one message from `add_message` to the disk. When does the call return?")
    agent.does(
        _grep(r"async def add_message", "eventctx"),
        _grep(r"def (append|append_exactly|emit|submit|_submit|_settle)\b", "eventctx"),
        say="First the entry point and everything called append or submit.",
    )
    agent.does(_read("eventctx/session/context.py", 50, 130))
    agent.does(
        _read("eventctx/session/transcript.py", 1, 90),
        _read("eventctx/session/append_queue.py"),
        think="The context hands the message to Transcript.add, which appends a draft.",
        say="`AppendQueue` is where drafts get their positions.",
    )
    sealed = agent.does(_grep("synchronous", "eventctx/stores"), _grep("COMMIT", "eventctx/stores"))
    true("synchronous" in sealed[0], "the stores set synchronous")
    writer = agent.does(
        _read("eventctx/stores/sqlite_writer.py"),
        _read("eventctx/stores/threads.py"),
        say="The SQLite store has one writer thread; these two files are its queue and its loop.",
    )[0]
    true("class Writer" in writer, "there is a Writer")
    agent.does(_read("eventctx/stores/ack.py"), think="What does the caller wait on? Ack.")
    agent.does(_read("eventctx/stores/sqlite_log.py", 1, 140))
    durable = agent.does(_grep(r"durability", "eventctx/stores/sqlite_schema.py"))[0]
    true("PRAGMA synchronous={durability}" in durable, "durability is SQLite's synchronous")
    agent.answers(
        "The path of one message:\n\n"
        "1. `Context.add_message` hands it to `Transcript.add` (both in `session/`), which checks "
        "and encodes it (`encode_message`), salts and digests the bytes (`make_body`) and makes a "
        "draft.\n"
        "2. `AppendQueue.append` (`session/append_queue.py`) gives the draft its position under a "
        "lock, hands it to the store and notes it for the view; the wait for the disk happens "
        "outside the lock.\n"
        "3. `SqliteStore.append` puts it into the writer's mailbox and returns an `Ack` at once.\n"
        "4. The one writer thread (`stores/sqlite_writer.py`) takes all that waits in the mailbox "
        "and commits it in one transaction, so many callers share one flush to the disk.\n\n"
        "The call returns when that commit is done. With the default durability `full` the "
        "database runs with `synchronous=full`, so the commit has waited for the disk.",
        think="I have every station. The batching is natural: whatever waits is taken together.",
    )


def pairs(agent: Agent) -> None:
    """Calls and results in a view."""
    agent.asks(
        "What does a request view do with tool calls that never got a result, and with results "
        "whose call is gone? Show me the code, then try it on a small example."
    )
    agent.does(
        _grep("synthetic", "eventctx/projections"),
        _grep("orphan", "eventctx"),
        say="Two words to look for: synthetic results, and orphans.",
    )
    layout = agent.does(
        _read("eventctx/projections/view/layout.py", 1, 130),
        _read("eventctx/projections/view/layout.py", 130, 360),
        think="The rules are in layout.py. Read all of it; build and append must agree.",
    )[0]
    true("No result was recorded for this call" in layout, "the synthetic text")
    agent.does(_read("eventctx/messages/tool_rounds.py"), say="And how rows make rounds.")
    agent.does(_read("eventctx/projections/view/render.py"))
    tried = agent.does(
        (
            "run_python",
            {
                "code": "import asyncio, json, eventctx\n"
                "async def main():\n"
                "    async with eventctx.open('memory://') as engine:\n"
                "        ctx = await engine.session('pairs')\n"
                "        use = {'type': 'tool_use', 'id': 'a', 'name': 'ls', 'input': {}}\n"
                "        lost = {'type': 'tool_result', 'tool_use_id': 'gone', 'content': 'x'}\n"
                "        await ctx.add_message({'role': 'user', 'content': 'list'})\n"
                "        await ctx.add_message({'role': 'assistant', 'content': [use]})\n"
                "        await ctx.add_message({'role': 'user', 'content': [lost]})\n"
                "        await ctx.add_message({'role': 'user', 'content': 'and now?'})\n"
                "        for message in await ctx.get_messages_for_request():\n"
                "            print(json.dumps(message))\n"
                "        print(len(await ctx.get_messages()), 'messages in the transcript')\n"
                "asyncio.run(main())\n"
            },
        ),
        say="Now the example: one call without a result, one result without a call.",
    )[0]
    true("No result was recorded" in tried and '"gone"' not in tried, "as the code says")
    true("4 messages in the transcript" in tried, "the transcript keeps all four")
    agent.answers(
        "Both are repaired in the view only; the transcript keeps what was added.\n\n"
        "* A call without a result gets a synthetic, marked one directly behind it: "
        "`SYNTHETIC_RESULT` in `projections/view/layout.py`, rendered in the caller's dialect by "
        "`synthetic_result` in `projections/view/render.py`. For Anthropic it carries "
        "`is_error: true`.\n"
        "* A result that answers no call in view is left out (`Group.orphan` in "
        "`messages/tool_rounds.py`).\n"
        "* A row that stands between a call and its result is moved behind the result.\n\n"
        "In my example the request had the synthetic result and not the lost one, while "
        "`get_messages` still returned all four messages.",
    )


def package_size(agent: Agent) -> None:
    """How large the package is."""
    agent.asks("How large is this code base? Which are the longest files and functions?")
    listing = agent.does(("list_files", {"path": "eventctx"}))[0]
    files = re.findall(r"\S+\.py$", listing, flags=re.MULTILINE)
    core = [file for file in files if "/session/" in file]
    totals = agent.does(
        ("count_lines", {"paths": core}),
        ("count_lines", {"paths": [file for file in files if "/stores/" in file]}),
        ("count_lines", {"paths": [file for file in files if "/projections/" in file]}),
        ("count_lines", {"paths": [file for file in files if "/importers/" in file]}),
        say="The four main rooms, counted at the same time.",
    )
    sums = [int(total.rsplit("\n", 1)[-1].split()[0]) for total in totals]
    broad = agent.does(
        _grep(r"self|return|import"),
        think="Where is the weight? A search for common words will show the dense files.",
        say="A rough look at where the weight lies.",
    )[0]
    true("[cut after 160000 of" in broad, "the broad search was cut")
    longest = agent.does(
        (
            "run_python",
            {
                "code": "import ast, pathlib\n"
                "found = []\n"
                "for path in sorted(pathlib.Path('eventctx/session').glob('*.py')):\n"
                "    for node in ast.walk(ast.parse(path.read_text())):\n"
                "        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):\n"
                "            lines = node.end_lineno - node.lineno + 1\n"
                "            found.append((lines, f'{path}:{node.name}'))\n"
                "for lines, name in sorted(found, reverse=True)[:10]:\n"
                "    print(f'{lines:>4} {name}')\n"
                "print('functions:', len(found))\n"
                "print('median:', sorted(found)[len(found) // 2][0])\n"
            },
        ),
        think="That search matched nearly everything: useless, and huge. Parse the code instead.",
        say="That was far too broad. The syntax tree tells it better.",
    )[0]
    first = longest.split("\n")[0].split()
    functions = re.search(r"functions: (\d+)", longest)
    median = re.search(r"median: (\d+)", longest)
    true(bool(functions and median), "the snippet prints both")
    agent.does(_read(first[1].split(":")[0], 1, 80), say=f"A look at the file of {first[1]}.")
    agent.answers(
        f"The write side (`eventctx/session`) has {sums[0]:,} lines, the stores {sums[1]:,}, the "
        f"projections {sums[2]:,} and the importers {sums[3]:,}.\n\n"
        f"The longest function of the write side is `{first[1].split(':')[1]}` with {first[0]} "
        f"lines; of {functions[1] if functions else '?'} functions half have at most "
        f"{median[1] if median else '?'} lines. My search for common words was a mistake: it "
        "returned 160,000 characters, and nothing to learn from.",
    )


def new_store(agent: Agent) -> None:
    """The needs of a PostgreSQL store."""
    agent.asks("I want to add a PostgreSQL store. What do I have to write, and what checks it?")
    protocol = agent.does(_read("eventctx/log/store.py"), say="The protocol first.")[0]
    methods = re.findall(r"(?:async )?def (\w+)\(", protocol.split("class EventStore")[1])
    agent.does(
        ("list_files", {"path": "eventctx/stores"}),
        ("list_files", {"path": "tests/stores"}),
        think="Which files does a store consist of, and where is the contract suite?",
    )
    suite = agent.does(
        _read("tests/stores/test_contract.py"),
        _read("eventctx/testing/store_contract/__init__.py"),
        _grep(r"async def test_", "eventctx/testing/store_contract"),
        say="The contract suite: how a store is plugged in, and what is tested.",
    )
    tests = suite[2].count("async def test_")
    true(tests > 20, "there is a contract suite")
    agent.does(
        _read("eventctx/stores/rules.py"),
        _read("eventctx/stores/memory.py", 1, 130),
        think="rules.py is shared by the stores. The memory store is the shortest example.",
    )
    agent.does(
        _read("eventctx/stores/memory.py", 130, 310),
        _grep("open_store|SqliteStore|MemoryStore", "eventctx/stores/location.py"),
    )
    agent.does(_grep(r"import (sqlite3|apsw)|from eventctx.stores", "eventctx"))
    agent.answers(
        f"Write one class with the {len(methods)} methods of `EventStore` "
        "(`eventctx/log/store.py`): "
        f"{', '.join(f'`{name}`' for name in methods)}.\n\n"
        "* `stores/rules.py` has what all stores share, so that positions, digests and retries "
        "come out the same; `stores/memory.py` is the shortest complete example.\n"
        "* Plug it into `open_store` in `stores/location.py`, the one place that knows "
        "stores by name.\n"
        "* A driver's own exception may only be the `__cause__` of one from `errors.py`.\n"
        f"* The contract suite, `eventctx.testing.StoreContract`, has {tests} tests that a store's "
        "own test class inherits; a store that passes them is usable by everything above it.",
    )


READING = (digests, to_disk, pairs, package_size, new_store)
