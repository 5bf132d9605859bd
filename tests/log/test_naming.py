"""Names of messages, records and requests are written and read in one way."""

from __future__ import annotations

import pytest

from eventctx.errors import InvalidSetting
from eventctx.log import naming
from eventctx.log.naming import RequestName


def test_names_are_written_in_one_way() -> None:
    assert naming.message_name(6) == "#6"
    assert naming.range_name(3, 9) == "#3–#9"
    assert naming.range_name(3, 3) == "#3"
    assert naming.ranges_name([(3, 9), (12, 12)]) == "#3–#9, #12"
    assert naming.position_name(48) == "@48"
    assert naming.request_name(2, 3, 48) == "2.3"


@pytest.mark.parametrize(("turn", "iteration"), [(None, None), (2, None), (None, 3)])
def test_a_request_outside_a_turn_or_an_iteration_is_named_by_its_position(
    turn: int | None, iteration: int | None
) -> None:
    assert naming.request_name(turn, iteration, 48) == "@48"


def test_what_is_written_is_read_and_plain_numbers_too() -> None:
    assert naming.read_message("#6") == naming.read_message("6") == 6
    assert naming.read_position("@48") == naming.read_position(" 48 ") == 48
    assert naming.read_request("2.3") == RequestName(2, 3)
    assert naming.read_request("2") == RequestName(2)
    assert naming.read_request("@48") == RequestName(position=48)


@pytest.mark.parametrize("text", ["", "#", "#-1", "six", "@6", "6.1", "٦", "9" * 19])
def test_another_text_is_no_message_and_the_error_says_what_is(text: str) -> None:
    with pytest.raises(InvalidSetting, match="expected a message such as #6 or 6, found"):
        naming.read_message(text)


def test_a_range_of_messages_is_read_as_it_is_written() -> None:
    written = naming.range_name(3, 6)
    for text in (written, "3-6", "#3-#6", "3 – 6"):
        assert naming.read_messages(text) == (3, 4, 5, 6)
    assert naming.read_messages("#6") == (6,)


@pytest.mark.parametrize("text", ["#6–#3", "0-999999999999"])
def test_an_empty_or_an_enormous_range_is_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="expected a range of 1 to 100,000 messages"):
        naming.read_messages(text)
