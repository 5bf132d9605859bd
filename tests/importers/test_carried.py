"""The messages that a sent message carries, and the texts that a client injects."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from eventctx.importers.recording.carried import find_carried

WORDS = st.text("ab \n", min_size=1, max_size=12)


def user(*texts: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text} for text in texts]}


def result(call: str, content: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call, "content": content}
    return {"role": "user", "content": [block]}


def joined(*messages: dict[str, Any]) -> dict[str, Any]:
    return {"role": "user", "content": [block for one in messages for block in one["content"]]}


@given(st.lists(WORDS, max_size=4), st.lists(WORDS, min_size=1, max_size=4))
def test_a_message_among_reminders_is_carried_and_they_are_injected(
    reminders: list[str], words: list[str]
) -> None:
    marked = [f"<reminder>{one}</reminder>" for one in reminders]
    found = find_carried(user(*marked, *words), [user(*words)])
    assert found.messages == (0,)
    assert [span.place[1] for span in found.injected] == list(range(len(marked)))
    assert [(span.start, span.end) for span in found.injected] == [(0, len(m)) for m in marked]


@given(st.lists(WORDS, min_size=1, max_size=3), WORDS)
def test_results_joined_in_one_message_are_all_carried_each_with_its_own_note(
    outputs: list[str], note: str
) -> None:
    messages = [result(f"t{number}", one) for number, one in enumerate(outputs)]
    noted = [result(f"t{number}", f"{one}\n\n<note>{note}") for number, one in enumerate(outputs)]
    found = find_carried(joined(*noted), messages)
    assert found.messages == tuple(range(len(outputs)))
    for number, one in enumerate(outputs):
        (span,) = [span for span in found.injected if span.place[1] == number]
        assert (span.start, span.end) == (len(one), len(one) + len(note) + 8)


@given(st.lists(WORDS, max_size=4), st.lists(st.lists(WORDS, max_size=3), max_size=4))
def test_every_character_is_carried_or_injected_and_never_both(
    sent: list[str], messages: list[list[str]]
) -> None:
    found = find_carried(user(*sent), [user(*texts) for texts in messages])
    for index, text in enumerate(sent):
        spans = [s for s in found.injected if s.place == ("content", index, "text")]
        assert all(0 <= s.start < s.end <= len(text) for s in spans)
        assert all(a.end <= b.start for a, b in pairwise(spans))
        kept = "".join(
            text[a:b]
            for a, b in zip(
                [0, *[s.end for s in spans]], [*[s.start for s in spans], len(text)], strict=True
            )
        )
        assert not kept or any(
            piece in kept for number in found.messages for piece in messages[number]
        )


def test_a_word_inside_of_a_reminder_is_not_a_person_s_message() -> None:
    found = find_carried(user("<reminder>is it ok now?</reminder>"), [user("ok")])
    assert found.messages == ()


def test_an_image_is_carried_though_it_has_no_text() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x"}}
    marked = {**image, "cache_control": {"type": "ephemeral"}}
    messages = [{"role": "user", "content": [image]}, result("t1", [image])]
    assert find_carried({"role": "user", "content": [marked]}, messages).messages == (0,)
    assert find_carried(result("t1", [image]), messages).messages == (1,)
