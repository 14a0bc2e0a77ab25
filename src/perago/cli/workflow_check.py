"""How commands check workflows: every mistake is a line on stderr, and an error ends the command before anything starts."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer

from perago.cli import output
from perago.cli.run_input import read_definition
from perago.declare.discovery import Collected
from perago.declare.task import TaskDefinition
from perago.declare.workflow.check import check_workflow
from perago.declare.workflow.mistakes import WorkflowMistake
from perago.declare.workflow.steps import read_flow
from perago.errors import RuntimeConfigError, TaskDefinitionError


@dataclass(frozen=True, slots=True)
class CheckedWorkflow:
    """A workflow file and what is wrong with it; without a name if it could not be read."""

    file: str
    name: str | None
    steps: int
    mistakes: Sequence[WorkflowMistake]

    @property
    def wrong(self) -> bool:
        """Whether it cannot run."""
        return any(mistake.level == "error" for mistake in self.mistakes)

    def as_json(self) -> dict[str, Any]:
        """The same for programs."""
        mistakes = [
            {"level": mistake.level, "step": mistake.step, "message": mistake.message}
            for mistake in self.mistakes
        ]
        return {"file": self.file, "name": self.name, "steps": self.steps, "mistakes": mistakes}


class _Everything:
    def __contains__(self, _: object) -> bool:
        return True


def checked_file(file: str, found: Collected) -> CheckedWorkflow:
    """Check a workflow file against the tasks that were found."""
    try:
        definition = read_definition(file)
    except (RuntimeConfigError, TaskDefinitionError) as error:
        # The reason names the file itself.  A module that holds tasks too has been told about already.
        known = {str(mistake) for mistake in found.errors}
        mistakes = [] if str(error) in known else [WorkflowMistake("error", "", None, str(error))]
        return CheckedWorkflow(file, None, 0, mistakes)
    tasks = {task.name: task for task in found.tasks}
    # A task that is missing may be one whose declaration is wrong, which is told already.
    elsewhere: Container[str] = _Everything() if found.errors else ()
    mistakes = check_workflow(definition, tasks, file=file, elsewhere=elsewhere)
    return CheckedWorkflow(file, definition["name"], len(read_flow(definition)[0].steps), mistakes)


def refuse_mistakes(
    definition: Mapping[str, Any],
    tasks: Iterable[TaskDefinition],
    *,
    file: str,
    given: Mapping[str, Any] | None = None,
    elsewhere: Container[str] = (),
) -> None:
    """Say what is wrong with a workflow, and end the command if that is certain."""
    by_name = {task.name: task for task in tasks}
    if told(check_workflow(definition, by_name, file=file, given=given, elsewhere=elsewhere)):
        raise typer.Exit(output.FAILED)


def told(mistakes: Sequence[WorkflowMistake]) -> bool:
    """Print mistakes, warnings first; whether there is an error among them."""
    errors = [mistake for mistake in mistakes if mistake.level == "error"]
    for mistake in mistakes:
        if mistake.level == "warning":
            output.warn(str(mistake))
    for mistake in errors:
        output.error(str(mistake))
    return bool(errors)
