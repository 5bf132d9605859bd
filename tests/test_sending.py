"""Sending a session's spans from its log: whole, to whom it was asked, or with an error."""

from __future__ import annotations

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

import eventctx
from eventctx.cli.main import cli
from eventctx.cli.output.trace_outputs import BATCH, Collector
from eventctx.errors import ExportFailed, InvalidSetting
from eventctx.hooks.otlp import Sender
from eventctx.projections.trace.spans import Span
from tests.cli.conftest import Outcome, write
from tests.services.receiver import Partial, Receiver, Refuse

SPAN = Span("n", "internal", "a" * 32, "b" * 16, None, 1, 2, "unset", None, {"k": 1}, ())


def run(*arguments: object) -> Outcome:
    return Outcome(CliRunner().invoke(cli, [str(one) for one in arguments]))


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    await write(path, "work")
    return path


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_every_span_of_a_session_arrives_with_the_ids_and_times_of_its_log(
    store: Path, protocol: str
) -> None:
    with Receiver() as receiver:
        url = receiver.http if protocol == "http" else receiver.grpc.replace("http:", "grpc:")
        done = run("trace", "work", "--otlp", url, "--store", store)
        told = {one.span_id: one for one in receiver.spans}
    assert done.code == 0, done.err
    spans = [
        json.loads(line)
        for line in run("trace", "work", "--json", "--store", store).out.splitlines()
    ]
    assert told.keys() == {span["span_id"] for span in spans}
    assert f"sent {len(spans)} spans in 3 traces to {url}, as service eventctx" in done.err
    for span in spans:
        one = told[span["span_id"]]
        assert (one.trace_id, one.parent_span_id) == (span["trace_id"], span["parent_span_id"])
        assert (one.start_ns, one.end_ns, one.name) == (span["start"], span["end"], span["name"])
        assert one.attributes.keys() == span["attributes"].keys()
        assert one.resource["service.name"] == "eventctx"
        assert "service.instance.id" not in one.resource


@pytest.mark.slow
async def test_nothing_of_a_burst_of_100_000_spans_is_dropped() -> None:
    count = 100_000
    with Receiver() as receiver:
        collector = Collector(receiver.http)
        for start in range(0, count, BATCH):
            batch = [
                replace(SPAN, span_id=f"{number + 1:016x}", attributes={})
                for number in range(start, min(start + BATCH, count))
            ]
            await collector.put(batch)
        assert "sent 100,000 spans in 1 trace" in await collector.finish()
        assert len({one.span_id for one in receiver.spans}) == count


def test_a_collector_that_refuses_for_a_moment_gets_everything_in_the_end() -> None:
    with Receiver() as receiver:
        receiver.answer(Refuse(503, retry_after=0), Refuse(429, retry_after=0))
        Sender(receiver.http).send([SPAN])
        assert [one.span_id for one in receiver.spans] == [SPAN.span_id]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_collector_that_refuses_for_good_is_an_error_that_says_so(protocol: str) -> None:
    with Receiver() as receiver:
        receiver.always(Refuse(400))
        url = receiver.http if protocol == "http" else receiver.grpc.replace("http:", "grpc:")
        with pytest.raises(ExportFailed, match="did not take the spans") as failed:
            Sender(url, timeout=1).send([SPAN])
    assert failed.value.where == url
    assert failed.value.reason


@pytest.mark.slow
def test_when_nothing_listens_the_command_says_where_and_what_to_do(store: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        done = run("trace", "work", "--otlp", url, "--store", store)
    assert done.code == 3
    assert url in done.err
    assert "check that a collector or Jaeger listens there" in done.err
    assert "Traceback" not in done.err


def test_spans_that_a_collector_rejects_of_a_batch_do_not_stop_the_others() -> None:
    with Receiver() as receiver:
        receiver.answer(Partial(1))
        sender = Sender(receiver.http)
        sender.send([SPAN])
        sender.send([replace(SPAN, span_id="c" * 16)])
        assert len(receiver.exports) == 2


NO_URLS: list[Any] = [
    *("localhost:4317", "ftp://h:1", "http://", "http://h:99999", "grpc://", "x", "", "not a url"),
    *("http://[", "http://[::1", "http://a b:4318", "grpc://a\tb:4317", "http://ho%00st", "://x"),
    *("http://h:0", "http://h:-1", "http://h:99999999", "http://:4318", "http://a\ud800"),
    *(f"http://{'a' * 300}", 5, None, b"http://h:4318", ["http://h:4318"]),
]


@pytest.mark.parametrize("url", NO_URLS, ids=ascii)
def test_what_is_no_collectors_url_is_refused_with_an_example(url: Any) -> None:
    with pytest.raises(InvalidSetting, match=r"http://HOST:4318, grpc://HOST:4317"):
        Sender(url)


@pytest.mark.parametrize("url", ["", "not a url", "http://[", "ftp://x", "http://h:99999999"])
def test_the_command_refuses_what_is_no_url(url: str, store: Path) -> None:
    done = run("trace", "work", "--otlp", url, "--store", store)
    assert (done.code, done.out) == (2, "")
    assert "expected http://HOST:4318" in done.err
    assert "Traceback" not in done.err


def test_files_appear_whole_and_only_when_all_went_well(store: Path, tmp_path: Path) -> None:
    jaeger, otlp = tmp_path / "t.json", tmp_path / "t.jsonl"
    done = run("trace", "--all", "--jaeger", jaeger, "--otlp-file", otlp, "--store", store)
    assert done.code == 0, done.err
    spans = run("trace", "work", "--json", "--store", store).out.count("\n")
    assert f"wrote {jaeger}: {spans} spans in 3 traces" in done.err
    assert sum(len(trace["spans"]) for trace in json.loads(jaeger.read_text())["data"]) == spans
    lines = [json.loads(line) for line in otlp.read_text().splitlines()]
    sent = [one["resourceSpans"][0]["scopeSpans"][0]["spans"] for one in lines]
    assert sum(map(len, sent)) == spans

    before = jaeger.read_bytes()
    with Receiver() as receiver:
        receiver.always(Refuse(400))
        done = run("trace", "--all", "--jaeger", jaeger, "--otlp", receiver.http, "--store", store)
    assert done.code == 3
    assert jaeger.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir() if "part" in path.name) == []


