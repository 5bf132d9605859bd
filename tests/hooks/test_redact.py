"""Redaction of texts, fields, documents and spans; test_secret_forms.py tries the tables here.

Secrets are put together here, so that no scanner of this repository takes one for real.
"""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.errors import InvalidSetting
from eventctx.hooks.redact import DEFAULT, EXEMPT, Redactor
from eventctx.log import events as ev
from eventctx.projections.flat import MAX_TEXT
from eventctx.projections.trace.fold import fold
from tests.hooks.given import E, Session
from tests.how_much import some

LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7" * 3
BLOCK = "-----{} RSA PRIVATE " + "KEY-----"
PEM = f"{BLOCK.format('BEGIN')}\nMIIEow\nIBAA==\n{BLOCK.format('END')}"
JWT = ".".join(("eyJ" + LETTERS[:20], "eyJ" + LETTERS[:30], LETTERS[:43]))

KNOWN = [
    *((one + LETTERS, "api-key") for one in ("sk-ant-api03-", "sk-proj-")),
    *((one + "ABCDEFGH23456789", "api-key") for one in ("AKIA", "ASIA")),
    *((one + LETTERS[:24], "api-key") for one in ("sk_live_", "rk_test_")),
    *((one + LETTERS[:52], "api-key") for one in ("sk-", "gsk_", "xai-")),
    ("AIza" + LETTERS[:35], "api-key"),
    ("SG." + LETTERS[:22] + "." + LETTERS[:43], "api-key"),
    *((one + LETTERS[:36], "token") for one in ("ghp_", "gho_", "npm_", "hf_", "ya29.")),
    ("github_pat_" + LETTERS[:22] + "_" + LETTERS[:59], "token"),
    ("glpat-" + LETTERS[:20], "token"),
    ("xoxb-" + "1234567890-" + LETTERS[:24], "token"),
    (JWT, "token"),
    *((one + LETTERS[:32], "secret") for one in ("GOCSPX-", "whsec_")),
    (PEM, "private-key"),
    ("ann.o_neil+news@mail.example.org", "email"),
]


HUNTERS = [
    *("password: {}", "Server=x;Uid=bob;Pwd={};Database=y", "postgres://bob:{}@db.example.org/x"),
    *("redis://:{}@localhost:6379", "mysql -u root --password {} db", "the password is {} now"),
]
ABCS = {
    "api-key": [
        *("API_KEY={}", '{{"api_key": "{}"}}', "apiKey: '{}',", "X-Api-Key: {}"),
        *("config['api_key'] = '{}'", "OPENAI_API_KEY_DEV={}"),
    ],
    "secret": ["client_secret={}&x=1", "clientSecret: {}"],
    "token": [
        *("access_token={}", "https://example.org/?token={}&page=2", "Authorization: Bearer {}"),
        *("tool --token={} --max-tokens 4096", "curl -H 'Authorization: token {}'"),
    ],
}
NAMED = [
    *((around, "hunter2", "password") for around in HUNTERS),
    *((around, "abc", kind) for kind, arounds in ABCS.items() for around in arounds),
    ("PASSWORD={}", "p@ss,w0rd;x", "password"),
    ("export DB_PASS='{}'", "with a blank", "password"),
    ('{{"password": "{}"}}', 'it\'s \\"quoted\\"', "password"),
    (r"{{\"user\": \"bob\", \"password\": \"{}\"}}", "two words", "password"),
    ("aws_secret_access_key = {}", "wJalr/K7MD+bPx", "secret"),
    ("authorization=Basic {}", "YWJjOmRlZg==", "token"),
    ('{{"Authorization": "{}"}}', "Bearer abc", "token"),
    ("sent Bearer {} to it", LETTERS[:20], "token"),
    ("sent Basic {} to it", "dXNlcjpwYXNzd29yZA==", "token"),
    ("Set-Cookie: {}", "sid=abc; Path=/", "token"),
    ("POST https://hooks.slack.com/services/{}", "T000/B000/" + LETTERS[:24], "token"),
]


INNOCENT = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    *("commit 3bb7a9d0c1e2f3a4b5c6d7e8f9a0b1c2d3e4f5a6", "0b5ce4b1-2f7c-4c0b-9c2e-5a8d2f1f0a11"),
    "/home/someone/.config/app/settings-2024.toml: no such file",
    "max_tokens=4096, tokens: 1234, token_budget=200000, token: 512",
    "time_to_first_token: 0.31s, tokens per token: 1.5",
    "session_id=abc-123 trace_id=" + "a1" * 16 + " span_id=" + "b2" * 8,
    "SyntaxError: Unexpected token: } in JSON at position 4",
    *("eos_token: <|endoftext|>, pad_token=<pad>", "PWD=/home/me/project OLDPWD=/srv"),
    "def login(user: str, password: str = None, token: Optional[str] = None)",
    *("the password is required; the token is invalid", "API key: missing"),
    "git clone git@example.org:team/project.git && ssh git@example.org",
    "pip install left-pad@1.2.3-rc.one; @app.get('/x'); user@host",
    "task-2024-01-01-risk-assessment-0001 desk-1234567890abcdefgh",
    "npm_config_registry=https://registry.example.org/",
    "claude-opus-4-5-20260101 gpt-5.1-codex-max toolu_01A09q90qw90lq917835lq9",
    "the basic internationalization of bearer authentication requirements",
    "public_key=abc primary_key: 5 cache_key='x' keyboard=qwertz",
    "passed: 12, failed: 0, bypass=1, compass: north",
    "https://example.org:8080/path?page=2#anchor and 12:30:45",
    "Token::new(x) and secretary=bob and tokenizer: cl100k",
]


