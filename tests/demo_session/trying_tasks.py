"""Tasks of the sample session that are answered by small experiments."""

from __future__ import annotations

import re

from agent import Agent, true
from reading_tasks import _grep, _read
from running_tasks import _python

_REFUSED = """\
import asyncio, datetime, eventctx
async def main():
    async with eventctx.open("memory://") as engine:
        ctx = await engine.session("strict")
        for value in (float("nan"), (1, 2), datetime.date(2025, 1, 1), "\\ud800", b"x", 2**70):
            try:
                await ctx.add_message({"role": "user", "content": [{"value": value}]})
                print("taken:", repr(value))
            except eventctx.InvalidMessage as error:
                print(error)
        print(len(await ctx.get_messages()), "messages stored")
asyncio.run(main())
"""

_HOOKS = """\
import asyncio, logging, eventctx
logging.disable(logging.CRITICAL)
async def main():
    async with eventctx.open("memory://") as engine:
        seen = []
        def broken(record):
            raise RuntimeError("a bug in a hook")
        engine.on("context:*", broken)
        engine.on("context:message_added", lambda record: seen.append(record.position))
        ctx = await engine.session("hooked")
        for number in range(5):
            await ctx.add_message({"role": "user", "content": str(number)})
        print("seen:", seen)
        print("errors:", list(engine.hooks.stats().errors.values()))
        try:
            engine.on("context:message_aded", broken)
        except eventctx.UnknownEventName as error:
            print(error)
asyncio.run(main())
"""


def strictness(agent: Agent) -> None:
    """Values that are refused as messages."""
    agent.asks("Which values in a message are refused, and is anything stored when one is?")
    agent.does(
        _read("eventctx/messages/encoding.py"),
        _grep("InvalidMessage", "eventctx"),
        think="encode_message is the gate. Read it and find who else raises InvalidMessage.",
        say="The encoding is the gate.",
    )
    tried = agent.does(_python(_REFUSED), say="Six values that JSON has no exact form for.")[0]
    true("0 messages stored" in tried and "taken" not in tried, "all six are refused")
    agent.does(_grep("MAX_DEPTH", "eventctx"), say="Deep nesting has a limit of its own.")
    deep = agent.does(
        _python(
            "from eventctx.messages.encoding import encode_message\n"
            "value = 'x'\n"
            "for _ in range(300):\n    value = [value]\n"
            "encode_message({'role': 'user', 'content': value})\n"
        ),
        say="What it looks like when that limit is passed:",
    )[0]
    true("InvalidMessage" in deep, "too deep is refused")
    agent.answers(
        "Refused, each with the path to the value: NaN and infinities, tuples, dates and other "
        "objects, bytes, lone surrogates, integers beyond 64 bits, keys that are no text, and "
        "nesting deeper than `MAX_DEPTH` in `messages/encoding.py`. The serialiser alone "
        "would have turned "
        "some of these into something else without a word.\n\n"
        "Nothing is stored when one is refused: after six attempts the session held 0 messages."
    )


def estimates(agent: Agent) -> None:
    """How tokens are counted."""
    agent.asks("How are tokens estimated? Would characters divided by four not be good enough?")
    source = agent.does(
        _read("eventctx/messages/tokens.py"),
        _grep("BY_KIND", "eventctx"),
        say="The estimator and everyone who uses it.",
    )[0]
    rates = dict(re.findall(r"(\w+): int = (\d+)", source))
    true({"prose", "outcome", "per_call"} <= rates.keys(), "the rates have names")
    agent.does(
        _read("eventctx/messages/facts_reader.py", 55, 140), think="Facts: what it is made from."
    )
    tried = agent.does(
        _python(
            "from eventctx.messages.facts_reader import read_facts\n"
            "from eventctx.messages.tokens import BY_KIND\n"
            "text = 'The quick brown fox jumps over the lazy dog. ' * 200\n"
            "result = {'type': 'tool_result', 'tool_use_id': 'a', 'content': text}\n"
            "for name, message in (('prose', {'role': 'user', 'content': text}),\n"
            "                      ('result', {'role': 'user', 'content': [result]})):\n"
            "    print(name, len(text), 'characters', BY_KIND.tokens(read_facts(message)),\n"
            "          'tokens, a quarter would be', len(text) // 4)\n"
        ),
        say="The same text as prose and as a tool result.",
    )[0]
    agent.does(_read("eventctx/messages/media.py"), say="Images are counted by their size.")
    found = re.findall(r"(\w+) \d+ characters (\d+) tokens, a quarter would be (\d+)", tried)
    true(len(found) == 2 and all(int(a) > int(b) for _, a, b in found), "more than a quarter")
    agent.answers(
        "By kind of content, from facts that are stored beside each message, so nobody has to read "
        f"the text again (`messages/tokens.py`): {int(rates['prose']) / 10} characters per "
        "token of prose, "
        f"{int(rates['arguments']) / 10} of tool arguments, {int(rates['outcome']) / 10} of tool "
        f"results, and {rates['per_call']} tokens for every call.\n\n"
        + "\n".join(f"* as {name}: {a} tokens, a quarter would say {b}" for name, a, b in found)
        + "\n\nA quarter is too low, and too low is the unsafe side: the request would not fit."
    )


def hooks(agent: Agent) -> None:
    """A hook that raises."""
    agent.asks("If one of my hooks raises, what happens to the agent? Try it.")
    agent.does(
        ("list_files", {"path": "eventctx/hooks"}),
        _grep("def (on|publish|drain|stats)", "eventctx/hooks"),
        think="The registry decides. Look at publish and at how errors are counted.",
    )
    agent.does(_read("eventctx/hooks/registry.py", 50, 140), say="How a handler is called.")
    agent.does(_read("eventctx/hooks/lanes.py"), say="Async handlers run on these lanes.")
    agent.does(
        ("read_file", {"path": "eventctx/hooks"}),
        _grep("queue_limit", "eventctx/hooks"),
        say="Is there more in the folder, and what bounds the queues?",
    )
    tried = agent.does(_python(_HOOKS), say="One broken hook, one good one, one misspelt name.")[0]
    true("errors: [5]" in tried and "did you mean" in tried, "errors are counted")
    agent.answers(
        "Nothing happens to the agent. A handler's exception is caught, counted and logged; other "
        "handlers still get the record, and `add_message` returns as if nothing had been.\n\n"
        "In my run the broken hook failed 5 times (`engine.hooks.stats().errors`), and the good "
        "one saw all five messages. What does raise is a misspelt event name, at registration, and "
        "the error proposes the right one."
    )


TRYING = (strictness, estimates, hooks)
