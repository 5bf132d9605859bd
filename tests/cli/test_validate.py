"""``validate``: its table, its JSON, and how it exits."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventctx.testing.contract.examining import names_in_order

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SOUND = ROOT / "tests" / "testing" / "modules" / "sound_context.py"
BROKEN = "tests.testing.modules.broken_contexts"


@pytest.fixture(autouse=True)
def _from_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def test_a_sound_module_is_told_row_by_row_and_exits_with_0(run) -> None:
    out = run("validate", SOUND).ok()
    lines = out.splitlines()
    assert lines[0].split() == ["Level", "Verdict", "What"]
    assert "does not hold" not in out
    assert lines[-2].startswith("required: ")
    assert lines[-1].startswith("recommended: 14 holds, of 14 checks")


def test_a_module_that_breaks_a_required_rule_exits_with_1_and_says_what_was_seen(run) -> None:
    done = run("validate", f"{BROKEN}:Destructive")
    assert done.code == 1
    lines = done.out.splitlines()
    (row,) = [place for place, line in enumerate(lines) if "does not hold  " in line]
    assert lines[row].split(maxsplit=4)[-1] == "A compaction changes nothing that is kept"
    assert lines[row + 1].strip().startswith("found: get_messages() after compactions: ")
    assert lines[row + 2].strip() == (
        "ephemeral: the contract's 'Non-Destructive Compaction (REQUIRED)'"
    )
    assert "to fix: ephemeral" in lines


def test_a_module_that_breaks_a_recommendation_exits_with_0(run) -> None:
    out = run("validate", f"{BROKEN}:SaysTheEndAlone").ok(
        "no context:pre_compact was emitted", "recommended: 13 holds, 1 does not hold, of 14 checks"
    )
    assert "to fix" not in out


def test_the_json_has_a_finding_for_every_check(run) -> None:
    document = run("validate", SOUND, "--json", "--config", '{"max_tokens": 50000}').document
    own = [one for one in document["findings"] if one["source"] == "eventctx"]
    assert [one["check"] for one in own] == names_in_order()
    assert (document["module"], document["ok"]) == (str(SOUND), True)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no_such_module"], "no_such_module: expected a directory"),
        ([SOUND, "--config", "[1]"], "--config: expected a JSON object"),
        ([SOUND, "--timeout", "0"], "--timeout"),
        ([], "MODULE"),
    ],
)
def test_what_cannot_be_used_exits_with_2_and_says_what_was_expected(run, arguments, says) -> None:
    run("validate", *arguments).fails(says)
