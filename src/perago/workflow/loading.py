"""Loads a workflow's definition from `module:name`.

The module part is a target such as `app.flows` or `flows.py`, and is imported in the same way as a module of tasks.  Every
failure is raised as a `TaskDefinitionError`, which names the line if user code failed.
"""

from __future__ import annotations

from types import FunctionType, ModuleType
from typing import Any

from perago.declare.discovery import import_target
from perago.errors import TaskDefinitionError
from perago.orchestrator.conductor.workflow_objects import definition_of, is_workflow
from perago.protocol.suggestions import did_you_mean, listed


def load_definition(source: str) -> dict[str, Any]:
    """Return the definition of the workflow named by `source`, which has the form `module:name`."""
    target, _, name = source.rpartition(":")
    if not target or not name:
        target = target or name
        raise TaskDefinitionError(
            f"{target}: name a workflow of the module, {target}:NAME{_existing_workflows(target)}"
        )
    module = import_target(target)
    if name not in vars(module):
        meant = did_you_mean(name, _workflows(module), otherwise=_existing_workflows(target))
        raise TaskDefinitionError(f"{source}: {target} has no {name!r}{meant}")
    found = vars(module)[name]
    if not is_workflow(found):
        raise TaskDefinitionError(f"{source}: {_wrong_kind(found)}{_existing_workflows(target)}")
    return definition_of(found, source)


def _wrong_kind(found: object) -> str:
    if isinstance(found, FunctionType):
        return "this is a function; call it in the module, and name the workflow that it returns"
    return f"this is a {type(found).__name__}, not a workflow of the official client (ConductorWorkflow)"


def _workflows(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if is_workflow(value)]


def _existing_workflows(target: str) -> str:
    """Return a phrase that lists the module's workflows, to complete an error message."""
    workflows = _workflows(import_target(target))
    if workflows:
        return f"; {target} has {listed(workflows)}"
    return f'; {target} has no workflow: make one, plays = perago.workflow.new_workflow("plays")'
