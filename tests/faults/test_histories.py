"""The checker of histories passes a sound one, and finds each thing that can be wrong."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from eventctx.log.record import GENESIS, Record, chain_digest, place
from eventctx.testing.store_contract.drafts import make_draft
from tests.faults.histories import RULES, Append, History, Look, Seen, Stored, check


def chained(stream: str, count: int, first: int) -> list[Record]:
    """A stream of ``count`` records that alternate in the log with those of another stream."""
    records: list[Record] = []
    digest = GENESIS
    for position in range(count):
        draft = make_draft(f"{stream} {position}", seed=f"{stream} {position}")
        digest = chain_digest(digest, position, draft)
        records.append(place(draft, stream, position, first + 2 * position, digest))
    return records


def appended(record: Record, *more: Record, writer: int = 1) -> Append:
    """The acknowledged append of these records, at the time of their place in the log."""
    records = (record, *more)
    return Append(
        writer,
        record.stream,
        record.position - 1,
        tuple(one.id for one in records),
        float(record.global_position),
        record.global_position + 0.5,
        "acknowledged",
        tuple(one.digest for one in records),
        record.position,
    )


def sound() -> tuple[History, Stored]:
    """Two streams: of ``a`` an append of two records and two of one, of ``b`` three of one."""
    streams = {"a": chained("a", 4, 0), "b": chained("b", 3, 1)}
    a, b = streams["a"], streams["b"]
    log = sorted((Seen.of(one) for one in (*a, *b)), key=lambda one: one.global_position)
    history = History(
        appends=[
            appended(a[0], a[1]),
            appended(a[2]),
            appended(a[3]),
            *(appended(one, writer=2) for one in b),
            Append(3, "a", 0, (b"r" * 16,), 3.0, 4.0, "refused"),
            Append(3, "a", 3, (b"u" * 16,), 9.0, 10.0, "unknown"),
        ],
        looks=[Look("a", 2.0, tuple(map(Seen.of, a)))],
        delivered={
            "log": list(log),
            "session:a": list(map(Seen.of, a)),
            "session:b": list(map(Seen.of, b)),
        },
    )
    return history, Stored(streams, log)


Break = Callable[[History, Stored], Stored | None]


def cut(history: History, stored: Stored) -> Stored:
    """Without the last record of a stream."""
    gone = Seen.of(stored.streams["a"][-1])
    streams = {**stored.streams, "a": stored.streams["a"][:-1]}
    return Stored(streams, [one for one in stored.log if one != gone])


def other_digest(history: History, _: Stored) -> None:
    history.appends[1] = replace(history.appends[1], digests=(b"x" * 32,))


def twice(_: History, stored: Stored) -> Stored:
    a = list(stored.streams["a"])
    digest = chain_digest(a[-1].digest, 4, a[2])
    a.append(replace(a[2], position=4, global_position=20, digest=digest))
    return Stored({**stored.streams, "a": a}, [*stored.log, Seen.of(a[-1])])


def hole(_: History, stored: Stored) -> Stored:
    a = [one for one in stored.streams["a"] if one.position != 2]
    return Stored({**stored.streams, "a": a}, stored.log)


def other_payload(_: History, stored: Stored) -> None:
    stored.streams["b"][1] = replace(stored.streams["b"][1], payload=b"{}")  # type: ignore[index]


def other_content(_: History, stored: Stored) -> None:
    one = stored.streams["b"][1]
    body = replace(one.bodies[0], data=b"other words")
    stored.streams["b"][1] = replace(one, bodies=(body,))  # type: ignore[index]


def no_content(_: History, stored: Stored) -> None:
    one = stored.streams["b"][1]
    body = replace(one.bodies[0], data=None)
    stored.streams["b"][1] = replace(one, bodies=(body,))  # type: ignore[index]


def one_version_for_two(history: History, _: Stored) -> None:
    history.appends.append(replace(history.appends[1], writer=9))


def acknowledged_elsewhere(history: History, _: Stored) -> None:
    history.appends[1] = replace(history.appends[1], expected=0)


def half(history: History, stored: Stored) -> None:
    ids = (stored.streams["b"][2].id, b"m" * 16)
    unanswered = replace(history.appends[-3], ids=ids, outcome="unknown", digests=(), first=-1)
    history.appends[-3] = unanswered


def whole_without_an_answer(history: History, _: Stored) -> None:
    history.appends[0] = replace(history.appends[0], outcome="unknown", digests=(), first=-1)


def refused(history: History, _: Stored) -> None:
    history.appends[1] = replace(history.appends[1], outcome="refused", digests=(), first=-1)


def stranger(history: History, _: Stored) -> None:
    del history.appends[1]


def swapped(history: History, _: Stored) -> None:
    first, second = history.appends[1], history.appends[2]
    history.appends[1] = replace(first, began=second.began, ended=second.ended)
    history.appends[2] = replace(second, began=first.began, ended=first.ended)


def not_in_the_log(history: History, stored: Stored) -> Stored:
    history.delivered.clear()
    return Stored(stored.streams, [one for at, one in enumerate(stored.log) if at != 3])


def only_in_the_log(history: History, stored: Stored) -> Stored:
    history.delivered.clear()
    ghost = stored.log[-1]._replace(global_position=99)
    return Stored(stored.streams, [*stored.log, ghost])


def falling_log(history: History, stored: Stored) -> Stored:
    history.delivered.clear()
    return Stored(stored.streams, stored.log[::-1])


def not_delivered(history: History, _: Stored) -> None:
    del history.delivered["log"][2]


def delivered_twice(history: History, _: Stored) -> None:
    history.delivered["session:a"].insert(1, history.delivered["session:a"][0])


def delivered_in_another_order(history: History, _: Stored) -> None:
    history.delivered["session:b"].reverse()


def delivered_and_not_there(history: History, _: Stored) -> None:
    got = history.delivered["log"]
    got.append(got[-1]._replace(position=7, global_position=70))


def read_with_a_hole(history: History, stored: Stored) -> None:
    history.looks.append(Look("b", 0.0, tuple(map(Seen.of, stored.streams["b"][::2]))))


BROKEN: dict[Break, set[str]] = {
    cut: {"lost", "delivered and not there"},
    other_digest: {"lost"},
    twice: {"duplicated", "not delivered"},
    hole: {"gap", "chain broken", "lost", "log is not the streams"},
    other_payload: {"chain broken"},
    other_content: {"content unsound"},
    no_content: {"content unsound"},
    one_version_for_two: {"one version twice"},
    acknowledged_elsewhere: {"one version twice"},
    half: {"half an append"},
    whole_without_an_answer: set(),
    refused: {"refused and there"},
    stranger: {"nobody's"},
    swapped: {"out of order"},
    not_in_the_log: {"log is not the streams"},
    only_in_the_log: {"log is not the streams"},
    falling_log: {"log is not the streams"},
    not_delivered: {"not delivered"},
    delivered_twice: {"delivered twice"},
    delivered_in_another_order: {"delivered out of order"},
    delivered_and_not_there: {"delivered and not there"},
    read_with_a_hole: {"short read"},
}


def test_a_sound_history_has_no_findings() -> None:
    assert check(*sound()) == []


@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: one.__name__)
def test_what_is_wrong_with_a_history_is_found(broken: Break) -> None:
    history, stored = sound()
    stored = broken(history, stored) or stored
    assert {one.rule for one in check(history, stored)} == BROKEN[broken]


def test_every_rule_has_a_history_here_that_breaks_it() -> None:
    assert set().union(*BROKEN.values()) == set(RULES)


def test_the_order_of_one_writer_over_streams_is_checked_where_there_is_one_log() -> None:
    history, stored = sound()
    history.appends[2] = replace(history.appends[2], writer=2, began=0.0, ended=0.5)
    assert {one.rule for one in check(history, stored, fresh_reads=False)} == {"out of order"}
    assert check(history, stored, one_order=False, fresh_reads=False) == []


def test_a_read_without_what_was_acknowledged_is_found_unless_old_reads_are_allowed() -> None:
    history, stored = sound()
    history.looks.append(Look("b", 6.0, tuple(map(Seen.of, stored.streams["b"][:2]))))
    assert {one.rule for one in check(history, stored)} == {"short read"}
    assert check(history, stored, fresh_reads=False) == []


def test_the_longest_wait_is_that_between_two_acknowledgements() -> None:
    history, _ = sound()
    assert history.longest_wait() == 2.0  # a@3 at 6.5 is last, b@2 at 5.5, a@2 at 4.5
    assert history.longest_wait(since=-5.0) == 5.5
