# ruff: noqa: T201
"""Reads a store and keeps its state alive until it is killed. Argument: path."""

import sys
import time

import apsw

rows = apsw.Connection(sys.argv[1]).execute("SELECT * FROM records")
next(rows)
print("reading", flush=True)
time.sleep(1_000)
