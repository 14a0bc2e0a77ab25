"""Finds two steps that would take each other's publications for their own.

Steps of one task on one branch share the key of their publications if the params that the task names in `ledger_key` are
the same.  If their other params differ, each step finds the other's publication as its last one: it skips nothing, and
`changes()` misses files that only the other has read.  Steps in different cases of a SWITCH share it from run to run.

Only literals are compared.  A param with an expression in it may have any value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import combinations
from typing import Any

from perago.declare.task import TaskDefinition
from perago.protocol.view import View
from perago.workflow.check.branch_conflicts import start_of
from perago.workflow.check.context import Checking, Finding, error
from perago.workflow.check.partitions import workspace_of
from perago.workflow.model.definition import Step
from perago.workflow.model.expressions import UNKNOWN, has_unknown, known


def shared_keys(checking: Checking) -> Iterator[Finding]:
    """Yield a finding for each pair of steps with one key and different params."""
    by_task: dict[str, list[Step]] = {}
    for step in checking.workflow.walk():
        task = checking.task_of(step)
        if task is not None and _uses_ledger(task):
            by_task.setdefault(task.name, []).append(step)
    for name, steps in by_task.items():
        for one, other in combinations(steps, 2):
            yield from _compare(checking, checking.tasks[name], one, other)


def _uses_ledger(task: TaskDefinition) -> bool:
    spec = task.workspace
    return spec is not None and bool(task.skip_unchanged or spec.changes_only or spec.ledger_key)


def _compare(checking: Checking, task: TaskDefinition, one: Step, other: Step) -> Iterator[Finding]:
    starts, views = ([find(checking, step) for step in (one, other)] for find in (_branch, _view))
    if None in starts or starts[0] != starts[1] or None in views or views[0] != views[1]:
        return  # perhaps another branch, or other paths
    left, right = (_literals(task, step) for step in (one, other))
    key = task.workspace.ledger_key if task.workspace is not None else ()
    if any(not _is_known(left, name) or left[name] != right.get(name, UNKNOWN) for name in key):
        return
    for name in left:
        if name not in key and _is_known(left, name) and _is_known(right, name) and left[name] != right[name]:
            named = ", ".join(f'"{one}"' for one in (*key, name))
            yield error(
                other.reference,
                f"steps {one.reference!r} and {other.reference!r} run {task.name!r} on one branch with different "
                f"params.{name}, and each would take the other's publications for its own; name the param in "
                f"WorkspaceSpec(ledger_key=({named}{',' if not key else ''}))",
            )
            return


def _branch(checking: Checking, step: Step) -> str | None:
    start = start_of(checking, step)
    return None if start is None else start[0]


def _view(checking: Checking, step: Step) -> View | None:
    """Return what a step sees and may change, or None if that depends on unknown params."""
    found = workspace_of(checking, step)
    return None if found is None or found.spec.names else found.spec.view


def _literals(task: TaskDefinition, step: Step) -> Mapping[str, Any]:
    """Return the params of a step as its attempt would have them.  Those that are not literals are UNKNOWN."""
    params = None if step.input_elsewhere else known(step.inputs.get("params"), None)
    if not isinstance(params, Mapping):
        return {}
    model = task.params_model
    if not has_unknown(params):
        with suppress(Exception):  # the check of the step's input reports what is wrong with it
            return task.parse_params(json.dumps(params)).model_dump(mode="json")
        return {}
    decorators = model.__pydantic_decorators__
    if decorators.model_validators or decorators.field_validators or decorators.root_validators:
        return {}  # the author's own functions may make something else of any param
    return {
        name: params.get(name, UNKNOWN)
        for name, field in model.model_fields.items()
        if field.validation_alias is None
    }


def _is_known(params: Mapping[str, Any], name: str) -> bool:
    return name in params and not has_unknown(params[name])
