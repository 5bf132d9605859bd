"""From a mount plan's configuration to a store, a policy and settings.

Hosts pass settings of other context modules, of other releases, or none at all. Unknown settings
are ignored and logged, as in every module of the host, and what context-simple and
context-persistent accept is converted (``leniency``). A setting of our own that has a wrong type is
an error at mount, where a person reads it, and not in the middle of a session.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventctx.adapters.amplifier.leniency import CONVERTED, coerced
from eventctx.adapters.amplifier.memory_files import check_size, paths_of
from eventctx.adapters.amplifier.sinks import NO_SINKS, SinksWanted, read_sinks
from eventctx.adapters.amplifier.transcript_file import path_of
from eventctx.errors import InvalidSetting
from eventctx.policies.named import DEFAULT, default_policy, settings_of_policy
from eventctx.policies.policy import Policy
from eventctx.session.settings import NAMES, Settings, by_own_name, choose
from eventctx.stores.location import (
    EXPECTED,
    default_store,
    durabilities,
    in_users_folder,
    is_on_a_server,
)
from eventctx.text import without_password

DEFAULTS: Final[Mapping[str, Any]] = {"max_tokens": None, "on_overflow": "send_floor"}
"""The defaults that differ from ``eventctx.open``: the provider's window is the budget, and a turn
does not end because the messages that must stay are too large."""

ADAPTER: Final = (
    *("store", "durability", "record_sent", "stamp_messages"),
    *("memory_files", "transcript_path", "log", "otlp", "adviser"),
)
"""Settings of the adapter itself."""

_LEARNT: Final = "what it guesses is learnt from the sizes that the provider reports"
_NO_NOTICE: Final = "no notice of a compaction is put into a request"
_NO_SUMMARY: Final = "a summary is written when the policy says so, in its own words"
_KEPT_WHOLE: Final = "results are kept whole, and shortened in requests by truncate_chars"
_IN_ORDER: Final = "the oldest results are shortened first, only as far as needed"

READ_BY_NOBODY: Final[Mapping[str, str]] = {
    "output_reserve_fraction": "the whole of the provider's largest answer is kept free",
    "token_meter": _LEARNT,
    "max_tool_result_bytes": _KEPT_WHOLE,
    "compaction_notice_enabled": _NO_NOTICE,
    "compaction_notice_token_reserve": _NO_NOTICE,
    "compaction_notice_verbosity": _NO_NOTICE,
    "compaction_notice_min_level": _NO_NOTICE,
    "truncate_boundary": _IN_ORDER,
    "compact_clear_at_least": "a compaction that gains little is put off by itself",
    "compact_max_consecutive_skips": "a compaction that gains little is put off by itself",
    "replay_last_user_on_compaction": "the latest words of a person stay in every request",
    "summary_trigger": _NO_SUMMARY,
    "summary_call_mode": _NO_SUMMARY,
    "summarization_model": "mount a provider with that model, and name it by adviser",
    "summarization_prompt_path": _NO_SUMMARY,
    "summarization_timeout_s": "adviser_timeout is the longest that a summary may take",
    "tool_result_budget_tokens": _KEPT_WHOLE,
    "tool_result_budget_by_tool": _KEPT_WHOLE,
    "tool_result_exempt_tools": _KEPT_WHOLE,
    "tool_result_shape": _KEPT_WHOLE,
    "tool_result_spill_dir": "the log has every result whole; recall reads it again",
}
"""Settings of context-simple and context-persistent without a counterpart, and why they have none.

Those from ``compact_clear_at_least`` on are of branches that were not released.
"""

_log = logging.getLogger("eventctx.adapters.amplifier")

Names = Callable[[dict[str, Any]], dict[str, Any]]
"""Translates another module's configuration to our names."""


class Config(NamedTuple):
    """A checked configuration. ``given`` is what the host passed."""

    given: dict[str, Any]
    store: str
    durability: Any
    record_sent: bool
    policy: Policy
    settings: Settings
    memory_files: tuple[Path, ...] = ()
    transcript_path: Path | None = None
    stamp_messages: bool = False
    sinks: SinksWanted = NO_SINKS
    adviser: str | None = None

    @property
    def room_for_memory(self) -> int:
        """The tokens that memory files may have; context-persistent allows 200,000 by default."""
        usual = max(Settings().max_tokens_fallback, self.settings.max_tokens_fallback)
        return self.settings.max_tokens or usual


def own_names(config: dict[str, Any]) -> dict[str, Any]:
    """Our own configuration. ``keep_turns`` selects the policy that counts turns."""
    if config.get("keep_turns") is not None and not {"policy", "compaction_strategy"} & set(config):
        return {**config, "policy": "truncate"}
    return config


def names_of_simple(config: dict[str, Any]) -> dict[str, Any]:
    """context-simple's configuration. Rows have the time that it gives them."""
    return _names_of_both({"stamp_messages": True, **config})


def _names_of_both(config: dict[str, Any]) -> dict[str, Any]:
    """Both modules' configuration. ``max_messages`` selects the policy that counts messages."""
    named = dict(config)
    if named.get("max_messages") is None:
        named.pop("max_messages", None)
    elif not {"policy", "compaction_strategy"} & set(named):
        named["policy"] = "simple"
        named.setdefault("keep_recent", min(10, named["max_messages"]))
    return own_names(named)


