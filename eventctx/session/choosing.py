"""From what a caller gave, under whichever names, to a session's settings and policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from eventctx.errors import InvalidSetting
from eventctx.policies.advisers import Scorer, Summarizer
from eventctx.policies.named import DEFAULT, policy_named, settings_of_policy
from eventctx.policies.policy import Policy
from eventctx.session.settings import NAMES, Settings, by_own_name, warn_of_unknown


def choose(
    policy: str | Policy | None,
    settings: Mapping[str, Any],
    scorer: Scorer | None = None,
    *,
    stacklevel: int = 4,
) -> tuple[Settings, Policy]:
    """Settings and policy. Of settings that nothing reads it warns. Raises InvalidSetting.

    A ``scorer`` that is given is meant to be asked.
    """
    given = by_own_name(settings)
    named = given.pop("policy", None)
    policy = policy if policy is not None else named if named is not None else DEFAULT
    own = {name: value for name, value in given.items() if name in NAMES}
    others = {name: value for name, value in given.items() if name not in NAMES}
    known: tuple[str, ...] = ()
    if isinstance(policy, str):
        known = settings_of_policy(policy)
        if scorer is not None and "scorer" in known:
            others["scorer"] = "model"
        its_own = {name: others.pop(name) for name in known if name in others}
        policy = policy_named(policy, its_own)
    warn_of_unknown(others, known, stacklevel)
    return Settings(**own), policy


def check_advised(policy: Policy, summarizer: Summarizer | None, scorer: Scorer | None) -> None:
    """Refuse a policy that asks for what nobody can answer. Raises InvalidSetting."""
    for name, adviser in (("summarizer", summarizer), ("scorer", scorer)):
        if getattr(policy, f"needs_{name}", False) and adviser is None:
            raise InvalidSetting(
                f"policy {policy.name!r}: expected {name}=, an async function that calls a model, "
                "found none"
            )
        if adviser is not None and not callable(adviser):
            raise InvalidSetting(f"{name}: expected an async function, found {adviser!r}")
