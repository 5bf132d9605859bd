"""Redaction takes time in proportion to a text, whatever the text: every form, by itself.

Texts that a form is tried on repeat its hints, with and without what may stand between, or go on
for long after one. So a form that is added is tried here, too.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import product

import pytest

from eventctx.hooks.redact import _EMAIL_STUMP, _KEY_STUMP, DEFAULT, _replace
from eventctx.hooks.secret_forms import Form
from eventctx.hooks.secret_names import EMAILS, KEYS
from tests.hooks.test_redact import BLOCK

SIZE = 16_000
QUICK = 0.002
"""Seconds in which a form reads ``SIZE`` characters: too quick for reading them many times."""
LINEAR = 9
"""Below it, the time of four times the text is in proportion; above it is the square's."""

GROUPS = KEYS + EMAILS
FORMS = [form for group in GROUPS for form in group.forms]
GATES = [group.gate for group in GROUPS if group.gate is not None]
SEPARATORS = ("", *' \n-:\\"a=', ': "', "='", "a1.")

HARD: dict[str, Callable[[int], str]] = {
    "letters": lambda n: "a" * n,
    "letters before an at sign": lambda n: "a" * n + "@",
    "dots": lambda n: "token:" + "a." * (n // 2) + "@x",
    "at signs": lambda n: "@" * n,
    "labels of a domain": lambda n: "a@" + "a." * (n // 2),
    "names": lambda n: "password=" * (n // 9),
    "quotes": lambda n: '"password":"' + '\\"' * (n // 2),
    "commas": lambda n: "password=" + "," * n,
    "blanks": lambda n: "password" + " " * n + "=",
    "backslashes": lambda n: "password" + "\\" * n,
    "key blocks that end": lambda n: BLOCK.format("END") * (n // 29),
    "a key block's lines": lambda n: "ab/ " * (n // 4) + "-----END",
    "key blocks that begin": lambda n: BLOCK.format("BEGIN") * (n // 31),
    "flags": lambda n: "--a" * (n // 3) + "token",
    "urls": lambda n: "://a:" * (n // 5),
    "tokens that begin": lambda n: "eyJaaaaaaaa." * (n // 12),
    "keys that begin": lambda n: "sk-" * (n // 3),
    "one long key": lambda n: "sk-" + "a" * n,
    "bearers": lambda n: "Bearer aaaaaaaaa " * (n // 17),
    "addresses": lambda n: "a@b.org-" * (n // 8),
    "secrets": lambda n: "x secret: ab1 " * (n // 14),
    "markers": lambda n: "password=[redacted:" * (n // 19),
    "cookies": lambda n: "Cookie:" * (n // 7),
    "tokens that begin behind a dash": lambda n: "-eyJaaaaaaaa" * (n // 12),
    "commands": lambda n: "curl \\" * (n // 6),
    "tags": lambda n: "<password>" * (n // 10),
}


def hard(hints: tuple[str, ...]) -> Iterator[Callable[[int], str]]:
    """Texts, by length, in which a form begins often, or reads far."""
    for hint, between in product(hints, SEPARATORS):
        yield lambda size, one=hint + between: one * (size // len(one))
        if between:
            yield lambda size, one=hint, rest=between: one + rest * (size // len(rest))


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
    (group,) = [one for one in GROUPS if one.gate is gate]
    for make in hard(tuple({hint for form in group.forms for hint in form.hints})):
        assert grows(make, gate.search) < LINEAR, make(80)


@pytest.mark.parametrize(
    "form", [*FORMS, _KEY_STUMP, _EMAIL_STUMP], ids=lambda form: form.pattern.pattern[:40]
)
def test_a_form_takes_time_in_proportion_to_any_text(form: Form) -> None:
    for make in hard(form.hints):
        growth = grows(make, lambda text: _replace(text, form))
        assert growth < LINEAR, make(80)


@pytest.mark.parametrize("make", HARD.values(), ids=HARD)
def test_redaction_as_a_whole_takes_time_in_proportion_to_any_text(
    make: Callable[[int], str],
) -> None:
    assert grows(make, DEFAULT.text) < LINEAR
