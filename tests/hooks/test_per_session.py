"""A sink's states by session and registry: which one a registry gets, and which one goes first."""

from __future__ import annotations

from eventctx.hooks.handlers import CALLING, PerSession, new_number


def calling(number: int) -> None:
    CALLING.number = number


def test_a_state_that_nobody_kept_is_everybodys_until_one_keeps_its_own() -> None:
    states, (one, two) = PerSession[str](4), (new_number(), new_number())
    try:
        assert states.keep("s", "history") is None
        for number in (one, two):
            calling(number)
            assert states.get("s") == "history"
        states.keep("s", "two's")
        assert states.get("s") == "two's"
        calling(one)
        assert states.get("s") is None
    finally:
        calling(0)


def test_the_least_recently_kept_goes_first_and_is_returned() -> None:
    states = PerSession[str](2)
    assert [states.keep(name, name) for name in ("a", "b", "a")] == [None, None, None]
    assert states.keep("c", "c") == "b"
    assert [states.get(name) for name in ("a", "b", "c")] == ["a", None, "c"]
