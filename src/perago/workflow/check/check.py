"""Checks a workflow's JSON against the tasks it uses, before anything runs.

The check is pure: it talks to no server, and the only user code it runs is the validators of params models.  Something
wrong on every path is an error; something wrong on only some paths is a warning.  Anything that cannot be known (outputs of
system tasks, dynamic tasks, sub-workflows, variables, JsonPath beyond names and indexes) is assumed to be correct: a false
alarm is worse than a miss.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Any

from perago.declare.run_steps import with_run_steps
from perago.declare.task import TaskDefinition
from perago.protocol.suggestions import did_you_mean
from perago.workflow.check.branch_conflicts import moved_heads
from perago.workflow.check.context import Checking, Finding, WorkflowDiagnostic, error, warning
from perago.workflow.check.inputs import step_input
from perago.workflow.check.ledger_keys import shared_keys
from perago.workflow.check.references import output_reads, step_reads
from perago.workflow.check.run_steps import run_steps
from perago.workflow.model.definition import Step, WorkflowDefinition, read_workflow
from perago.workflow.model.step_types import FORK_JOIN, JOIN, JOINS, SIMPLE


def check_workflow(
    definition: Mapping[str, Any],
    tasks: Mapping[str, TaskDefinition],
    *,
    file: str,
    given: Mapping[str, Any] | None = None,
    elsewhere: Container[str] = (),
) -> list[WorkflowDiagnostic]:
    """Return all diagnostics for a workflow.  Each kind of check reports its findings in step order.

    `given` is the input that the workflow will be started with, if known; it may contain `UNKNOWN`.  `elsewhere` contains
    the names of tasks that other workers run and whose declarations are unknown.
    """
    try:
        known = {task.name: task for task in with_run_steps(tasks.values(), definition)}
        findings = dict.fromkeys(_findings(definition, known, given, elsewhere))
    except RecursionError:
        findings = {warning(None, "the workflow is nested too deeply to be checked"): None}
    return [WorkflowDiagnostic(one.level, one.step, one.message, file) for one in findings]


def check_step(source: Mapping[str, Any], task: TaskDefinition) -> list[str]:
    """Return the errors in a single step that do not depend on its workflow."""
    workflow = read_workflow({"tasks": [source]}, named_only=True)
    checking = Checking(workflow, {task.name: task}, None)
    findings = _unreadable(workflow)
    for step in workflow.steps.values():
        findings.extend(step_input(checking, step, task))
    return [finding.message for finding in findings if finding.level == "error"]


def _findings(
    definition: Mapping[str, Any],
    tasks: Mapping[str, TaskDefinition],
    given: Mapping[str, Any] | None,
    elsewhere: Container[str],
) -> list[Finding]:
    workflow = read_workflow(definition, named_only=True)
    findings = _unreadable(workflow)
    template = definition.get("inputTemplate")
    filled = None if given is None else {**(template if isinstance(template, Mapping) else {}), **given}
    named = definition.get("inputParameters")
    checking = Checking(workflow, tasks, filled, tuple(map(str, named)) if isinstance(named, list) else ())
    for step in workflow.steps.values():
        findings.extend(_step(checking, step, elsewhere))
    findings.extend(_joins(checking))
    # Steps that share a name have no defined order.
    if not workflow.twins:
        findings.extend(moved_heads(checking))
        findings.extend(run_steps(checking))
        findings.extend(shared_keys(checking))
    outputs = definition.get("outputParameters")
    if isinstance(outputs, Mapping):
        findings.extend(output_reads(checking, outputs))
    return findings


def _unreadable(workflow: WorkflowDefinition) -> list[Finding]:
    """Return findings about parts of the workflow that Conductor cannot read or cannot tell apart."""
    findings = [error(one.step, one.message) for one in workflow.problems]
    if not workflow.top.steps and not workflow.problems:
        findings.append(error(None, 'the workflow has no steps: "tasks" must be a list of them'))
    for reference in workflow.twins:
        text = f"two steps are called {reference!r}: a taskReferenceName must be unique in its workflow; rename one of them"
        findings.append(error(reference, text))
    return findings


def _step(checking: Checking, step: Step, elsewhere: Container[str]) -> Iterator[Finding]:
    if step.type == SIMPLE and step.name not in checking.tasks and step.name not in elsewhere:
        yield _unknown_task(checking, step)
    task = checking.task_of(step)
    if task is not None:
        yield from step_input(checking, step, task)
    yield from step_reads(checking, step)


def _unknown_task(checking: Checking, step: Step) -> Finding:
    label = f"step {step.reference!r} runs the task {step.name!r}"
    if not checking.tasks:
        return error(step.reference, f"{label}, but no module was given; add the one that declares it")
    names = ", ".join(sorted(checking.tasks))
    otherwise = f"; declared are {names}; add the module that declares it"
    close = did_you_mean(step.name, checking.tasks, otherwise=otherwise)
    return error(step.reference, f"{label}, which no given module declares{close}")


def _joins(checking: Checking) -> Iterator[Finding]:
    workflow = checking.workflow
    for step in workflow.steps.values():
        trail = workflow.trails[step.reference]
        following = trail[-1].block.steps[trail[-1].index + 1 :][:1]
        if step.type == FORK_JOIN and not any(after.type in JOINS for after in following):
            text = f"step {step.reference!r} is a FORK_JOIN, and the step after it must be a JOIN"
            yield error(step.reference, text)
        if step.type not in JOINS or workflow.open_ended:
            continue
        if not step.join_on:
            text = f'step {step.reference!r} waits for nothing: its "joinOn" is empty, so the next step begins at once'
            yield warning(step.reference, text)
        for name in step.join_on:
            if name not in workflow.steps:
                others = ", ".join(other for other in workflow.steps if other != step.reference)
                close = did_you_mean(name, workflow.steps, otherwise=f"; the steps are {others}")
                text = f"step {step.reference!r} joins on {name!r}, but no step is called that{close}"
                yield error(step.reference, text)
            elif step.type == JOIN and _may_be_retried(checking, workflow.steps[name]):
                text = (
                    f"step {step.reference!r} joins on {name!r}, which has retries: Conductor may see it fail before the "
                    "retry is there, and fail the workflow; end that arm with a NOOP step, and join on that one"
                )
                yield warning(step.reference, text)


def _may_be_retried(checking: Checking, step: Step) -> bool:
    task = checking.task_of(step)
    return task is not None and task.controls.retry.count > 0 and not step.optional
