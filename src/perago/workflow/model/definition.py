"""The required parts of a workflow definition, and all its steps, including those inside forks, branches and loops.

Every error is one line that names the file and the step, before a server sees the definition.  Conductor answers 500 to
some of these mistakes, and accepts others that make the workflow impossible to start.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from perago.errors import RuntimeConfigError

Json = Mapping[str, Any]


def check_definition(definition: Json, file: str) -> None:
    """Raise `RuntimeConfigError` if no orchestrator could run the definition."""
    for diagnostic in _diagnostics(definition):
        raise RuntimeConfigError(f"{file}: {diagnostic}")


def version_of(definition: Json) -> int:
    """Return the version of a definition; Conductor's default is 1."""
    version = definition.get("version")
    return 1 if version is None else int(version)


def steps_in(node: Any) -> Iterator[Json]:
    """Yield every step of a list of steps, nested ones included, in the order of the file."""
    for step in node or ():
        if isinstance(step, Mapping):
            yield step
            for block in blocks_of(step):
                yield from steps_in(block)


def task_names(definition: Json) -> set[str]:
    """Return the names of the tasks that workers run for the workflow."""
    steps = steps_in(definition.get("tasks"))
    return {step["name"] for step in steps if (step.get("type") or "SIMPLE") == "SIMPLE"}


def blocks_of(step: Json) -> Iterator[Any]:
    """Yield the lists of steps inside a step."""
    yield from (step.get("decisionCases") or {}).values()
    yield step.get("defaultCase")
    yield from step.get("forkTasks") or ()
    yield step.get("loopOver")


def _diagnostics(definition: Json) -> Iterator[str]:
    name, version, tasks = definition["name"], definition.get("version", 1), definition.get("tasks")
    if not name or "/" in name:
        yield f"the workflow's name is {name!r}, but must be a text without '/'"
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        yield f"version is {version!r}, but must be a whole number of at least 1"
    if not isinstance(tasks, list) or not tasks:
        yield "the workflow has no steps: give it a list `tasks` with at least one"
        return
    references: Counter[str] = Counter()
    for number, step in enumerate(steps_in(tasks), 1):
        for field in ("name", "taskReferenceName"):
            if not isinstance(step.get(field), str) or not step[field]:
                yield f"{_label(step, number)} has no {field}"
        references[str(step.get("taskReferenceName"))] += 1
    for reference, times in references.items():
        if times > 1:
            yield f"{times} steps have the taskReferenceName {reference!r}: give each its own"


def _label(step: Json, number: int) -> str:
    known = step.get("taskReferenceName") or step.get("name")
    return f"step {known!r}" if known else f"step number {number}"
