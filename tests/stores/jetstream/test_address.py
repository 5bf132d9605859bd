"""What the URL of a JetStream store and the environment say, and what is shown of it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventctx.errors import InvalidSetting
from eventctx.stores.jetstream.address import parse


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
