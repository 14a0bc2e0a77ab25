"""Checks the input of a step that runs a Perago task: exactly `params`, plus `workspace` if the task declares one.

The params are validated by the task's own model, in the same mode as in an attempt.  Errors about a value that is unknown,
or that contains an unknown value, are ignored.  Errors from the author's own validators are reported only if all params
are known, and only as warnings: a validator may read other fields, or depend on the machine that it runs on.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import AliasChoices, AliasPath, BaseModel, ValidationError
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import ErrorType

from perago.declare.signature import models_of
from perago.declare.task import TaskDefinition
from perago.protocol.suggestions import did_you_mean, nearest
from perago.workflow.check.context import Checking, Finding, error, warning
from perago.workflow.check.partitions import workspace_of
from perago.workflow.check.schema import Shape
from perago.workflow.model.definition import Step
from perago.workflow.model.expressions import (
    UNKNOWN,
    Path,
    at,
    format_path,
    has_expression,
    has_unknown,
    known,
    whole,
    without_unknown,
)

_AUTHORS = {"value_error", "assertion_error", "path_not_file", "path_not_directory", "path_exists"}
_CERTAIN = set(get_args(ErrorType)) - _AUTHORS
_NOT_DECLARED = {"extra_forbidden", "unexpected_keyword_argument"}
_FIELDS = ("repository", "branch", "ref")
_REF_TYPES = ("ref_type", "refType")
_WHOLE = "--workspace REPO[@BRANCH] gives a whole one, as ${workflow.input.workspace}"


@dataclass(frozen=True, slots=True)
class InputViolation:
    """A part of the params that the model rejects, with the reason.  `kind` is pydantic's error type."""

    path: Path
    kind: str
    rule: str
    certain: bool = True

    @property
    def missing(self) -> bool:
        """True if a required field is missing."""
        return self.kind == "missing"

    @property
    def not_declared(self) -> bool:
        """True if the model has no such field."""
        return self.kind in _NOT_DECLARED


def violations(task: TaskDefinition, params: Any) -> list[InputViolation]:
    """Return the violations that the task's model finds in params, one per path."""
    if not isinstance(params, Mapping):
        return (
            []
            if params is UNKNOWN
            else [InputViolation((), "type", f"must be an object, not {_kind(params)}")]
        )
    whole = not has_unknown(params)
    if not whole and _moves_fields(task.params_model):
        return []
    found: dict[Path, InputViolation] = {}
    for details in _validation_errors(task, without_unknown(params)):
        violation = _violation(details, params, whole=whole)
        if violation is not None:
            found.setdefault(violation.path, violation)
    return list(found.values())


def takes_null(task: TaskDefinition, params: Any, path: Path) -> bool:
    """Return whether the model accepts null at a path in the params; True if uncertain."""
    if any(isinstance(part, int) for part in path):
        return True
    changed = _with_null(params, path)
    return not any(violation.certain and violation.path == path for violation in violations(task, changed))


def _validation_errors(task: TaskDefinition, params: Any) -> Sequence[ErrorDetails]:
    try:
        task.params_model.model_validate_json(
            json.dumps(params), strict=True, extra="forbid" if task.strict_params else "ignore"
        )
    except ValidationError as error:
        return error.errors(include_url=False, include_context=False)
    except Exception:
        # One of the author's validators may fail because some fields are left out.
        return ()
    return ()


def _violation(details: ErrorDetails, params: Any, *, whole: bool) -> InputViolation | None:
    path, choice = _data_path(details, params)
    kind = details["type"]
    about = at(params, path)
    # While a part of the value is unknown, the intended member of a union is unknown too.  A list with an unknown item
    # was left out as a whole, so it looks missing.
    if has_unknown(choice) or without_unknown(about) is UNKNOWN:
        return None
    if kind == "missing":
        return InputViolation(path, kind, "is missing")
    if kind in _NOT_DECLARED:
        return InputViolation(path, kind, "is not declared")
    if has_unknown(about) or (kind not in _CERTAIN and not whole):
        return None
    return InputViolation(path, kind, f"{details['msg']}, got {_kind(about)}", certain=kind in _CERTAIN)


