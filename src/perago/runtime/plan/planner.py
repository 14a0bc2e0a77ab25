"""Plans a run: which of its steps would be skipped, which would run, and why.  Runs nothing and writes nothing.

The workflow is driven by the embedded orchestrator, so expressions, SWITCH, FORK_JOIN and DO_WHILE are evaluated by the
code that a run uses.  A step is decided as its attempt would decide it, by one ledger for each commit, and is completed with
the output that its attempt would have.

The output of a step that would run is unknown, except that its commit would differ from the step's input in the step's
`writes` at most.  A *planned commit* stands for it in the workspaces of later steps.  A later step that sees none of
those paths is decided by the existing commit below it: its key, its entry and its reads are the same in both.  Any other
step would run because that step runs, and so would a step whose params depend on an unknown value (`unknown_values`).

Steps that would run are completed last: an unknown value may end the workflow, and then the orchestrator schedules nothing
more, although the run would go on.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

from perago.declare.run_steps import PublishParams
from perago.declare.task import TaskDefinition
from perago.declare.workspace import WorkspaceSpec
from perago.errors import LakeNotFound, RuntimeConfigError, TaskInputError, TaskResultError
from perago.lake.base import ReadableLake
from perago.orchestrator.base import Assignment, Orchestrator, TaskState, WorkflowState
from perago.protocol.ledger import Recompute
from perago.protocol.names import SHORT, is_run_branch, run_branch_name
from perago.protocol.outcome import completed
from perago.protocol.publication import Workspace
from perago.protocol.signing import author_of
from perago.protocol.view import Roots, View, overlap
from perago.runtime.attempt.contract import (
    Input,
    given_workspaces,
    read_input,
    view_output,
    workspace_output,
)
from perago.runtime.attempt.run_steps import origin_workspace
from perago.runtime.attempt.workspace_join import start_of
from perago.runtime.ledger import Ledger, RunReason, SkipDecision, work_of
from perago.runtime.plan.unknown_values import UnknownValues
from perago.workflow.model.definition import ITERATION_MARK, Step, read_workflow
from perago.workflow.model.step_types import SIMPLE

Reason = (
    RunReason
    | Literal["unchanged", "step", "never skips", "no workspace", "read only", "input", "opens", "publishes"]
)
"""The kind of reason for a decision.  `step`: another step would run, and this one depends on it."""

MOST_STEPS = 1000
"""The number of steps after which a workflow is assumed never to end."""
MOST_COUNTED = 1000
"""The number of changed files that are counted."""
_MOST_NAMED = 3
_WORKER = "perago-plan"


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """The decision about one step."""

    reference: str
    task: str
    skips: bool
    kind: Reason
    reason: str
    commit: str | None = None
    """The publication that is repeated or compared with, or the commit that has changed the output."""
    paths: tuple[str, ...] = ()
    """The first few files that have changed."""
    changed: int = 0
    """The number of files that have changed, but at most `MOST_COUNTED`."""
    after: str | None = None
    """The step that would run and on which this one depends."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The decisions about the steps of a workflow, in the order in which they are scheduled.

    Steps whose turn depends on an unknown value come last.  `failure` says why the run would fail, if that is known.
    """

    workflow: str
    steps: tuple[PlannedStep, ...]
    failure: str | None = None


class PlanClock:
    """A clock that advances only in `sleep`, so that delays take no time and nothing times out."""

    def __init__(self) -> None:
        self.now = time.time()

    def __call__(self) -> float:
        """Return the time, in seconds since 1970."""
        return self.now

    def sleep(self, seconds: float) -> None:
        """Advance the clock without waiting."""
        self.now += seconds


@dataclass(frozen=True, slots=True)
class _PlannedCommit:
    """A commit that does not exist yet: `base`, with changes at most in `writes`, by the steps that would make them.

    `base` is None if nothing is known about the commit.
    """

    base: str | None
    by: str
    writes: Mapping[str, Roots] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Start:
    """The commit that a step starts from.  `given` is the workspace in the step's input, `workspace` the existing commit."""

    workspace: Workspace
    given: Mapping[str, str]
    writes: Mapping[str, Roots] = field(default_factory=dict)


