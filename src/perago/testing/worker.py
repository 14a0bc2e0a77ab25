"""A worker for tests: it runs tasks and whole workflows on one lake, in the test's process.

Attempts run one after the other, with the same transaction and delivery code as in production.  A trial starts from the
branch's current head and leaves its publications in place, so that one trial can continue from another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from perago.declare.run_steps import with_run_steps
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import build_taskdef
from perago.errors import TrialError
from perago.orchestrator.base import WorkflowState
from perago.protocol.ledger import Recompute
from perago.runtime.runs.inspect import worker_tasks
from perago.testing.arguments import (
    Task,
    Workflow,
    check_workflow_errors,
    faults_of,
    forced_steps,
    params_of,
    retries_of,
    task_of,
    tasks_of,
    workflow_faults,
    workflow_of,
)
from perago.testing.environment import Clock, TrialEnvironment
from perago.testing.faults import Faults, renamed_argument
from perago.testing.lake import MAIN, TrialLake
from perago.testing.results import Changes, Trial, TrialStep, WorkflowTrial
from perago.testing.runner import Runner
from perago.workflow.model.requirements import used_tasks

STEP = "trial"
"""The reference name of the single step that `try_task` runs."""
MOST_ATTEMPTS = 1000
"""The number of attempts after which a workflow is assumed never to end."""


class TrialWorker:
    """Runs tasks and workflows on a test's lake. The `perago_worker` fixture provides one."""

    def __init__(self, environment: TrialEnvironment) -> None:
        self._environment = environment
        self.lake = TrialLake(environment.lake, environment.uploads)
        """The lake on which this worker runs its trials."""

    def try_task(
        self,
        function: Callable[..., Any],
        *,
        params: Mapping[str, Any] | BaseModel | None = None,
        branch: str = MAIN,
        faults: Faults | None = None,
        retries: int = 0,
        force: bool = False,
        full: bool = False,
        at: Faults | None = None,
    ) -> Trial:
        """Run one attempt of a task from the head of a branch, and as many retries as you ask for.

        Args:
            function: A function decorated with `@task`.
            params: The task's params, as its params model or as a dict. A dict is validated like Conductor's input.
            branch: The branch to start from and to publish to.
            faults: `crash()`, `lose_lease()` or `advance_head(…)`, keyed by the name of the step at which it fires.
            retries: The maximum number of retries if attempts fail. The task's `RetryPolicy` must allow as many.
            force: True to run the body though nothing has changed, as `perago run --force` does.
            full: True to skip nothing, and to let `changes()` report all files as new, as `perago run --full` does.
            at: The old name of `faults`.
        """
        task = task_of(function)
        injected = faults_of(task, renamed_argument(faults, at))
        most = 1 + retries_of(task, retries)
        payload: dict[str, Any] = {"params": params_of(task, params)}
        if task.workspace is not None:
            payload["workspace"] = self.lake.workspace(branch)
        before = self.lake.head(branch)
        with self._environment.orchestrator(self._environment.clock) as orchestrator:
            runner = Runner(
                self._environment,
                orchestrator,
                [task],
                {STEP: injected},
                self._environment.clock,
                recompute=Recompute(full, frozenset({STEP} if force else ())),
            )
            orchestrator.register_taskdefs([build_taskdef(task)])
            orchestrator.register_workflow(_one_step(task, payload))
            workflow_id = orchestrator.start_workflow("trial", input=payload)
            state = orchestrator.workflow(workflow_id)
            while len(runner.ran) < most and state.running and runner.run_next(state):
                state = orchestrator.workflow(workflow_id)
        runner.expect_all_fired()
        return self._trial(task, runner, state, branch=branch, before=before)

    def try_workflow(
        self,
        workflow: Workflow,
        tasks: Task | Iterable[Task],
        *,
        input: Mapping[str, Any] | None = None,
        faults: Mapping[str, Faults] | None = None,
        clock: Clock | None = None,
        most_attempts: int = MOST_ATTEMPTS,
        force: Iterable[str] = (),
        full: bool = False,
        at: Mapping[str, Faults] | None = None,
    ) -> WorkflowTrial:
        """Run a whole workflow from the head of `main`, with every retry, as the embedded orchestrator would.

        Args:
            workflow: The workflow's definition as a dict, or the path of its JSON file.
            tasks: The tasks that it uses: functions, modules, or paths of task files. Unused tasks are ignored.
            input: The workflow's input. If it has no `workspace`, one is added that names the head of `main`.
            faults: The faults for each workflow step, such as `{"clean": {"publish": crash()}}`.
            clock: The workflow's clock, if you want to set it or to read it.
            most_attempts: The trial gives up if the workflow has not ended after this number of attempts.
            force: The steps whose bodies run though nothing has changed, as with `perago run --force`.
            full: True to skip nothing, and to let `changes()` report all files as new, as `perago run --full` does.
            at: The old name of `faults`.
        """
        definition, file = workflow_of(workflow)
        known = with_run_steps(tasks_of(tasks), definition)
        payload = {"workspace": self.lake.workspace(), **(input or {})}
        check_workflow_errors(definition, known, file=file, given=payload)
        used = used_tasks(definition, {task.name for task in known})
        serving = [task for task in known if task.name in used]
        by_name = {task.name: task for task in serving}
        injected = workflow_faults(definition, by_name, renamed_argument(faults, at))
        recompute = Recompute(full, forced_steps(definition, force))
        clock = clock or self._environment.clock
        with self._environment.orchestrator(clock) as orchestrator:
            runner = Runner(self._environment, orchestrator, serving, injected, clock, recompute=recompute)
            orchestrator.register_taskdefs([build_taskdef(task) for task in serving])
            orchestrator.register_workflow(definition)
            version = definition.get("version")
            workflow_id = orchestrator.start_workflow(definition["name"], version=version, input=payload)
            while (state := orchestrator.workflow(workflow_id)).running:
                if len(runner.ran) >= most_attempts:
                    raise TrialError(
                        f"{file} does not end: {most_attempts} attempts have run, the last of step {runner.ran[-1][0]!r}"
                    )
                if not runner.run_next(state):
                    raise TrialError(f"{file} waits for something that no task does, so it never ends")
        runner.expect_all_fired()
        return self._workflow_trial(runner, state)

    def _trial(
        self, task: TaskDefinition, runner: Runner, state: WorkflowState, *, branch: str, before: str
    ) -> Trial:
        attempts = runner.attempts_of(STEP)
        last = attempts[-1]
        output = worker_tasks(state)[len(attempts) - 1].output
        completed = last.status == "COMPLETED"
        files, changes, published = dict[str, bytes](), Changes(), False
        if task.workspace is not None:
            prefix = task.workspace.object_prefix
            files = self.lake.files(branch, prefix=prefix)
            published = self.lake.is_by(branch, state.id)
            if completed:
                changes = self.lake.changes(before, output["workspace"]["ref"], prefix=prefix)
        return Trial(
            last.status,
            last.reason,
            output["result"] if completed else None,
            files,
            published,
            error=last.error,
            log=tuple(line for attempt in attempts for line in attempt.log),
            changes=changes,
            attempts=attempts,
            history=self.lake.history(branch),
            replaced=self.lake.replaced(),
        )

    def _workflow_trial(self, runner: Runner, state: WorkflowState) -> WorkflowTrial:
        # Retries come after the attempts they repeat, so the last task of a step has the step's result.
        last = {task.reference: task for task in worker_tasks(state)}
        steps = {
            reference: TrialStep(
                task.task_name, task.status, task.reason, task.output, runner.attempts_of(reference)
            )
            for reference, task in last.items()
        }
        log = tuple(line for _, attempt in runner.ran for line in attempt.log)
        return WorkflowTrial(
            state.status,
            state.reason,
            state.output,
            steps,
            self.lake.files(),
            log,
            self.lake.history(),
            self.lake.replaced(),
        )


def _one_step(task: TaskDefinition, payload: Mapping[str, Any]) -> dict[str, Any]:
    step = {
        "name": task.name,
        "taskReferenceName": STEP,
        "type": "SIMPLE",
        "inputParameters": {key: f"${{workflow.input.{key}}}" for key in payload},
    }
    return {"name": "trial", "version": 1, "schemaVersion": 2, "tasks": [step]}
