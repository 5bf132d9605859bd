"""A session's settings, by the names that the specifications use for them.

``choose`` makes settings and a policy from a caller's arguments; ``resolve_budget`` determines the
tokens that one request may have.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final, Literal, TypedDict, get_args

import msgspec
from msgspec import Meta

from eventctx.errors import InvalidSetting
from eventctx.log.arguments import check_callable, shown
from eventctx.log.usage import MOST_TOKENS
from eventctx.messages.thinking import Generation, ThinkingSetting
from eventctx.messages.tokens import Tokenizer
from eventctx.messages.tool_results import Observing
from eventctx.policies.advisers import Scorer, Summarizer
from eventctx.policies.constraints import (
    Count,
    Seconds,
    Share,
    Tokens,
    WaitSeconds,
    check,
    check_value,
)
from eventctx.policies.named import (
    DEFAULT,
    POLICIES,
    as_policy,
    default_policy,
    policy_named,
    recorded_settings,
    settings_of_policy,
)
from eventctx.policies.policy import Policy, PolicyFunction, is_policy
from eventctx.policies.trigger import make_budget

ALIASES: Final = {
    "compaction_threshold": "compact_threshold",
    "compaction_strategy": "policy",
    "target": "target_usage",
}
"""Other names of settings: the context contract's, context-persistent's, and plain ones."""

SAFETY_MARGIN: Final = 1_000
"""Tokens kept free below a provider's window (context contract 2.1.0, ``_calculate_budget``)."""


class UnknownSetting(UserWarning):
    """A setting that nothing reads; the session works without it."""


class SettingsForgotten(UserWarning):
    """A session is opened without settings, and the log does not hold those it was made with."""


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sizes are tokens, thresholds fractions of the budget of a request, times seconds.

    ``max_tokens`` caps every budget; without it (None) a provider's window is used whole, and
    ``max_tokens_fallback`` where the size of the window is not known.
    ``on_overflow`` decides what happens when the floor, which must stay, exceeds the budget:
    ``raise`` ContextOverflow, or ``send_floor``, which sends the floor and records that. Without
    ``auto_compact`` a view is only compacted when it exceeds the budget. ``reserve_tokens`` are
    kept for all that is sent with the messages (system prompt, tool definitions), until a
    provider's reports show how much that is. With ``export_on_compact`` the transcript is written
    to the folder ``storage_path`` whenever a compaction was applied. ``adviser_timeout`` is the
    longest that a summarizer or scorer may take. It is asked in the background, from the share
    ``prepare_at`` of the threshold on, while requests go on (None: the request that is due waits);
    one at the budget waits up to ``wait`` seconds. ``observations`` decides which messages in role
    user are results of an agent whose actions are text, where no caller says so: those that look
    like one after an action (``by_form``), every one after an action, or none. ``thinking`` decides
    which signed thinking a view leaves out once something before it has changed: what the model
    would refuse (``by_model``; ``messages/thinking.py``), none (``keep``), or all (``strip``).
    """

    max_tokens: Tokens | None = 200_000
    max_tokens_fallback: Tokens = 200_000
    compact_threshold: float = 0.92
    target_usage: float = 0.5
    auto_compact: bool = True
    on_overflow: Literal["raise", "send_floor"] = "raise"
    reserve_tokens: Count = 0
    export_on_compact: bool = False
    storage_path: Annotated[str, Meta(min_length=1, description="a path")] = ".eventctx/exports"
    adviser_timeout: Seconds = 60.0
    prepare_at: Share | None = 0.75
    wait: WaitSeconds = 60.0
    observations: Observing = "by_form"
    thinking: ThinkingSetting = "by_model"

    def __post_init__(self) -> None:
        check(self)
        if self.reserve_tokens >= self.limit:
            raise InvalidSetting(
                f"reserve_tokens: expected less than the budget of {self.limit:,} tokens, found "
                f"{self.reserve_tokens:,}: nothing would be left for messages"
            )
        make_budget(self.limit, self.compact_threshold, self.target_usage)

    @property
    def limit(self) -> int:
        """The budget in tokens of a request for which neither caller nor provider gives one."""
        return self.max_tokens_fallback if self.max_tokens is None else self.max_tokens


class SessionSettings(TypedDict, total=False):
    """The options that ``Engine.session`` takes by name, for editors and type checkers.

    The settings of ``Settings``, their other names, and those of the policies by name.
    """

    max_tokens: int | None
    max_tokens_fallback: int
    compact_threshold: float
    target_usage: float
    auto_compact: bool
    on_overflow: Literal["raise", "send_floor"]
    reserve_tokens: int
    export_on_compact: bool
    storage_path: str
    adviser_timeout: float
    prepare_at: float | None
    wait: float
    observations: Observing
    thinking: ThinkingSetting

    compaction_threshold: float
    compaction_strategy: str | Policy | PolicyFunction
    target: float

    fan_in: int
    fresh_tail_count: int
    function: Callable[..., Any]
    importance_weight: float
    index_share: float
    index_tokens: int
    keep_recent: int
    keep_recent_share: float
    keep_turns: int | None
    learnings: Sequence[str]
    learnings_fraction: float
    max_messages: int | None
    memory: bool
    memory_fraction: float
    policies: Sequence[Policy | str | tuple[str, Mapping[str, Any]]]
    protected_recent: float
    protected_tool_results: int
    recency_weight: float
    size_weight: float
    summary_tokens: int
    system_reserve: int
    tool_definitions_reserve: int
    truncate_chars: int


NAMES: Final = Settings.__struct_fields__
"""The names of a session's own settings."""


