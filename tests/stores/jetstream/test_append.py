"""What the end of a session, as a leader has it, tells of an append that had no answer."""

from __future__ import annotations

import pytest

from eventctx.errors import WrongExpectedVersion
from eventctx.log.record import Draft, Record
from eventctx.log.store import ANY, NO_STREAM, STREAM_EXISTS, Expected, Last
from eventctx.stores.jetstream.append import (
    NOTHING,
    QueuedAppend,
    Tip,
    Try,
    Undecided,
    made_before,
)
from eventctx.stores.memory import MemoryStore
from eventctx.testing.store_contract.drafts import gather, make_draft

MINE, OTHER = make_draft(seed="mine"), make_draft(seed="other")


class Log:
    """What a leader has of the session ``s``, kept in a memory store; it may be cut off."""

    def __init__(self, *, current: bool = True) -> None:
        self.store = MemoryStore()
        self._current = current

    async def filled(self, count: int, *last: Draft) -> Log:
        drafts = [make_draft(seed=f"record {number}") for number in range(count)]
        await self.store.append("s", [*drafts, *last], ANY)
        return self

    async def tip(self, session: str) -> Tip:
        records = await gather(self.store.read(session))
        return Tip(len(records) - 1, records[-1].digest, records[-1].id, 100)

    async def records(self, session: str, first: int, last: int) -> list[Record]:
        return await gather(self.store.read(session, start=first, stop=last))

    async def current(self, session: str) -> bool:
        return self._current


def tried(expected: Expected, *tries: Try) -> QueuedAppend:
    return QueuedAppend("s", (MINE,), expected, 100, tried=list(tries))


async def test_a_leader_that_is_behind_the_end_at_which_it_was_sent_proves_no_conflict() -> None:
    log = await Log().filled(40)
    with pytest.raises(Undecided):
        await made_before(log, tried(45, Try(45, 46)), await log.tip("s"))


async def test_it_is_refused_when_another_record_stands_where_it_was_sent() -> None:
    log = await Log().filled(46, OTHER)
    with pytest.raises(WrongExpectedVersion) as caught:
        await made_before(log, tried(45, Try(45, 46)), await log.tip("s"))
    assert caught.value.actual == 46


async def test_it_is_found_where_it_was_sent_though_others_were_stored_behind_it() -> None:
    log = await Log().filled(46, MINE, OTHER)
    done = await made_before(log, tried(ANY, Try(40, 41), Try(45, 46)), await log.tip("s"))
    assert done is not None
    assert (done.records[0].position, done.records[0].id) == (46, MINE.id)


async def test_it_is_refused_when_another_took_the_place_of_the_first_of_its_batch() -> None:
    log = await Log().filled(46, OTHER)
    behind_another = tried(Last(46, make_draft(seed="first of the batch").id), Try(45, 47))
    with pytest.raises(WrongExpectedVersion):
        await made_before(log, behind_another, await log.tip("s"))


async def test_it_is_sent_again_behind_the_end_that_it_expects() -> None:
    log = await Log().filled(46)
    assert await made_before(log, tried(45, Try(45, 46)), await log.tip("s")) is None


@pytest.mark.parametrize("expected", [45, Last(45, OTHER.id)])
async def test_an_end_that_a_leader_does_not_know_is_wrong_only_if_it_hears_of_the_others(
    expected: Expected,
) -> None:
    cut_off = await Log(current=False).filled(40)
    with pytest.raises(Undecided):
        await made_before(cut_off, tried(expected), await cut_off.tip("s"))
    whole = await Log().filled(40)
    with pytest.raises(WrongExpectedVersion):
        await made_before(whole, tried(expected), await whole.tip("s"))


async def test_a_session_that_must_exist_is_missing_only_if_the_leader_hears_of_the_others() -> (
    None
):
    with pytest.raises(Undecided):
        await made_before(Log(current=False), tried(STREAM_EXISTS), NOTHING)
    with pytest.raises(WrongExpectedVersion):
        await made_before(Log(), tried(STREAM_EXISTS), NOTHING)


async def test_a_leader_that_has_too_much_needs_to_hear_of_nobody() -> None:
    log = await Log(current=False).filled(3)
    with pytest.raises(WrongExpectedVersion):
        await made_before(log, tried(NO_STREAM), await log.tip("s"))
