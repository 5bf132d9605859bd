"""Agents of Microsoft Agent Framework with our middleware."""

from __future__ import annotations

import pytest

pytest.importorskip("agent_framework", reason="an extra: eventctx[agent-framework]")

from eventctx.testing import AdapterContract
from tests.adapters.drivers.agent_framework import AgentFrameworkDriver


class TestTheContract(AdapterContract):
    driver = AgentFrameworkDriver