def _data_path(details: ErrorDetails, params: Any) -> tuple[Path, Any]:
    """Return the path of a params error, and the value at the first union on it, or None if there is no union.

    Segments that only name a union member are removed from the path.
    """
    path: Path = ()
    value, choice = params, None
    for number, part in enumerate(details["loc"], start=1):
        inside = (isinstance(value, Mapping) and part in value) or (
            isinstance(value, list) and isinstance(part, int) and part < len(value)
        )
        absent = details["type"] == "missing" and number == len(details["loc"])
        if inside or absent:
            path, value = (*path, part), at(value, (part,))
        elif choice is None:
            choice = value
    return path, choice


def _moves_fields(model: type[BaseModel]) -> bool:
    """Return whether the model may fill a field from anything other than the JSON key with the field's name."""
    for one in models_of(model):
        decorators = one.__pydantic_decorators__
        if decorators.root_validators or any(
            validator.info.mode != "after" for validator in decorators.model_validators.values()
        ):
            return True
        if any(
            isinstance(field.validation_alias, AliasChoices | AliasPath)
            for field in one.model_fields.values()
        ):
            return True
    return False


def _with_null(value: Any, path: Path) -> Any:
    if not path:
        return None
    inner = value if isinstance(value, Mapping) else {}
    return {**inner, path[0]: _with_null(inner.get(path[0]), path[1:])}


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__


def step_input(checking: Checking, step: Step, task: TaskDefinition) -> Iterator[Finding]:
    """Yield findings about a step's input.  The values that its expressions read are checked in `references`."""
    if step.input_elsewhere:
        return
    yield from _envelope(step, task, checking.shapes(task).params.names)
    if task.workspace is not None and "workspace" in step.inputs:
        yield from _workspace(checking, step, step.inputs["workspace"])
    if "params" in step.inputs:
        yield from _params(checking, step, task)


def _envelope(step: Step, task: TaskDefinition, fields: Sequence[str]) -> Iterator[Finding]:
    wanted = ["params"] if task.workspace is None else ["workspace", "params"]
    absent = [name for name in wanted if name not in step.inputs]
    for name in step.inputs:
        if name in wanted:
            continue
        label = f"step {step.reference!r} has the input {name!r}"
        close = nearest(name, absent)
        if name == "workspace":
            text = f"{label}, but its task {task.name!r} declares no workspace; take it out"
        elif close is not None:
            absent.remove(close)
            text = f"{label}; did you mean {close!r}?"
        elif name in fields:
            text = f'{label}, which is a param of {task.name!r}; put it inside "params"'
        else:
            takes = " and ".join(wanted)
            text = f"{label}, but its task {task.name!r} takes {takes} and nothing else"
        yield error(step.reference, text)
    if "workspace" in absent:
        yield error(
            step.reference,
            f"step {step.reference!r} has no workspace, and its task {task.name!r} works on one; "
            'give it "workspace": "${workflow.input.workspace}", or an earlier step\'s ${….output.workspace}',
        )
    if "params" in absent:
        yield error(
            step.reference,
            f'step {step.reference!r} has no params, which its task {task.name!r} takes; give it "params": {{…}}, '
            "which may be empty where the task requires none",
        )


def _workspace(checking: Checking, step: Step, given: Any) -> Iterator[Finding]:
    if not isinstance(given, list):
        yield from _one_workspace(checking, step, given, "workspace")
    elif not given:
        text = "workspace is an empty list; give it one workspace, or those that are to be joined"
        yield error(step.reference, f"step {step.reference!r}: {text}")
    else:
        for number, one in enumerate(given):
            yield from _one_workspace(checking, step, one, f"workspace[{number}]")


