"""The workspace of a step, filled as far as the workflow gives the params that its paths name.

If all params of a step are known, they are read by the task's model, as in an attempt.  Otherwise only the named ones
are read, by a model of just these fields, unless the task's model could make something else of them: a validator or an
alias of the author's.  A spec that cannot be filled keeps its templates, and its view is the folders above them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, create_model

from perago.declare.task import TaskDefinition
from perago.declare.workspace import WorkspaceSpec
from perago.errors import TaskInputError
from perago.workflow.check.context import Checking, StepWorkspace
from perago.workflow.model.definition import Step
from perago.workflow.model.expressions import has_unknown, known


def workspace_of(checking: Checking, step: Step) -> StepWorkspace | None:
    """Return a step's workspace, or None if its task has none or is unknown."""
    task = checking.task_of(step)
    if task is None or task.workspace is None:
        return None
    if step.reference not in checking.workspaces:
        checking.workspaces[step.reference] = _filled(checking, step, task, task.workspace)
    return checking.workspaces[step.reference]


def _filled(checking: Checking, step: Step, task: TaskDefinition, spec: WorkspaceSpec) -> StepWorkspace:
    params = None if step.input_elsewhere else known(step.inputs.get("params"), checking.given)
    if not spec.names or not isinstance(params, Mapping):
        return StepWorkspace(spec)
    model = _read(task, spec, params)
    try:
        return StepWorkspace(spec if model is None else spec.filled(model))
    except TaskInputError as error:
        return StepWorkspace(spec, problem=str(error))


def _read(task: TaskDefinition, spec: WorkspaceSpec, params: Mapping[str, Any]) -> BaseModel | None:
    """Return the params as a model that has at least the named ones, or None if they are unknown or invalid."""
    try:
        if not has_unknown(params):
            return task.parse_params(json.dumps(params))
        named = {name: params[name] for name in spec.names if name in params}
        if has_unknown(named) or _may_change(task.params_model, spec.names):
            return None
        fields: dict[str, Any] = {
            name: (field.annotation, field)
            for name, field in task.params_model.model_fields.items()
            if name in spec.names
        }
        model: type[BaseModel] = create_model("Named", __config__=task.params_model.model_config, **fields)
        return model.model_validate_json(json.dumps(named), strict=True)
    except Exception:
        # What is wrong with the params is reported by the check of the step's input.
        return None


def _may_change(model: type[BaseModel], names: tuple[str, ...]) -> bool:
    """Return whether the model may give a field another value than the param with its name."""
    decorators = model.__pydantic_decorators__
    if decorators.model_validators or decorators.root_validators:
        return True
    validated = {name for one in decorators.field_validators.values() for name in one.info.fields}
    validated |= {name for one in decorators.validators.values() for name in one.info.fields}
    return not validated.isdisjoint({"*", *names}) or any(
        model.model_fields[name].validation_alias is not None for name in names
    )
