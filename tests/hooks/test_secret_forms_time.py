"""Redaction takes time in proportion to a text, whatever the text: every form, by itself.

The texts are made from the forms: whatever a pattern may begin to read is repeated, with and
without what may stand between. So a form that is added is tried here, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import chain, product
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any

import pytest

from eventctx.hooks.redact import _EMAIL_STUMP, _KEY_STUMP, DEFAULT, _replace
from eventctx.hooks.secret_forms import Form
from eventctx.hooks.secret_names import EMAILS, KEYS

SIZE = 16_000
QUICK = 0.002
"""Seconds in which a form reads ``SIZE`` characters: too quick for reading them many times."""
LINEAR = 9
"""Below it, the time of four times the text is in proportion; above it is the square's."""
MOST = 10
"""Beginnings of a pattern that are tried."""

FORMS = [form for group in KEYS + EMAILS for form in group.forms]
GATES = [group.gate for group in KEYS + EMAILS if group.gate is not None]
SEPARATORS = ("", *' \n-:\\"a')
LETTERS = "aA1-._=:/ \\\"'\n\t@<>\u00e9"


# -- the beginnings of what a pattern reads ------------------------------------------------------


def beginnings(pattern: re.Pattern[str], most: int = MOST) -> list[str]:
    """Texts that a pattern may read before it fails: every part of its shortest matches."""
    found: dict[str, None] = {}
    for whole in _texts(_parser.parse(pattern.pattern, pattern.flags)):
        for end in range(1, len(whole) + 1):
            if end == len(whole) or not whole[end - 1 : end + 1].isalnum():
                found[whole[:end]] = None
    return _some(list(found), most)


def _some(texts: list[str], most: int) -> list[str]:
    """At most so many of the texts, from all parts of the list, with the first and the last."""
    last = len(texts) - 1
    return [texts[place * last // (most - 1)] for place in range(most)] if last >= most else texts


def _texts(nodes: Any, most: int = 12) -> list[str]:
    """Some of the texts that a parsed pattern matches, its lookarounds aside."""
    texts = [""]
    for kind, value in nodes:
        if kind is op.ASSERT and value[0] < 0:
            joined = [_behind(text, one) for text, one in product(texts, _texts(value[1]))]
        elif kind is op.GROUPREF:
            joined = [text + re.findall(r"\w+", text)[0] for text in texts]  # the name of a tag
        else:
            joined = [text + one for text, one in product(texts, _choices(kind, value))]
        texts = _some(joined, most)
    return texts


def _behind(text: str, wanted: str) -> str:
    """``text`` with what must stand before its end."""
    return wanted if wanted.endswith(text) else text if text.endswith(wanted) else text + wanted


def _choices(kind: Any, value: Any) -> list[str]:
    if kind is op.LITERAL:
        return [chr(value)]
    if kind is op.NOT_LITERAL:
        return [one for one in LETTERS if ord(one) != value][:2]
    if kind is op.ANY:
        return ["a", "-"]
    if kind is op.IN:
        return _of_class(value)
    if kind is op.BRANCH:
        return list(chain.from_iterable(_texts(branch, 3) for branch in value[1]))
    if kind is op.SUBPATTERN:
        return _texts(value[3])
    if kind is op.ATOMIC_GROUP:
        return _texts(value)
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        least, most, inner = value
        return [one * count for one in _texts(inner, 3) for count in {least, min(most, least + 2)}]
    return [""]  # a lookaround, an anchor


def _of_class(items: Any) -> list[str]:
    """Up to three of the characters of a class, of different sorts."""
    text = "".join([chr(number) for number in range(33, 127)]) + " \n\t"
    negated = items and items[0][0] is op.NEGATE
    inside = [one for one in text if any(_is_in(one, item) for item in items) != bool(negated)]
    digits = [one for one in inside if one.isdigit()]
    return list(dict.fromkeys([inside[0], *digits[:1], inside[-1]]))


def _is_in(character: str, item: Any) -> bool:
    kind, value = item
    if kind is op.LITERAL:
        return ord(character) == value
    if kind is op.RANGE:
        return value[0] <= ord(character) <= value[1]
    if kind is op.CATEGORY:
        return _CATEGORIES[value](character)
    return False


_CATEGORIES: dict[Any, Callable[[str], bool]] = {
    op.CATEGORY_DIGIT: str.isdigit,
    op.CATEGORY_NOT_DIGIT: lambda one: not one.isdigit(),
    op.CATEGORY_SPACE: str.isspace,
    op.CATEGORY_NOT_SPACE: lambda one: not one.isspace(),
    op.CATEGORY_WORD: lambda one: one.isalnum() or one == "_",
    op.CATEGORY_NOT_WORD: lambda one: not (one.isalnum() or one == "_"),
}


def hard(pattern: re.Pattern[str]) -> Iterator[Callable[[int], str]]:
    """Texts, by length, that make a pattern begin often, or read far."""
    for begun, between in product(beginnings(pattern), SEPARATORS):
        yield lambda size, one=begun + between: one * (size // len(one))
        if between:
            yield lambda size, one=begun, rest=between: one + rest * size


# -- the time ------------------------------------------------------------------------------------


def seconds(work: Callable[[], object], times: int = 1) -> float:
    """The least of some measures: what others do on the machine only ever adds to it."""
    taken = []
    for _ in range(times):
        begun = time.process_time()
        work()
        taken.append(time.process_time() - begun)
    return min(taken)


def grows(make: Callable[[int], str], work: Callable[[str], object]) -> float:
    """How many times as long four times the text takes: 4 where linear, 16 where quadratic.

    0 for a text that is read too quickly to be measured.
    """
    part, whole = make(SIZE), make(4 * SIZE)
    once = seconds(lambda: work(part))
    if once < QUICK:
        return 0
    once = min(once, seconds(lambda: work(part)))
    growth = seconds(lambda: work(whole)) / once
    if growth < LINEAR:
        return growth
    return seconds(lambda: work(whole), 3) / min(once, seconds(lambda: work(part), 3))


@pytest.mark.parametrize("gate", GATES, ids=lambda gate: gate.pattern[:40])
def test_a_gate_takes_time_in_proportion_to_any_text(gate: re.Pattern[str]) -> None:
    for make in hard(gate):
        assert grows(make, gate.search) < LINEAR, make(80)


@pytest.mark.parametrize(
    "form", [*FORMS, _KEY_STUMP, _EMAIL_STUMP], ids=lambda form: form.pattern.pattern[:40]
)
def test_a_form_takes_time_in_proportion_to_any_text(form: Form) -> None:
    for make in hard(form.pattern):
        growth = grows(make, lambda text: _replace(text, form))
        assert growth < LINEAR, make(80)


def test_the_beginnings_of_a_form_reach_to_its_end() -> None:
    missing = [
        form.pattern.pattern
        for form in FORMS
        if not any(map(form.pattern.search, beginnings(form.pattern, 1000)))
    ]
    assert missing == []


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.pattern.pattern[:40])
def test_redaction_as_a_whole_takes_time_in_proportion_to_any_text(form: Form) -> None:
    for begun in beginnings(form.pattern)[-3:]:
        for between in ("", " ", "\n"):
            growth = grows(lambda size, one=begun + between: one * (size // len(one)), DEFAULT.text)
            assert growth < LINEAR, begun + between
