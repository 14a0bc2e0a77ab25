"""Extracts what registering or running a workflow requires from its JSON: version, tasks and parallelism.

A run neither checks nor serves tasks that its workflow does not use.  A step whose task is not named in the definition
(DYNAMIC, SUB_WORKFLOW …) may use any task.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from perago.errors import RuntimeConfigError
from perago.workflow.model.definition import Json, Step, read_workflow
from perago.workflow.model.step_types import EXCLUSIVE_JOIN, JOIN, NAMED, SIMPLE


def check_definition(definition: Json, file: str) -> None:
    """Raise `RuntimeConfigError` if no orchestrator could run the definition.

    The error is a single line that names the file and the step, and is raised before a server sees the definition.
    Conductor responds to some of these errors with status 500, and accepts others, although the workflow can then never
    be started.
    """
    for diagnostic in _diagnostics(definition):
        raise RuntimeConfigError(f"{file}: {diagnostic}")


def version_of(definition: Json) -> int:
    """Return the version of a definition; Conductor's default is 1."""
    version = definition.get("version")
    return 1 if version is None else int(version)


def digest_of(definition: Json) -> str:
    """Return a digest of the definition, independent of its formatting."""
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def task_names(definition: Json) -> set[str]:
    """Return the names of the tasks that workers run for the workflow."""
    return _names(read_workflow(definition).walk())


def used_tasks(definition: Json, known: set[str]) -> set[str]:
    """Return the tasks in `known` that the workflow may use.

    Raises `RuntimeConfigError` if the workflow names an unknown task, because the task's step would wait forever.
    """
    steps = list(read_workflow(definition).walk())
    named = _names(steps)
    missing = sorted(named - known)
    if missing:
        raise RuntimeConfigError(
            f"the workflow names tasks that no --tasks module declares: {', '.join(missing)}; "
            f"declared are {', '.join(sorted(known))}"
        )
    return named if all(step.type in NAMED for step in steps) else known


def side_by_side(definition: Json) -> int | None:
    """Return the maximum number of steps that can run at the same time, or None if unknown."""
    workflow = read_workflow(definition)
    # The orchestrator rejects a definition that has problems, with its own error.
    return None if workflow.problems else _width(workflow.top.steps)


def _names(steps: Iterable[Step]) -> set[str]:
    return {step.name for step in steps if step.type == SIMPLE and step.name}


def _width(steps: Sequence[Step]) -> int | None:
    """Return how many steps can run at the same time within a sequence of steps, or None if unknown."""
    return _largest([_width_of(step, following) for step, following in zip_longest(steps, steps[1:])])


def _width_of(step: Step, following: Step | None) -> int | None:
    # An EXCLUSIVE_JOIN ends while other steps are still running.
    if step.type not in NAMED or step.type == EXCLUSIVE_JOIN:
        return None
    match step.shape:
        case "fork":
            arms = [arm.steps for arm in step.blocks_of("arm") if arm.steps]
            ends = {arm[-1].reference for arm in arms}
            if following is None or following.type != JOIN or not ends <= set(following.join_on):
                # The next step does not wait for all arms.
                return None
            widths = [_width(arm) for arm in arms]
            return None if None in widths else max(1, sum(width or 0 for width in widths))
        case "switch":
            return _largest([_width(block.steps) for block in step.blocks if block.is_case])
        case "loop":
            return _width(step.body)
        case _:
            return 1


def _largest(widths: Sequence[int | None]) -> int | None:
    return None if None in widths else max((width or 1 for width in widths), default=1)


def _diagnostics(definition: Json) -> Iterator[str]:
    name, version = definition["name"], definition.get("version", 1)
    if not name or "/" in name:
        yield f"the workflow's name is {name!r}, but must be a text without '/'"
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        yield f"version is {version!r}, but must be a whole number of at least 1"
    if not isinstance(definition.get("tasks"), list) or not definition["tasks"]:
        yield "the workflow has no steps: give it a list `tasks` with at least one"
        return
    steps = list(read_workflow(definition).walk())
    for number, step in enumerate(steps, 1):
        for field in ("name", "taskReferenceName"):
            if not isinstance(step.source.get(field), str) or not step.source[field]:
                yield f"{_label(step, number)} has no {field}"
    for reference, times in Counter(step.reference for step in steps).items():
        if times > 1:
            yield f"{times} steps have the taskReferenceName {reference!r}: give each its own"


def _label(step: Step, number: int) -> str:
    known = step.source.get("taskReferenceName") or step.source.get("name")
    return f"step {known!r}" if known else f"step number {number}"
