"""A series: every version stays what it was, whichever version grows."""

from __future__ import annotations

import gc
import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from eventctx.projections import transcript
from eventctx.projections.transcript import PackedLines, TranscriptLine
from eventctx.projections.view.series import Series


@given(steps=st.lists(st.tuples(st.integers(0, 30), st.lists(st.integers(), max_size=3))))
def test_no_version_ever_changes_whichever_one_grows(steps: list[tuple[int, list[int]]]) -> None:
    versions = [(Series[int](), list[int]())]
    for chosen, items in steps:
        series, model = versions[chosen % len(versions)]
        grown = series.append(items[0]) if len(items) == 1 else series.extend(items)
        versions.append((grown, model + items))
    for series, model in versions:
        assert list(series) == model
        assert len(series) == len(model)
        assert [series[n] for n in range(-len(model), len(model))] == model + model
        assert series[1:4] == model[1:4]


def test_the_first_items_are_a_version_that_grows_on_its_own() -> None:
    whole = Series([1, 2, 3])
    assert list(whole.first(2).append(9)) == [1, 2, 9]
    assert list(whole.first(7)) == list(whole) == [1, 2, 3]


LINES = st.builds(TranscriptLine, *[st.integers(0, 99)] * 3)


@given(steps=st.lists(st.tuples(st.integers(0, 30), st.lists(LINES, max_size=3))))
def test_packed_lines_are_a_series_like_any_other(
    steps: list[tuple[int, list[TranscriptLine]]],
) -> None:
    packed: list[Series[TranscriptLine]] = [Series.backed_by(PackedLines())]
    plain: list[list[TranscriptLine]] = [[]]
    for chosen, lines in steps:
        at = chosen % len(packed)
        packed.append(packed[at].extend(lines))
        plain.append(plain[at] + lines)
    for series, model in zip(packed, plain, strict=True):
        assert list(series) == series[:] == model
        assert [series[place] for place in range(len(model))] == model


def test_a_line_of_a_transcript_takes_the_memory_of_its_numbers() -> None:
    tracemalloc.start()
    try:
        state = transcript.add_messages(transcript.initial(), range(5, 50_005))
        gc.collect()
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 40 * 50_000
    assert state.lines[49_999] == transcript.TranscriptLine(49_999, 50_004, 0)
    assert state.lines[:2] == [(0, 5, 0), (1, 6, 0)]
