"""What the store writes down: URLs, names, and the messages of an append."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventctx.errors import InvalidSetting, WrongExpectedVersion
from eventctx.log.record import Body, Draft, Record
from eventctx.log.store import ANY, NO_STREAM, STREAM_EXISTS, Expected, Last
from eventctx.stores.jetstream.address import parse
from eventctx.stores.jetstream.append import NOTHING, QueuedAppend, Tip, Try, Undecided, made_before
from eventctx.stores.jetstream.layout import Names, joined_body, name_of, part_of, split_body, token
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


NAMED = {"NATS_USER": "me", "NATS_PASSWORD": "word"}
OWN_AUTHORITY = {"tls_ca": str(Path("~/own.pem").expanduser())}


@pytest.mark.parametrize(
    ("url", "environment", "expected"),
    [
        ("nats://abc@a", {}, (None, None, "abc", {})),
        ("nats://a", NAMED | {"NATS_CA": "/ca"}, ("me", "word", None, {"tls_ca": "/ca"})),
        ("nats://you:other@a/?tls_ca=~/own.pem", NAMED, ("you", "other", None, OWN_AUTHORITY)),
        ("nats://a/?creds=/my.creds", NAMED, (None, None, None, {"creds": "/my.creds"})),
    ],
)
def test_the_environment_of_the_nats_command_counts_where_the_url_says_nothing(
    url: str, environment: dict[str, str], expected: tuple[Any, ...]
) -> None:
    found = parse(url, environment)
    assert (found.user, found.password, found.token, found.files) == expected
    assert found.token is None or found.options() == {"token": "abc"}


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
def test_a_position_tells_its_place(shards: int, shard: int, sequence: int, ordinal: int) -> None:
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
def test_a_body_in_several_messages_comes_back(
    data: bytes, facts: bytes, salt: bytes, most: int
) -> None:
    body = Body(b"d" * 32, facts, data, salt)
    messages = split_body(body, most)
    assert joined_body(body.digest, messages) == body
    assert [part_of(message.headers) for message in messages] == [
        (number, len(messages)) for number in range(1, len(messages) + 1)
    ]
    erased = Body(body.digest, facts, erased=True)  # before it came
    assert joined_body(body.digest, split_body(erased, most)) == erased


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


WRONG = WrongExpectedVersion
FIRST = make_draft(seed="first of the batch")


@pytest.mark.parametrize(
    ("log", "current", "queued", "outcome"),
    [
        # A leader that is behind the end at which it was sent proves no conflict.
        ((40,), True, tried(45, Try(45, 46)), Undecided),
        # Another record stands where it was sent, or took the place of the first of its batch.
        ((46, OTHER), True, tried(45, Try(45, 46)), WRONG),
        ((46, OTHER), True, tried(Last(46, FIRST.id), Try(45, 47)), WRONG),
        # It is sent again behind the end that it expects.
        ((46,), True, tried(45, Try(45, 46)), None),
        # An end that a leader does not know is wrong only if it hears of the others.
        ((40,), False, tried(45), Undecided),
        ((40,), False, tried(Last(45, OTHER.id)), Undecided),
        ((40,), True, tried(45), WRONG),
        ((40,), True, tried(Last(45, OTHER.id)), WRONG),
        # A session that must exist is missing only if the leader hears of the others.
        ((), False, tried(STREAM_EXISTS), Undecided),
        ((), True, tried(STREAM_EXISTS), WRONG),
        # A leader that has too much needs to hear of nobody.
        ((3,), False, tried(NO_STREAM), WRONG),
    ],
)
async def test_what_a_leader_has_decides_whether_an_append_is_refused_or_sent_again(
    log: tuple[Any, ...], current: bool, queued: QueuedAppend, outcome: type[Exception] | None
) -> None:
    leader = Log(current=current)
    tip = await (await leader.filled(*log)).tip("s") if log else NOTHING
    if outcome is None:
        assert await made_before(leader, queued, tip) is None
        return
    with pytest.raises(outcome) as caught:
        await made_before(leader, queued, tip)
    if isinstance(caught.value, WRONG):
        assert caught.value.actual == tip.position


async def test_it_is_found_where_it_was_sent_though_others_were_stored_behind_it() -> None:
    log = await Log().filled(46, MINE, OTHER)
    done = await made_before(log, tried(ANY, Try(40, 41), Try(45, 46)), await log.tip("s"))
    assert done and (done.records[0].position, done.records[0].id) == (46, MINE.id)
