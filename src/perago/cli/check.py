"""`perago check`: load modules and workflows, and print their declarations and every mistake in them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import typer

from perago.cli import output
from perago.cli.options import AsJson, warn_about
from perago.cli.workflow_input import CheckedWorkflow, checked_file, is_workflow, print_diagnostics
from perago.declare.checks import label
from perago.declare.controls import TaskControls
from perago.declare.diagnostics import LocatedDiagnostic
from perago.declare.discovery import Collected, collect
from perago.declare.spark_controls import SparkControls, shown
from perago.declare.task import TaskDefinition
from perago.declare.taskdef import declaration_warnings
from perago.declare.workspace import WorkspaceSpec

CheckTargets = Annotated[
    list[str],
    typer.Argument(
        metavar="TARGET… [WORKFLOW…]",
        help="Modules (app.tasks) or files (app/tasks.py) with tasks, and workflows (flow.py:NAME, flow.json).",
    ),
]


def check(targets: CheckTargets, as_json: AsJson = False) -> None:
    """Print the tasks that modules declare, and every mistake in them and in workflows; nothing is run or registered."""
    found = collect([target for target in targets if not is_workflow(target)])
    workflows = [checked_file(target, found) for target in targets if is_workflow(target)]
    if as_json:
        output.data(
            {
                "tasks": [_as_json(task) for task in found.tasks],
                "errors": [_diagnostic(e) for e in found.errors],
                "workflows": [workflow.as_json() for workflow in workflows],
            }
        )
    else:
        _print(found, workflows)
    if found.errors or any(workflow.has_errors for workflow in workflows):
        raise typer.Exit(output.FAILED)


def _print(found: Collected, workflows: Sequence[CheckedWorkflow]) -> None:
    for task in found.tasks:
        output.say(task.name, "bold")
        for name, text in _lines(task):
            output.say(f"  {name:<11}{text}")
    for workflow in workflows:
        if workflow.name is not None:
            output.say(workflow.name, "bold")
            output.say(f"  workflow   {workflow.file}")
            output.say(f"  steps      {workflow.steps}")
    warn_about(found.tasks, declaration_warnings)
    for diagnostic in found.errors:
        output.error(str(diagnostic))
    print_diagnostics([diagnostic for workflow in workflows for diagnostic in workflow.diagnostics])


def _lines(task: TaskDefinition) -> Iterator[tuple[str, str]]:
    yield "declared", str(task.place).partition(": task")[0]
    if task.description:
        yield "about", task.description
    yield "owner", task.owner_email
    yield "signature", _signature(task)
    yield "version", task.version
    if not task.strict_params:
        yield "params", "unknown fields are ignored"
    if task.workspace is None:
        yield "workspace", "none"
    else:
        spec = task.workspace
        policy = "read-only" if spec.read_only else f"on abandoned: {spec.on_abandoned}{_unsigned(spec)}"
        yield "workspace", f"prefix {spec.prefix}, {policy}, placement {spec.placement}"
        yield from _view_lines(spec)
        yield from (("pre", label(check)) for check in spec.pre)
        yield from (("post", label(check)) for check in spec.post)
    if task.spark is not None:
        for name, value in _spark(task.spark).items():
            yield "spark", f"{name} {value if isinstance(value, str | int) else ', '.join(value)}"
    yield from _control_lines(task.controls)


def _spark(controls: SparkControls) -> dict[str, Any]:
    """Return the settings that a task declares for Spark, with secrets masked."""
    values = controls.model_dump(mode="json", exclude={"conf"}, exclude_defaults=True)
    return values | {key: shown(key, value) for key, value in controls.conf.items()}


def _unsigned(spec: WorkspaceSpec) -> str:
    refuses = spec.policy.relocates and not spec.policy.replaces_unsigned
    return f" (unsigned commits: {spec.unsigned})" if refuses else ""


def _view_lines(spec: WorkspaceSpec) -> Iterator[tuple[str, str]]:
    for name, paths in (("reads", spec.reads), ("writes", spec.writes)):
        if paths is not None:
            yield name, ", ".join(paths) or "nothing"
    if spec.names:
        yield "partition", f"by {', '.join(spec.names)}"


def _control_lines(controls: TaskControls) -> Iterator[tuple[str, str]]:
    retry, timeout, limits, budget = (
        controls.retry,
        controls.timeout,
        controls.limits,
        controls.publish_budget,
    )
    longest = f", at most {retry.max_delay_seconds} s" if retry.max_delay_seconds else ""
    jitter = f", jitter {retry.jitter_ms} ms" if retry.jitter_ms else ""
    yield "retry", f"{retry.count} times, {retry.logic}, {retry.delay_seconds} s{longest}{jitter}"
    spans = {"task": timeout.seconds, "poll": timeout.poll_seconds, "total": timeout.total_seconds}
    others = "".join(f", {name} {seconds} s" for name, seconds in spans.items() if seconds)
    yield "time-outs", f"response {timeout.response_seconds} s{others}, then {timeout.policy}"
    if limits.concurrent_exec_limit:
        yield "limits", f"{limits.concurrent_exec_limit} at once"
    if limits.rate_limit_per_frequency:
        window = limits.rate_limit_frequency_in_seconds
        yield "limits", f"{limits.rate_limit_per_frequency} in {window} s"
    if budget is not None:
        merge = f"merge {budget.lakefs_merge_timeout_seconds} s"
        completion = f"completion {budget.conductor_completion_timeout_seconds} s"
        grace = f"grace {budget.worker_shutdown_grace_seconds} s"
        heartbeat = f"heartbeat {budget.heartbeat_interval_seconds} s"
        parts = f"{merge} + {completion} + {grace} + {heartbeat}"
        yield "budget", f"{parts} = {budget.response_timeout_seconds} s"


def _signature(task: TaskDefinition) -> str:
    name = getattr(task.fn, "__name__", "?")
    kinds = {"plain": "Path", "spark": "SparkWorkspace"}
    parameters = [f"params: {task.params_model.__name__}"]
    if "workspace" in inspect.signature(task.fn).parameters:
        parameters.insert(0, f"workspace: {kinds[task.kind]}")
    return f"{name}({', '.join(parameters)}) -> {task.result_model.__name__}"


def _as_json(task: TaskDefinition) -> dict[str, Any]:
    spec = task.workspace
    return {
        "name": task.name,
        "file": task.place.file,
        "line": task.place.line,
        "description": task.description,
        "owner_email": task.owner_email,
        "signature": _signature(task),
        "kind": task.kind,
        "version": task.version,
        "strict_params": task.strict_params,
        "workspace": None
        if spec is None
        else {
            **spec.model_dump(
                include={"prefix", "reads", "writes", "read_only", "on_abandoned", "unsigned", "placement"}
            ),
            "pre": [label(check) for check in spec.pre],
            "post": [label(check) for check in spec.post],
        },
        "controls": task.controls.model_dump(mode="json"),
        "spark": None if task.spark is None else _spark(task.spark),
        "warnings": declaration_warnings(task),
    }


def _diagnostic(diagnostic: LocatedDiagnostic) -> dict[str, Any]:
    place = diagnostic.place
    return {
        "file": place.file if place else None,
        "line": place.line if place else None,
        "task": place.task if place else None,
        "message": diagnostic.message,
    }
