"""What a step's output looks like, as far as its task's TaskDef schema tells; everything else is unknown.

A shape is the list of schemas that a value may have; None stands for "anything", and an empty list for "nothing is there".

What `${…}` reads: a step that is there, that has run by then, and a field that its output has.

The rule: a read that is null on every path is an error.  One that is null only on some path is a warning, and only where its
reader does not take null: it is usual to collect what any of several cases of a SWITCH has left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from perago.protocol.suggestions import did_you_mean, nearest
from perago.workflow.check.context import Checking
from perago.workflow.check.diagnostics import Finding, Level, error, warning
from perago.workflow.check.inputs import takes_null
from perago.workflow.check.shapes import Shape
from perago.workflow.check.step_order import Ran, has_run
from perago.workflow.check.steps import Step
from perago.workflow.check.values import Path, from_input, known, texts, whole
from perago.workflow.model.expressions import Part, expressions_in, understood

_SYSTEM = {"CPEWF_TASK_ID", "NETFLIX_ENV", "NETFLIX_STACK"}
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
_ITERATION = "__"


@dataclass(frozen=True, slots=True)
class _Doubt:
    """Why a read is null, and whether on every path."""

    level: Level
    why: str


def step_reads(checking: Checking, step: Step) -> Iterator[Finding]:
    """What is wrong with the expressions in a step's input."""
    for path, text in texts(step.inputs):
        for expression in expressions_in(text):
            doubt = _doubt(checking, expression, step)
            if doubt is None:
                doubt = _not_given(checking, step, path, text)
            if doubt is None or (doubt.level == "warning" and _takes_null(checking, step, path, text)):
                continue
            message = f"step {step.reference!r} takes ${{{expression}}}, but {doubt.why}"
            yield Finding(doubt.level, step.reference, message)


def output_reads(checking: Checking, outputs: Mapping[str, Any]) -> Iterator[Finding]:
    """Outputs of the workflow that can only be null."""
    for name, value in outputs.items():
        if value is None:
            yield warning(None, f"output {name!r} is always null: it is written so in outputParameters")
        for _, text in texts(value):
            for expression in expressions_in(text):
                doubt = _doubt(checking, expression, None)
                if doubt is not None and doubt.level == "error":
                    yield error(None, f"output {name!r} takes ${{{expression}}}, but {doubt.why}")


def _doubt(checking: Checking, expression: str, reader: Step | None) -> _Doubt | None:
    parts, _ = understood(expression)
    if not parts or parts[0] in _SYSTEM:
        return None
    head = str(parts[0])
    if head == "workflow":
        return _of_workflow(checking, parts)
    if head not in checking.flow.steps:
        return _no_step(checking, parts)
    answer = None if reader is None else has_run(checking.flow, head, by=reader.reference)
    if answer is not None and answer.ran is Ran.NO:
        # A retry reads what the attempt before it has left; a failed attempt of a Perago task leaves no output.
        left = reader is not None and reader.reference == head and not _no_output_when_failed(checking, parts)
        return _Doubt("warning" if left else "error", f"{answer.why}, so it has not run by then")
    doubt = _of_step(checking, parts)
    if doubt is not None:
        return doubt
    if answer is not None and answer.ran is Ran.MAYBE:
        return _Doubt("warning", f"{answer.why}; it is null where that has not run")
    if reader is not None and checking.flow.steps[head].optional and parts[1:2] == ("output",):
        return _Doubt("warning", f"{head!r} is optional, and has no output where it fails")
    return None


def _no_output_when_failed(checking: Checking, parts: tuple[Part, ...]) -> bool:
    return parts[1:2] == ("output",) and checking.output_of(str(parts[0])) is not None


def _no_step(checking: Checking, parts: tuple[Part, ...]) -> _Doubt | None:
    head = str(parts[0])
    in_loop, mark, iteration = head.rpartition(_ITERATION)
    iterates = bool(mark) and iteration.isdigit() and in_loop in checking.flow.steps
    if checking.flow.open_ended or iterates:
        return None
    if head in {"input", "variables"}:
        return _Doubt(
            "error", f"no step is called {head!r}; did you mean ${{{_written(('workflow', *parts))}}}?"
        )
    steps = checking.flow.steps
    known_ones = f"; the steps are {', '.join(steps)}" if len(steps) <= 12 else ""
    close = did_you_mean(head, [*steps, "workflow"], otherwise=known_ones)
    return _Doubt("error", f"no step is called {head!r}{close}")


