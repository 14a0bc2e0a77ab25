"""Which tasks a workflow's definition uses.

The rule: what a workflow does not use is neither checked nor served by its run.  A step that brings in tasks by a name
that is not in the definition (DYNAMIC, SUB_WORKFLOW …) may use any of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from perago.declare.workflow.steps import NAMED
from perago.errors import RuntimeConfigError


def used_tasks(definition: Mapping[str, Any], known: set[str]) -> set[str]:
    """The tasks of `known` that the workflow may use; one that it names and nobody knows would wait for ever."""
    steps = list(_steps(definition.get("tasks", [])))
    named = {str(step["name"]) for step in steps if _type(step) == "SIMPLE" and "name" in step}
    missing = sorted(named - known)
    if missing:
        raise RuntimeConfigError(
            f"the workflow names tasks that no --tasks module declares: {', '.join(missing)}; "
            f"declared are {', '.join(sorted(known))}"
        )
    return named if all(_type(step) in NAMED for step in steps) else known


def _steps(node: Any) -> Iterator[Mapping[str, Any]]:
    """Every step, those inside forks, branches and loops included."""
    if isinstance(node, list):
        for item in node:
            yield from _steps(item)
    elif isinstance(node, Mapping):
        yield node
        for field in ("loopOver", "forkTasks", "defaultCase"):
            yield from _steps(node.get(field, []))
        for case in (node.get("decisionCases") or {}).values():
            yield from _steps(case)


def _type(step: Mapping[str, Any]) -> Any:
    return step.get("type", "SIMPLE")
