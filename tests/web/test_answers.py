"""What the page is told equals what the command line prints with ``--json``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

import eventctx
from eventctx.comparison.contenders import policies_alone
from eventctx.hooks.result_redactor import ResultRedactor
from eventctx.web.bodies import with_parts
from eventctx.web.reading import NewestSessions, lost_words
from tests.cli.conftest import imported, say
from tests.web.conftest import Served

WORK = "/api/s/work"


@pytest.fixture(scope="module")
def revealed(_written, tmp_path_factory):
    path = tmp_path_factory.mktemp("revealed") / "s.db"
    path.write_bytes(_written)
    made = Served(path, reveal=True)
    made.enter()
    yield made, path
    made.stop()


TWINS = {
    "/api/sessions": "sessions",
    "/api/stats": "stats",
    "/api/verify": "verify",
    f"{WORK}/verify": "verify work",
    f"{WORK}/audit": "audit work",
    f"{WORK}/audit?turn=2": "audit work --turn 2",
    f"{WORK}/why?number=2": "why work 2",
    f"{WORK}/lost": "lost work",
    f"{WORK}/lost?compaction=1": "lost work --compaction 1",
    f"{WORK}/compare?policies=ladder,truncate&budgets=2000": "compare work "
    "--policies ladder,truncate --budgets 2000",
    f"{WORK}/view?turn=2&iteration=3": "view work --turn 2.3",
    f"{WORK}/transcript": "transcript work",
    f"{WORK}/transcript?at=20": "transcript work --at 20",
    f"{WORK}/instructions": "instructions work",
    "/api/search?q=contents&limit=10": "search contents",
    "/api/search?q=look+around&session=work&limit=3": "search look around --session work --limit 3",
    "/api/search?session=work&role=model&limit=4": "search --session work --role model --limit 4",
    "/api/search?errors=1&since=2026-01-01&until=2099-01-01T10:00&limit=10": "search --errors "
    "--since 2026-01-01 --until 2099-01-01T10:00",
}


@pytest.mark.parametrize("target", TWINS)
def test_every_answer_has_a_twin_on_the_command_line(revealed, served, run, target) -> None:
    shown, path = revealed
    reply = shown.get(target)
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    printed = run(*TWINS[target].split(), "--json", "--store", path)
    assert printed.code == 0, printed.err
    assert reply.document == printed.document
    if not target.endswith("stats"):  # names the store's path
        assert served.get(target).document == reply.document


IMPORTED = """\
{"type": "user", "uuid": "a1", "sessionId": "s", "cwd": "/home/me/table", "timestamp": \
"2026-03-01T10:00:00Z", "message": {"role": "user", "content": "Mend the table."}}
{"type": "assistant", "uuid": "a2", "parentUuid": "a1", "sessionId": "s", "timestamp": \
"2026-03-01T10:00:09Z", "message": {"id": "m1", "role": "assistant", "model": \
"claude-sonnet-4-5", "content": [{"type": "text", "text": "Done."}], "usage": \
{"input_tokens": 1000, "output_tokens": 10, "cache_read_input_tokens": 0}}}
{"type": "user", "uuid": "a3", "parentUuid": "a2", "sessionId": "s", "timestamp": \
"2026-03-01T10:01:00Z", "message": {"role": "user", "content": "Thanks."}}
{"type": "custom-title", "customTitle": "The table", "sessionId": "s"}
"""


async def test_rows_of_all_kinds_are_those_of_sessions_to_the_byte(serving, run, tmp_path) -> None:
    path = tmp_path / "s.db"
    async with eventctx.open(path) as engine:
        for name in ("a", "a.agent-1"):
            context = await engine.session(name)
            await context.add_message({"role": "user", "content": f"I am {name}."})
            await context.get_messages_for_request()
        await engine.link("a", "a.agent-1", call_id="c1")
        await engine.fork("a", 1, "b")
    imported(run, tmp_path, IMPORTED.encode())
    printed = run("sessions", "--json", "--store", path)
    reply = serving(path, reveal=True).get("/api/sessions")
    assert reply.body == msgspec.json.format(printed.out.encode(), indent=-1)
    rows = {row["session"]: row for row in reply.document}
    assert (rows["b"]["parent"], rows["a.agent-1"]["belongs_to"]) == ("a", "a")
    found = [rows["s"][name] for name in ("title", "project", "cost", "unpriced")]
    assert found == ["The table", "/home/me/table", pytest.approx(0.003), 0]


@pytest.mark.parametrize("policies", ["os:system", "ladder:target_usage=0.3", "", "nothing"])
def test_only_a_policy_of_a_known_name_is_played(revealed, policies) -> None:
    served, _ = revealed
    reply = served.get(f"{WORK}/compare?policies={policies}&budgets=2000")
    assert reply.status == 400 and "policies" in reply.document["error"]


def test_questions_about_a_position_have_the_same_twins(revealed, run) -> None:
    served, path = revealed
    asked = run("audit", "work", "--json", "--store", path).document["requests"]
    first, last = asked[0]["position"], asked[-1]["position"]
    for target, command in (
        (f"view?position={last}", ("view", "work", "--position", last)),
        (f"why?number=3&position={last}", ("why", "work", 3, "--position", last)),
        (f"instructions?position={first}", ("instructions", "work", "--position", first)),
        (f"diff?before={first}&after={last}", ("diff", "work", f"@{first}", f"@{last}")),
    ):
        printed = run(*command, "--json", "--store", path).document
        assert served.get(f"{WORK}/{target}").document == printed, target


@pytest.mark.parametrize("bodies", [(), ("--bodies",)])
def test_the_log_is_a_list_of_the_lines_that_log_prints(revealed, run, bodies) -> None:
    served, path = revealed
    more = "&bodies=1" if bodies else ""
    whole = run("log", "work", *bodies, "--json", "--store", path).lines
    assert served.get(f"{WORK}/log?{more}").document == whole
    part = run("log", "work", "--from", 7, "--to", 19, *bodies, "--json", "--store", path).lines
    assert served.get(f"{WORK}/log?start=7&stop=19{more}").document == part


def test_the_timeline_is_the_whole_session_or_what_continues_it(served) -> None:
    whole = served.get(f"{WORK}/timeline").document
    assert (whole["session"], whole["after"], whole["records"]) == ("work", -1, whole["head"] + 1)
    later = served.get(f"{WORK}/timeline?after=40").document
    assert (later["after"], later["head"]) == (40, whole["head"])
    early = [at for at in whole["messages"]["position"] if at <= 40]
    assert early + later["messages"]["position"] == whole["messages"]["position"]
    none = served.get(f"{WORK}/timeline?after={whole['head']}").document
    assert none["messages"]["position"] == []
    marks = served.get(f"{WORK}/digests").document["messages"]
    assert len(marks) == len(whole["messages"]["position"])
    assert all(mark.startswith(b"m".hex()) and len(mark) == 66 for mark in marks)


def test_a_text_with_markup_comes_as_a_tree_of_its_redacted_form(serving, tmp_path) -> None:
    contents = [f"**write** to {MAIL}", "plain", [{"type": "text", "text": "`a`"}]]
    served = serving(say(tmp_path / "s.db", "s", *contents))
    found = served.get("/api/s/s/rendered?at=1.0,2.0,3.0").document
    words = served.get("/api/s/s/bodies?at=1.0").document[0]["content"].removeprefix("**write**")
    assert MAIL not in words
    assert found == [
        [[["content"], [["p", {}, [["strong", {}, ["write"]], words]]]]],
        [],
        [[["content", 0, "text"], [["p", {}, [["code", {}, ["a"]]]]]]],
    ]


def test_what_somebody_calls_a_message_is_none_and_gets_no_parts() -> None:
    sent = {"message": {"role": "user", "content": "x"}, "numbers": [1]}
    tool = {"input_schema": {"properties": {"message": {"type": "string"}}}}
    answer = {"as_sent": {"messages": [sent], "tools": [tool]}, "tools": [tool], "session": "s"}
    parted = {**sent, "parts": [["text", ("content",)]]}
    assert with_parts(answer) == {**answer, "as_sent": {"messages": [parted], "tools": [tool]}}


def test_bodies_come_in_the_order_in_which_they_were_asked_for(served, run) -> None:
    columns = served.get(f"{WORK}/timeline").document["messages"]
    places = list(zip(columns["position"], columns["index"], strict=True))[:8][::-1]
    at = ",".join(f"{position}.{index}" for position, index in places)
    found = served.get(f"{WORK}/bodies?at={at}").document
    said = served.get(f"{WORK}/transcript").document
    by_position = {one["position"]: one["message"] for one in said}
    assert found == [by_position[position] for position, _ in places]


UNANSWERABLE = {
    400: f"""
    {WORK}/rendered {WORK}/rendered?at={",".join(["1.0"] * 65)} {WORK}/bodies {WORK}/bodies?at=1
    {WORK}/bodies?at=-1.0 {WORK}/bodies?at={",".join(["1.0"] * 65)} {WORK}/timeline?after=x
    {WORK}/timeline?after=999999 {WORK}/follow?after=999999 {WORK}/why {WORK}/why?number=1e3
    {WORK}/why?number=1&turn=1&position=3 {WORK}/view {WORK}/diff?before=1
    {WORK}/transcript?at=99999 {WORK}/log?start=9&stop=2 /api/search?q=
    /api/search?q={"x" * 1001} /{"x" * 9000}
    """,
    404: """
    /api/search?q=x&session=none /api/s/none/audit /api/s/none/follow /api/nothing /s/work/nothing
    """,
}


@pytest.mark.parametrize(
    ("target", "status"),
    [(target, status) for status, targets in UNANSWERABLE.items() for target in targets.split()],
)
def test_a_question_that_cannot_be_answered_says_what_was_expected(served, target, status) -> None:
    reply = served.get(target)
    assert reply.status == status
    if reply.headers["content-type"] == "application/json":
        assert len(reply.document["error"]) > 10


TRICKS = r"""
/page/../app.py /page/..%2fapp.py /page/%252e%252e/app.py /page//etc/passwd \page\index.html
/page/parts/../index.html /page/parts%2ftext.js /page/parts/text.js%00.html /page/
//page/parts/text.js /s/..%2f..%2fetc%2fpasswd/lost/.. /api/s/../about /api/s/..%2fwork/timeline
/api/s/work%2faudit /api/s/work%00/audit /api/s/%77ork%252fx/audit /api/s/%ff/audit
http://evil.example/
"""


@pytest.mark.parametrize("target", TRICKS.split())
def test_no_trick_with_a_path_reaches_a_file(served, target) -> None:
    reply = served.get(target)
    assert reply.status in (400, 404)
    assert b"import" not in reply.body and b"root:" not in reply.body


def test_a_name_is_decoded_once(serving, tmp_path) -> None:
    names = ["a b", "ä€😀", "100%", "%41", "a?b#c", "x&y=1", "alice@example.com", "<script>"]
    for name in names:
        say(tmp_path / "s.db", name, name)
    served = serving(tmp_path / "s.db")
    listed = [row["session"] for row in served.get("/api/sessions").document]
    assert listed == names[::-1]
    for name in names:
        coded = quote(name, safe="")
        assert served.get(f"/api/s/{coded}/timeline").document["session"] == name
        assert served.get(f"/s/{coded}").status == 200
    twice = served.get(f"/api/s/{quote(quote('a b', safe=''), safe='')}/timeline")
    assert twice.status == 404
    assert served.get("/api/s/A/timeline").status == 404


def test_the_page_is_the_same_at_each_of_its_addresses(served) -> None:
    first = served.get("/")
    assert first.headers["content-type"].startswith("text/html")
    for screen in ("work", "none", "work/lost", "work/compare", "work/search", "work/integrity",
                   "work?at=3&msg=4"):  # fmt: skip
        assert served.get(f"/s/{screen}").body == first.body
    script = served.get("/page/parts/text.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.body == b"export const one = 1;\n"


def test_about_says_what_this_is_and_the_list_how_far_it_is_and_what_is_lost(served) -> None:
    found = served.get("/api/about").document
    assert found.pop("option").endswith("s.db")
    assert found == {
        "version": eventctx.__version__, "reveal": False, "live": True, "store": "s.db",
        "writable": False, "policies": policies_alone(),
    }  # fmt: skip
    assert served.get("/api/sessions").status == 200
    assert served.get("/api/listed").document == {"read": 1, "sessions": 1, "older": 0}
    assert served.get("/api/lost").document == {"work": 0}


def test_the_matches_of_a_search_are_counted_beyond_those_that_are_found(served) -> None:
    found = served.get("/api/search?q=contents&limit=1").document
    matches = served.get("/api/matches?q=contents").document["matches"]
    assert len(found) == 1 < matches
    assert matches == len(served.get("/api/search?q=contents&limit=1000").document)
    assert served.get("/api/matches?q=contents&session=work").document == {"matches": matches}
    assert served.get("/api/matches?q=contents&session=none").status == 404


KEY = "sk-ant-api03-" + "Ab1" * 12
MAIL = "bob.smith@lighthouse-works.io"


@pytest.fixture
async def secretive(tmp_path: Path) -> Path:
    path = tmp_path / "secrets.db"
    words = {"role": "user", "content": f"Always use {KEY} and write to {MAIL}."}
    given = {"password": "hunter2hunter2", KEY: 1}
    use = {"type": "tool_use", "id": "t1", "name": "call", "input": given}
    async with eventctx.open(path) as engine:
        context = await engine.session("plain", max_tokens=2_000)
        async with context.turn():
            await context.add_message(words)
            await context.add_message({"role": "assistant", "content": [use]})
            await context.get_messages_for_request()
    return path


ALL = [
    "/api/sessions", "/api/stats", "/api/verify", "/api/lost", "/api/search?q=always",
    *[f"/api/s/plain/{one}" for one in (
        "timeline", "digests", "bodies?at=1.0", "bodies?at=1.0,2.0", "demands?at=2.0",
        "rendered?at=1.0", "audit", "why?number=0", "lost", "view?turn=1", "transcript",
        "log?bodies=1", "instructions", "verify", "why?number=77",
    )],
]  # fmt: skip


def test_secrets_are_redacted_in_every_answer_unless_they_are_revealed(serving, secretive) -> None:
    said = serving(secretive, reveal=True).get("/api/s/plain/transcript").body.decode()
    assert KEY in said and "hunter2hunter2" in said
    served = serving(secretive)
    told = {target: served.get(target).body.decode() for target in ALL}
    for secret in (KEY, MAIL, "hunter2"):
        assert [target for target, text in told.items() if secret in text] == []
    whole = "".join(told.values())
    for kind in ("api-key", "email", "password"):
        assert f"[redacted:{kind}]" in whole
    # A person's demands are those of the text that is shown.
    columns = served.get("/api/s/plain/timeline").document["messages"]
    at = ",".join(f"{one}.0" for one in columns["position"])
    found = served.get(f"/api/s/plain/demands?at={at}").document
    assert [len(one) for one in found] == columns["demands"] == [1, 0]
    assert found[0] == [served.get(f"/api/s/plain/bodies?at={at}").document[0]["content"]]


def test_a_piece_that_a_search_shows_holds_no_part_of_a_secret(serving, tmp_path) -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEA\n" * 40
    secrets = ("password: hunter2hunter2", 'password = "' + "corr horse " * 12 + '"', key, "none")
    before, after = "earlier " * 60, " later" * 60
    texts = [f"{before}{one}; needle{number} {after}" for number, one in enumerate(secrets)]
    path = say(tmp_path / "s.db", "plain", *texts)
    served, revealed = serving(path), serving(path, reveal=True)
    for number, part in enumerate(("hunter2", "horse", "MIIE")):
        target = f"/api/search?q=needle{number}"
        assert part in revealed.get(target).document[0]["snippet"]
        [found] = served.get(target).document
        assert part not in json.dumps(found)
        assert f"needle{number}" in found["snippet"]
    target = "/api/search?q=needle3"
    assert served.get(target).document == revealed.get(target).document


def test_sessions_are_found_by_names_that_look_like_addresses(serving, run, tmp_path) -> None:
    path = say(tmp_path / "s.db", MAIL, f"to {MAIL}")
    run("fork", MAIL, "fork", "--at", 1).ok()
    served = serving(path)
    assert served.get("/api/s/fork/timeline").document["parent"] == {"session": MAIL, "at": 1}
    assert MAIL not in served.get("/api/s/fork/bodies?at=1.0").body.decode()
    assert served.get(f"/api/s/{MAIL}/timeline").document["session"] == MAIL


def test_an_erased_message_is_null_and_a_damaged_one_says_so(serving, run, store) -> None:
    run("erase", "work", 1, "--yes").ok()
    served = serving(store)
    columns = served.get(f"{WORK}/timeline").document["messages"]
    places = list(zip(columns["position"], columns["index"], strict=True))
    at = ",".join(f"{position}.{index}" for position, index in places[:3])
    found = served.get(f"{WORK}/bodies?at={at}").document
    assert [one is None for one in found] == [False, True, False]
    other = served.get(f"{WORK}/bodies?at={places[0][0]}.0,{places[0][0]}.7").document
    assert other[0]["role"] == "system"
    assert "error" in other[1]
    assert json.dumps(found[0]) in json.dumps(other)


async def test_every_text_that_somebody_chose_is_redacted_in_a_timeline_but_its_address() -> None:
    async with eventctx.open("memory://") as engine:
        await (await engine.session("s")).add_message({"role": "user", "content": "Hello."})
        whole: dict[str, Any] = await engine.timeline("s")
    whole |= {
        "session": "alice@example.com",
        "mirror": f"{KEY}.jsonl",
        "models": [KEY],
        "compactions": [{"error": f"the summarizer said {KEY}"}],
        "reasons": [{"code": "mine", "rule": KEY}],
        "turns": [{"turn_id": "t", "name": KEY}],
        "links": [{"session": "other", "kind": KEY}],
    }
    shown = ResultRedactor(reveal=False).timeline(whole)
    assert KEY not in repr(shown)
    assert shown["compactions"] == [{"error": "the summarizer said [redacted:api-key]"}]
    assert shown["messages"] == whole["messages"] and shown["session"] == "alice@example.com"
    assert ResultRedactor(reveal=True).timeline(whole) == whole


async def _add(engine: eventctx.Engine, *names: str) -> None:
    for name in names:
        await (await engine.session(name)).add_message({"role": "user", "content": name})


async def test_the_list_has_the_newest_sessions_as_they_are_now_and_counts_the_older_ones() -> None:
    async with eventctx.open("memory://") as engine:
        newest = NewestSessions(engine.store, most=3)

        async def shown() -> tuple[list[str], int]:
            return [info.stream for info in await newest.look()], newest.older

        assert await shown() == ([], 0)
        await _add(engine, "a", "b")
        assert await shown() == (["a", "b"], 0)
        await _add(engine, "c", "d", "e")
        assert await shown() == (["c", "d", "e"], 2)
        await _add(engine, "f")
        assert await shown() == (["d", "e", "f"], 3)
        before = await newest.look()
        await _add(engine, "e")
        after = await newest.look()
        grown = [one.head - other.head for one, other in zip(after, before, strict=True)]
        assert grown == [0, 1, 0]
        await engine.delete("e")
        assert await shown() == (["d", "f"], 3)


async def test_the_list_counts_the_words_that_the_last_request_lacks(tmp_path: Path) -> None:
    async with eventctx.open(tmp_path / "s.db") as engine:
        context = await engine.session("talk", max_tokens=1_500)
        for number in range(8):
            async with context.turn():
                told = f"Round {number}: " + "the harbour was quiet again today. " * 20
                await context.add_message({"role": "user", "content": told})
                await context.get_messages_for_request()
                await context.add_message({"role": "assistant", "content": "I see. " * 30})
        await context.add_message({"role": "user", "content": "Not in any request yet."})

        rows = (await engine.audit("talk")).requests
        last = await engine.request_view("talk", position=rows[-1].position)
        shown = {entry.ref.number for entry in last.entries if entry.kind == "message"}
        people = [number for number in range(0, 16, 2) if number not in shown]
        assert people, "the budget is too large to lose anything"
        assert await lost_words(engine, "talk") == len(people)