class _UnknownStart(Exception):
    """Raised if nothing is known about the commit that a step starts from.  `by` is the step that makes it."""

    def __init__(self, by: str) -> None:
        super().__init__(by)
        self.by = by


@dataclass(frozen=True, slots=True)
class _Decided:
    """A decision with the output that the orchestrator gets for it.

    `output` is None if the step stays open, because it is unknown whether it is reached.  `runs` is True if the result is
    unknown.
    """

    step: PlannedStep
    output: Mapping[str, Any] | None
    runs: bool = True


class Planner:
    """Plans one run.  The orchestrator has no other workflow, no TaskDefs, and the planner's clock."""

    def __init__(
        self,
        lake: ReadableLake,
        orchestrator: Orchestrator,
        clock: PlanClock,
        tasks: Mapping[str, TaskDefinition],
        recompute: Recompute,
    ) -> None:
        self._lake, self._orchestrator, self._clock = lake, orchestrator, clock
        self._tasks, self._recompute = tasks, recompute
        self._ledgers: dict[tuple[str, str], Ledger] = {}
        self._commits: dict[str, _PlannedCommit] = {}
        self._moved: dict[tuple[str, str], dict[str, Roots]] = {}
        self._mark = f"planned-{uuid.uuid4().hex}-"

    def plan(self, definition: Mapping[str, Any], payload: Mapping[str, Any]) -> Plan:
        """Plan a run of this workflow with this input."""
        self._workflow = workflow = read_workflow(definition)
        self._unknown = UnknownValues(workflow, self._cause_in)
        self._orchestrator.register_workflow(dict(definition))
        workflow_id = self._orchestrator.start_workflow(
            definition["name"], version=definition.get("version"), input=payload
        )
        rows: list[tuple[int, PlannedStep]] = []
        held: list[tuple[Assignment, _Decided]] = []
        while True:
            state = self._orchestrator.workflow(workflow_id)
            self._unknown.observe(state)
            if (assignment := self._next(state)) is not None:
                decided = self._decide(assignment)
                rows.append((assignment.attempt.seq, decided.step))
                if len(rows) > MOST_STEPS:
                    raise RuntimeConfigError(
                        f"workflow {workflow.name!r} does not end: after {MOST_STEPS:,} steps, the last of them "
                        f"{decided.step.reference!r}, there is still more to plan"
                    )
                if decided.output is None:
                    continue  # what follows is unknown, too
                if decided.runs:
                    held.append((assignment, decided))
                else:
                    self._complete(assignment, decided)
            elif held and state.running:
                self._complete(*held.pop(0))
            else:
                break
        steps = [step for _, step in sorted(rows, key=lambda row: row[0])]
        steps += self._unreached(state)
        failed = not state.running and state.status != "COMPLETED" and self._unknown.cause_of_flow is None
        return Plan(workflow.name, tuple(steps), state.reason if failed else None)

    def _next(self, state: WorkflowState) -> Assignment | None:
        """Poll the next scheduled task, without waiting for its start delay."""
        waiting = [task for task in state.tasks if task.status == "SCHEDULED"]
        if not waiting:
            return None
        soonest = min(waiting, key=lambda task: (task.available, task.seq))
        self._clock.sleep(max(0.0, soonest.available - self._clock.now))
        [polled] = self._orchestrator.poll(soonest.task_name, worker_id=_WORKER, count=1, wait_seconds=0)
        return polled

    def _complete(self, assignment: Assignment, decided: _Decided) -> None:
        step = self._step_of(assignment)
        if decided.runs:
            self._unknown.add_result(step, decided.step.reference)
        else:
            self._unknown.remove_result(step)
        self._orchestrator.complete(assignment.attempt, completed(decided.output or {}), worker_id=_WORKER)

    def _step_of(self, assignment: Assignment) -> Step:
        attempt = assignment.attempt
        reference = attempt.reference_task_name
        return self._workflow.steps[reference.split(ITERATION_MARK)[0] if attempt.iteration else reference]

    def _unreached(self, state: WorkflowState) -> list[PlannedStep]:
        """Return the steps that the orchestrator did not come to, because something before them is unknown.

        The steps in a case that is known not to be chosen are left out.
        """
        cause, found = self._unknown.cause_of_flow, []
        scheduled = {_static_reference(task) for task in state.tasks}
        for step in self._workflow.walk() if cause is not None else ():
            if step.type != SIMPLE or step.reference in scheduled:
                continue
            before = self._unknown.cause_before(step.reference)
            known_case = any(
                one.shape == "switch" and one.reference in scheduled
                for one in self._workflow.holders(step.reference)
            )
            if before is not None or (not state.running and not known_case):
                found.append(_after(step.reference, step.name, before or str(cause)))
        return found

    # --- one step ----------------------------------------------------------------------------------------------

    def _decide(self, assignment: Assignment) -> _Decided:
        attempt, step = assignment.attempt, self._step_of(assignment)
        reference, name = attempt.reference_task_name, attempt.task_name
        if (before := self._unknown.cause_before(step.reference)) is not None:
            return _Decided(_after(reference, name, before), None)
        task = self._tasks[name]
        cause = self._unknown.cause_of(step, assignment.input)
        if task.workspace is None:
            row = PlannedStep(reference, name, False, "no workspace", "has no workspace, so it always runs")
            return _Decided(row, {"result": {}})
        try:
            if task.run_step == "open":
                return self._open(assignment, task)
            if task.run_step == "publish":
                return self._publish(assignment, task)
            return self._decide_task(assignment, task, task.workspace, cause)
        except _UnknownStart as error:
            return _Decided(_after(reference, name, error.by), self._lost_output(assignment, reference))
        except (TaskInputError, LakeNotFound) as error:
            if cause is not None:
                row = _after(reference, name, cause)
            else:
                row = PlannedStep(reference, name, False, "input", f"its input is wrong: {error}")
            return _Decided(row, self._lost_output(assignment, reference))

    def _decide_task(
        self, assignment: Assignment, task: TaskDefinition, declared: WorkspaceSpec, cause: str | None
    ) -> _Decided:
        reference = assignment.attempt.reference_task_name
        given = read_input(task, assignment.input) if cause is None else None
        spec = _spec_of(declared, given)
        start = self._start(assignment, spec.view)
        row, result = self._decision(reference, replace(task, workspace=spec), start, given, cause)
        if result is not None:
            return _Decided(row, self._output(start, spec, self._ref_after(start), result), runs=False)
        ref = self._ref_after(start) if spec.read_only else self._ref_of_publication(reference, start, spec)
        return _Decided(row, self._output(start, spec, ref, {}))

    def _decision(
        self, reference: str, task: TaskDefinition, start: _Start, given: Input | None, cause: str | None
    ) -> tuple[PlannedStep, Mapping[str, Any] | None]:
        """Return the decision, and the recorded result if the step would be skipped."""
        spec, workspace = task.workspace, start.workspace
        assert spec is not None  # noqa: S101 - checked by the caller
        run = PlannedStep(reference, task.name, False, "never skips", "does not skip unchanged work")
        if spec.read_only:
            return replace(run, kind="read only", reason="only reads, so it always runs"), None
        if not task.skip_unchanged:
            return run, None
        if self._recompute.forces(reference):
            return replace(run, kind="forced", reason="forced"), None
        seen = [step for step, roots in start.writes.items() if overlap(roots, workspace.view.roots)]
        if cause is not None or given is None or seen:
            return _after(reference, task.name, cause or seen[-1]), None
        work = work_of(task, given.plain_params, workspace.view)
        ledger = self._ledger(workspace)
        decision = ledger.decide(work, reference, self._recompute)
        if decision.result is not None and decision.entry is not None:
            made = decision.entry.commit.id
            with suppress(TaskResultError):
                result = task.dump_result(task.parse_result(decision.result))
                text = f"unchanged since {made[:SHORT]}"
                return replace(run, skips=True, kind="unchanged", reason=text, commit=made), result
            text = "the recorded result no longer fits the result model"
            return replace(run, kind="no result", reason=text, commit=made), None
        return _explained(run, ledger, decision, workspace), None

    def _ledger(self, workspace: Workspace) -> Ledger:
        key = workspace.repository, workspace.ref
        if key not in self._ledgers:
            self._ledgers[key] = Ledger(self._lake, *key)
        return self._ledgers[key]

    # --- commits -----------------------------------------------------------------------------------------------

    def _start(self, assignment: Assignment, view: View) -> _Start:
        """Return the commit that a step starts from.  Raises an error if its attempt would."""
        given = given_workspaces(assignment.input.get("workspace"))
        if not given or not all(map(_is_workspace, given)):
            raise TaskInputError("the step has no workspace")
        planned = [self._commits.get(str(one.get("ref"))) for one in given]
        for one in planned:
            if one is not None and one.base is None:
                raise _UnknownStart(one.by)
        bases = [
            one if commit is None else {**one, "ref": commit.base}
            for one, commit in zip(given, planned, strict=True)
        ]
        found = start_of(self._lake, assignment.attempt, bases, view)
        writes: dict[str, Roots] = {}
        for commit in planned:
            writes.update(commit.writes if commit is not None else {})
        return _Start(found.workspace, given[bases.index(found.given)], writes)

    def _ref_after(self, start: _Start) -> str:
        """Return the commit of a step that publishes nothing."""
        if not start.writes:
            return start.given["ref"] if start.given["ref"] in self._commits else start.workspace.ref
        known = self._commits.get(start.given["ref"])
        if known is not None and known.writes == start.writes:
            return start.given["ref"]
        return self._new_commit(_PlannedCommit(start.workspace.ref, list(start.writes)[-1], start.writes))

    def _ref_of_publication(self, reference: str, start: _Start, spec: WorkspaceSpec) -> str:
        """Return the planned commit of a step that would run."""
        own, workspace = {reference: spec.view.write_roots}, start.workspace
        moved = self._moved.setdefault((workspace.repository, workspace.branch), {})
        moved.update(own)
        base = workspace.ref
        if spec.rebases and not is_run_branch(workspace.branch):
            # It would publish on top of what others have published since its input.
            base = self._lake.head(workspace.repository, workspace.branch).id
        return self._new_commit(_PlannedCommit(base, reference, {**start.writes, **own}))

    def _new_commit(self, commit: _PlannedCommit) -> str:
        name = f"{self._mark}{len(self._commits)}"
        self._commits[name] = commit
        return name

    def _cause_in(self, value: Any) -> str | None:
        """Return the step that makes a planned commit which a value names, or None."""
        match value:
            case str():
                found = re.search(rf"{self._mark}\d+", value)
                return self._commits[found[0]].by if found else None
            case Mapping():
                return next(filter(None, map(self._cause_in, value.values())), None)
            case list():
                return next(filter(None, map(self._cause_in, value)), None)
            case _:
                return None

    def _output(
        self, start: _Start, spec: WorkspaceSpec, ref: str, result: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        seen = {"view": view_output(spec)} if is_run_branch(start.given["branch"]) else {}
        return {"workspace": _with_ref(start.given, ref), "result": result, **seen}

    def _lost_output(self, assignment: Assignment, reference: str) -> Mapping[str, Any]:
        """Return the output of a step about whose commit nothing is known."""
        given = given_workspaces(assignment.input.get("workspace"))
        named = next((one for one in given if isinstance(one, Mapping)), {})
        ref = self._new_commit(_PlannedCommit(None, reference))
        workspace = {"repository": "?", "branch": "?", **named}
        return {"workspace": _with_ref(workspace, ref), "result": {}}

    # --- the steps of a run that is published whole ------------------------------------------------------------

    def _open(self, assignment: Assignment, task: TaskDefinition) -> _Decided:
        attempt = assignment.attempt
        given = read_input(task, assignment.input)
        [sent] = given.workspaces
        start = self._commits.get(sent.get("ref", ""))
        if start is None:
            origin = origin_workspace(self._lake, sent)
            base: str | None = origin["ref"]
            at = (origin["repository"], origin["branch"])
            writes = dict(self._moved.get(at, {})) if "ref" not in sent else {}
        else:
            origin, base, writes = sent, start.base, dict(start.writes)
        row = PlannedStep(attempt.reference_task_name, task.name, False, "opens", "opens the run")
        if not getattr(given.params, "isolate", True):
            return _Decided(row, {"workspace": origin, "origin": origin}, runs=False)
        ref = self._new_commit(_PlannedCommit(base, attempt.reference_task_name, writes))
        opened = {**origin, "branch": run_branch_name(attempt), "ref": ref}
        return _Decided(row, {"workspace": opened, "origin": origin}, runs=False)

    def _publish(self, assignment: Assignment, task: TaskDefinition) -> _Decided:
        reference = assignment.attempt.reference_task_name
        given = read_input(task, assignment.input)
        assert isinstance(given.params, PublishParams)  # noqa: S101 - the model of this task
        origin = given.params.origin
        start = self._start(assignment, View(""))
        row = PlannedStep(reference, task.name, False, "publishes", "publishes the run")
        if start.workspace.branch == origin.branch:
            return _Decided(row, {"workspace": dict(start.given)}, runs=False)
        before = self._commits.get(origin.ref)
        ref = origin.ref
        if start.writes.keys() == (before.writes.keys() if before is not None else set()):
            row = replace(row, reason="publishes nothing: no step of the run changes anything")
        else:
            ref = self._new_commit(_PlannedCommit(start.workspace.ref, reference, start.writes))
            moved = self._moved.setdefault((origin.repository, origin.branch), {})
            moved.update(start.writes)
        workspace = {**_with_ref(start.given, ref), "branch": origin.branch}
        return _Decided(row, {"workspace": workspace}, runs=False)


def _spec_of(spec: WorkspaceSpec, given: Input | None) -> WorkspaceSpec:
    """Return the spec of one attempt.

    If its params are unknown, paths that name them are represented by the folders above, as `WorkspaceSpec.view` has them.
    """
    return spec if given is None else spec.filled(given.params)


def _with_ref(given: Mapping[str, str], ref: str) -> dict[str, str]:
    workspace = workspace_output(given, ref)
    return workspace if "refType" in workspace else {"ref_type": "commit", **workspace}


def _is_workspace(value: object) -> bool:
    return isinstance(value, Mapping) and all(
        isinstance(value.get(name), str) for name in ("repository", "branch", "ref")
    )


def _static_reference(task: TaskState) -> str:
    return task.reference.split(ITERATION_MARK)[0] if task.iteration else task.reference


def _after(reference: str, task: str, cause: str) -> PlannedStep:
    return PlannedStep(reference, task, False, "step", f"step {cause} runs", after=cause)


def _explained(run: PlannedStep, ledger: Ledger, decision: SkipDecision, workspace: Workspace) -> PlannedStep:
    """Return why a step would run, in the words of a plan."""
    entry, kind = decision.entry, decision.kind or "unknown"
    commit = entry.commit.id if entry is not None else None
    run = replace(run, kind=kind, reason=decision.reason, commit=commit)
    if kind == "missing":
        return replace(run, reason="nothing published yet")
    if kind == "rewritten" and entry is not None:
        change = ledger.find(entry.work.key).change
        if change is not None:
            by = f"{change.commit.id[:SHORT]} ({author_of(change.commit)})"
            path = change.path.removeprefix(workspace.prefix)
            return replace(
                run, reason=f"output changed by {by}: {path}", commit=change.commit.id, paths=(path,)
            )
    if kind == "files" and entry is not None:
        found = islice(ledger.changed_reads(entry), MOST_COUNTED + 1)
        paths = [change.path.removeprefix(workspace.prefix) for change in found]
        count = min(len(paths), MOST_COUNTED)
        more = "more than " if len(paths) > MOST_COUNTED else ""
        named = ", ".join(paths[:_MOST_NAMED]) + (", …" if len(paths) > _MOST_NAMED else "")
        text = f"{more}{count:,} file{'s' if count > 1 else ''} changed: {named}"
        return replace(run, reason=text, paths=tuple(paths[:_MOST_NAMED]), changed=count)
    return run
