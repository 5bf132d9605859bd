"""From a mount plan's configuration to a store, a policy and settings.

Hosts pass settings of other context modules, of other releases, or none at all. Unknown settings
are ignored and logged, as in every module of the host. A setting of a wrong type is an error at
mount, where a person reads it, and not in the middle of a session.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from eventctx.errors import InvalidSetting
from eventctx.policies.named import settings_of_policy
from eventctx.policies.policy import Policy
from eventctx.session.settings import NAMES, Settings, by_own_name, choose
from eventctx.stores.location import default_store, in_users_folder

DEFAULTS: Final[Mapping[str, Any]] = {"max_tokens": None, "on_overflow": "send_floor"}
"""The defaults that differ from ``eventctx.open``: the provider's window is the budget, and a turn
does not end because the messages that must stay are too large."""

ADAPTER: Final = ("store", "durability", "record_sent")
"""Settings of the adapter itself."""

READ_BY_NOBODY: Final = frozenset(
    ("output_reserve_fraction", "token_meter", "max_tool_result_bytes")
)
"""Settings of context-simple without a counterpart: calibration learns what they guess."""

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


def own_names(config: dict[str, Any]) -> dict[str, Any]:
    """Our own configuration. ``keep_turns`` selects the policy that counts turns."""
    if config.get("keep_turns") is not None and not {"policy", "compaction_strategy"} & set(config):
        return {**config, "policy": "truncate"}
    return config


def names_of_simple(config: dict[str, Any]) -> dict[str, Any]:
    """context-simple's configuration. ``max_messages`` selects the policy that counts messages."""
    named = dict(config)
    if named.get("max_messages") is None:
        named.pop("max_messages", None)
    elif not {"policy", "compaction_strategy"} & set(named):
        named["policy"] = "simple"
        most = named["max_messages"]
        if type(most) is int and most < 10:
            named.setdefault("keep_recent", max(1, most))
    return own_names(named)


def names_of_persistent(config: dict[str, Any]) -> dict[str, Any]:
    """context-persistent's configuration. ``storage_path`` is the folder of store and exports."""
    named = dict(config)
    folder = named.pop("storage_path", None)
    if folder is not None:
        if not isinstance(folder, str) or not folder:
            raise InvalidSetting(f"storage_path: expected a folder's path, found {folder!r}")
        place = Path(in_users_folder(folder, "storage_path"))
        named.setdefault("store", str(place / "contexts.db"))
        named["storage_path"] = str(place / "exports")
    return names_of_simple(named)


def read(config: Mapping[str, Any] | None, names: Names) -> Config:
    """Check a configuration. Raises InvalidSetting."""
    if config is None:
        config = {}
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        raise InvalidSetting(
            f"config: expected a mapping of settings, found {type(config).__name__}"
        )
    given = dict(config)
    named = by_own_name({**DEFAULTS, **names(given)})
    store, durability, record_sent = _own(named)
    if isinstance(named.get("storage_path"), str):
        named["storage_path"] = in_users_folder(named["storage_path"], "storage_path")
    policy = named.pop("policy", "ladder")
    known = {*NAMES, *settings_of_policy(policy)}
    _log_unknown(set(named) - known - READ_BY_NOBODY, known)
    wanted = {name: value for name, value in named.items() if name in known}
    settings, chosen = choose(policy, wanted)
    return Config(given, store, durability, record_sent, chosen, settings)


def _own(named: dict[str, Any]) -> tuple[str, Any, bool]:
    store = named.pop("store", None)
    if store is not None and (not isinstance(store, str) or not store):
        raise InvalidSetting(
            f"store: expected memory://, sqlite:///PATH or a path, found {store!r}"
        )
    durability = named.pop("durability", "full")
    if durability not in ("full", "normal"):
        raise InvalidSetting(f"durability: expected 'full' or 'normal', found {durability!r}")
    record_sent = named.pop("record_sent", True)
    if type(record_sent) is not bool:
        raise InvalidSetting(f"record_sent: expected a bool, found {record_sent!r}")
    return _place(store or default_store()), durability, record_sent


def _place(store: str) -> str:
    """One name for each store: ``memory://``, or an absolute path, which no ``chdir`` changes.

    A path may begin with the user's folder, as paths in a mount plan do.
    """
    if store in ("memory://", ":memory:"):
        return "memory://"
    scheme, separator, rest = in_users_folder(store).partition("://")
    path = rest.removeprefix("/") if separator else scheme
    if not path or "\0" in path or (separator and scheme != "sqlite"):
        raise InvalidSetting(
            f"store: expected memory://, sqlite:///PATH or a path, found {store!r}"
        )
    return str(Path(path).absolute())


def _log_unknown(names: set[str], known: set[str]) -> None:
    for name in sorted(names):
        near = difflib.get_close_matches(name, sorted(known | set(ADAPTER)), n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        _log.warning("setting %r is unknown and has no effect%s", name, hint)
