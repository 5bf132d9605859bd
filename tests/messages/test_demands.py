"""What a person demands, and what a person only pasted."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.messages.demands import (
    KEEPING,
    MOST_DEMANDS,
    OBLIGING,
    OTHER_WORDS,
    STRONG,
    WISHING,
    demands_in,
    demands_of,
)
from eventctx.messages.facts_reader import read_facts
from eventctx.messages.pasted import pasted_spans
from eventctx.messages.shorten import MARKER_CHARACTERS, Limit, shorten
from eventctx.messages.tokens import BY_KIND
from eventctx.policies.working_set import bound_tokens
from tests.calls import calls_of_functions
from tests.how_much import some
from tests.policies.given import model, one_session, user

NOTE = "<system-reminder>You must always use the todo tool.</system-reminder>"
PASTED = "\n".join([f"{n:04d}-01-02 you must never do that = {n};" for n in range(80)])
TEXTS = {
    # A sentence with a cue, as it stands; a list's mark is no part of it.
    "It is broken. NEVER touch `main.py`, please! It fails.": ["NEVER touch `main.py`, please!"],
    "- Use tabs, not spaces.\n2. Don’t rename files.": [
        *("Use tabs, not spaces.", "Don’t rename files.")
    ],
    "Look.\n```\nyou must not read this\n```\nYou must read that.": ["You must read that."],
    f"Fix it, but keep the tests.\n{NOTE}": ["Fix it, but keep the tests."],
    # A sentence ends at marks, at tags and at wide marks, but not in a name or an abbreviation.
    "Use tabs here.) Never push it.<b>Keep the old name</b>please use that。Stop at once now": [
        *("Use tabs here.", "Never push it.", "Keep the old name", "please use that"),
        "Stop at once now",
    ],
    "it works now. never touch main.py again. use v1.2 e.g. for the tests. is it done?": [
        *("never touch main.py again.", "use v1.2 e.g. for the tests.")
    ],
    f"Never push this.\n\n{PASTED}\n\nIt must stay small.": [
        *("Never push this.", "It must stay small.")
    ],
}


@pytest.mark.parametrize(("text", "demands"), TEXTS.items(), ids=range(len(TEXTS)))
def test_a_typed_sentence_with_a_cue_is_a_demand_as_it_is(text: str, demands: list[str]) -> None:
    assert list(demands_of(text)) == demands


def test_other_texts_are_no_demands() -> None:
    for text in [
        # Too few words, too many, and code.
        *("Never push.", "must " * 61, "x = keep(use, only);"),
        # A question, a report, a quote, and a request for an answer.
        *("Which of the files must never change?", "do we need to keep the old parser"),
        *("Please explain it.", "I don't understand what it does there."),
        "The run failed, I guess the cache should be empty.",
        *("> You must never do that again.", "2026-01-02T10:00:00 ERROR you must never do that"),
        *("src/parse.py:14: you must use a list here", "No tests were found in the folder."),
        *("Warum muss das so lange dauern?", "为什么不能保存？"),
    ]:
        assert demands_of(text) == ()


def test_a_rule_in_another_language_a_command_and_a_wish_are_demands() -> None:
    for rule in [
        "Fass die Datei config/secrets.yaml niemals an.",
        "Die Tests darf niemand löschen, du musst sie behalten.",
        "Ne touche pas au fichier de configuration.",
        "Utilisez toujours des tabulations.",
        "No toques el archivo de configuración.",
        "Nunca cambies la versión del paquete.",
        "Não altere o arquivo de configuração.",
        "Non toccare mai il file di configurazione.",
        "Nigdy nie zmieniaj tego pliku.",
        *("Никогда не трогай этот файл.", "Не трогай файл настроек."),
        *("永远不要修改这个文件", "绝不要碰 config/secrets.yaml 文件"),
        *("このファイルは絶対に変更しないでください", "이 파일은 절대 수정하지 마세요."),
        "इस फ़ाइल को कभी मत बदलना",
        # A command, a wish, and what comes after a condition.
        "Follow the style of the files around it.",
        "Once done, clean up the branches.",
        "When you finish a step, write one line about it.",
        "Write each number as a word.",
        *("no new dependencies here!", "important not to push before the review"),
        "i basically want one file per command",
    ]:
        assert demands_of(rule) == (rule,)
        assert read_facts(user(rule)).demands == 1


def test_of_too_many_the_strong_ones_are_taken_in_their_order_and_none_of_a_harness() -> None:
    lines = [f"Please keep file {n} there." for n in range(20)]
    lines[15] = "Never touch file 15 again."
    found = demands_of("\n".join(lines))
    assert found == (*lines[: MOST_DEMANDS - 1], lines[15])
    assert demands_in(user(f"{NOTE} Never touch main.py.")) == ("Never touch main.py.",)
    assert demands_in(user(NOTE)) == ()


PIECES = (*STRONG, *KEEPING, *OBLIGING, *OTHER_WORDS, "the file", "now.", "\n", "Then", "  ", "é")


@given(st.lists(st.sampled_from(PIECES), max_size=40))
def test_every_demand_stands_in_its_text_word_by_word(words: list[str]) -> None:
    text = " ".join(words)
    for demand in demands_of(text):
        assert demand in text
        assert "\n" not in demand


@pytest.mark.parametrize("cue", (*STRONG, *KEEPING, *OBLIGING, *WISHING, *OTHER_WORDS))
def test_each_cue_is_seen_in_a_message_as_in_its_sentences(cue: str) -> None:
    loud = cue.upper() if "ß" not in cue else cue
    curly = cue.replace("'", "’")
    for whole in (f"{cue} mine now", f"{loud} MINE NOW", f"(then, {curly} mine now)"):
        assert demands_of(whole) == (whole,)
        assert read_facts(user(whole)).demands == 1


# -- what a person pasted --------------------------------------------------------------------------


TYPED = "Please look at this, it broke the import of the second customer yesterday."
LOG = "\n".join(
    [f"2026-03-0{n % 9 + 1} 12:00:{n:02} ERROR worker[{n}]: line={n}" for n in range(90)]
)
CODE = "\n\n".join([f"def f{n}(x):\n    y = x + {n}\n    return y * {n};" for n in range(90)])
FENCE = f"```\n{'any words at all that a person may well type, ' * 60}\n```"


def test_a_long_block_between_typed_words_is_pasted_and_what_a_person_typed_is_not() -> None:
    for block in (LOG, CODE, FENCE):
        text = f"{TYPED}\n\n{block}\n\nWhat now?"
        (span,) = pasted_spans(text)
        assert text[span.start : span.stop].strip() == block.strip()
    for text in [
        TYPED,
        "\n\n".join([TYPED] * 60),
        "so it went on and on " * 200,
        f"{TYPED}\n\n```\n{'x = 1;' * 200}\n```\n\n" + "\n\n".join([TYPED] * 20),
        "\n\n".join([f"- {TYPED}\n  - and {TYPED}" for _ in range(20)]),
        "\n\n".join(["これは人が書いた文章です。" * 20] * 20),
    ]:
        assert pasted_spans(text) == []


def test_what_a_harness_wrote_is_not_typed_and_pasted_blocks_are_counted_as_a_result() -> None:
    text = f"<system-reminder>{'word ' * 900}</system-reminder>\n{TYPED}"
    (span,) = pasted_spans(text)
    assert text[span.stop :].strip() == TYPED
    facts = read_facts(user(f"{TYPED}\n\n{LOG}"))
    assert facts.human and facts.prose == len(TYPED) + 2
    assert facts.outcome == len(LOG)


parts = st.lists(
    st.sampled_from([TYPED, LOG, CODE, FENCE, "so it went on and on " * 120, "Why?", LOG * 4]),
    max_size=6,
).map("\n\n".join)


@settings(max_examples=some(25, 100))
@given(
    texts=st.lists(parts, min_size=1, max_size=3),
    size=st.sampled_from([0, 50, 250, 1_000, 6_000]),
    one=st.booleans(),
)
def test_cutting_pasted_blocks_keeps_every_typed_word_and_the_size_is_known_before(
    texts: list[str], size: int, one: bool
) -> None:
    texts = ["\n\n".join(texts)] if one else [text for text in texts if text] or ["x"]
    blocks = [{"type": "text", "text": text} for text in texts]
    message = {"role": "user", "content": texts[0] if one else blocks}
    facts = read_facts(message)
    short = shorten(copy.deepcopy(message), 3, Limit(outcome=size), facts)
    now = read_facts(short)
    most = min(facts.outcome, size + MARKER_CHARACTERS)
    assert now.prose + now.outcome <= facts.prose + most
    assert BY_KIND.tokens(now) <= bound_tokens(facts, Limit(outcome=size), BY_KIND)
    shown = str(short)
    for text in texts:
        at = 0
        for span in [*pasted_spans(text), None]:
            typed = text[at : len(text) if span is None else span.start]
            assert all(line in shown for line in typed.splitlines())
            at = 0 if span is None else span.stop


@pytest.mark.parametrize("policy", ["workset", "ladder", "simple", "truncate", "importance"])
async def test_the_words_around_an_old_log_stay_whole_and_the_log_is_cut(policy: str) -> None:
    async with one_session(policy=policy, max_tokens=6_000) as (_, ctx):
        long = f"{TYPED}\n\n{LOG * 3}\n\nIt was the third time this week."
        await ctx.add_messages([user("Repair the import."), user(long)])
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
        message = user("go on\n" * lines)
        facts, limit = read_facts(message), Limit(outcome=500, arguments=500, prose=500)
        return calls_of_functions(lambda: shorten(message, 1, limit, facts))

    calls_to_shorten(1_000)  # patterns are compiled when they are first used
    few, many = calls_to_shorten(1_000), calls_to_shorten(4_000)
    assert many < 1.1 * few
