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
from tests.hooks.observing import receiver as receiver
from tests.how_much import some
from tests.services.certificates import make_certificates
from tests.services.receiver import Accept, Hang, Partial, Receiver, Refuse, Say
from tests.sessions import user

SPAN = Span("n", "internal", "a" * 32, "b" * 16, None, 1, 2, "unset", None, {"k": 1}, ())
LONG = {"text": "x" * 100_000}
GIVEN = "hunter2"


def run(*arguments: object) -> Outcome:
    return Outcome(CliRunner().invoke(cli, [str(one) for one in arguments]))


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    path = tmp_path / "s.db"
    await write(path, "work")
    return path


@pytest.fixture(params=["grpc", "http"])
def url(request: pytest.FixtureRequest, receiver: Receiver) -> str:
    return url_of(receiver, request.param)


def url_of(receiver: Receiver, protocol: str) -> str:
    return receiver.http if protocol == "http" else receiver.grpc.replace("http:", "grpc:")


def spans(count: int, first: int = 0, attributes: dict[str, Any] | None = None) -> list[Span]:
    return [
        replace(SPAN, span_id=f"{number + 1:016x}", attributes=attributes or {})
        for number in range(first, first + count)
    ]


def delivered(url: str, *batches: list[Span]) -> int:
    """Send all; how many arrived."""
    sender = Sender(url)
    assert {sender.send(batch) for batch in batches} == {""}
    sender.finish()
    return sender.arrived


def test_every_span_arrives_with_the_ids_and_times_of_its_log_and_no_password_is_said(
    store: Path, receiver: Receiver, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-tenant=all")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_HEADERS", "X-Tenant=agents,x-key=a%20b")
    given = url.replace("://", f"://bob:{GIVEN}@")
    done = run("trace", "work", "--otlp", given, "--store", store)
    told = {one.span_id: one for one in receiver.spans}
    assert done.code == 0, done.err
    spans = run("trace", "work", "--json", "--store", store).lines
    assert told.keys() == {span["span_id"] for span in spans}
    shown = url.replace("://", "://bob:[redacted:password]@")
    assert f"sent {len(spans)} spans in 3 traces to {shown}, as service eventctx" in done.err
    assert GIVEN not in done.out + done.err
    for span in spans:
        one = told[span["span_id"]]
        assert (one.trace_id, one.parent_span_id) == (span["trace_id"], span["parent_span_id"])
        assert (one.start_ns, one.end_ns, one.name) == (span["start"], span["end"], span["name"])
        assert one.attributes.keys() == span["attributes"].keys()
        assert one.resource["service.name"] == "eventctx"
        assert "service.instance.id" not in one.resource
    for export in receiver.exports:
        assert (export.headers["x-tenant"], export.headers["x-key"]) == ("agents", "a b")
        assert export.headers["user-agent"].startswith("eventctx/")


@pytest.mark.slow
async def test_nothing_of_a_burst_of_spans_is_dropped(receiver: Receiver) -> None:
    count = some(6_000, 100_000)  # the queue of a usual exporter holds 2,048
    collector = Collector(receiver.http)
    for start in range(0, count, BATCH):
        await collector.put(spans(min(BATCH, count - start), start))
    assert f"sent {count:,} spans in 1 trace" in await collector.finish()
    assert len({one.span_id for one in receiver.spans}) == count


def test_a_collector_that_refuses_for_a_moment_gets_all_in_the_end(receiver: Receiver) -> None:
    receiver.answer(Refuse(503, retry_after=0), Refuse(429, retry_after=0))
    assert delivered(receiver.http, [SPAN]) == 1
    assert [one.span_id for one in receiver.spans] == [SPAN.span_id]


