"""Checks what `${…}` expressions read: the step must exist and have run by then, and its output must have the field.

A read that is null on every path is an error.  A read that is null on only some paths is a warning, and only if the reader
does not accept null: it is common to collect the output of whichever case of a SWITCH ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perago.protocol.suggestions import did_you_mean, nearest
from perago.workflow.check.context import Checking, Finding, Level, error, warning
from perago.workflow.check.inputs import takes_null
from perago.workflow.check.schema import Shape
from perago.workflow.check.step_order import Ran, has_run
from perago.workflow.model.definition import ITERATION_MARK, Step
from perago.workflow.model.expressions import (
    TASK_ID,
    Part,
    Path,
    expressions_in,
    format_path,
    from_input,
    known,
    texts,
    understood,
    whole,
)

_SYSTEM = {TASK_ID, "NETFLIX_ENV", "NETFLIX_STACK"}
_OF_WORKFLOW = {
    *("input", "output", "status", "workflowId", "workflowType", "version", "variables", "correlationId"),
    *("parentWorkflowId", "parentWorkflowTaskId", "reasonForIncompletion", "schemaVersion", "createTime"),
    *("secrets", "env", "ownerApp", "priority", "startTime", "endTime", "createdBy", "tags"),
}
_OF_STEP = {
    *(
        "input",
        "output",
        "status",
        "taskType",
        "referenceTaskName",
        "retryCount",
        "correlationId",
        "pollCount",
    ),
    *("taskDefName", "scheduledTime", "startTime", "endTime", "workflowInstanceId", "taskId", "workerId"),
    *("reasonForIncompletion", "callbackAfterSeconds", "iteration", "seq", "updateTime", "logs"),
}


@dataclass(frozen=True, slots=True)
class _NullRead:
    """The reason why an expression reads null, on every path (`error`) or only on some (`warning`)."""

    level: Level
    why: str


def step_reads(checking: Checking, step: Step) -> Iterator[Finding]:
    """Yield findings about the expressions in a step's input."""
    for path, text in texts(step.inputs):
        for expression in expressions_in(text):
            problem = _null_read(checking, expression, step)
            if problem is None:
                problem = _missing_input(checking, step, path, text)
            if problem is None or (problem.level == "warning" and _takes_null(checking, step, path, text)):
                continue
            message = f"step {step.reference!r} takes ${{{expression}}}, but {problem.why}"
            yield Finding(problem.level, step.reference, message)


