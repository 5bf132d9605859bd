"""Whatever is written as a URL is read or refused, in one line and without its password."""

from __future__ import annotations

import asyncio
import traceback

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventctx.errors import InvalidSetting, StoreUnavailable
from eventctx.stores.postgres import store
from eventctx.stores.postgres.connections import ServerConnection, parse_url
from eventctx.stores.postgres.store import PostgresStore

PASSWORD = "hunter2hunter"  # noqa: S105
pieces = st.lists(
    st.sampled_from(
        [*"[]:/?#@&=+% '\\\0\ud800\n", "%00", "%zz", "schema=", "host=", "port=", "::1"]
    )
    | st.text(max_size=3),
    max_size=12,
).map("".join)
FORMS = (
    "postgresql://{0}",
    "postgresql://ann:PASSWORD{0}@h{1}",
    "postgresql://ann:{0}PASSWORD@h{1}",
    "postgresql://ann:{0}PASSWORD{1}@h/db",
    "postgresql://h{0}?password=PASSWORD{1}",
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(FORMS), pieces, pieces)
@example("postgresql://ann:{0}PASSWORD@h{1}", "?schema=", "")
def test_any_text_is_read_or_refused_and_never_shows_its_password(form, one, other) -> None:
    try:
        read = parse_url(form.format(one, other).replace("PASSWORD", PASSWORD))
    except InvalidSetting as error:
        assert PASSWORD not in "".join(traceback.format_exception(error))
        assert "\n" not in str(error)
    else:
        assert PASSWORD not in read.shown


@pytest.mark.parametrize("url", ["postgresql://[::1", "postgresql://h\0", "postgresql://h\udc80"])
def test_a_broken_url_is_a_wrong_setting(url) -> None:
    with pytest.raises(InvalidSetting):
        parse_url(url)


@pytest.mark.parametrize("password", ["se@cret", "se/cret", "/", "@@"])
def test_a_password_that_would_be_read_as_a_host_is_refused(password) -> None:
    with pytest.raises(InvalidSetting, match="write those of a name or a password as %40"):
        parse_url(f"postgresql://ann:{password}@h/db")


def test_a_wrong_parameter_is_named_without_its_value() -> None:
    with pytest.raises(InvalidSetting, match=r"\['password', 'nonsense'\]") as raised:
        parse_url("postgresql://h/db?password=hunter&nonsense=17")
    assert "hunter" not in str(raised.value) and "17" not in str(raised.value)


def test_the_servers_options_reach_it_with_their_blanks(postgres_url) -> None:
    options = "-c%20work_mem%3D9MB%20-c%20lock_timeout%3D7s"
    url = f"{postgres_url}?options={options}&schema=x"
    connection = ServerConnection(parse_url(url))
    assert connection.rows("SELECT current_setting('work_mem'), current_setting('lock_timeout')")[
        0
    ] == ("9MB", "7s")
    connection.close()


@pytest.mark.parametrize("url", ["postgresql://127.0.0.1:1/x", "postgresql:///x?host=/nowhere"])
async def test_a_server_that_was_never_reached_is_given_up_soon_and_in_one_line(
    url, monkeypatch
) -> None:
    monkeypatch.setattr(store, "_FIRST_SECONDS", 0.2)
    # The patience for a server that was lost in use is 60 s.
    with pytest.raises(StoreUnavailable) as raised:
        async with asyncio.timeout(60):
            await PostgresStore.open(url)
    assert "\n" not in str(raised.value)
