"""Checks that a workflow's input fits the tasks that receive it, before the workflow is started.

`${workflow.input.X}` in a step's `inputParameters` maps the input to params, and the TaskDef's input schema says what a
param accepts.  The check is pure: definition, TaskDefs and input go in, findings come out.

Only values that come from the input are checked here.  An error in the definition itself affects every input, and is
reported by the definition check.  A finding prevents the workflow from being started if the step is certain to run and
must succeed; otherwise it is a warning.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from perago.protocol.suggestions import did_you_mean, listed, nearest
from perago.workflow.check.schema import SchemaViolation, kind_of, violations
from perago.workflow.model.definition import Json, Step, read_workflow
from perago.workflow.model.expressions import (
    UNKNOWN,
    KnownInput,
    Origin,
    Path,
    format_path,
    inputs_read,
    known_input,
)
from perago.workflow.model.step_types import SIMPLE, SWITCH, TERMINATE

WORKSPACE = "workspace"
_HOW = {WORKSPACE: "add --workspace REPO[@BRANCH]"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A one-line finding about the input.  `refused` is True if the workflow cannot succeed with this input."""

    text: str
    refused: bool


def check_input(definition: Json, taskdefs: Mapping[str, Json | None], payload: Json) -> list[Finding]:
    """Return findings about `payload` as the input of a workflow.

    `taskdefs` maps task names to TaskDefs, or to None if a task is not registered.
    """
    # Conductor merges the template into an input only if the input is not empty.
    filled = {**(definition.get("inputTemplate") or {}), **payload} if payload else {}
    findings: dict[Finding, None] = {}
    for step, certain in _running(read_workflow(definition).top.steps, filled, certain=True):
        if step.type == SIMPLE:
            known = known_input(step.inputs, filled)
            texts = _of_step(step, known, _schema(taskdefs.get(step.name)), payload)
            findings |= dict.fromkeys(Finding(text, certain) for text in texts)
    return [*findings, *(Finding(text, False) for text in _unread(definition, payload))]


def _running(steps: Sequence[Step], payload: Json, *, certain: bool) -> Iterator[tuple[Step, bool]]:
    """Yield every step that may run, and whether it is certain to run and must succeed."""
    for step in steps:
        yield step, certain and not step.optional
        case = _switch_case(step, payload)
        if case is not None:
            yield from _running(case, payload, certain=certain)
        else:
            inside = certain and step.shape != "switch" and not step.source.get("items")
            for block in step.blocks:
                yield from _running(block.steps, payload, certain=inside)
        if any(inner.type == TERMINATE for inner in step.walk()):
            certain = False


def _switch_case(step: Step, payload: Json) -> Sequence[Step] | None:
    """Return the steps of the case that a SWITCH takes, or None if the input alone does not determine the case."""
    if step.type != SWITCH or step.evaluator != "value-param":
        return None
    value = known_input(step.inputs, payload).value.get(step.expression, UNKNOWN)
    if isinstance(value, bool):
        value = str(value).lower()
    if value is not None and not isinstance(value, str | int):
        return None
    return step.case(str(value))


def _schema(taskdef: Json | None) -> Json:
    found = ((taskdef or {}).get("inputSchema") or {}).get("data")
    return found if isinstance(found, Mapping) else {}


def _of_step(step: Step, known: KnownInput, schema: Json, payload: Json) -> Iterator[str]:
    for violation in violations(known.value, schema, schema):
        found = known.origin_of(violation.path)
        if found is not None:
            made, origin = found
            yield f"step {step.reference!r}: {_message(violation, made, origin, payload)}"


def _message(violation: SchemaViolation, made: Path, origin: Origin, payload: Json) -> str:
    path = format_path(violation.path)
    if origin.lacking is not None:
        name = origin.lacking
        written = nearest(name, payload)
        how = f"did you write {written!r} for it?" if written else _HOW.get(name, f"add {name!r} to --input")
        return f"{path} is {origin.expression}, but the input has no {name!r}: {how}"
    if violation.rule == "is missing":
        return f"{path} is missing: {origin.expression} has no {violation.path[-1]!r}"
    if violation.rule == "is not declared":
        return f"{path} is not declared by the task: take {violation.path[-1]!r} out of {origin.expression}"
    within = "" if made == violation.path else f"{format_path(violation.path[len(made) :])} of "
    shown = kind_of(violation.value) if violation.wrong_kind else "not"
    return f"{path} {violation.rule}, but {within}{origin.expression} is {shown}"


def _unread(definition: Json, payload: Json) -> Iterator[str]:
    read = inputs_read(dict(definition))
    if None in read:
        return
    names = {name for name in read if name} | set(definition.get("inputParameters") or ())
    for name in payload:
        if name not in names:
            hint = did_you_mean(name, names, otherwise=f"; it reads {listed(sorted(names))}")
            yield f"the workflow does not read the input {name!r}{hint}"