@pytest.mark.parametrize("scheme", ["grpc", "http"])
def test_where_nobody_listens_is_said_without_a_retry(
    scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventctx.hooks.delivery.time.monotonic", lambda: 0.0)  # no time goes by
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        sender = Sender(f"{scheme}://127.0.0.1:{taken.getsockname()[1]}", timeout=1e9)
        with pytest.raises(ExportFailed, match="connection refused, nobody listens there"):
            sender.send([SPAN])
    sender.close()


def test_spans_that_a_collector_rejects_of_a_batch_do_not_stop_the_others_and_are_told_at_the_end(
    receiver: Receiver, url: str
) -> None:
    receiver.answer(Partial(1, "too old"), Accept(), Partial(1, "too long"))
    sender = Sender(url)
    for number in range(3):
        sender.send(spans(2, first=2 * number))
    assert len(receiver.spans) == sender.arrived == 4
    with pytest.raises(ExportFailed, match="rejected 2 of 6 spans: too old; 4 arrived") as told:
        sender.finish()
    assert (told.value.arrived, told.value.rejected, told.value.reason) == (4, 2, "too old")


def test_what_a_collector_remarks_of_spans_that_it_took_is_shown_once(
    store: Path, receiver: Receiver, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventctx.cli.output.trace_outputs.BATCH_TEXT", 1)
    receiver.always(Partial(0, "an old schema"))
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
    case: tuple[Say, str], monkeypatch: pytest.MonkeyPatch, store: Path, receiver: Receiver
) -> None:
    monkeypatch.setattr("eventctx.hooks.delivery.random.uniform", lambda *_: 1e9)  # no retry
    receiver.always(case[0])
    done = run("trace", "work", "--otlp", receiver.http, "--store", store)
    assert (len(receiver.exports), done.code) == (1, 3)
    assert case[1] in done.err
    assert "sent" not in done.err.replace("send", "")


def test_every_form_of_an_otlp_answer_is_a_success(receiver: Receiver) -> None:
    for answer in (
        Say(200, b"{}", "application/json"),
        Say(200, b'{"partialSuccess":{}}', "application/json; charset=utf-8"),
        *(Say(200, b"", PROTOBUF), Say(202)),
    ):
        receiver.answer(answer)
        assert delivered(receiver.http, [SPAN]) == 1


REJECTED = b'{"partialSuccess":{"rejectedSpans":"1","errorMessage":"too old"}}'


def test_rejected_spans_are_told_with_their_own_reason_from_json_too(receiver: Receiver) -> None:
    receiver.answer(Say(200, REJECTED, "application/json"))
    with pytest.raises(ExportFailed, match="rejected 1 of 3 spans: too old"):
        delivered(receiver.http, spans(3))
    # A remark on one request is not the reason of a rejection by the next.
    receiver.answer(Partial(0, "an old schema"), Partial(1, "too long"))
    with pytest.raises(ExportFailed, match="rejected 1 of 60 spans: too long"):
        delivered(receiver.http, spans(60, attributes=LONG))


def test_the_port_of_another_protocol_is_told_at_once(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eventctx.hooks.delivery.random.uniform", lambda *_: pytest.fail("retried"))
    for protocol, scheme, told in (
        ("grpc", "http", "it does not speak HTTP; if that is a port of gRPC, write grpc://"),
        ("http", "grpc", "no gRPC is spoken there; for OTLP by HTTP, write http://"),
        ("http", "https", "no secure connection: "),
        ("grpc", "grpcs", "[Hh]andshake failed"),
    ):
        address = url_of(receiver, protocol).partition("://")[2].removesuffix("/v1/traces")
        with pytest.raises(ExportFailed, match=told):
            Sender(f"{scheme}://{address}").send([SPAN])
    assert receiver.exports == ()


@pytest.mark.parametrize(
    ("answer", "asked"), [(Refuse(429, 60), 1), (Refuse(503, 60), 1), (Refuse(429, 0), 6)]
)
def test_one_who_wants_to_be_asked_too_late_or_without_a_pause_is_not_asked_for_ever(
    receiver: Receiver, url: str, answer: Refuse, asked: int
) -> None:
    receiver.always(answer)
    told = f"to be asked again after {answer.retry_after} s; none had arrived"
    with pytest.raises(ExportFailed, match=told):
        Sender(url, timeout=59).send([SPAN])
    assert len(receiver.exports) == asked


def test_the_first_error_is_told_before_the_last_and_how_much_arrived(receiver: Receiver) -> None:
    receiver.answer(Accept(), Say(503, b"full", "text/plain", (("Retry-After", "0"),)))
    receiver.always(Say(401, b"and now no key", "text/plain"))
    with pytest.raises(ExportFailed, match="5 spans had arrived before") as failed:
        delivered(receiver.http, spans(5), spans(5, first=5))
    first = "503 Service Unavailable: full, to be asked again after 0 s"
    assert failed.value.reason == f"{first}; at last: 401 Unauthorized: and now no key"
    assert failed.value.arrived == 5


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="there, Ctrl-C is no signal of one process")
def test_ctrl_c_ends_it_while_a_collector_hangs_and_says_how_much_arrived(
    store: Path, receiver: Receiver, url: str
) -> None:
    receiver.always(Hang(600))
    command = [sys.executable, "-m", "eventctx.cli", "trace", "work", "--store", str(store)]
    with subprocess.Popen([*command, "--otlp", url], stderr=subprocess.PIPE) as going:
        receiver.wait_for_exports(1, 60)
        going.send_signal(signal.SIGINT)
        _, err = going.communicate(timeout=60)
    assert going.returncode == 130
    lines = [f"eventctx: 0 spans had arrived at {url}", "eventctx: stopped"]
    assert [line for line in err.decode().splitlines() if line] == lines


# -- sizes ---------------------------------------------------------------------------------------


def test_a_batch_goes_in_requests_that_receivers_take_by_default(
    receiver: Receiver, url: str
) -> None:
    delivered(url, spans(100, attributes=LONG))  # gRPC's own server refuses more than 4 MiB
    assert [len(export.spans) for export in receiver.exports] == [41, 41, 18]
    assert [one.span_id for one in receiver.spans] == [one.span_id for one in spans(100)]


def test_a_receiver_with_a_lower_limit_gets_smaller_requests(receiver: Receiver, url: str) -> None:
    receiver.take_at_most(1_000_000)
    batches = [spans(30, first=first, attributes=LONG) for first in (0, 30)]
    assert delivered(url, *batches) == len({one.span_id for one in receiver.spans}) == 60
    refused = [export for export in receiver.exports if export.answer != Accept()]
    assert len(refused) <= 2, "what it takes is learnt from the first batch"


@pytest.mark.slow
def test_a_span_that_is_too_large_is_named_and_the_others_arrive(
    receiver: Receiver, url: str
) -> None:
    giant = replace(SPAN, name="giant", attributes={"text": "x" * 5_000_000})
    receiver.take_at_most(4_000_000)
    with pytest.raises(
        ExportFailed, match=r"the span 'giant' of 5,000,\d+ bytes is too large"
    ) as failed:
        delivered(url, [*spans(3), giant, *spans(3, first=3)])
    assert len(receiver.spans) == failed.value.arrived == 6


def test_a_receiver_to_which_all_is_too_large_is_asked_once(receiver: Receiver, url: str) -> None:
    receiver.take_at_most(10)
    with pytest.raises(ExportFailed):
        Sender(url).send(spans(500))
    assert len(receiver.exports) == 1


# -- OpenTelemetry's environment variables -------------------------------------------------------


@pytest.mark.parametrize(("protocol", "scheme"), [("GRPC", "grpcs"), ("HTTP", "https")])
def test_a_certificate_or_a_provider_of_credentials_that_is_not_there_is_named(
    protocol: str, scheme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = f"OTEL_PYTHON_EXPORTER_OTLP_{protocol}_TRACES_CREDENTIAL_PROVIDER"
    for name, value, told in (
        (provider, "nobody", r"name of an installed .* 'nobody'"),
        ("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such.pem", r"a file .* '/no/such.pem'"),
    ):
        with monkeypatch.context() as patch, pytest.raises(InvalidSetting, match=told):
            patch.setenv(name, value)
            Sender(f"{scheme}://127.0.0.1:1")


@pytest.mark.parametrize("protocol", ["grpc", "http"])
def test_certificates_are_those_of_the_environment(
    protocol: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    make_certificates(tmp_path)
    with Receiver(tmp_path) as receiver:
        url = url_of(receiver, protocol).replace("http:", "https:").replace("grpc:", "grpcs:")
        with pytest.raises(ExportFailed):
            Sender(url, timeout=2).send([SPAN])
        files = {"": "ca.pem", "CLIENT_": "server.pem"}
        for whose, file in files.items():
            monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{whose}CERTIFICATE", str(tmp_path / file))
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_CLIENT_KEY", str(tmp_path / "server-key.pem"))
        delivered(url, [SPAN])
        assert len(receiver.spans) == 1


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


def test_files_appear_whole_if_all_went_well(
    store: Path, tmp_path: Path, receiver: Receiver
) -> None:
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
    receiver.always(Refuse(400))
    done = run("trace", "--all", "--jaeger", jaeger, "--otlp", receiver.http, "--store", store)
    assert done.code == 3
    assert jaeger.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir() if "part" in path.name) == []


async def test_secrets_in_what_tools_said_are_sent_only_when_asked(tmp_path: Path) -> None:
    path, secret = tmp_path / "s.db", "sk-ant-api03-" + "a1B2" * 12
    async with eventctx.open(path) as engine:
        ctx = await engine.session("s")
        with pytest.raises(ValueError, match="denied"):
            async with ctx.turn() as turn, turn.iteration() as cycle:
                await ctx.add_message(user(f"my key is {secret}"))
                async with cycle.tool_call("login", "c1"):
                    raise ValueError(f"denied for {secret}")
    for options, there in (([], False), (["--content"], False), (["--no-redact"], True)):
        done = await asyncio.to_thread(run, "trace", "s", "--json", *options, "--store", path)
        assert done.code == 0, done.err
        assert (secret in done.out) is there
        assert ("my key is" in done.out) is (options == ["--content"])


# -- passwords in the URLs of our own messages ---------------------------------------------------


def test_an_error_shows_what_was_given_without_the_password_of_a_url(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVENTCTX_STORE", str(store))
    for arguments in (
        ("trace", "work", "--otlp", "ftp://bob:hunter2@h:1"),
        ("trace", "work", "--otlp", "bob:hunter2@h:4317"),
        ("sessions", "--store", "mysql://bob:hunter2@h.example.org/x"),
        ("verify", "no", "postgres://bob:hunter2@h.example.org/x"),
        ("trace", "--no=postgres://bob:hunter2@h.example.org/x"),
        ("export", "postgres://bob:hunter2@h.example.org/x"),
    ):
        done = run(*arguments)
        assert done.code == 2
        assert GIVEN not in done.out + done.err
        assert "--no=" in arguments[1] or "bob:[redacted:password]@h" in done.err


def test_a_collector_that_refuses_for_good_is_an_error_of_its_own(
    receiver: Receiver, url: str
) -> None:
    receiver.always(Refuse(400))
    with pytest.raises(ExportFailed, match="did not take the spans") as failed:
        Sender(url, timeout=1).send([SPAN])
    assert failed.value.where == url
    assert failed.value.reason
