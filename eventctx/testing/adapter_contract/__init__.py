"""The contract of adapters for agent frameworks as tests that an adapter's author inherits.

Name a driver, which starts an agent of the host on a model that follows a script:

    class TestMyAdapter(AdapterContract):
        driver = MyDriver

It needs pytest and pytest-asyncio. The tests check what ``docs/how-to/write-an-adapter.md``
promises; the adapters of eventctx pass the same tests.
"""

from __future__ import annotations

import pytest

_PARTS = ("failing", "requesting", "running")
# pytest shows the values of a failed assertion only in modules registered before their import.
pytest.register_assert_rewrite(*[f"{__name__}.{part}" for part in _PARTS])

from eventctx.testing.adapter_contract.failing import (  # noqa: E402
    FailingContract,
    ResumingContract,
)
from eventctx.testing.adapter_contract.requesting import (  # noqa: E402
    RecordingContract,
    RequestingContract,
)


class AdapterContract(RequestingContract, RecordingContract, FailingContract, ResumingContract):
    """Every promise of an adapter.

    The subclass names the ``driver``, a class that another process can import, and says with
    ``streams``, ``trims`` and ``retries`` what the host can do.
    """