BEGUN, ENDED = BLOCK.format("BEGIN"), BLOCK.format("END")


def test_what_a_cut_left_of_a_key_block_or_a_secret_goes_too() -> None:
    for cut, found in [
        (f"x {BEGUN}\nMIIEow\nIBAA", "x [redacted:private-key]"),
        (f"{BEGUN}\\nMIIEow\\nIB", "[redacted:private-key]"),
        (f"private_key={BEGUN}\nMIIE", "private_key=[redacted:private-key]"),
        (f"head\n[…]\nIBAA\nMIIEow==\n{ENDED}\n.", "head\n[…][redacted:private-key]\n."),
        (f"[…]\\nIBAA==\\n{ENDED}.", "[…][redacted:private-key]."),
        (f"of {ENDED}", "[redacted:private-key]"),
    ]:
        assert DEFAULT.text(cut) == found
    for secret in ("sk-" + LETTERS[:5], "ghp_ab", "ann@exam", "AKIAAB"):
        assert secret not in DEFAULT.text(f"{'x ' * 400}{secret}…")
    key = "sk-" + LETTERS[:60]
    for at, rest in product(range(60, 110, 7), ("", " and so on" * 200)):
        found = DEFAULT.cut("x" * at + " " + key + rest, 100)
        assert len(found) <= 100
        assert "sk-" not in found
        assert not re.search(r"\[red[^\]]*$", found.removesuffix("…")) or not rest


def test_a_document_is_redacted_at_every_depth_and_keeps_the_names_that_are_addresses() -> None:
    ann, key = "ann@example.org", "[redacted:api-key]"
    document = {
        "session": ann,
        "rows": [{"input": {"api_key": "0123", "n": 1}, "text": "by bob@example.org."}],
        "by": {ann: None, "bob@example.org": True},
    }
    assert DEFAULT.document(document, frozenset((ann,))) == {
        "session": ann,
        "rows": [{"input": {"api_key": key, "n": 1}, "text": "by [redacted:email]."}],
        "by": {ann: None, "[redacted:email]": True},
    }


def test_families_can_be_switched_off_and_own_patterns_are_replaced_by_their_group() -> None:
    text, email, password = "ann@example.org password=hunter2", "[redacted:email]", "hunter2"
    assert Redactor(keys=False).text(text) == f"{email} password={password}"
    assert Redactor(emails=False).text(text) == "ann@example.org password=[redacted:password]"
    assert Redactor(keys=False, emails=False).text(text) == text
    assert Redactor(keys=False).fields({"password": "x"}) == {"password": "x"}
    named = re.compile(r"customer (?P<secret>\w+)", re.IGNORECASE)
    redactor = Redactor([r"ACME-\d+", named, "internal: .*"])
    assert redactor.text("see ACME-12") == "see [redacted:pattern]"
    assert redactor.text("Customer Bob") == "Customer [redacted:pattern]"
    assert redactor.text("internal: ann@example.org said x") == "[redacted:pattern]"
    assert redactor.patterns[0] == r"ACME-\d+"


# -- patterns of one's own -----------------------------------------------------------------------


def test_a_pattern_that_cannot_work_is_refused() -> None:
    useless: list[tuple[Any, str]] = [
        ("(", "regular expression"),
        ("a*", "empty string"),
        (r"\b", "empty string"),
        ("(?=x)|", "empty string"),
        (b"x", "expected a str"),
        (re.compile(b"x"), "of text"),
        (5, "expected a str"),
    ]
    for pattern, found in useless:
        with pytest.raises(InvalidSetting, match=found):
            Redactor((pattern,))


# -- fields and spans ----------------------------------------------------------------------------


