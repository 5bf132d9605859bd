"""A series: every version stays what it was, whichever version grows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