def choose(
    policy: str | Policy | PolicyFunction | None,
    settings: Mapping[str, Any],
    scorer: Scorer | None = None,
    *,
    stacklevel: int = 4,
) -> tuple[Settings, Policy]:
    """Settings and policy from a caller's arguments, under any of their names.

    Warns of settings that nothing reads. A given ``scorer`` makes a policy by name use it, where it
    can. Raises InvalidSetting.
    """
    given = by_own_name(settings if policy is None else {"policy": policy, **settings})
    policy = given.pop("policy", None)
    policy = default_policy(given) if policy is None else policy
    own = {name: value for name, value in given.items() if name in NAMES}
    others = {name: value for name, value in given.items() if name not in NAMES}
    known: tuple[str, ...] = ()
    if isinstance(policy, str):
        known = settings_of_policy(policy)
        if scorer is not None and "scorer" in known:
            others["scorer"] = "model"
        its_own = {name: others.pop(name) for name in known if name in others}
        policy = policy_named(policy, its_own)
    else:
        made: object = as_policy(policy)
        if not is_policy(made):
            hint = "; pass an instance of it" if isinstance(policy, type) else ""
            raise InvalidSetting(
                f"policy: expected one of {sorted(POLICIES)}, a function of (visible, budget, "
                "state), or an object with name, version, max_messages and propose(), found "
                f"{shown(policy)}{hint}"
            )
        policy = made
    warn_of_unknown(others, known, stacklevel)
    return Settings(**own), policy


def settings_in(recorded: Mapping[str, Any]) -> tuple[Settings, Policy, str | None]:
    """The settings and policy that a session was made with, as ``session:start`` recorded them.

    The text is None, or says what the log could not keep: then a default takes its place.
    """
    try:
        settings = Settings(**{name: recorded[name] for name in NAMES if name in recorded})
    except InvalidSetting as error:
        return Settings(), policy_named(DEFAULT), str(error)
    name = recorded.get("policy")
    if not isinstance(name, str):
        return settings, policy_named(DEFAULT), None  # an imported session has none
    if name in POLICIES:
        own = [one for one in settings_of_policy(name) if one in recorded and one not in NAMES]
        with suppress(InvalidSetting, TypeError):
            usual = policy_named(name)  # raises where the policy has no defaults
            was = recorded_settings(usual)
            changed = {one: recorded[one] for one in own if recorded[one] != was[one]}
            # Of a sequence only its size or its names are recorded.
            if not any(isinstance(getattr(usual, one), tuple) for one in changed):
                return settings, policy_named(name, changed), None
    return settings, policy_named(DEFAULT), f"the log does not hold the whole policy {name!r}"