def _of_workflow(checking: Checking, parts: tuple[Part, ...]) -> _Doubt | None:
    if len(parts) < 2:
        return None
    name = str(parts[1])
    if name not in _OF_WORKFLOW:
        close = nearest(name, _OF_WORKFLOW)
        # Another version of Conductor may have more fields than these.
        level: Level = "warning" if close is None else "error"
        return _Doubt(level, f"a workflow has no {name!r}{did_you_mean(name, _OF_WORKFLOW)}")
    if name == "input" and len(parts) > 2 and checking.named_inputs:
        wanted = str(parts[2])
        close = nearest(wanted, checking.named_inputs)
        if wanted not in checking.named_inputs and close is not None:
            why = f"the workflow's inputParameters do not name {wanted!r}; did you mean {close!r}?"
            return _Doubt("warning", why)
    return None


def _of_step(checking: Checking, parts: tuple[Part, ...]) -> _Doubt | None:
    """A field that the step, or its output, does not have."""
    head = str(parts[0])
    output = checking.output_of(head)
    if len(parts) < 2:
        return None
    name = str(parts[1])
    if name not in _OF_STEP:
        if output is not None and name in output.names:
            return _Doubt(
                "error",
                f"a step has no {name!r}; did you mean ${{{_written((head, 'output', *parts[1:]))}}}?",
            )
        level: Level = "warning" if nearest(name, _OF_STEP) is None else "error"
        return _Doubt(level, f"a step has no {name!r}{did_you_mean(name, _OF_STEP)}")
    if name != "output" or output is None:
        return None
    shape: Shape = output
    for number, part in enumerate(parts[2:], start=2):
        inner = shape.at(part)
        if inner.missing:
            return _Doubt("error", _no_field(checking, parts, number, shape))
        shape = inner
    return None


def _no_field(checking: Checking, parts: tuple[Part, ...], number: int, shape: Shape) -> str:
    head, name = str(parts[0]), parts[number]
    task = checking.flow.steps[head].task
    if number == 2:
        if name == "workspace":
            return f"its task {task!r} declares no workspace, so the output has none"
        for part in shape.names:
            if name in shape.at(part).names:
                better = _written((head, "output", part, *parts[2:]))
                return f"the output of {head!r} has no {name!r}; did you mean ${{{better}}}?"
    around = f"the output of {head!r}" if number == 2 else f"${{{_written(parts[:number])}}}"
    if not shape.names:
        kinds = " or ".join(sorted(shape.types or ()))
        return f"{around} is of the type {kinds}, in which there is no {name!r}"
    names = [field for field in shape.names if field != "refType"]
    close = did_you_mean(str(name), names, otherwise=f"; it has {', '.join(names)}")
    return f"{around} has no {name!r}{close}"


def _not_given(checking: Checking, step: Step, path: Path, text: str) -> _Doubt | None:
    """An input that the workflow is started without, and that a step cannot do without."""
    expression = whole(text)
    if checking.given is None or expression is None or from_input(expression, checking.given) is not None:
        return None
    if _takes_null(checking, step, path, text):
        return None
    parts, _ = understood(expression)
    level: Level = "error" if checking.always_runs(step) else "warning"
    if len(parts) < 3 or parts[2] in checking.given:
        return _Doubt(level, "that is null in the workflow's input")
    option = "--workspace REPO" if path == ("workspace",) and parts[2] == "workspace" else "it with --input"
    close = nearest(str(parts[2]), checking.given)
    remedy = f"; give {option}" if close is None else f", but {close!r}; rename one of them"
    return _Doubt(level, f"the workflow's input has no {parts[2]!r}{remedy}")


def _takes_null(checking: Checking, step: Step, path: Path, text: str) -> bool:
    task = checking.task_of(step)
    if task is None or whole(text) is None:
        return True
    if path[0] == "workspace":
        return task.workspace is None
    if path[0] != "params":
        return True
    return takes_null(task, known(step.inputs["params"], checking.given), path[1:])


def _written(parts: tuple[Part, ...]) -> str:
    """A path as an author writes it."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part if isinstance(part, str) else part[0]}"
    return text.removeprefix(".")
