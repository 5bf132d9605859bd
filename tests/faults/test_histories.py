"""The checker of histories passes a sound one, and finds each thing that can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

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
    gone = Seen.of(stored.streams["a"][-1])
    streams = {**stored.streams, "a": stored.streams["a"][:-1]}
    return Stored(streams, [one for one in stored.log if one != gone])


def twice(_: History, stored: Stored) -> Stored:
    a = list(stored.streams["a"])
    digest = chain_digest(a[-1].digest, 4, a[2])
    a.append(replace(a[2], position=4, global_position=20, digest=digest))
    return Stored({**stored.streams, "a": a}, [*stored.log, Seen.of(a[-1])])


def hole(_: History, stored: Stored) -> Stored:
    a = [one for one in stored.streams["a"] if one.position != 2]
    return Stored({**stored.streams, "a": a}, stored.log)


def half(history: History, stored: Stored) -> None:
    ids = (stored.streams["b"][2].id, b"m" * 16)
    history.appends[-3] = replace(history.appends[-3], ids=ids, outcome="unknown", **UNANSWERED)


def swapped(history: History, _: Stored) -> None:
    first, second = history.appends[1], history.appends[2]
    history.appends[1] = replace(first, began=second.began, ended=second.ended)
    history.appends[2] = replace(second, began=first.began, ended=first.ended)


UNANSWERED: dict[str, Any] = {"digests": (), "first": -1}


def an_append(at: int, **changes: Any) -> Break:
    def broken(history: History, _: Stored) -> None:
        history.appends[at] = replace(history.appends[at], **changes)

    return broken


def a_record(**changes: Any) -> Break:
    def broken(_: History, stored: Stored) -> None:
        stored.streams["b"][1] = replace(stored.streams["b"][1], **changes)  # type: ignore[index]

    return broken


def a_content(data: bytes | None) -> Break:
    def broken(history: History, stored: Stored) -> None:
        body = replace(stored.streams["b"][1].bodies[0], data=data)
        a_record(bodies=(body,))(history, stored)

    return broken


def a_log(change: Callable[[list[Seen]], list[Seen]]) -> Break:
    """Another log, which nobody was told of."""

    def broken(history: History, stored: Stored) -> Stored:
        history.delivered.clear()
        return Stored(stored.streams, change(list(stored.log)))

    return broken


def told(name: str, change: Callable[[list[Seen]], Any]) -> Break:
    """Something else was delivered to a subscriber."""

    def broken(history: History, _: Stored) -> None:
        change(history.delivered[name])

    return broken


def a_look(history: History, stored: Stored) -> None:
    history.looks.append(Look("b", 0.0, tuple(map(Seen.of, stored.streams["b"][::2]))))


BROKEN: dict[str, tuple[Break, set[str]]] = {
    "a lost record": (cut, {"lost", "delivered and not there"}),
    "another digest": (an_append(1, digests=(b"x" * 32,)), {"lost"}),
    "twice": (twice, {"duplicated", "not delivered"}),
    "a hole": (hole, {"gap", "chain broken", "lost", "log is not the streams"}),
    "another payload": (a_record(payload=b"{}"), {"chain broken"}),
    "another content": (a_content(b"other words"), {"content unsound"}),
    "no content": (a_content(None), {"content unsound"}),
    "one version for two": (
        lambda history, _: history.appends.append(replace(history.appends[1], writer=9)),
        {"one version twice"},
    ),
    "acknowledged elsewhere": (an_append(1, expected=0), {"one version twice"}),
    "half": (half, {"half an append"}),
    "whole without an answer": (an_append(0, outcome="unknown", **UNANSWERED), set()),
    "refused": (an_append(1, outcome="refused", **UNANSWERED), {"refused and there"}),
    "a stranger's": (lambda history, _: history.appends.__delitem__(1), {"nobody's"}),
    "swapped": (swapped, {"out of order"}),
    "not in the log": (a_log(lambda log: log[:3] + log[4:]), {"log is not the streams"}),
    "only in the log": (
        a_log(lambda log: [*log, log[-1]._replace(global_position=99)]),
        {"log is not the streams"},
    ),
    "a falling log": (a_log(lambda log: log[::-1]), {"log is not the streams"}),
    "not delivered": (told("log", lambda got: got.pop(2)), {"not delivered"}),
    "delivered twice": (told("session:a", lambda got: got.insert(1, got[0])), {"delivered twice"}),
    "another order": (told("session:b", list.reverse), {"delivered out of order"}),
    "not there": (
        told("log", lambda got: got.append(got[-1]._replace(position=7, global_position=70))),
        {"delivered and not there"},
    ),
    "read with a hole": (a_look, {"short read"}),
}


def test_a_sound_history_has_no_findings() -> None:
    assert check(*sound()) == []


@pytest.mark.parametrize(("broken", "rules"), BROKEN.values(), ids=BROKEN)
def test_what_is_wrong_with_a_history_is_found(broken: Break, rules: set[str]) -> None:
    history, stored = sound()
    stored = broken(history, stored) or stored
    assert {one.rule for one in check(history, stored)} == rules


def test_every_rule_has_a_history_here_that_breaks_it() -> None:
    assert set().union(*(rules for _, rules in BROKEN.values())) == set(RULES)


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