def by_own_name(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings under their own names. Raises InvalidSetting when two names give one two values.

    A policy that is None is left out.
    """
    named: dict[str, Any] = {}
    for name, value in given.items():
        own = ALIASES.get(name, name)
        if own == "policy" and value is None:
            continue
        if own in named and named[own] != value:
            raise InvalidSetting(
                f"{own}: expected one value, found {shown(named[own])} and {shown(value)}"
            )
        named[own] = value
    return named


def warn_of_unknown(names: Iterable[str], known: Iterable[str], stacklevel: int = 3) -> None:
    """Warn of every setting that nothing reads, with the nearest known name."""
    candidates = sorted({*known, *ALIASES, *NAMES})
    for name in names:
        from difflib import get_close_matches

        near = get_close_matches(name, candidates, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        warnings.warn(
            f"setting {name!r} is unknown and has no effect{hint}", UnknownSetting, stacklevel
        )


def check_advised(
    policy: Policy,
    summarizer: Summarizer | None,
    scorer: Scorer | None,
    tokenizer: Tokenizer | None = None,
) -> None:
    """Raise InvalidSetting for a policy whose summarizer or scorer is missing, and for no function.

    The tokenizer may be missing under every policy.
    """
    if tokenizer is not None:
        check_callable("tokenizer", tokenizer)
    for name, adviser in (("summarizer", summarizer), ("scorer", scorer)):
        if getattr(policy, f"needs_{name}", False) and adviser is None:
            raise InvalidSetting(
                f"policy {policy.name!r}: expected {name}=, a function that calls a model, "
                "found none"
            )
        if adviser is not None and not callable(adviser):
            raise InvalidSetting(f"{name}: expected a function, found {shown(adviser)}")


def said_by_request(thinking: object) -> tuple[ThinkingSetting | None, Generation | None]:
    """The setting in the ``thinking`` of a request: by its name, or as the API's parameter.

    ``{"type": "enabled"}`` is manual thinking. A parameter that asks for dropped blocks
    (``block_binding``) lets all thinking stay. Raises InvalidSetting for anything else.
    """
    if thinking is None:
        return None, None
    if isinstance(thinking, str) and thinking in get_args(ThinkingSetting):
        return thinking, None  # type: ignore[return-value]
    kind = thinking.get("type") if isinstance(thinking, Mapping) else None
    if not isinstance(thinking, Mapping) or not isinstance(kind, str):
        raise InvalidSetting(
            f"thinking: expected one of {', '.join(get_args(ThinkingSetting))}, or the parameter "
            f"of a request, such as {{'type': 'adaptive'}}, found {shown(thinking)}"
        )
    binding: Any = thinking.get("block_binding")
    if isinstance(binding, Mapping) and binding.get("prefix_mismatch_behavior") == "drop_block":
        return "keep", None
    return None, "manual" if kind == "enabled" else None


async def resolve_budget(
    token_budget: int | None, provider: object, max_tokens: int | None, fallback: int
) -> int:
    """How many tokens a request may have.

    An explicit ``token_budget`` wins, then the provider's context window less its largest answer
    and a margin, then ``max_tokens``, which also caps both, then ``fallback``. Raises
    InvalidSetting for a budget that is no positive int. Unusable values of a provider are ignored.
    """
    if token_budget is not None:
        check_value("token_budget", token_budget, Tokens)
        return token_budget if max_tokens is None else min(token_budget, max_tokens)
    window = await _window(provider) if provider is not None else None
    limits = [limit for limit in (window, max_tokens) if limit is not None]
    return min(limits, default=fallback)


async def model_of(provider: object) -> str | None:
    """The model that a provider calls by default, by its own word; None where it gives none."""
    for name in ("model", "default_model"):
        found = getattr(provider, name, None)
        if isinstance(found, str) and found:
            return found
    info = await _told_by(provider, "get_info")
    found = _field(_field(info, "defaults"), "model")
    return found if isinstance(found, str) and found else None


async def _window(provider: object) -> int | None:
    """A provider's context window less output and margin; None where it gives none."""
    for method in ("get_model_info", "get_info"):
        info = await _told_by(provider, method)
        for source in (info, _field(info, "defaults")):
            context, output = _field(source, "context_window"), _field(source, "max_output_tokens")
            if _positive(context) and _positive(output):
                left = int(context) - int(output) - SAFETY_MARGIN
                if left > 0:
                    return left
    return None


async def _told_by(provider: object, method: str) -> Any:
    """The answer of a provider's method; None where it has none, or the method fails."""
    ask = getattr(provider, method, None)
    if not callable(ask):
        return None
    try:
        info = ask()
        return await info if inspect.isawaitable(info) else info
    except Exception:  # a provider's bug must not end an agent's turn
        return None


def _field(source: object, name: str) -> Any:
    if isinstance(source, dict):
        return source.get(name)
    return getattr(source, name, None)


def _positive(value: object) -> bool:
    return type(value) is int and 0 < value <= MOST_TOKENS
