"""The checker of histories passes a sound one, and finds each thing that can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

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


def rules_after(broken: Break) -> set[str]:
    history, stored = sound()
    stored = broken(history, stored) or stored
    return {one.rule for one in check(history, stored)}


def cut(stored: Stored, stream: str, count: int) -> Stored:
    """The store without the last ``count`` records of a stream."""
    gone = {Seen.of(one) for one in stored.streams[stream][-count:]}
    streams = {**stored.streams, stream: stored.streams[stream][:-count]}
    return Stored(streams, [one for one in stored.log if one not in gone])


def test_a_sound_history_has_no_findings() -> None:
    assert check(*sound()) == []


def test_an_acknowledged_record_that_is_not_there_is_lost() -> None:
    assert {"lost", "delivered and not there"} <= rules_after(lambda _, s: cut(s, "a", 1))


def test_an_acknowledged_record_with_another_digest_is_lost() -> None:
    def other_digest(history: History, _: Stored) -> None:
        history.appends[1] = replace(history.appends[1], digests=(b"x" * 32,))

    assert rules_after(other_digest) == {"lost"}


def test_an_event_in_two_places_is_found() -> None:
    def twice(_: History, stored: Stored) -> Stored:
        a = list(stored.streams["a"])
        digest = chain_digest(a[-1].digest, 4, a[2])
        a.append(replace(a[2], position=4, global_position=20, digest=digest))
        return Stored({**stored.streams, "a": a}, [*stored.log, Seen.of(a[-1])])

    assert "duplicated" in rules_after(twice)


def test_a_hole_in_a_stream_is_found() -> None:
    def hole(_: History, stored: Stored) -> Stored:
        a = [one for one in stored.streams["a"] if one.position != 2]
        return Stored({**stored.streams, "a": a}, stored.log)

    assert {"gap", "chain broken", "lost", "log is not the streams"} <= rules_after(hole)


def test_a_changed_payload_breaks_the_chain() -> None:
    def changed(_: History, stored: Stored) -> None:
        stored.streams["b"][1] = replace(stored.streams["b"][1], payload=b"{}")  # type: ignore[index]

    assert rules_after(changed) == {"chain broken"}


@pytest.mark.parametrize("data", [b"other words", None])
def test_a_content_that_is_not_what_was_written_is_found(data: bytes | None) -> None:
    def changed(_: History, stored: Stored) -> None:
        one = stored.streams["b"][1]
        body = replace(one.bodies[0], data=data)
        stored.streams["b"][1] = replace(one, bodies=(body,))  # type: ignore[index]

    assert rules_after(changed) == {"content unsound"}


def test_two_acknowledged_appends_after_one_version_are_found() -> None:
    def twice(history: History, _: Stored) -> None:
        history.appends.append(replace(history.appends[1], writer=9))

    assert rules_after(twice) == {"one version twice"}


def test_an_append_that_was_acknowledged_at_another_place_is_found() -> None:
    def shifted(history: History, _: Stored) -> None:
        history.appends[1] = replace(history.appends[1], expected=0)

    assert rules_after(shifted) == {"one version twice"}


def test_half_of_an_append_without_an_answer_is_found() -> None:
    def half(history: History, stored: Stored) -> None:
        ids = (stored.streams["b"][2].id, b"m" * 16)
        history.appends[-3] = replace(
            history.appends[-3], ids=ids, outcome="unknown", digests=(), first=-1
        )

    assert rules_after(half) == {"half an append"}


def test_a_whole_append_without_an_answer_is_no_finding() -> None:
    def whole(history: History, _: Stored) -> None:
        history.appends[0] = replace(history.appends[0], outcome="unknown", digests=(), first=-1)

    assert rules_after(whole) == set()


def test_a_refused_append_that_is_there_is_found() -> None:
    def refused(history: History, _: Stored) -> None:
        history.appends[1] = replace(history.appends[1], outcome="refused", digests=(), first=-1)

    assert rules_after(refused) == {"refused and there"}


def test_a_record_that_nobody_wrote_is_found() -> None:
    def stranger(history: History, _: Stored) -> None:
        del history.appends[1]

    assert rules_after(stranger) == {"nobody's"}


def test_appends_of_one_writer_in_another_order_are_found() -> None:
    def swapped(history: History, _: Stored) -> None:
        first, second = history.appends[1], history.appends[2]
        history.appends[1] = replace(first, began=second.began, ended=second.ended)
        history.appends[2] = replace(second, began=first.began, ended=first.ended)

    assert "out of order" in rules_after(swapped)


def test_the_order_of_one_writer_over_streams_is_checked_where_there_is_one_log() -> None:
    history, stored = sound()
    history.appends[2] = replace(history.appends[2], writer=2, began=0.0, ended=0.5)
    assert {one.rule for one in check(history, stored, fresh_reads=False)} == {"out of order"}
    assert check(history, stored, one_order=False, fresh_reads=False) == []


@pytest.mark.parametrize("more", [False, True])
def test_a_log_that_is_not_the_union_of_the_streams_is_found(more: bool) -> None:
    def other(history: History, stored: Stored) -> Stored:
        log = list(stored.log)
        if more:
            log.append(log[-1]._replace(global_position=99))
        else:
            del log[3]
        history.delivered.clear()
        return Stored(stored.streams, log)

    assert rules_after(other) == {"log is not the streams"}


def test_a_log_that_does_not_rise_is_found() -> None:
    def unsorted(history: History, stored: Stored) -> Stored:
        history.delivered.clear()
        return Stored(stored.streams, stored.log[::-1])

    assert rules_after(unsorted) == {"log is not the streams"}


def test_a_read_without_what_was_acknowledged_is_found_unless_old_reads_are_allowed() -> None:
    history, stored = sound()
    history.looks.append(Look("b", 6.0, tuple(map(Seen.of, stored.streams["b"][:2]))))
    assert {one.rule for one in check(history, stored)} == {"short read"}
    assert check(history, stored, fresh_reads=False) == []


def test_a_read_with_a_hole_is_found_in_any_case() -> None:
    history, stored = sound()
    history.looks.append(Look("b", 0.0, tuple(map(Seen.of, stored.streams["b"][::2]))))
    assert {one.rule for one in check(history, stored, fresh_reads=False)} == {"short read"}


def test_a_subscriber_that_missed_a_record_is_found() -> None:
    def skipped(history: History, _: Stored) -> None:
        del history.delivered["log"][2]

    assert rules_after(skipped) == {"not delivered"}


def test_a_subscriber_that_got_a_record_twice_is_found() -> None:
    def twice(history: History, _: Stored) -> None:
        history.delivered["session:a"].insert(1, history.delivered["session:a"][0])

    assert rules_after(twice) == {"delivered twice"}


def test_a_subscriber_that_got_records_in_another_order_is_found() -> None:
    def swapped(history: History, _: Stored) -> None:
        history.delivered["session:b"].reverse()

    assert rules_after(swapped) == {"delivered out of order"}


def test_a_subscriber_that_got_what_is_not_there_is_found() -> None:
    def ghost(history: History, _: Stored) -> None:
        got = history.delivered["log"]
        got.append(got[-1]._replace(position=7, global_position=70))

    assert rules_after(ghost) == {"delivered and not there"}


def test_the_longest_wait_is_that_between_two_acknowledgements() -> None:
    history, _ = sound()
    assert history.longest_wait() == 2.0  # a@3 at 6.5 is last, b@2 at 5.5, a@2 at 4.5
    assert history.longest_wait(since=-5.0) == 5.5


def test_every_rule_has_a_history_here_that_breaks_it() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [rule for rule in RULES if f'"{rule}"' not in source] == []
