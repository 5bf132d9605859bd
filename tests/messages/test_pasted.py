"""What a person pasted is told from what the person typed, and is cut as a result is."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eventctx
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.pasted import pasted_spans
from eventctx.messages.shorten import MARKER_CHARACTERS, Limit, shorten
from eventctx.messages.tokens import BY_KIND
from eventctx.policies.working_set import bound_tokens
from tests.calls import calls_of_functions
from tests.policies.given import model, user

TYPED = "Please look at this, it broke the import of the second customer yesterday."
LOG = "\n".join(
    [f"2026-03-0{n % 9 + 1} 12:00:{n:02} ERROR worker[{n}]: line={n}" for n in range(90)]
)
CODE = "\n\n".join([f"def f{n}(x):\n    y = x + {n}\n    return y * {n};" for n in range(90)])
FENCE = f"```\n{'any words at all that a person may well type, ' * 60}\n```"
BLOCKS = {"log": LOG, "code": CODE, "fence": FENCE}


@pytest.mark.parametrize("block", BLOCKS.values(), ids=BLOCKS)
def test_a_long_block_between_typed_words_is_pasted(block: str) -> None:
    text = f"{TYPED}\n\n{block}\n\nWhat now?"
    (span,) = pasted_spans(text)
    assert text[span.start : span.stop].strip() == block.strip()


@pytest.mark.parametrize(
    "text",
    [
        TYPED,
        "\n\n".join([TYPED] * 60),
        "so it went on and on " * 200,
        f"{TYPED}\n\n```\n{'x = 1;' * 200}\n```\n\n" + "\n\n".join([TYPED] * 20),
        "\n\n".join([f"- {TYPED}\n  - and {TYPED}" for _ in range(20)]),
        "\n\n".join(["これは人が書いた文章です。" * 20] * 20),
    ],
    ids=["short", "many paragraphs", "a long one", "a short fence", "a list", "Japanese"],
)
def test_what_a_person_typed_is_not_pasted(text: str) -> None:
    assert pasted_spans(text) == []


def test_what_a_harness_wrote_in_front_of_words_is_not_typed() -> None:
    text = f"<system-reminder>{'word ' * 900}</system-reminder>\n{TYPED}"
    (span,) = pasted_spans(text)
    assert text[span.stop :].strip() == TYPED


def test_pasted_blocks_are_counted_as_a_result_and_the_rest_as_words() -> None:
    facts = read_facts(user(f"{TYPED}\n\n{LOG}"))
    assert facts.human and facts.prose == len(TYPED) + 2
    assert facts.outcome == len(LOG)


parts = st.lists(
    st.sampled_from([TYPED, LOG, CODE, FENCE, "so it went on and on " * 120, "Why?", LOG * 4]),
    max_size=6,
).map("\n\n".join)


@given(
    texts=st.lists(parts, min_size=1, max_size=3),
    size=st.sampled_from([0, 50, 250, 1_000, 6_000]),
    one=st.booleans(),
)
def test_cutting_pasted_blocks_keeps_every_typed_word_and_the_size_is_known_before(
    texts: list[str], size: int, one: bool
) -> None:
    message: dict[str, Any] = user("\n\n".join(texts))
    if not one:
        message["content"] = [{"type": "text", "text": text} for text in texts if text] or "x"
    facts = read_facts(message)
    short = shorten(copy.deepcopy(message), 3, Limit(outcome=size), facts)
    now = read_facts(short)
    most = min(facts.outcome, size + MARKER_CHARACTERS)
    assert now.prose + now.outcome <= facts.prose + most
    assert BY_KIND.tokens(now) <= bound_tokens(facts, Limit(outcome=size), BY_KIND)
    blocks = message["content"] if isinstance(message["content"], list) else [message["content"]]
    shown = str(short)
    for block in blocks:
        text = block["text"] if isinstance(block, dict) else block
        at = 0
        for span in [*pasted_spans(text), None]:
            typed = text[at : len(text) if span is None else span.start]
            assert all(line in shown for line in typed.splitlines())
            at = 0 if span is None else span.stop


@pytest.mark.parametrize("policy", ["workset", "ladder", "simple", "truncate", "importance"])
async def test_the_words_around_an_old_log_stay_whole_and_the_log_is_cut(policy: str) -> None:
    async with eventctx.open() as engine:
        ctx = await engine.session("s", policy=policy, max_tokens=6_000)
        await ctx.add_message(user("Repair the import."))
        await ctx.add_message(user(f"{TYPED}\n\n{LOG * 3}\n\nIt was the third time this week."))
        for n in range(40):
            await ctx.add_message(model(f"step {n} " + "so " * 300))
            await ctx.get_messages_for_request()
        await ctx.add_message(user("And?"))
        view = str(await ctx.get_messages_for_request())
        assert TYPED in view and "It was the third time this week." in view
        assert "characters left out of message 1" in view


def test_what_a_person_typed_is_not_read_whole_for_a_shortened_copy() -> None:
    """The facts say that nothing in it was pasted, and that it holds no demand."""

    def calls_to_shorten(lines: int) -> int:
        message = {"role": "user", "content": "go on\n" * lines}
        facts, limit = read_facts(message), Limit(outcome=500, arguments=500, prose=500)
        return calls_of_functions(lambda: shorten(message, 1, limit, facts))

    calls_to_shorten(1_000)  # patterns are compiled when they are first used
    few, many = calls_to_shorten(1_000), calls_to_shorten(4_000)
    assert many < 1.1 * few
