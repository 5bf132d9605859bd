"""Patroni's settings: as safe as it can be told to be, and as quick as it lets itself be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

LEASE = 20
"""Seconds; Patroni takes no shorter one."""

_PARAMETERS = {
    "shared_buffers": "16MB",
    "max_connections": "100",
    "max_wal_size": "64MB",
    "wal_keep_size": "64MB",
    "wal_receiver_timeout": "2s",
    "wal_sender_timeout": "2s",
    "wal_retrieve_retry_interval": "200ms",
    "tcp_user_timeout": "3s",
    "client_connection_check_interval": "1s",
    "dynamic_shared_memory_type": "mmap",
    "log_min_messages": "warning",
}

_EVERYBODY = ("local all all trust", "host all all all trust", "host replication all all trust")


def settings(
    name: str, host: str, ports: tuple[int, int], folder: Path, votes: str
) -> dict[str, Any]:
    """The settings of a machine; ``ports`` are PostgreSQL's and Patroni's, ``votes`` is etcd.

    They are written as JSON, which is YAML.
    """
    postgres, rest = (f"{host}:{port}" for port in ports)
    return {
        "scope": "faults",
        "name": name,
        "restapi": {"listen": rest, "connect_address": rest},
        "etcd3": {"host": votes},
        "bootstrap": {"dcs": _cluster()},
        "postgresql": {
            "listen": postgres,
            "connect_address": postgres,
            "data_dir": str(folder / "data"),
            "pgpass": str(folder / "pgpass"),
            "authentication": {
                who: {"username": "postgres"} for who in ("superuser", "replication", "rewind")
            },
            "parameters": {"unix_socket_directories": str(folder)},
            "pg_hba": list(_EVERYBODY),
            # A machine that cannot be wound back is copied anew, at once.
            "basebackup": [{"checkpoint": "fast"}],
            "remove_data_directory_on_diverged_timelines": True,
            "remove_data_directory_on_rewind_failure": True,
        },
        "watchdog": {"mode": "off"},
    }


def _cluster() -> dict[str, Any]:
    return {
        "ttl": LEASE,
        "loop_wait": 1,
        "retry_timeout": 3,
        "synchronous_mode": True,
        "synchronous_mode_strict": True,
        "primary_start_timeout": 0,
        "postgresql": {"use_pg_rewind": True, "parameters": _PARAMETERS},
    }
