"""Decides what a run does next, and creates the tasks for its steps.  Does no I/O, and changes only the run passed in.

One round visits every task that is not settled yet:

    out of time               becomes TIMED_OUT, and the workflow ends if the TaskDef says so
    failed, retries left      a retry is scheduled
    failed, no retries left   the workflow ends; an optional step becomes COMPLETED_WITH_ERRORS instead
    over                      becomes settled, and the next step is scheduled
    SWITCH, DO_WHILE          evaluated

Rounds repeat until one changes nothing.  JOINs are evaluated between rounds.  A run with nothing left to do is
COMPLETED.  The order and the error texts are the same as Conductor's.

Scheduling a step creates its task and the tasks of the steps that start with it (see the table in `step_handlers`).
Inputs are resolved when a step is scheduled, and again for every retry.
"""

from __future__ import annotations

from collections.abc import Sequence

from perago.orchestrator.local.expressions import resolve
from perago.orchestrator.local.state import RUNNING, Env, Run, Task
from perago.orchestrator.local.step_handlers import (
    HANDLERS,
    Evaluation,
    evaluated_tasks,
    is_loop,
    is_system,
    task_input,
)
from perago.orchestrator.local.taskdef import retry_delay, timed_out, total_time_is_up
from perago.workflow.model.definition import Step, in_iteration
from perago.workflow.model.step_types import STEP_TYPES, SWITCH


def tasks_for(run: Run, step: Step, env: Env) -> list[Task]:
    """Create the tasks for a step that is due, except those already started in the run."""
    task = _task(run, step, env)
    tasks = [task]
    for other in HANDLERS[step.type].schedule(run, step, task, env):
        tasks.extend(tasks_for(run, other, env))
    return _not_started(run, tasks)


def retry_of(run: Run, task: Task, env: Env) -> Task:
    """Create the retry of a failed task: a new task of the same step, available after its delay.

    The delay is the TaskDef's or, if shorter, the longest one that the limits allow.
    """
    rules = run.rules_for(task.name)
    retry = _task(run, run.step(task), env)
    retry.reference, retry.iteration = task.reference, task.iteration
    retry.retry_count = task.retry_count + 1
    # As in Conductor, the new task keeps the last failure's reason until it gets its own.
    retry.reason = task.reason
    retry.first_scheduled = task.first_scheduled
    # Revoking compares scheduled times, so the retry must be later than the failed task, however coarse the clock is.
    retry.scheduled = max(env.now, task.scheduled + 0.001)
    delay, longest = retry_delay(rules, task.retry_count, env.random), env.limits.longest_delay
    retry.available = env.now + (delay if longest is None else min(delay, longest))
    retry.input = {**task.input, **task_input(run, run.step(task), retry.id)}
    return retry


def place_in_loop(tasks: Sequence[Task], iteration: int) -> None:
    """Mark tasks as belonging to an iteration of a loop."""
    for task in tasks:
        task.reference = in_iteration(task.reference, iteration)
        task.iteration = iteration


def add_tasks(run: Run, tasks: Sequence[Task]) -> list[Task]:
    """Append tasks to the run, numbering them after its highest number.  Returns only the tasks that were new."""
    known = {(task.reference, task.retry_count) for task in run.tasks}
    new = [task for task in tasks if (task.reference, task.retry_count) not in known]
    highest = max((task.seq for task in run.tasks), default=0)
    for seq, task in enumerate(new, start=highest + 1):
        task.seq = seq
        run.tasks.append(task)
    return new


def _not_started(run: Run, tasks: Sequence[Task]) -> list[Task]:
    started = {task.reference for task in run.tasks if task.status == "IN_PROGRESS" or task.over}
    return [task for task in tasks if task.reference not in started]


def _task(run: Run, step: Step, env: Env) -> Task:
    row = STEP_TYPES[step.type]
    system = row.done_by == "orchestrator"
    name = row.task_type if HANDLERS[step.type].named_by_type else step.name
    return Task(
        id=env.new_id(),
        run_id=run.id,
        reference=step.reference,
        name=name,
        type=row.task_type if system else name,
        status="IN_PROGRESS" if system else "SCHEDULED",
        scheduled=env.now,
        first_scheduled=env.now,
        available=env.now,
        started=env.now if system else None,
        updated=env.now,
    )