def _one_workspace(checking: Checking, step: Step, given: Any, called: str) -> Iterator[Finding]:
    label = f"step {step.reference!r}"
    expression = whole(given)
    if expression is not None:
        yield from _whole_workspace(checking, step, expression)
    value = known(given, checking.given)
    if value is UNKNOWN:
        return
    if called == "workspace" and expression is not None and isinstance(value, list):
        # The workflow's input contains a list of workspaces.
        yield from _workspace(checking, step, value)
        return
    if not isinstance(value, Mapping):
        yield error(step.reference, f"{label}: {called} must be an object, not {type(value).__name__}")
        return
    task = checking.task_of(step)
    opens = task is not None and task.run_step == "open"
    absent = [name for name in (_FIELDS[:2] if opens else _FIELDS) if name not in value]
    for name in value:
        if name in _FIELDS or name in _REF_TYPES:
            continue
        close = did_you_mean(str(name), [*_FIELDS, "ref_type"], otherwise=f"; it has {', '.join(_FIELDS)}")
        absent = [field for field in absent if field != nearest(str(name), absent)]
        yield error(step.reference, f"{label}: a workspace has no field {name!r}{close}")
    for name in absent:
        yield error(step.reference, f"{label}: {called}.{name} is missing; {_WHOLE}")
    for name, item in value.items():
        if item is UNKNOWN or (name not in _FIELDS and name not in _REF_TYPES):
            continue
        if not isinstance(item, str) or not item.strip():
            yield error(step.reference, f"{label}: {called}.{name} must be a non-blank string")
        elif name in _REF_TYPES and item != "commit":
            yield error(step.reference, f"{label}: {called}.{name} must be 'commit', not {item!r}; {_WHOLE}")


def _whole_workspace(checking: Checking, step: Step, expression: str) -> Iterator[Finding]:
    """Yield an error if the expression's value is not a workspace."""
    shape = checking.shape_of(expression)
    if shape is None or shape.missing or shape.types is None:
        return
    if "object" in shape.types and ("repository" in shape.names or not shape.names):
        return
    source = expression.partition(".")[0]
    output = checking.output_of(source)
    has_workspace = output is not None and "workspace" in output.names
    remedy = f"; did you mean ${{{source}.output.workspace}}?" if has_workspace else ""
    yield error(
        step.reference,
        f"step {step.reference!r} takes its workspace from ${{{expression}}}, which is not a workspace{remedy}",
    )


def _params(checking: Checking, step: Step, task: TaskDefinition) -> Iterator[Finding]:
    raw = step.inputs["params"]
    found = violations(task, known(raw, checking.given))
    shape = checking.shapes(task).params
    explained: set[Path] = set()
    for violation in found:
        if violation.not_declared:
            missing = [one.path for one in found if one.missing and one.path[:-1] == violation.path[:-1]]
            close = nearest(str(violation.path[-1]), [str(path[-1]) for path in missing])
            explained.update(path for path in missing if str(path[-1]) == close)
    for violation in found:
        if violation.path not in explained:
            yield _finding(checking, step, task, violation, raw=raw, shape=shape)
    workspace = workspace_of(checking, step)
    if workspace is not None and workspace.problem:
        level = error if not has_expression(raw) or checking.always_runs(step) else warning
        yield level(step.reference, f"step {step.reference!r}: {workspace.problem}")


def _finding(
    checking: Checking, step: Step, task: TaskDefinition, violation: InputViolation, *, raw: Any, shape: Shape
) -> Finding:
    label = f"step {step.reference!r}"
    where = format_path(("params", *violation.path))
    if violation.not_declared:
        for part in violation.path[:-1]:
            shape = shape.at(part)
        others = f"; it has {', '.join(shape.names)}" if shape.names else ""
        close = did_you_mean(str(violation.path[-1]), shape.names, otherwise=others)
        return error(step.reference, f"{label}: {task.name!r} has no {where}{close}")
    if violation.missing:
        return error(step.reference, f"{label}: {where} is missing, and {task.name!r} requires it; add it")
    level = error if violation.certain else warning
    written = at(raw, violation.path)
    source = whole(written)
    if source is not None:
        level = level if checking.always_runs(step) else warning
        return level(
            step.reference, f"{label}: {where} takes ${{{source}}}, which does not fit: {violation.rule}"
        )
    return level(step.reference, f"{label}: {where}: {violation.rule}")
