"""How a workflow goes on after it ended badly, or after the process that worked for it died.  No I/O.

As Conductor's `retry` does it:

    the last task of a reference      goes on as
    FAILED, TIMED_OUT, CANCELED ...   a new task with retry count + 1, whatever the TaskDef allows, due at once
    a JOIN or DO_WHILE                itself, in progress again
    anything else                     it is

The rule beyond Conductor's: who goes on by hand begins a step's total time anew, and a SWITCH that failed is evaluated
again.  (Conductor takes the SWITCH for done and skips its cases, and goes on counting the total time while nothing runs.)
"""

from __future__ import annotations

from perago.errors import OrchestratorRefused
from perago.orchestrator.local.decider import decide
from perago.orchestrator.local.schedule import add_tasks, place_in_loop, retry_of, tasks_for
from perago.orchestrator.local.state import RUNNING, Env, Run, Task
from perago.orchestrator.local.step_types import STEP_TYPES, goes_on, is_system
from perago.protocol.attempt import IN_PROGRESS

_UNDONE = frozenset({"FAILED", "FAILED_WITH_TERMINAL_ERROR", "TIMED_OUT", "CANCELED"})


def retry_run(run: Run, env: Env) -> None:
    """Have a run that ended badly go on from what failed in it."""
    if run.status == RUNNING:
        raise OrchestratorRefused(f"workflow {run.id} is still running")
    undone = list(_undone(run).values())
    if run.status == "COMPLETED" or (not undone and run.status != "TIMED_OUT"):
        raise OrchestratorRefused(f"workflow {run.id} is {run.status} and has no task to be tried again")
    run.status, run.reason, run.ended, run.retried_at = RUNNING, None, None, env.now
    run.changed = True
    for task in undone:
        if goes_on(task):
            _reopen(task)
        else:
            add_tasks(run, _next_try(run, task, env))
    decide(run, env)


def replace_orphans(run: Run, reason: str, env: Env) -> None:
    """Time out what is in progress with a dead process, and have each tried again at once.

    A try that was cut off says nothing about the task, so that no retry count can end the workflow here.
    """
    for task in [task for task in run.tasks if task.status == IN_PROGRESS and not is_system(task)]:
        task.end("TIMED_OUT", env.now, reason)
        add_tasks(run, _next_try(run, task, env))
    decide(run, env)


def _undone(run: Run) -> dict[str, Task]:
    """The last task of every reference, where it did not end well, in order."""
    latest = {task.reference: task for task in run.tasks}
    return {reference: task for reference, task in latest.items() if task.status in _UNDONE}


def _reopen(task: Task) -> None:
    if task.status != "CANCELED":
        task.retry_count += 1
    task.status, task.ended, task.reason = IN_PROGRESS, None, None
    task.changed = True


def _next_try(run: Run, task: Task, env: Env) -> list[Task]:
    """The new task, and what begins with it."""
    again = retry_of(run, task, env)
    again.reason = None
    again.available = again.first_scheduled = env.now
    task.retried = task.changed = True
    if not is_system(task):
        return [again]
    step = run.step(task)
    others = [
        other
        for following in STEP_TYPES[step.type].begin(run, step, again, env)
        for other in tasks_for(run, following, env)
    ]
    if task.iteration:
        place_in_loop(others, task.iteration)
    return [again, *others]
