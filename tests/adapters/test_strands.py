"""Strands agents with our plugin. They run where strands can be imported.

python -m venv strands && strands/bin/pip install -e '.[strands]' pytest pytest-asyncio
strands/bin/python -m pytest --noconftest tests/adapters/test_strands.py
"""

from __future__ import annotations

import pytest

pytest.importorskip("strands", reason="an extra that is not in dev: eventctx[strands]")

from eventctx.testing import AdapterContract
from tests.adapters.drivers.strands import StrandsDriver


class TestTheContract(AdapterContract):
    driver = StrandsDriver