def output_reads(checking: Checking, outputs: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield findings about workflow outputs that are always null."""
    for name, value in outputs.items():
        if value is None:
            yield warning(None, f"output {name!r} is always null: it is written so in outputParameters")
        for _, text in texts(value):
            for expression in expressions_in(text):
                problem = _null_read(checking, expression, None)
                if problem is not None and problem.level == "error":
                    yield error(None, f"output {name!r} takes ${{{expression}}}, but {problem.why}")


def _null_read(checking: Checking, expression: str, reader: Step | None) -> _NullRead | None:
    parts, _ = understood(expression)
    if not parts or parts[0] in _SYSTEM:
        return None
    head = str(parts[0])
    if head == "workflow":
        return _of_workflow(checking, parts)
    if head not in checking.workflow.steps:
        return _no_step(checking, parts)
    answer = None if reader is None else has_run(checking.workflow, head, by=reader.reference)
    if answer is not None and answer.ran is Ran.NO:
        # A retry reads the output of the previous attempt, but a failed attempt of a Perago task has none.
        has_output = (
            reader is not None and reader.reference == head and not _no_output_when_failed(checking, parts)
        )
        return _NullRead("warning" if has_output else "error", f"{answer.why}, so it has not run by then")
    problem = _of_step(checking, parts)
    if problem is not None:
        return problem
    if answer is not None and answer.ran is Ran.MAYBE:
        return _NullRead("warning", f"{answer.why}; it is null where that has not run")
    if reader is not None and checking.workflow.steps[head].optional and parts[1:2] == ("output",):
        return _NullRead("warning", f"{head!r} is optional, and has no output where it fails")
    return None


def _no_output_when_failed(checking: Checking, parts: tuple[Part, ...]) -> bool:
    return parts[1:2] == ("output",) and checking.output_of(str(parts[0])) is not None


def _no_step(checking: Checking, parts: tuple[Part, ...]) -> _NullRead | None:
    head = str(parts[0])
    in_loop, mark, iteration = head.rpartition(ITERATION_MARK)
    iterates = bool(mark) and iteration.isdigit() and in_loop in checking.workflow.steps
    if checking.workflow.open_ended or iterates:
        return None
    if head in {"input", "variables"}:
        return _NullRead(
            "error", f"no step is called {head!r}; did you mean ${{{format_path(('workflow', *parts))}}}?"
        )
    steps = checking.workflow.steps
    known_ones = f"; the steps are {', '.join(steps)}" if len(steps) <= 12 else ""
    close = did_you_mean(head, [*steps, "workflow"], otherwise=known_ones)
    return _NullRead("error", f"no step is called {head!r}{close}")


def _of_workflow(checking: Checking, parts: tuple[Part, ...]) -> _NullRead | None:
    if len(parts) < 2:
        return None
    name = str(parts[1])
    if name not in _OF_WORKFLOW:
        close = nearest(name, _OF_WORKFLOW)
        # Other versions of Conductor may have more fields.
        level: Level = "warning" if close is None else "error"
        return _NullRead(level, f"a workflow has no {name!r}{did_you_mean(name, _OF_WORKFLOW)}")
    if name == "input" and len(parts) > 2 and checking.named_inputs:
        wanted = str(parts[2])
        close = nearest(wanted, checking.named_inputs)
        if wanted not in checking.named_inputs and close is not None:
            why = f"the workflow's inputParameters do not name {wanted!r}; did you mean {close!r}?"
            return _NullRead("warning", why)
    return None


def _of_step(checking: Checking, parts: tuple[Part, ...]) -> _NullRead | None:
    """Return why the step or its output does not have the field that is read, or None if the field may exist."""
    head = str(parts[0])
    output = checking.output_of(head)
    if len(parts) < 2:
        return None
    name = str(parts[1])
    if name not in _OF_STEP:
        if output is not None and name in output.names:
            return _NullRead(
                "error",
                f"a step has no {name!r}; did you mean ${{{format_path((head, 'output', *parts[1:]))}}}?",
            )
        level: Level = "warning" if nearest(name, _OF_STEP) is None else "error"
        return _NullRead(level, f"a step has no {name!r}{did_you_mean(name, _OF_STEP)}")
    if name != "output" or output is None:
        return None
    shape: Shape = output
    for number, part in enumerate(parts[2:], start=2):
        inner = shape.at(part)
        if inner.missing:
            return _NullRead("error", _no_field(checking, parts, number, shape))
        shape = inner
    return None


def _no_field(checking: Checking, parts: tuple[Part, ...], number: int, shape: Shape) -> str:
    head, name = str(parts[0]), parts[number]
    task = checking.workflow.steps[head].name
    if number == 2:
        if name == "workspace":
            return f"its task {task!r} declares no workspace, so the output has none"
        for part in shape.names:
            if name in shape.at(part).names:
                better = format_path((head, "output", part, *parts[2:]))
                return f"the output of {head!r} has no {name!r}; did you mean ${{{better}}}?"
    around = f"the output of {head!r}" if number == 2 else f"${{{format_path(parts[:number])}}}"
    if not shape.names:
        kinds = " or ".join(sorted(shape.types or ()))
        return f"{around} is of the type {kinds}, which has no {name!r}"
    names = [field for field in shape.names if field != "refType"]
    close = did_you_mean(str(name), names, otherwise=f"; it has {', '.join(names)}")
    return f"{around} has no {name!r}{close}"


def _missing_input(checking: Checking, step: Step, path: Path, text: str) -> _NullRead | None:
    """Return why a value that the step requires is missing from the workflow's input, or None if it is not missing."""
    expression = whole(text)
    if checking.given is None or expression is None or from_input(expression, checking.given) is not None:
        return None
    if _takes_null(checking, step, path, text):
        return None
    parts, _ = understood(expression)
    level: Level = "error" if checking.always_runs(step) else "warning"
    if len(parts) < 3 or parts[2] in checking.given:
        return _NullRead(level, "that is null in the workflow's input")
    option = "--workspace REPO" if path == ("workspace",) and parts[2] == "workspace" else "it with --input"
    close = nearest(str(parts[2]), checking.given)
    remedy = f"; give {option}" if close is None else f", but {close!r}; rename one of them"
    return _NullRead(level, f"the workflow's input has no {parts[2]!r}{remedy}")


def _takes_null(checking: Checking, step: Step, path: Path, text: str) -> bool:
    task = checking.task_of(step)
    if task is None or whole(text) is None:
        return True
    if path[0] == "workspace":
        return task.workspace is None
    if path[0] != "params":
        return True
    return takes_null(task, known(step.inputs["params"], checking.given), path[1:])