class _RunFailed(Exception):
    """Raised if the workflow ends without success."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason


def decide(run: Run, env: Env) -> None:
    """Advance the run until it waits for a worker or for time to pass."""
    if run.status != RUNNING:
        return
    try:
        if not run.tasks:
            add_tasks(run, tasks_for(run, run.definition.top.steps[0], env))
        _check_workflow_time(run, env)
        while run.status == RUNNING and (_round(run, env) or _evaluate_between_rounds(run, env)):
            pass
    except _RunFailed as end:
        end_run(run, end.status, end.reason, env)


def end_run(run: Run, status: str, reason: str | None, env: Env) -> None:
    """End the run with a final status.  Unfinished tasks become CANCELED."""
    run.output = _output(run)
    run.status, run.reason, run.ended = status, reason, env.now
    run.changed = True
    for task in run.tasks:
        if not task.over:
            task.end("CANCELED", env.now)


def _round(run: Run, env: Env) -> bool:
    """Visit every unsettled task once.  Returns whether anything changed."""
    pending = [task for task in run.tasks if not task.retried and not task.executed]
    settled = {task.reference for task in run.tasks if task.executed}
    coming: dict[str, Task] = {}
    optional: list[tuple[Task, str]] = []
    changed = False
    for task in pending:
        if not is_system(task):
            _check_time(run, task, env)
        status = task.status
        if task.failed and _schedule_retry(run, task, coming, env):
            settled.discard(task.reference)
            changed = True
        elif task.over:
            if task.status != status:
                optional.append((task, status))
            task.executed = task.changed = changed = True
            for following in _following(run, task, env):
                coming.setdefault(following.reference, following)
    added = add_tasks(run, [task for task in coming.values() if task.reference not in settled])
    if not added and _is_complete(run):
        end_run(run, "COMPLETED", None, env)
        # Conductor ends the workflow before it writes COMPLETED_WITH_ERRORS, so the last tasks keep their status.
        for task, status in optional:
            task.status = status
        return True
    for task, evaluate in evaluated_tasks([*pending, *added], between_rounds=False):
        evaluation = evaluate(run, task, env)
        _start_step(run, task, evaluation, env)
        if evaluation.changed:
            task.changed = changed = True
    return changed or bool(added)


def _evaluate_between_rounds(run: Run, env: Env) -> bool:
    due = evaluated_tasks(run.tasks, between_rounds=True)
    changed = [evaluate(run, task, env).changed for task, evaluate in due]
    return any(changed)


def _start_step(run: Run, loop: Task, evaluation: Evaluation, env: Env) -> None:
    """Schedule the step that a loop's evaluation starts, if any."""
    if evaluation.starts is not None:
        tasks = tasks_for(run, evaluation.starts, env)
        place_in_loop(tasks, loop.iteration)
        add_tasks(run, tasks)


def _check_workflow_time(run: Run, env: Env) -> None:
    due = run_deadline(run)
    if due is not None and env.now >= due:
        definition = run.definition
        raise _RunFailed(
            "TIMED_OUT",
            f"Workflow timed out after {int(env.now - run.clock_start)} seconds. Timeout configured as "
            f"{definition.timeout_seconds} seconds. Timeout policy configured to {definition.timeout_policy}",
        )


def run_deadline(run: Run) -> float | None:
    """Return the time at which the whole workflow times out, or None if it never does."""
    limit = run.definition.timeout_seconds
    if run.status != RUNNING or limit <= 0 or run.definition.timeout_policy != "TIME_OUT_WF":
        return None
    return run.clock_start + limit


def _check_time(run: Run, task: Task, env: Env) -> None:
    found = None if task.over else timed_out(task, run.rules_for(task.name), env.now)
    if found is not None:
        task.end("TIMED_OUT", env.now, found.reason)
        if found.ends_workflow:
            raise _RunFailed("TIMED_OUT", found.reason)


def _schedule_retry(run: Run, task: Task, coming: dict[str, Task], env: Env) -> bool:
    """Schedule a retry of a failed task if one is allowed.  Returns whether it was scheduled.

    If no retry is allowed, an optional step becomes COMPLETED_WITH_ERRORS, and any other step raises `_RunFailed`.
    """
    step, rules = run.step(task), run.rules_for(task.name)
    allowed = 0 if env.limits.no_retries or task.id == env.useless else run.retries_allowed(task)
    if is_system(task) or task.status not in {"FAILED", "TIMED_OUT"} or task.retry_count >= allowed:
        if step.optional:
            task.end("COMPLETED_WITH_ERRORS", env.now)
            return False
        status = {"CANCELED": "TERMINATED", "TIMED_OUT": "TIMED_OUT"}.get(task.status, "FAILED")
        raise _RunFailed(status, f"Task {task.id} failed with status: {status} and reason: '{_reason(task)}'")
    if total_time_is_up(task, rules, env.now):
        raise _RunFailed(
            "TIMED_OUT" if task.status == "TIMED_OUT" else "FAILED",
            f"Task {task.id}/{task.name} exceeded total timeout of {rules.total_timeout_seconds} seconds "
            f"(elapsed {int(env.now - task.first_scheduled)} seconds across all attempts). "
            "No further retries will be attempted.",
        )
    task.retried = task.changed = True
    coming[task.reference] = retry_of(run, task, env)
    return True


def _reason(task: Task) -> str:
    # Conductor prints a missing reason as Java's null.
    return "null" if task.reason is None else task.reason


def _following(run: Run, task: Task, env: Env) -> list[Task]:
    if task.type == SWITCH and "hasChildren" in task.input:
        return []
    step = run.definition.next_after(task.step_reference)
    if step is None or (step.shape == "loop" and run.latest(step.reference) is not None):
        return []
    tasks = tasks_for(run, step, env)
    if task.iteration and not is_loop(task):
        place_in_loop(tasks, task.iteration)
        return _not_started(run, tasks)
    return tasks


def _is_complete(run: Run) -> bool:
    latest = {task.reference: task for task in run.tasks}
    if not all(task.over for task in run.tasks):
        return False
    if not all(step.reference in latest for step in run.definition.top.steps):
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
