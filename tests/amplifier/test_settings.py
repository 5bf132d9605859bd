"""Configurations of context-simple and context-persistent: each mounts and serves a request."""

from __future__ import annotations

import asyncio
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as checks
from hypothesis import strategies as st

from eventctx.adapters import amplifier
from eventctx.adapters.amplifier import persistent, simple
from eventctx.adapters.amplifier.config import (
    ADAPTER,
    READ_BY_NOBODY,
    names_of_persistent,
    names_of_simple,
    own_names,
    read,
)
from eventctx.adapters.amplifier.leniency import CONVERTED
from eventctx.testing import ScriptedAmplifierProvider
from tests.amplifier.given import events, records_of
from tests.amplifier.hosts import mounted, session
from tests.how_much import some

LOG = "eventctx.adapters.amplifier"
NAMES = [own_names, names_of_simple, names_of_persistent]

THEIRS = {
    *("max_tokens", "max_tokens_fallback", "compact_threshold", "target_usage"),
    *("protected_recent", "protected_tool_results", "truncate_chars", "output_reserve_fraction"),
    *("token_meter", "max_tool_result_bytes", "compaction_notice_enabled"),
    *("compaction_notice_token_reserve", "compaction_notice_verbosity"),
    *("compaction_notice_min_level", "truncate_boundary", "memory_files", "transcript_path"),
}
"""Every setting that a release of context-simple or context-persistent reads."""

DOCUMENTED = {
    *("max_messages", "auto_compact", "compaction_threshold", "storage_path"),
    *("compaction_strategy", "export_on_compact"),
}
"""Settings that their documents name, and that no release of 2026 reads."""


def taken(names: Any, config: dict[str, Any]) -> dict[str, Any]:
    """The values that settings and policy have for these names, in the adapter's own words."""
    made = read(config, names)
    own = {"compaction_threshold": "compact_threshold", "target": "target_usage"}
    found = {}
    for name in config:
        word = own.get(name, name)
        found[name] = getattr(made.settings if hasattr(made.settings, word) else made.policy, word)
    return found


# -- what is used instead ------------------------------------------------------------------------


TOKENS = [(2e5, 200_000), ("200000", 200_000), (1_500.7, 1_500), (float("inf"), 10**12)]
USED: dict[str, list[tuple[Any, Any]]] = {
    "max_tokens": [*TOKENS, (0, None), (True, None)],
    "max_tokens_fallback": [(None, 200_000)],
    "compact_threshold": [(1.5, 1.0), ("0.8", 0.8), (0, 0.92), ("high", 0.92), (1e-300, 0.001)],
    "compaction_threshold": [(1.5, 1.0)],
    "target_usage": [(0, 0.5), (0.92, 0.5)],
    "target": [(2, 0.5)],
    "auto_compact": [("yes", True), (0, False)],
    "export_on_compact": [("true", True)],
    "protected_recent": [(30, 1.0), (-0.1, 0.0)],
    "protected_tool_results": [(-3, 0), (4.0, 4)],
    "truncate_chars": [(-1, 0)],
}
"""What is used in the place of values that those modules accept, by setting."""


@pytest.mark.parametrize("name", USED)
@pytest.mark.parametrize("names", NAMES)
def test_a_value_that_they_accept_is_converted_with_a_warning(
    name: str, names: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for value, used in USED[name]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, LOG):
            found = taken(names, {name: value})[name]
        assert (found, type(found)) == (used, type(used)), value
        (line,) = [one for one in caplog.messages if f"setting {name!r}: " in one]
        assert "was given" in line and "is used: " in line


@pytest.mark.parametrize("names", NAMES)
def test_a_value_that_works_is_used_in_silence(
    names: Any, caplog: pytest.LogCaptureFixture
) -> None:
    given = {"max_tokens": 150_000, "max_tokens_fallback": 100_000, "compact_threshold": 1}
    given |= {"target_usage": 0.45, "auto_compact": False, "protected_recent": 0}
    given |= {"protected_tool_results": 0, "truncate_chars": 0}
    with caplog.at_level(logging.WARNING, LOG):
        assert taken(names, given) == given
        assert taken(names, {"max_tokens": None}) == {"max_tokens": None}
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("given", "threshold", "target"),
    [
        ({"compact_threshold": 0.4}, 0.4, 0.2),
        ({"compact_threshold": 0.8, "target_usage": 0.8}, 0.8, 0.5),
        ({"compaction_threshold": 0.3, "target": 0.6}, 0.3, 0.15),
        ({"compact_threshold": 0.3, "compaction_threshold": 0.9, "target_usage": 0.1}, 0.3, 0.1),
        ({"target": 0.1, "target_usage": 0.2}, 0.92, 0.2),
    ],
)
def test_a_target_that_is_not_below_the_threshold_is_lowered(
    given: dict[str, Any], threshold: float, target: float, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, LOG):
        made = read(given, own_names)
    assert (made.settings.compact_threshold, made.settings.target_usage) == (threshold, target)
    assert caplog.messages


