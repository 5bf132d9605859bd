"""The receivers as fixtures; tests/conftest.py offers them to every test."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.services import jaeger as jaeger_process
from tests.services.jaeger_binary import JaegerMissing, build, find


@pytest.fixture(scope="session")
def jaeger() -> Iterator[jaeger_process.Jaeger]:
    """A real Jaeger, one for all tests: give your traces ids and a service name of their own.

    Without a binary the tests are skipped, but with CI=true it is built, and they fail if it
    cannot be.
    """
    try:
        binary = find()
    except JaegerMissing as missing:
        if os.environ.get("CI") != "true":
            pytest.skip(str(missing))
        binary = build()
    with jaeger_process.start(binary) as running:
        yield running