def names_of_persistent(config: dict[str, Any]) -> dict[str, Any]:
    """context-persistent's configuration. ``storage_path`` is the folder of store and exports."""
    named = dict(config)
    folder = named.pop("storage_path", None)
    if folder is not None:
        if not isinstance(folder, str):
            raise InvalidSetting(f"storage_path: expected a folder's path, found {folder!r}")
        place = Path(in_users_folder(folder, "storage_path"))
        named.setdefault("store", str(place / "contexts.db"))
        named["storage_path"] = str(place / "exports")
    return _names_of_both(named)


_USUAL: Final[Mapping[Names, str]] = {names_of_simple: "simple"}
"""The policy where a module's own documents say which; context-simple keeps the last ten."""


def _unnamed_policy(given: Iterable[str], names: Names) -> str:
    """The policy of a configuration that names none: by the settings ``given``, or the usual."""
    settings = set(given)
    found = default_policy(settings)
    if found == DEFAULT and settings.isdisjoint(settings_of_policy(DEFAULT)):
        return _USUAL.get(names, DEFAULT)
    return found


def read(config: Mapping[str, Any] | None, names: Names) -> Config:
    """Check a configuration. Raises InvalidSetting."""
    config = config or {}
    if not isinstance(config, Mapping):
        raise InvalidSetting(
            f"config: expected a mapping of settings, found {type(config).__name__}"
        )
    given = dict(config)
    tolerant = coerced(given)
    if tolerant.get("storage_path", "") in (None, ""):
        tolerant.pop("storage_path", None)
    named = by_own_name({**DEFAULTS, **names(tolerant)})
    store, durability, record_sent = _own(named)
    memory = paths_of(named.pop("memory_files", None))
    transcript = path_of(named.pop("transcript_path", None))
    stamps = _switch("stamp_messages", named.pop("stamp_messages", False))
    sinks = read_sinks(named.pop("log", None), named.pop("otlp", None))
    if isinstance(named.get("storage_path"), str):
        named["storage_path"] = in_users_folder(named["storage_path"], "storage_path")
    adviser = _adviser(named.pop("adviser", None))
    policy = named.pop("policy", None) or _unnamed_policy({**given, **named}, names)
    if policy == "smart":
        # Their documents: "semantic importance (LLM judges)". Elsewhere it has no model to ask.
        named.setdefault("scorer", "model")
    known = {*NAMES, *settings_of_policy(policy)}
    _log_without_effect(set(named) - known, known, policy)
    wanted = {name: value for name, value in named.items() if name in known}
    settings, chosen = choose(policy, wanted)
    files = (memory, transcript)
    made = Config(given, store, durability, record_sent, chosen, settings, *files, stamps, sinks)
    made = made._replace(adviser=adviser)
    check_size(memory, made.room_for_memory)
    return made


def _own(named: dict[str, Any]) -> tuple[str, Any, bool]:
    store = named.pop("store", None)
    if store is not None and (not isinstance(store, str) or not store):
        raise InvalidSetting(f"store: expected {EXPECTED}, found {store!r}")
    place = _place(store or default_store())
    durability = _durability(place, named.pop("durability", None))
    record_sent = _switch("record_sent", named.pop("record_sent", True))
    return place, durability, record_sent


def _durability(place: str, given: object) -> str | None:
    """The setting in the words of the store; None for the store's default."""
    words = durabilities(place)
    if given is None or given in words:
        return None if given is None else str(given)
    expected = " or ".join(map(repr, words)) or "none: this store has one durability, the strongest"
    raise InvalidSetting(f"durability: expected {expected}, found {given!r}")


def _adviser(given: object) -> str | None:
    if given is None or (isinstance(given, str) and given):
        return given
    raise InvalidSetting(
        f"adviser: expected the name of a provider of the mount plan, found {given!r}"
    )


def _switch(name: str, value: object) -> bool:
    if type(value) is not bool:
        raise InvalidSetting(f"{name}: expected a bool, found {value!r}")
    return value


def _place(store: str) -> str:
    """One name for each store: ``memory://``, a server's URL, or an absolute path.

    No ``chdir`` changes it. A path may begin with the user's folder, as paths in a mount plan do.
    """
    if store in ("memory://", ":memory:"):
        return "memory://"
    if is_on_a_server(store) and "\0" not in store:
        return store
    scheme, separator, rest = in_users_folder(store).partition("://")
    path = rest.removeprefix("/") if separator else scheme
    if not path or "\0" in path or (separator and scheme != "sqlite"):
        raise InvalidSetting(f"store: expected {EXPECTED}, found {without_password(store)!r}")
    return str(Path(path).absolute())


def _log_without_effect(names: set[str], known: set[str], policy: str) -> None:
    for name in sorted(names):
        if name in READ_BY_NOBODY:
            _log.info("setting %r has no effect here: %s", name, READ_BY_NOBODY[name])
        elif name in CONVERTED:
            _log.warning("setting %r has no effect under the policy %r", name, policy)
        else:
            near = difflib.get_close_matches(name, sorted(known | set(ADAPTER)), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            _log.warning("setting %r is unknown and has no effect%s", name, hint)
