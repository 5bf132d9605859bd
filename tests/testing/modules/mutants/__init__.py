"""Faults that a context module may have: ``MUTANTS`` puts each into any sound class."""

from __future__ import annotations

from tests.testing.modules.mutants import keeping, sending, telling
from tests.testing.modules.mutants.making import MUTANTS
from tests.testing.modules.mutants.telling import REFUSALS

__all__ = ["MUTANTS", "REFUSALS", "keeping", "sending", "telling"]
