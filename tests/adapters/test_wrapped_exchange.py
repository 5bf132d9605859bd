"""Requests of model APIs read from their bodies; what is sent again is read once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventctx.adapters.clients.exchange import asked, provider_of, with_rows
from eventctx.log.turn_recorder import read_settings

PATH = "/v1/messages"
MARK = {"cache_control": {"type": "ephemeral"}}
TEXTS = st.builds(
    lambda text, mark: {"type": "text", "text": text, **(MARK if mark else {})},
    st.sampled_from(["a", "b", '"cache_control"']),
    st.booleans(),
)
MESSAGES = st.lists(
    st.builds(
        lambda role, content: {"role": role, "content": content},
        st.sampled_from(["user", "assistant"]),
        st.one_of(st.sampled_from(["a", "b"]), st.lists(TEXTS, max_size=2)),
    ),
    max_size=5,
)


def body(messages: Any, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


@given(MESSAGES, MESSAGES, st.integers(0, 5), st.booleans())
@settings(max_examples=25, deadline=None)
def test_a_request_after_another_is_read_as_it_is_alone(
    first: list[Any], second: list[Any], kept: int, marked: bool
) -> None:
    before = asked(PATH, body(first))
    content = body([*first[:kept], *second], **(MARK if marked else {}))
    alone, after = asked(PATH, content), asked(PATH, content, before)
    assert alone is not None
    assert after is not None
    assert after.sent == alone.sent
    assert "ephemeral" not in json.dumps(alone.rows)
    paths = [one.path for one in alone.sent.cache_control]
    assert (() in paths) == marked
    for path in paths[marked:]:
        place: Any = json.loads(content)
        for key in path:
            place = place[key]
        assert place["cache_control"] == MARK["cache_control"]


def test_a_body_is_another_only_where_its_messages_are() -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "b", **MARK}]}
    content = body(
        [{"role": "user", "content": "a"}, marked], temperature=1.00e0, system="Be brief."
    )
    request = asked(PATH, content)
    assert request is not None
    assert with_rows(request, request.rows) is None
    sent = with_rows(request, request.rows[1:])
    assert sent is not None
    assert json.loads(sent) == {**json.loads(content), "messages": [marked]}


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"messages": 3}',
        b'{"messages": [3]}',
        b'{"messages": null}',
        b"{}",
        b'{"a": 1,',
    ],
)
def test_what_is_no_request_of_a_model_is_none(content: bytes) -> None:
    assert asked(PATH, content) is None


@pytest.mark.parametrize(
    ("rule", "url", "provider"),
    [
        ("anthropic-messages-1", "https://api.anthropic.com/v1/messages", "anthropic"),
        ("openai-chat-1", "https://api.openai.com/v1/chat/completions", "openai"),
        ("openai-responses-1", "http://localhost:1234/v1/responses", "openai"),
        ("openai-chat-1", "https://api.x.ai/v1/chat/completions", "x_ai"),
        ("openai-chat-1", "https://netflix.ai/v1/chat/completions", "openai"),
        ("openai-chat-1", "https://me.openai.azure.com/v1/chat/completions", "azure.ai.openai"),
        (
            "anthropic-messages-1",
            "https://bedrock-runtime.us-east-1.amazonaws.com/model/claude/invoke",
            "aws.bedrock",
        ),
        (
            "anthropic-messages-1",
            "https://us-east5-aiplatform.googleapis.com/v1/models/claude:rawPredict",
            "gcp.vertex_ai",
        ),
    ],
)
def test_the_provider_of_a_request_is_known_by_its_host_or_by_the_api_that_it_speaks(
    rule: str, url: str, provider: str
) -> None:
    server = read_settings(url=url).server
    assert provider_of(rule, url, server) == provider


@pytest.mark.parametrize(
    ("url", "server", "port"),
    [
        ("https://me:secret@api.example.org/v1?key=secret", "api.example.org", 443),
        ("http://localhost:8080", "localhost", 8080),
        ("no address", None, None),
        ("https://[broken", None, None),
        (None, None, None),
    ],
)
def test_of_an_address_its_host_and_port_are_kept(
    url: str | None, server: str | None, port: int | None
) -> None:
    found = read_settings(url=url, stream="yes", max_tokens="many")
    assert found == (False, None, server, port, None)


def test_a_text_is_the_words_of_a_person() -> None:
    request = asked("/v1/responses", b'{"model": "m", "input": "Say \\"cache_control\\"."}')
    assert request is not None
    assert request.rows == [{"role": "user", "content": 'Say "cache_control".'}]
