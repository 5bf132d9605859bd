"""The kit that adapters for agent frameworks are made of: a host's list of messages as a session.

``docs/how-to/write-an-adapter.md`` makes one with it.
"""

from __future__ import annotations

from eventctx.adapters.kit.host_list import HostList, held_against, plain_identity
from eventctx.adapters.kit.host_session import HostSession

__all__ = ["HostList", "HostSession", "held_against", "plain_identity"]
