"""Sending a session's spans from its log: whole, to whom it was asked, or with an error."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
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
from tests.how_much import some
from tests.services.certificates import make_certificates
from tests.services.receiver import Accept, Hang, Partial, Receiver, Refuse, Say

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
async def test_nothing_of_a_burst_of_spans_is_dropped() -> None:
    count = some(6_000, 100_000)  # the queue of a usual exporter holds 2,048
    with Receiver() as receiver:
        collector = Collector(receiver.http)
        for start in range(0, count, BATCH):
            batch = [
                replace(SPAN, span_id=f"{number + 1:016x}", attributes={})
                for number in range(start, min(start + BATCH, count))
            ]
            await collector.put(batch)
        assert f"sent {count:,} spans in 1 trace" in await collector.finish()
        assert len({one.span_id for one in receiver.spans}) == count


def test_a_collector_that_refuses_for_a_moment_gets_everything_in_the_end() -> None:
    with Receiver() as receiver:
        receiver.answer(Refuse(503, retry_after=0), Refuse(429, retry_after=0))
        Sender(receiver.http).send([SPAN])
        assert [one.span_id for one in receiver.spans] == [SPAN.span_id]


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_where_nobody_listens_at_first_is_said_without_a_retry(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventctx.hooks.delivery.time.monotonic", lambda: 0.0)  # no time goes by
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        sender = Sender(f"{scheme}://127.0.0.1:{taken.getsockname()[1]}", timeout=1e9)
        with pytest.raises(ExportFailed, match="connection refused, nobody listens there"):
            sender.send([SPAN])
    sender.close()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_spans_that_a_collector_rejects_of_a_batch_do_not_stop_the_others_and_are_told_at_the_end(
    protocol: str,
) -> None:
    with Receiver() as receiver:
        receiver.answer(Partial(1, "too old"), Accept(), Partial(1, "too long"))
        sender = Sender(url_of(receiver, protocol))
        for number in range(3):
            sender.send(spans(2, first=2 * number))
        assert len(receiver.spans) == sender.arrived == 4
        with pytest.raises(ExportFailed, match="rejected 2 of 6 spans: too old; 4 arrived") as told:
            sender.finish()
    assert (told.value.arrived, told.value.rejected, told.value.reason) == (4, 2, "too old")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_what_a_collector_remarks_of_spans_that_it_took_is_shown_once(
    store: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventctx.cli.output.trace_outputs.BATCH_TEXT", 1)
    with Receiver() as receiver:
        receiver.always(Partial(0, "an old schema"))
        url = url_of(receiver, protocol)
        done = run("trace", "--all", "--otlp", url, "--store", store)
        assert len(receiver.exports) > 1
    assert done.code == 0
    assert done.err.count(f"{url} took the spans, and says: an old schema") == 1
    assert "sent" in done.err


PROTOBUF = "application/x-protobuf"
NO_ANSWERS = {
    "a web interface": (
        Say(200, b"<html><head><title>Jaeger UI</title>", "text/html; charset=utf-8"),
        "answers 200 OK with text/html (a page with the title 'Jaeger UI'), which is no OTLP",
    ),
    "a login page": (
        Say(302, headers=(("Location", "https://login.example.org/"),)),
        "answers 302 Found and sends to https://login.example.org/",
    ),
    "half a protobuf": (Say(200, b"\x0a\x14\x08\x01", PROTOBUF), "4 bytes is no OTLP answer"),
    "an answer that breaks off": (Say(200, b"", PROTOBUF, missing=9), "its answer broke off"),
    "another JSON": (
        Say(200, b'{"error":"no such tenant"}', "application/json"),
        'its answer is JSON, but no OTLP answer: {"error":"no such tenant"}',
    ),
    "a text": (Say(200, b"  ok\n", "text/plain"), "200 OK with text/plain (ok), which is no OTLP"),
    "a refusal": (Say(401, b"no key\x1b[31m", "text/plain"), "401 Unauthorized: no key\\x1b[31m"),
}


@pytest.mark.parametrize("case", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_an_answer_that_is_no_otlp_answer_is_a_failure_that_shows_it(
    case: tuple[Say, str], monkeypatch: pytest.MonkeyPatch, store: Path
) -> None:
    monkeypatch.setattr("eventctx.hooks.delivery.random.uniform", lambda *_: 1e9)  # no retry
    answer, told = case
    with Receiver() as receiver:
        receiver.always(answer)
        done = run("trace", "work", "--otlp", receiver.http, "--store", store)
        assert len(receiver.exports) == 1
    assert done.code == 3
    assert told in done.err
    assert "sent" not in done.err.replace("send", "")


@pytest.mark.parametrize(
    "answer",
    [
        Say(200, b"{}", "application/json"),
        Say(200, b'{"partialSuccess":{}}', "application/json; charset=utf-8"),
        Say(200, b"", PROTOBUF),
        Say(202),
    ],
    ids=str,
)
def test_every_form_of_an_otlp_answer_is_a_success(answer: Say) -> None:
    with Receiver() as receiver:
        receiver.answer(answer)
        sender = Sender(receiver.http)
        assert sender.send([SPAN]) == ""
        sender.finish()
    assert sender.arrived == 1


def test_rejected_spans_are_read_from_json_too() -> None:
    body = b'{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}}'
    with Receiver() as receiver:
        receiver.answer(Say(200, body, "application/json"))
        sender = Sender(receiver.http)
        sender.send(spans(3))
        with pytest.raises(ExportFailed, match="rejected 1 of 3 spans: too old"):
            sender.finish()


@pytest.mark.parametrize(
    ("protocol", "scheme", "told"),
    [
        ("grpc", "http", "it does not speak HTTP; if that is a port of gRPC, write grpc://"),
        ("http", "grpc", "no gRPC is spoken there; for OTLP by HTTP, write http://"),
        ("http", "https", "no secure connection: "),
        ("grpc", "grpcs", "[Hh]andshake failed"),
    ],
)
def test_the_port_of_another_protocol_is_told_at_once(
    protocol: str, scheme: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventctx.hooks.delivery.random.uniform", lambda *_: pytest.fail("retried"))
    with Receiver() as receiver:
        address = url_of(receiver, protocol).partition("://")[2].removesuffix("/v1/traces")
        with pytest.raises(ExportFailed, match=told):
            Sender(f"{scheme}://{address}").send([SPAN])
        assert receiver.exports == ()


@pytest.mark.parametrize("answer", [Refuse(429, 60), Refuse(503, 60)])
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_one_who_wants_to_be_asked_later_than_we_wait_is_not_waited_for(
    answer: Refuse, protocol: str
) -> None:
    with Receiver() as receiver:
        receiver.always(answer)
        with pytest.raises(ExportFailed, match="to be asked again after 60 s"):
            Sender(url_of(receiver, protocol)).send([SPAN])
        assert len(receiver.exports) == 1


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_one_who_wants_to_be_asked_again_without_a_pause_is_not_asked_for_ever(
    protocol: str,
) -> None:
    with Receiver() as receiver:
        receiver.always(Refuse(429, 0))
        with pytest.raises(ExportFailed, match="to be asked again after 0 s; none had arrived"):
            Sender(url_of(receiver, protocol), timeout=60).send([SPAN])
        assert len(receiver.exports) == 6


def test_the_first_error_is_told_before_the_last_one_and_how_much_arrived() -> None:
    with Receiver() as receiver:
        receiver.answer(Accept(), Say(503, b"full", "text/plain", (("Retry-After", "0"),)))
        receiver.always(Say(401, b"and now no key", "text/plain"))
        sender = Sender(receiver.http)
        sender.send(spans(5))
        with pytest.raises(ExportFailed) as failed:
            sender.send(spans(5, first=5))
    first = "503 Service Unavailable: full, to be asked again after 0 s"
    assert failed.value.reason == f"{first}; at last: 401 Unauthorized: and now no key"
    assert failed.value.arrived == 5
    assert "5 spans had arrived before" in str(failed.value)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there, Ctrl-C is no signal of one process")
@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_ctrl_c_ends_it_while_a_collector_hangs_and_says_how_much_arrived(
    store: Path, protocol: str
) -> None:
    with Receiver() as receiver:
        receiver.always(Hang(600))
        command = [sys.executable, "-m", "eventctx.cli", "trace", "work", "--store", str(store)]
        url = url_of(receiver, protocol)
        with subprocess.Popen([*command, "--otlp", url], stderr=subprocess.PIPE) as going:
            receiver.wait_for_exports(1, 60)
            going.send_signal(signal.SIGINT)
            _, err = going.communicate(timeout=60)
    assert going.returncode == 130
    lines = [f"eventctx: 0 spans had arrived at {url}", "eventctx: stopped"]
    assert [line for line in err.decode().splitlines() if line] == lines


# -- sizes ---------------------------------------------------------------------------------------

LONG = {"text": "x" * 100_000}


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_batch_goes_in_requests_that_a_receiver_takes_by_default(protocol: str) -> None:
    with Receiver() as receiver:  # gRPC's own server: it refuses more than 4 MiB
        sender = Sender(url_of(receiver, protocol))
        sender.send(spans(100, attributes=LONG))
        sender.finish()
        sizes = [len(export.spans) for export in receiver.exports]
        assert [one.span_id for one in receiver.spans] == [one.span_id for one in spans(100)]
    assert sizes == [41, 41, 18]


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_receiver_with_a_lower_limit_gets_everything_in_smaller_requests(protocol: str) -> None:
    with Receiver() as receiver:
        receiver.take_at_most(1_000_000)
        sender = Sender(url_of(receiver, protocol))
        for first in (0, 30):
            sender.send(spans(30, first=first, attributes=LONG))
        sender.finish()
        assert len({one.span_id for one in receiver.spans}) == sender.arrived == 60
        refused = [export for export in receiver.exports if export.answer != Accept()]
    assert len(refused) <= 2, "what it takes is learnt from the first batch"


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_span_that_is_too_large_by_itself_is_named_and_the_others_arrive(protocol: str) -> None:
    giant = replace(SPAN, name="giant", attributes={"text": "x" * 5_000_000})
    with Receiver() as receiver:
        receiver.take_at_most(4_000_000)
        sender = Sender(url_of(receiver, protocol))
        sender.send([*spans(3), giant, *spans(3, first=3)])
        assert len(receiver.spans) == sender.arrived == 6
        with pytest.raises(ExportFailed, match=r"the span 'giant' of 5,000,\d+ bytes is too large"):
            sender.finish()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_receiver_to_which_everything_is_too_large_is_not_asked_for_every_span(
    protocol: str,
) -> None:
    with Receiver() as receiver:
        receiver.take_at_most(10)
        with pytest.raises(ExportFailed):
            Sender(url_of(receiver, protocol)).send(spans(500))
        assert len(receiver.exports) == 1


# -- OpenTelemetry's environment variables -------------------------------------------------------


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_headers_are_those_of_the_environment(
    protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=all")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "X-Tenant=agents,x-key=a%20b")
    with Receiver() as receiver:
        Sender(url_of(receiver, protocol)).send([SPAN])
        (export,) = receiver.exports
    assert (export.headers["x-tenant"], export.headers["x-key"]) == ("agents", "a b")
    assert export.headers["user-agent"].startswith("eventctx/")


@pytest.mark.parametrize("url", ["grpcs://127.0.0.1:1", "https://127.0.0.1:1"])
def test_a_certificate_that_is_not_there_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such.pem")
    with pytest.raises(InvalidSetting, match=r"CERTIFICATE: expected a file .* '/no/such.pem'"):
        Sender(url)


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_certificates_are_those_of_the_environment(
    protocol: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_certificates(tmp_path)
    with Receiver(tmp_path) as receiver:
        url = url_of(receiver, protocol).replace("http:", "https:").replace("grpc:", "grpcs:")
        with pytest.raises(ExportFailed):
            Sender(url, timeout=2).send([SPAN])
        for name, file in (
            ("CERTIFICATE", "ca.pem"),
            ("CLIENT_CERTIFICATE", "server.pem"),
            ("CLIENT_KEY", "server-key.pem"),
        ):
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{name}", str(tmp_path / file))
        sender = Sender(url)
        sender.send([SPAN])
        sender.finish()
        assert len(receiver.spans) == 1


def spans(count: int, first: int = 0, attributes: dict[str, Any] | None = None) -> list[Span]:
    """Spans with the ids ``first`` and after."""
    return [
        replace(SPAN, span_id=f"{number + 1:016x}", attributes=attributes or {})
        for number in range(first, first + count)
    ]


def url_of(receiver: Receiver, protocol: str) -> str:
    return receiver.http if protocol == "http" else receiver.grpc.replace("http:", "grpc:")


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


def test_a_remark_on_one_request_is_not_taken_for_the_reason_of_a_rejection_by_the_next() -> None:
    with Receiver() as receiver:
        receiver.answer(Partial(0, "an old schema"), Partial(1, "too long"))
        sender = Sender(receiver.http)
        assert sender.send(spans(60, attributes=LONG)) == ""
        with pytest.raises(ExportFailed, match="rejected 1 of 60 spans: too long"):
            sender.finish()


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_a_collector_that_refuses_for_good_is_an_error_that_says_so(protocol: str) -> None:
    with Receiver() as receiver:
        receiver.always(Refuse(400))
        url = receiver.http if protocol == "http" else receiver.grpc.replace("http:", "grpc:")
        with pytest.raises(ExportFailed, match="did not take the spans") as failed:
            Sender(url, timeout=1).send([SPAN])
    assert failed.value.where == url
    assert failed.value.reason


@pytest.mark.parametrize("url", ["grpcs://127.0.0.1:1", "https://127.0.0.1:1"])
def test_a_credential_provider_that_is_not_installed_is_named(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for protocol in ("GRPC", "HTTP"):
        name = f"OTEL_PYTHON_EXPORTER_OTLP_{protocol}_TRACES_CREDENTIAL_PROVIDER"
        monkeypatch.setenv(name, "nobody")
    with pytest.raises(InvalidSetting, match=r"expected the name of an installed .* 'nobody'"):
        Sender(url)
