"""From a step to its tasks: what is scheduled when a step's turn comes.

A step's turn brings a task of its own, and the tasks of the steps that begin with it (`step_types` has the table).
Inputs are resolved at the moment of scheduling, and again for every retry.

The decider: from a run as it stands to what happens next.  No I/O; it changes only the run it is given.

One round looks at every task that is not settled yet:

    out of time             TIMED_OUT, or the end of the workflow, as the TaskDef says
    failed, tries left      a retry is scheduled
    failed, no tries left   the workflow ends; an optional step becomes COMPLETED_WITH_ERRORS instead
    over                    settled, and what follows it is scheduled
    SWITCH, DO_WHILE        carried on

Rounds repeat until one changes nothing, JOINs are looked at between them, and a run in which nothing is left
to do is COMPLETED.  The order of things, and the texts, are Conductor's.
"""

from __future__ import annotations

from collections.abc import Sequence

from perago.orchestrator.local.definition import SWITCH, Step, in_loop
from perago.orchestrator.local.expressions import resolve
from perago.orchestrator.local.state import RUNNING, Env, Run, Task
from perago.orchestrator.local.step_handlers import Looked, task_input
from perago.orchestrator.local.step_types import STEP_TYPES, is_loop, is_system, looked_at
from perago.orchestrator.local.taskdef import retry_delay, timed_out, total_time_is_up


def tasks_for(run: Run, step: Step, env: Env) -> list[Task]:
    """The tasks that a step's turn brings, without those the run already has."""
    task = _task(run, step, env)
    tasks = [task]
    for other in STEP_TYPES[step.type].begin(run, step, task, env):
        tasks.extend(tasks_for(run, other, env))
    begun = {task.reference for task in run.tasks if task.status == "IN_PROGRESS" or task.over}
    return [task for task in tasks if task.reference not in begun]


def retry_of(run: Run, task: Task, env: Env) -> Task:
    """The next try of a failed task: a new task in the same place, due after the TaskDef's delay."""
    rules = run.rules_for(task.name)
    again = _task(run, run.step(task), env)
    again.reference, again.iteration = task.reference, task.iteration
    again.retry_count = task.retry_count + 1
    # Conductor leaves the last failure's reason on the new task until it has one of its own.
    again.reason = task.reason
    again.first_scheduled = task.first_scheduled
    # Later than the one it follows, however coarse the clock: revoking goes by it.
    again.scheduled = max(env.now, task.scheduled + 0.001)
    again.available = env.now + retry_delay(rules, task.retry_count, env.random)
    again.input = {**task.input, **task_input(run, run.step(task), again.id)}
    return again


def place_in_loop(tasks: Sequence[Task], iteration: int) -> None:
    """Mark tasks as belonging to one iteration of a loop."""
    for task in tasks:
        task.reference = in_loop(task.reference, iteration)
        task.iteration = iteration


def add_tasks(run: Run, tasks: Sequence[Task]) -> list[Task]:
    """Put tasks at the end of the run, numbered on from its highest; those it has already are left out."""
    known = {(task.reference, task.retry_count) for task in run.tasks}
    new = [task for task in tasks if (task.reference, task.retry_count) not in known]
    highest = max((task.seq for task in run.tasks), default=0)
    for seq, task in enumerate(new, start=highest + 1):
        task.seq = seq
        run.tasks.append(task)
    return new


def _task(run: Run, step: Step, env: Env) -> Task:
    row = STEP_TYPES[step.type]
    name, system = row.task_name(step), bool(row.task_type)
    return Task(
        id=env.new_id(),
        run_id=run.id,
        reference=step.reference,
        name=name,
        type=row.task_type or name,
        status="IN_PROGRESS" if system else "SCHEDULED",
        scheduled=env.now,
        first_scheduled=env.now,
        available=env.now,
        started=env.now if system else None,
        updated=env.now,
    )