@pytest.mark.parametrize(
    ("config", "policy"),
    [
        ({"compaction_strategy": "progressive"}, "ladder"),
        ({"compaction_strategy": "summary"}, "summarize"),
        ({"compaction_strategy": "aggressive"}, None),
        ({"compaction_strategy": "custom"}, None),
        ({"compaction_strategy": ["smart"]}, None),
        ({"policy": None, "compaction_strategy": "smart"}, "importance"),
        ({"compaction_strategy": "smart", "policy": "simple"}, "simple"),
    ],
)
def test_a_strategy_of_theirs_never_keeps_a_session_from_beginning(
    config: dict[str, Any], policy: str | None
) -> None:
    for names in NAMES:
        default = "simple" if names is names_of_simple else "workset"
        assert read(config, names).policy.name == (default if policy is None else policy)


def test_a_setting_without_a_counterpart_is_told_why(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, LOG):
        read(dict.fromkeys(READ_BY_NOBODY, "x"), own_names)
    for name, why in READ_BY_NOBODY.items():
        assert f"setting {name!r} has no effect here: {why}" in caplog.messages


async def test_a_session_of_simple_is_sent_system_messages_and_the_last_ten(path: Path) -> None:
    provider = ScriptedAmplifierProvider(*[f"answer {n} " * 140 for n in range(9)])
    limited: Any = {"config": {"max_tokens": 3_000, "transcript_path": False}}
    async with session(provider, context="context-eventctx-simple", store=path, **limited) as host:
        context = host.coordinator.get("context")
        await context.add_message({"role": "system", "content": "Be brief."})
        for number in range(9):
            await host.execute(f"question {number}")
    (compaction,) = events(await records_of(path), "context:post_compact")
    assert (compaction.strategy, compaction.fallback) == ("simple", None)
    sent = next(rows for rows in provider.messages[1:] if "answer 0" not in str(rows))
    assert sent[0]["content"] == "Be brief."
    asked = [row["content"] for row in sent if row["role"] == "user"]
    assert asked == [f"question {number}" for number in range(len(asked))], "their words stay"
    assert [row["role"] for row in sent[-10:]] == ["assistant", "user"] * 5
    assert not [row for row in sent[:-10] if row["role"] == "assistant"]


# -- any configuration ---------------------------------------------------------------------------

ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.integers(min_value=1, max_value=300_000),
    st.floats(min_value=0, max_value=1),
    st.sampled_from(["", "0.8", "200000", "1e3", "-5", "many", "nan", "inf", "yes", "smart"]),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)
"""What YAML can put behind a name."""

ANY_NAME = sorted(
    {*CONVERTED, *READ_BY_NOBODY, *THEIRS, *DOCUMENTED}
    - {"memory_files", "transcript_path", "storage_path"}
)


@checks(
    max_examples=some(15, 300),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(config=st.dictionaries(st.sampled_from(ANY_NAME), ODD, max_size=6))
def test_any_configuration_of_theirs_mounts_and_serves_a_request(config: dict[str, Any]) -> None:
    nowhere = {"transcript_path": False, "stamp_messages": False}

    async def served(module: Any) -> list[dict[str, Any]]:
        async with mounted({**config, **nowhere}, module=module) as context:
            await context.add_message({"role": "user", "content": "Hello"})
            return list(await context.get_messages_for_request())

    for module in (amplifier, simple, persistent):
        assert asyncio.run(served(module)) == [{"role": "user", "content": "Hello"}]


# -- the page ------------------------------------------------------------------------------------

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "amplifier.md"


def test_the_page_has_every_setting_of_both_modules_and_none_that_is_not_handled() -> None:
    page = PAGE.read_text(encoding="utf-8")
    _, _, part = page.partition("## Settings of context-simple and context-persistent")
    part, _, _ = part.partition("\n## ")
    cells = [row.split("|")[1] for row in part.splitlines() if row.startswith("| `")]
    listed = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    handled = {*CONVERTED, *READ_BY_NOBODY, *ADAPTER, "storage_path"}
    assert listed - handled == set()
    assert THEIRS | DOCUMENTED | set(READ_BY_NOBODY) | set(CONVERTED) <= listed