def test_fields_are_redacted_by_form_and_by_name_and_ids_and_numbers_stay() -> None:
    ids = dict.fromkeys(sorted(EXEMPT), "ann@example.org")
    assert DEFAULT.fields(ids) == ids
    named = "session.id gen_ai.conversation.id eventctx.turn.id trace_id verify.record"
    assert {*named.split(), "verify.view_before"} <= EXEMPT
    same: dict[str, Any] = {"tokens_before": 4096, "token": 7, "done": True, "nothing": None}
    same["client-certificate-data"] = "x"
    fields = {
        **same,
        "error": "no access with password=hunter2",
        "api_key": "abc",
        "client-key-data": "LS0t",
        "stop": ("ann@example.org", "end"),
        "input": {"auth_token": "abc", "list": ["x", {"password": "p"}], "n": 1, "a@b.org": "x"},
    }
    passwords = ["x", {"password": "[redacted:password]"}]
    inner = {"auth_token": "[redacted:token]", "list": passwords, "n": 1, "[redacted:email]": "x"}
    assert DEFAULT.fields(fields) == {
        **same,
        "error": "no access with password=[redacted:password]",
        "api_key": "[redacted:api-key]",
        "client-key-data": "[redacted:private-key]",
        "stop": ("[redacted:email]", "end"),
        "input": inner,
    }
    assert fields["api_key"] == "abc"


def test_a_span_is_redacted_in_name_message_attributes_and_events() -> None:
    key = "sk-" + LETTERS[:40]
    session = Session("ann@example.org").tell(
        (ev.ToolPre(name=f"call {key}"), 2),
        (ev.SessionLinked(session="s2", relation="child", kind=key), 2),
        (ev.ToolError(name=f"call {key}", error_type="OSError", message=f"bad {key}"), 2),
    )
    (raw,) = fold(session.records)
    found = DEFAULT.span(raw)
    assert key in repr(raw)
    assert key not in repr(found)
    assert found.name == "execute_tool call [redacted:api-key]"
    assert found.message == "bad [redacted:api-key]"
    assert found.attributes["gen_ai.tool.name"] == "call [redacted:api-key]"
    assert found.attributes["session.id"] == "ann@example.org"
    assert found.events[0].attributes["eventctx.kind"] == "[redacted:api-key]"
    assert (found.span_id, found.trace_id, found.start) == (raw.span_id, raw.trace_id, raw.start)


# -- cutting -------------------------------------------------------------------------------------


def test_a_span_that_was_cut_before_it_is_redacted_has_no_part_of_a_secret_either() -> None:
    for begins, redactor in [
        *((begins, DEFAULT) for begins in ("postgres://bob:", "hvs.", "dckr_pat_")),
        ("acme", Redactor([r"acme\w{40}"])),
    ]:
        for room in range(len(begins), len(begins) + 40):
            message = "x " * ((MAX_TEXT - room) // 2) + begins + LETTERS[:40] + "@db and so on"
            failed = ev.ToolError(name="x", error_type="E", message=message)
            (found,) = fold(Session().tell((E.USE, 2), (failed, 2)).records)
            clean = redactor.span(found)
            assert str(found.message).endswith("…")
            assert LETTERS[:3] not in repr(clean), room
            assert "x x x" in str(clean.message)
            assert redactor.span(clean) == clean


# -- properties ----------------------------------------------------------------------------------

_PIECES = st.sampled_from(
    [
        *("password", "token", "secret", "api_key", "authorization", "cookie", "pwd", "_pass"),
        *("Bearer ", "Basic ", "--token ", " is ", "=", ":", " ", '"', "'", "\\", '\\"', "\n"),
        *(",", ";", "]", "[", "}", ")", "&", "@", "a@b.org", "x.y", ".", "-", "_", "://", "u:p@h"),
        *("sk-", "ghp_", "eyJ", "AKIA", "ABCDEFGHIJKLMNOP", LETTERS[:24], "a1B2c3d4e5f6"),
        *(BLOCK.format("BEGIN"), BLOCK.format("END"), "MII", "…", "5", "ab", "é", "İ"),
        *("curl ", " -u ", "mysql", " -p", "sshpass", "--user=", "u:", '"curl","-u","', '"]'),
        *("machine m login u password ", "x login ", "</x>"),
        *("<password>", "</password>", "<token", ">", "<![CDATA[", "]]>", "sig=", "?", "dapi", "~"),
        *("0123456789", "SK", "AC", "shpat_", "glc_", "ops_", "key-", "A3-", "8Q~", "eyJrIjoi"),
        *("hooks.slack.com/services/", "[redacted:", "[redacted:token]", "[redacted:pattern]"),
    ]
)
_TEXTS = st.lists(st.one_of(_PIECES, st.text(max_size=4)), max_size=14).map("".join)
_OWN = st.sampled_from(
    [(), ("ab",), ("a.*b",), ("r.{3}",), ("redacted",), (r"\d+",), ("^..",), (r"\[",), (r"\w+$",)]
)


@settings(max_examples=some(60, 600))
@given(_TEXTS, _OWN)
def test_redacting_twice_is_the_same_as_once(text: str, own: tuple[str, ...]) -> None:
    redactor = Redactor(own)
    once = redactor.text(text)
    assert redactor.text(once) == once


@settings(max_examples=some(60, 200))
@given(st.sampled_from(KNOWN), st.text(max_size=30), st.text(max_size=30))
def test_a_secret_between_texts_does_not_go(
    known: tuple[str, str], before: str, after: str
) -> None:
    assert known[0] not in DEFAULT.text(f"{before} {known[0]} {after}")