def test_secrets_in_what_tools_said_are_sent_only_when_asked(tmp_path: Path) -> None:
    path, secret = tmp_path / "s.db", "sk-ant-api03-" + "a1B2" * 12
    asyncio.run(_told(path, secret))
    for options, there in (([], False), (["--content"], False), (["--no-redact"], True)):
        done = run("trace", "s", "--json", *options, "--store", path)
        assert done.code == 0, done.err
        assert (secret in done.out) is there
    assert "my key is" in run("trace", "s", "--json", "--content", "--store", path).out
    assert "my key is" not in run("trace", "s", "--json", "--store", path).out


async def _told(path: Path, secret: str) -> None:
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s")
        with pytest.raises(ValueError, match="denied"):
            async with ctx.turn() as turn, turn.iteration() as cycle:
                await ctx.add_message({"role": "user", "content": f"my key is {secret}"})
                async with cycle.tool_call("login", "c1"):
                    raise ValueError(f"denied for {secret}")


# -- passwords in the URLs of our own messages ---------------------------------------------------

GIVEN = "hunter2"


def with_password(url: str) -> str:
    """A URL with a user and the secret as password."""
    return url.replace("://", f"://bob:{GIVEN}@")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_password_of_a_collectors_url_is_sent_and_never_said(store: Path, protocol: str) -> None:
    with Receiver() as receiver:
        url = receiver.http if protocol == "http" else receiver.grpc.replace("http:", "grpc:")
        done = run("trace", "work", "--otlp", with_password(url), "--store", store)
    assert done.code == 0, done.err
    assert url.replace("://", "://bob:[redacted:password]@") in done.err
    assert GIVEN not in done.out + done.err


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_collector_that_refuses_is_named_without_the_password(protocol: str) -> None:
    with Receiver() as receiver:
        receiver.always(Refuse(400))
        url = receiver.http if protocol == "http" else receiver.grpc.replace("http:", "grpc:")
        with pytest.raises(ExportFailed, match=r"bob:.redacted:password.@") as failed:
            Sender(with_password(url), timeout=1).send([SPAN])
    assert GIVEN not in f"{failed.value} {failed.value.where} {failed.value.reason}"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_where_nothing_listens_is_said_without_the_password(store: Path, scheme: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"{scheme}://127.0.0.1:{taken.getsockname()[1]}"
        done = run("trace", "work", "--otlp", with_password(url), "--store", store)
    assert done.code == 3
    assert GIVEN not in done.out + done.err


@pytest.mark.parametrize("url", ["ftp://bob:hunter2@h:1", "bob:hunter2@h:4317"])
def test_a_url_that_is_refused_is_shown_without_its_password(store: Path, url: str) -> None:
    done = run("trace", "work", "--otlp", url, "--store", store)
    assert (done.code, GIVEN in done.err) == (2, False)
    assert "bob:[redacted:password]@h" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("sessions", "--store", "mysql://bob:hunter2@db.example.org/x"),
        ("verify", "no", "postgres://bob:hunter2@db.example.org/x"),
        ("trace", "--no=postgres://bob:hunter2@db.example.org/x"),
        ("export", "postgres://bob:hunter2@db.example.org/x"),
    ],
)
def test_an_error_shows_what_was_given_without_the_password_of_a_url(
    store: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.setenv("EVENTCTX_STORE", str(store))
    done = run(*arguments)
    assert done.code == 2
    assert GIVEN not in done.out + done.err


async def test_a_store_that_is_none_is_named_without_its_password() -> None:
    with pytest.raises(InvalidSetting, match=r"bob:.redacted:password.@db"):
        async with eventctx.open("mysql://bob:hunter2@db.example.org/x"):
            pass
