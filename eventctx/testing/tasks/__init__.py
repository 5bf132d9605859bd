"""Generated work in which a lost fact has consequences: what a context leaves an agent able to do.

    from eventctx.testing.tasks import run_tasks

    found = await run_tasks(["workset", "ladder"], shares=[0.25])
    assert found.row("workset", 0.25).succeeded.value >= found.row("ladder", 0.25).succeeded.value

A task is generated from a family, a length and a seed. Its agent is a program: it sees the view of
one request and nothing else, acts through tools on a small simulated world, and the end state says
whether it succeeded. With everything in view it always does. No model is called.
"""

from eventctx.testing.tasks.families import FAMILIES, HELD_OUT
from eventctx.testing.tasks.playing import TaskRun, ViewSource, play
from eventctx.testing.tasks.reading import AgentView, Sought
from eventctx.testing.tasks.table import (
    LENGTHS,
    SHARES,
    FactCount,
    TaskContext,
    TaskRow,
    TaskTable,
    run_tasks,
)
from eventctx.testing.tasks.work import Family, Work

__all__ = [
    "FAMILIES",
    "HELD_OUT",
    "LENGTHS",
    "SHARES",
    "AgentView",
    "FactCount",
    "Family",
    "Sought",
    "TaskContext",
    "TaskRow",
    "TaskRun",
    "TaskTable",
    "ViewSource",
    "Work",
    "play",
    "run_tasks",
]
