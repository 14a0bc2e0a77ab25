"""Compares a workflow's file with the definition on a server.

The file is the whole definition: a field that it leaves out has Conductor's default, and so equals a server field set to
that default.  Fields that the server sets itself (times, user names) and fields that the server does not store are not
compared.  Steps are matched by reference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

Json = Mapping[str, Any]
Field = tuple[str, Any, Any]

# The defaults in Conductor 3.32.3.  None means that the field exists only if it was set.
_WORKFLOW: Json = {
    "description": None,
    "version": 1,
    "tasks": [],
    "inputParameters": [],
    "outputParameters": {},
    "failureWorkflow": None,
    "schemaVersion": 2,
    "restartable": True,
    "workflowStatusListenerEnabled": False,
    "workflowStatusListenerSink": None,
    "timeoutPolicy": "ALERT_ONLY",
    "timeoutSeconds": 0,
    "variables": {},
    "inputTemplate": {},
    "rateLimitConfig": None,
    "inputSchema": None,
    "outputSchema": None,
    "enforceSchema": True,
    "metadata": {},
    "cacheConfig": None,
    "maskedFields": [],
}
_STEP: Json = {
    "name": None,
    "description": None,
    "inputParameters": {},
    "type": "SIMPLE",
    "dynamicTaskNameParam": None,
    "caseValueParam": None,
    "caseExpression": None,
    "scriptExpression": None,
    "decisionCases": {},
    "defaultCase": [],
    "dynamicForkJoinTasksParam": None,
    "dynamicForkTasksParam": None,
    "dynamicForkTasksInputParamName": None,
    "forkTasks": [],
    "startDelay": 0,
    "subWorkflowParam": None,
    "joinOn": [],
    "sink": None,
    "optional": False,
    "taskDefinition": None,
    "rateLimited": None,
    "defaultExclusiveJoinTask": [],
    "asyncComplete": False,
    "loopCondition": None,
    "loopOver": [],
    "retryCount": None,
    "evaluatorType": None,
    "expression": None,
    "onStateChange": {},
    "joinStatus": None,
    "cacheConfig": None,
    "permissive": False,
    "metadata": {},
}


def difference(wanted: Json, actual: Json) -> list[Field]:
    """Return (path, value in the file, value on the server) for everything that registering the file would change."""
    # The server fills in the owner if the file does not set one.
    owner = {"ownerEmail": actual.get("ownerEmail"), "ownerApp": actual.get("ownerApp")}
    return list(_object("", wanted, actual, {**_WORKFLOW, **owner}))


def _object(path: str, wanted: Json, actual: Json, defaults: Json) -> Iterator[Field]:
    names = [*defaults, *(name for name in wanted if name in actual and name not in defaults)]
    for name in names:
        new, old = _value(wanted, name, defaults), _value(actual, name, defaults)
        yield from _COMPARED.get(name, _exact)(f"{path}.{name}" if path else name, new, old)


def _value(source: Json, name: str, defaults: Json) -> Any:
    found = source.get(name)
    return defaults.get(name) if found is None else found


def _exact(path: str, new: Any, old: Any) -> Iterator[Field]:
    if not (isinstance(new, Mapping) and isinstance(old, Mapping)):
        # True == 1 in Python, but a task can tell them apart.
        if new != old or isinstance(new, bool) != isinstance(old, bool):
            yield path, new, old
        return
    for name in dict.fromkeys([*new, *old]):
        if name in new and name in old:
            yield from _exact(f"{path}.{name}", new[name], old[name])
        else:
            yield f"{path}.{name}", new.get(name), old.get(name)


def _set_in_file(path: str, new: Any, old: Any) -> Iterator[Field]:
    """Yield the differences in keys that the file sets.  Other keys are ignored: the server adds defaults."""
    if isinstance(new, Mapping) and isinstance(old, Mapping):
        for name, value in new.items():
            yield from _set_in_file(f"{path}.{name}", value, old.get(name))
    elif new != old:
        yield path, new, old


def _steps(path: str, new: Any, old: Any) -> Iterator[Field]:
    ours, theirs = _by_reference(new), _by_reference(old)
    for reference in dict.fromkeys([*ours, *theirs]):
        at = f"{path}[{reference}]"
        if reference in ours and reference in theirs:
            yield from _object(at, ours[reference], theirs[reference], _STEP)
        elif reference in ours:
            yield at, ours[reference], None
        else:
            yield at, None, _brief(theirs[reference])
    if set(ours) == set(theirs) and list(ours) != list(theirs):
        yield f"{path} (order)", list(ours), list(theirs)


def _branches(path: str, new: Any, old: Any) -> Iterator[Field]:
    for number in range(max(len(new), len(old))):
        yield from _steps(f"{path}[{number}]", new[number : number + 1], old[number : number + 1])


def _cases(path: str, new: Any, old: Any) -> Iterator[Field]:
    for case in dict.fromkeys([*new, *old]):
        yield from _steps(f"{path}.{case}", new.get(case) or [], old.get(case) or [])


def _by_reference(steps: Sequence[Any]) -> dict[str, Json]:
    # An arm of a fork is passed as a list that contains one list.
    flat = [step for item in steps for step in (item if isinstance(item, list) else [item])]
    return {str(step.get("taskReferenceName")): step for step in flat}


def _brief(step: Json) -> dict[str, Any]:
    """Return the step without fields that are set to their defaults."""
    return {name: value for name, value in step.items() if value != _STEP.get(name)}


_COMPARED: dict[str, Callable[[str, Any, Any], Iterator[Field]]] = {
    **dict.fromkeys(("tasks", "defaultCase", "loopOver"), _steps),
    "forkTasks": _branches,
    "decisionCases": _cases,
    **dict.fromkeys(("taskDefinition", "subWorkflowParam", "rateLimitConfig", "cacheConfig"), _set_in_file),
    **dict.fromkeys(("inputSchema", "outputSchema", "onStateChange"), _set_in_file),
}
