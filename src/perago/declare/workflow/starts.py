"""Which branch and which version of it a step starts from, as far as the workflow's JSON tells.

Both go by what they are called in the workflow: a branch by the input that it comes from, or as repository@branch; a version
by that input, by the step that publishes it, or by its literal ref.  Equal names are the same thing; different ones may be.
Of several versions that are joined nobody can say before the run which comes last: the step starts from one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from perago.declare.workflow.checking import Checking
from perago.declare.workflow.steps import Step
from perago.declare.workflow.values import whole
from perago.protocol.expressions import understood
from perago.protocol.view import overlap

Version = tuple[str, str]
"""A branch and which state of it, both as they are called in the workflow."""


def writes(checking: Checking, step: Step) -> bool:
    """Whether a step's task may publish."""
    task = checking.task_of(step)
    return task is not None and task.workspace is not None and not task.workspace.read_only


def keep_apart(checking: Checking, one: Step, other: Step) -> bool:
    """Whether two writers publish on top of each other, and neither sees what the other writes."""
    tasks = [checking.task_of(step) for step in (one, other)]
    views = [task.workspace.view for task in tasks if task and task.workspace and task.workspace.rebases]
    return len(views) == 2 and not any(
        overlap(left.write_roots, right.roots) for left, right in (views, views[::-1])
    )


def starts_of(checking: Checking, step: Step) -> tuple[Version, ...]:
    """The versions of one branch that a step starts from, one or those that are joined; none if they cannot be told."""
    given = step.inputs.get("workspace")
    if not isinstance(given, list):
        start = start_of(checking, step)
        return () if start is None else (start,)
    found = [_given_version(checking, one, frozenset({step.reference})) for one in given]
    known = tuple(version for version in found if version is not None)
    one_branch = len({version[0] for version in known}) == 1
    return known if one_branch and len(known) == len(found) else ()


def start_of(checking: Checking, step: Step, followed: frozenset[str] = frozenset()) -> Version | None:
    """The branch and version that a step starts from, if they can be told; of a join the branch, and a name of its own."""
    if step.reference in checking.starts:
        return checking.starts[step.reference]
    task = checking.task_of(step)
    if task is None or task.workspace is None or step.reference in followed:
        return None
    given, inner = step.inputs.get("workspace"), followed | {step.reference}
    found = (
        _joined(checking, given, inner) if isinstance(given, list) else _given_version(checking, given, inner)
    )
    if not followed:
        # Steps are asked about in their order, so a chain of any length is followed by one link at a time.
        checking.starts[step.reference] = found
    return found


def _given_version(checking: Checking, given: Any, followed: frozenset[str]) -> Version | None:
    if isinstance(given, Mapping):
        return _put_together(checking, given, followed)
    expression = whole(given)
    return None if expression is None else _version(checking, expression, followed)


def _joined(checking: Checking, given: list[Any], followed: frozenset[str]) -> Version | None:
    found = [_given_version(checking, one, followed) for one in given]
    known = [version for version in found if version is not None]
    if not known or len(known) < len(found) or len({version[0] for version in known}) > 1:
        return None
    names = list(dict.fromkeys(version[1] for version in known))
    return known[0][0], " + ".join(names)


def _version(checking: Checking, expression: str, followed: frozenset[str]) -> Version | None:
    parts, end = understood(expression)
    if end < len(expression):
        return None
    if parts[:2] == ("workflow", "input"):
        return expression, expression
    source = checking.flow.steps.get(str(parts[0]))
    if source is None or parts[1:] not in {("output", "workspace"), ("input", "workspace")}:
        return None
    start = start_of(checking, source, followed)
    if start is None or parts[1] == "input" or not writes(checking, source):
        return start
    return start[0], source.reference


def _put_together(checking: Checking, given: Mapping[str, Any], followed: frozenset[str]) -> Version | None:
    """A workspace of single fields: known where repository and branch are literal, or those of one workspace."""
    repository, branch, ref = (
        _field(checking, given, name, followed) for name in ("repository", "branch", "ref")
    )
    if repository is None or branch is None or ref is None:
        return None
    if isinstance(repository, str) and isinstance(branch, str):
        called = f"{repository}@{branch}"
    elif isinstance(repository, tuple) and isinstance(branch, tuple) and repository[0] == branch[0]:
        called = branch[0]
    else:
        return None
    return called, ref if isinstance(ref, str) else ref[1]


def _field(
    checking: Checking, given: Mapping[str, Any], name: str, followed: frozenset[str]
) -> str | Version | None:
    value = given.get(name)
    expression = whole(value)
    if expression is None:
        return value if isinstance(value, str) and "${" not in value else None
    around, dot, last = expression.rpartition(".")
    return _version(checking, around, followed) if dot and last == name else None