class _Ends(Exception):
    """The workflow ends here, and not well."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def decide(run: Run, env: Env) -> None:
    """Take the run as far as it goes without anything happening outside."""
    if run.status != RUNNING:
        return
    try:
        if not run.tasks:
            add_tasks(run, tasks_for(run, run.definition.steps[0], env))
        _check_workflow_time(run, env)
        while run.status == RUNNING and (_round(run, env) or _look_between_rounds(run, env)):
            pass
    except _Ends as end:
        end_run(run, end.status, end.reason, env)


def end_run(run: Run, status: str, reason: str | None, env: Env) -> None:
    """Give the run its final status; what is not over is CANCELED."""
    run.output = _output(run)
    run.status, run.reason, run.ended = status, reason, env.now
    run.changed = True
    for task in run.tasks:
        if not task.over:
            task.end("CANCELED", env.now)


def _round(run: Run, env: Env) -> bool:
    """Look once at every unsettled task; whether anything changed."""
    pending = [task for task in run.tasks if not task.retried and not task.executed]
    settled = {task.reference for task in run.tasks if task.executed}
    coming: dict[str, Task] = {}
    excused: list[tuple[Task, str]] = []
    changed = False
    for task in pending:
        if not is_system(task):
            _check_time(run, task, env)
        status = task.status
        if task.failed and _tried_again(run, task, coming, env):
            settled.discard(task.reference)
            changed = True
        elif task.over:
            if task.status != status:
                excused.append((task, status))
            task.executed = task.changed = changed = True
            for following in _following(run, task, env):
                coming.setdefault(following.reference, following)
    added = add_tasks(run, [task for task in coming.values() if task.reference not in settled])
    if not added and _is_complete(run):
        end_run(run, "COMPLETED", None, env)
        # Conductor ends the workflow before it writes the excuse, so the last task keeps its own status.
        for task, own in excused:
            task.status = own
        return True
    for task, look in looked_at([*pending, *added], between_rounds=False):
        looked = look(run, task, env)
        _begin(run, task, looked, env)
        if looked.changed:
            task.changed = changed = True
    return changed or bool(added)


def _look_between_rounds(run: Run, env: Env) -> bool:
    moved = [look(run, task, env).changed for task, look in looked_at(run.tasks, between_rounds=True)]
    return any(moved)


def _begin(run: Run, loop: Task, looked: Looked, env: Env) -> None:
    """Schedule the step whose turn has come by a look at a loop."""
    if looked.begins is not None:
        tasks = tasks_for(run, looked.begins, env)
        place_in_loop(tasks, loop.iteration)
        add_tasks(run, tasks)


def _check_workflow_time(run: Run, env: Env) -> None:
    due = run_deadline(run)
    if due is not None and env.now >= due:
        definition = run.definition
        raise _Ends(
            "TIMED_OUT",
            f"Workflow timed out after {int(env.now - run.clock_start)} seconds. Timeout configured as "
            f"{definition.timeout_seconds} seconds. Timeout policy configured to {definition.timeout_policy}",
        )


def run_deadline(run: Run) -> float | None:
    """When the whole workflow is out of time; None if it never is."""
    limit = run.definition.timeout_seconds
    if run.status != RUNNING or limit <= 0 or run.definition.timeout_policy != "TIME_OUT_WF":
        return None
    return run.clock_start + limit


def _check_time(run: Run, task: Task, env: Env) -> None:
    found = None if task.over else timed_out(task, run.rules_for(task.name), env.now)
    if found is not None:
        task.end("TIMED_OUT", env.now, found.reason)
        if found.ends_workflow:
            raise _Ends("TIMED_OUT", found.reason)


def _tried_again(run: Run, task: Task, coming: dict[str, Task], env: Env) -> bool:
    """Whether a failed task gets another try; if not, its optional step counts as done, else the run ends."""
    step, rules = run.step(task), run.rules_for(task.name)
    allowed = run.retries_allowed(task)
    if is_system(task) or task.status not in {"FAILED", "TIMED_OUT"} or task.retry_count >= allowed:
        if step.optional:
            task.end("COMPLETED_WITH_ERRORS", env.now)
            return False
        status = {"CANCELED": "TERMINATED", "TIMED_OUT": "TIMED_OUT"}.get(task.status, "FAILED")
        raise _Ends(status, f"Task {task.id} failed with status: {status} and reason: '{_reason(task)}'")
    if total_time_is_up(task, rules, env.now):
        raise _Ends(
            "TIMED_OUT" if task.status == "TIMED_OUT" else "FAILED",
            f"Task {task.id}/{task.name} exceeded total timeout of {rules.total_timeout_seconds} seconds "
            f"(elapsed {int(env.now - task.first_scheduled)} seconds across all attempts). "
            "No further retries will be attempted.",
        )
    task.retried = task.changed = True
    coming[task.reference] = retry_of(run, task, env)
    return True


def _reason(task: Task) -> str:
    # Conductor writes a missing reason the way Java prints nothing.
    return "null" if task.reason is None else task.reason


def _following(run: Run, task: Task, env: Env) -> list[Task]:
    if task.type == SWITCH and "hasChildren" in task.input:
        return []
    step = run.definition.next_after(task.step_reference)
    if step is None or (STEP_TYPES[step.type].loops and run.latest(step.reference) is not None):
        return []
    tasks = tasks_for(run, step, env)
    if task.iteration and not is_loop(task):
        place_in_loop(tasks, task.iteration)
        begun = {other.reference for other in run.tasks if other.status == "IN_PROGRESS" or other.over}
        tasks = [one for one in tasks if one.reference not in begun]
    return tasks


def _is_complete(run: Run) -> bool:
    latest = {task.reference: task for task in run.tasks}
    if not all(task.over for task in run.tasks):
        return False
    if not all(step.reference in latest for step in run.definition.steps):
        return False
    for task in run.tasks:
        inside_loop = task.iteration and not is_loop(task)
        following = None if inside_loop else run.definition.next_after(task.reference)
        if following is not None and following.reference not in latest:
            return False
    return True


def _output(run: Run) -> dict[str, object]:
    if not run.tasks:
        return {}
    if run.definition.output_parameters:
        found: dict[str, object] = resolve(run.definition.output_parameters, run.scope())
        return found
    return dict(run.tasks[-1].output)
