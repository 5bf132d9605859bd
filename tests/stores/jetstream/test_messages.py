"""What the store writes down: URLs, names, and the messages of an append."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventctx.errors import InvalidSetting, WrongExpectedVersion
from eventctx.log.record import Body, Draft, Record
from eventctx.log.store import ANY, NO_STREAM, STREAM_EXISTS, Expected, Last
from eventctx.stores.jetstream.address import parse
from eventctx.stores.jetstream.append import (
    NOTHING,
    QueuedAppend,
    Tip,
    Try,
    Undecided,
    made_before,
)
from eventctx.stores.jetstream.layout import (
    Names,
    joined_body,
    name_of,
    part_of,
    split_body,
    token,
)
from eventctx.stores.memory import MemoryStore
from eventctx.testing.store_contract.drafts import gather, make_draft


def test_a_url_names_servers_credentials_and_settings() -> None:
    found = parse(
        "nats://me:p%40ss@a:4222,b,c:4224/?name=TEAM&shards=8&monitor=http://a:8222/,http://b:8222",
        {},
    )
    assert found.servers == ("nats://a:4222", "nats://b", "nats://c:4224")
    assert (found.user, found.password, found.token) == ("me", "p@ss", None)
    assert (found.name, found.shards) == ("TEAM", 8)
    assert found.monitors == ("http://a:8222", "http://b:8222")
    assert found.options() == {"user": "me", "password": "p@ss"}


def test_a_user_without_a_password_is_a_token() -> None:
    found = parse("nats://abc@a", {})
    assert (found.user, found.token) == (None, "abc")
    assert found.options() == {"token": "abc"}


def test_the_environment_of_the_nats_command_counts_where_the_url_says_nothing() -> None:
    named = {"NATS_USER": "me", "NATS_PASSWORD": "word", "NATS_CA": "/ca.pem"}
    found = parse("nats://a", named)
    assert (found.user, found.password) == ("me", "word")
    assert found.files == {"tls_ca": "/ca.pem"}
    given = parse("nats://you:other@a/?tls_ca=~/own.pem", named)
    assert (given.user, given.password) == ("you", "other")
    assert given.files == {"tls_ca": str(Path("~/own.pem").expanduser())}


def test_a_creds_file_takes_the_place_of_a_user_of_the_environment() -> None:
    found = parse("nats://a/?creds=/my.creds", {"NATS_USER": "me", "NATS_PASSWORD": "word"})
    assert (found.user, found.files) == (None, {"creds": "/my.creds"})


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("nats:///x", "expected nats://HOST"),
        ("nats://a/database", "the path '/database'"),
        ("nats://a/?durability=full", "'durability'"),
        ("nats://a/?name=a.b", "expected a name"),
        ("nats://a/?shards=0", "from 1 to 256"),
        ("nats://a/?shards=many", "from 1 to 256"),
    ],
)
def test_a_url_that_means_nothing_is_said_so(url: str, problem: str) -> None:
    with pytest.raises(InvalidSetting, match=problem):
        parse(url, {})


def test_files_that_cannot_be_read_are_named_by_the_setting() -> None:
    with pytest.raises(InvalidSetting, match="tls_ca"):
        parse("nats://a/?tls_ca=/nowhere.pem", {}).options()


URLISH = st.text(st.sampled_from("ab:@,/?&=#%[].0149\\ \n\u00e9") | st.characters())


@given(URLISH)
@example("[")
@example("[::1")
@example("a:port")
@example("a:99999")
@example(",")
@example("a@")
def test_any_text_is_an_address_or_an_invalid_setting(rest: str) -> None:
    try:
        found = parse("nats://" + rest, {})
    except InvalidSetting:
        return
    assert found.servers
    for server in found.servers:
        # What nats-py does with it.
        parts = urlsplit(server)
        assert parts.hostname
        assert parts.port is None or 0 < parts.port < 65536


@given(URLISH, URLISH)
def test_whatever_stands_around_a_password_it_is_not_shown(before: str, behind: str) -> None:
    word = "SeCrEtWoRd"
    url = f"nats://{before}:{word}@{behind}"
    try:
        shown = parse(url, {}).place
    except InvalidSetting as error:
        shown = str(error)
    assert word not in shown


@given(st.text())
def test_any_name_is_one_token_and_comes_back(name: str) -> None:
    written = token(name)
    assert re.fullmatch(r"[A-Za-z0-9_=-]+", written)
    assert name_of(written) == name


@given(st.text(), st.text())
def test_two_names_never_share_a_token(one: str, other: str) -> None:
    assert (token(one) == token(other)) is (one == other)


@given(st.integers(1, 256), st.integers(0, 255), st.integers(0, 2**40), st.integers(0, 1023))
def test_a_global_position_tells_its_place(
    shards: int, shard: int, sequence: int, ordinal: int
) -> None:
    names = Names("N", shards)
    shard %= shards
    position = names.global_position(shard, sequence, ordinal)
    assert names.place(position) == (shard, sequence, ordinal)


@given(
    st.binary(max_size=5000),
    st.binary(max_size=3000),
    st.binary(max_size=40),
    st.sampled_from([300, 1000, 70_000]),
)
def test_a_body_in_any_number_of_messages_comes_back(
    data: bytes, facts: bytes, salt: bytes, most: int
) -> None:
    body = Body(b"d" * 32, facts, data, salt)
    messages = split_body(body, most)
    assert joined_body(body.digest, messages) == body
    assert [part_of(message.headers) for message in messages] == [
        (number, len(messages)) for number in range(1, len(messages) + 1)
    ]


def test_a_body_that_was_erased_before_it_came_stays_so() -> None:
    body = Body(b"d" * 32, b"facts", erased=True)
    assert joined_body(body.digest, split_body(body, 2**20)) == body


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
