"""Reads from a workflow's definition which tasks it uses, and how many of its steps can run at the same time.

A run neither checks nor serves tasks that its workflow does not use.  A step that takes tasks by a name that is not in
the definition (DYNAMIC, SUB_WORKFLOW …) may use any of them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from perago.errors import RuntimeConfigError
from perago.workflow.check.step_types import NAMED

_ONE_AT_A_TIME = NAMED - {"EXCLUSIVE_JOIN"}
"""Step types that use at most one executor, and end before the next step starts."""


def used_tasks(definition: Mapping[str, Any], known: set[str]) -> set[str]:
    """Return the tasks of `known` that the workflow may use.

    Raises `RuntimeConfigError` if it names an unknown task, which would wait for ever.
    """
    steps = list(_steps(definition.get("tasks", [])))
    named = {str(step["name"]) for step in steps if _type(step) == "SIMPLE" and "name" in step}
    missing = sorted(named - known)
    if missing:
        raise RuntimeConfigError(
            f"the workflow names tasks that no --tasks module declares: {', '.join(missing)}; "
            f"declared are {', '.join(sorted(known))}"
        )
    return named if all(_type(step) in NAMED for step in steps) else known


def side_by_side(definition: Mapping[str, Any]) -> int | None:
    """Return how many of the workflow's steps can run at the same time at most; None if unknown."""
    try:
        return _width(definition.get("tasks") or [])
    except (AttributeError, TypeError):
        # Not a valid definition; the orchestrator will refuse it with its own error.
        return None


def digest_of(definition: Mapping[str, Any]) -> str:
    """Return a digest of the definition, independent of its formatting."""
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _width(block: Sequence[Mapping[str, Any]]) -> int | None:
    """Return the largest width of the steps of a list, which run one after the other; None if unknown."""
    widths = [_width_of(step, following) for step, following in zip_longest(block, block[1:])]
    known = [width for width in widths if width is not None]
    return max(known, default=1) if len(known) == len(widths) else None


def _width_of(step: Mapping[str, Any], following: Mapping[str, Any] | None) -> int | None:
    kind = _type(step)
    if kind == "FORK_JOIN":
        branches = [branch for branch in step.get("forkTasks") or [] if branch]
        ends = {branch[-1].get("taskReferenceName") for branch in branches}
        if following is None or _type(following) != "JOIN" or not ends <= set(following.get("joinOn") or []):
            # The next step does not wait for all branches.
            return None
        return _sum([_width(branch) for branch in branches])
    if kind in ("SWITCH", "DECISION"):
        cases = [*(step.get("decisionCases") or {}).values(), step.get("defaultCase") or []]
        widths = [_width(case) for case in cases]
        return None if None in widths else max(width or 1 for width in widths)
    if kind == "DO_WHILE":
        return _width(step.get("loopOver") or [])
    return 1 if kind in _ONE_AT_A_TIME else None


def _sum(widths: Sequence[int | None]) -> int | None:
    return None if None in widths else max(1, sum(width or 0 for width in widths))


def _steps(node: Any) -> Iterator[Mapping[str, Any]]:
    """Yield every step, including those inside forks, cases and loops."""
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
