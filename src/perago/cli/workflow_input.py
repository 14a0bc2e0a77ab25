"""Reads and checks the workflows and inputs passed to commands, before anything is written.

Every mistake in a workflow is printed as a line on stderr, and an error ends the command before anything starts.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from perago.cli import output
from perago.declare.discovery import Collected
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError, TaskDefinitionError
from perago.protocol.ledger import Recompute
from perago.protocol.suggestions import did_you_mean, listed, nearest
from perago.workflow.check.check import check_workflow
from perago.workflow.check.context import WorkflowDiagnostic
from perago.workflow.model.definition import ITERATION_MARK, read_workflow
from perago.workflow.model.step_types import SIMPLE

_LONGEST_LINE = 120
_KINDS: dict[type, str] = {
    list: "a list",
    str: "a string",
    bool: "true or false",
    int: "a number",
    float: "a number",
}


def read_import(item: str) -> tuple[str, Path]:
    """Split a REPO=DIR value of --import into its parts."""
    name, separator, folder = item.partition("=")
    if not separator or not name or not folder:
        raise typer.BadParameter(f"--import takes REPO=DIR, not {item!r}")
    return name, Path(folder)


def check_forced(definition: Mapping[str, Any], recompute: Recompute) -> None:
    """Raise a usage error if --force names a step that the workflow does not have.

    A step in a loop may be named with its iteration.
    """
    steps = read_workflow(definition, named_only=True).walk()
    known = [step.reference for step in steps if step.type == SIMPLE]
    for name in sorted(recompute.steps - set(known)):
        step, mark, iteration = name.rpartition(ITERATION_MARK)
        if not (mark and iteration.isdigit() and step in known):
            close = did_you_mean(name, known, otherwise=f"; the steps are {listed(known)}")
            raise typer.BadParameter(f"--force {name}: the workflow has no such step that runs a task{close}")


def is_workflow(source: str) -> bool:
    """Return whether a command-line argument names a workflow rather than a module with tasks."""
    return source.endswith(".json") or is_python(source)


def is_python(source: str) -> bool:
    """Return whether a workflow is named as a Python object: `module:name` or `file.py:name`."""
    return ":" in source and not source.endswith(".json")


def read_definition(source: str) -> dict[str, Any]:
    """Return the workflow definition in a file or a module."""
    if is_python(source) or source.endswith(".py"):
        # Imported here because it imports the official client, and most workflows are files.
        from perago.workflow.loading import load_definition

        return load_definition(source)
    file = Path(source)
    definition = _read_object(_read_text(file), str(file))
    if not isinstance(definition.get("name"), str):
        raise RuntimeConfigError(f'{file} is not a workflow definition: it has no name; add "name": "…"')
    return definition


def read_payload(given: str) -> dict[str, Any]:
    """Return the workflow's input, which is passed as JSON or as the path of a file."""
    text = given if given.lstrip().startswith(("{", "[")) else None
    if text is not None:
        return _read_object(text, "--input")
    if not Path(given).is_file():
        raise RuntimeConfigError(
            f"--input {given!r} is neither a file{_files_near(Path(given))} nor a JSON object: "
            'write --input \'{"key": "value"}\''
        )
    return _read_object(_read_text(Path(given)), f"--input {given}")


def _read_text(file: Path) -> str:
    if file.is_dir():
        raise RuntimeConfigError(f"{file} is a folder: name a JSON file in it")
    if not file.is_file():
        raise RuntimeConfigError(
            f"there is no file {file}{_files_near(file)}: name the file that holds the workflow"
        )
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise RuntimeConfigError(
            f"cannot read {file} ({error.strerror}): give a file that can be read"
        ) from error
    except UnicodeDecodeError as error:
        raise RuntimeConfigError(
            f"{file} is not UTF-8 text (byte {error.start}): save it as UTF-8"
        ) from error


def _files_near(file: Path) -> str:
    """Return a phrase that suggests JSON files in the same folder, to complete an error message."""
    there = sorted(path.stem for path in file.parent.glob("*.json")) if file.parent.is_dir() else []
    # Compare without the suffix, which would make any two names similar.
    meant = nearest(file.stem, there)
    if meant is not None:
        return f" (did you mean {str(file.with_name(f'{meant}.json'))!r}?)"
    return (
        f" (there {'are' if len(there) > 1 else 'is'} {', '.join(f'{name}.json' for name in there)})"
        if there
        else ""
    )


def _read_object(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        line = text.splitlines()[error.lineno - 1 : error.lineno] or [""]
        raise RuntimeConfigError(
            f"{what} is not JSON: {error.msg}, line {error.lineno} column {error.colno}; correct this line: "
            f"{line[0].strip()[:_LONGEST_LINE]}"
        ) from error
    except RecursionError as error:
        raise RuntimeConfigError(f"{what} is nested too deeply: take levels out") from error
    if not isinstance(value, dict):
        raise RuntimeConfigError(
            f"{what} must hold one JSON object, {{…}}, and holds {_KINDS.get(type(value), 'null')}"
        )
    return value


@dataclass(frozen=True, slots=True)
class CheckedWorkflow:
    """A workflow file and its diagnostics. `name` is None if the file could not be read."""

    file: str
    name: str | None
    steps: int
    diagnostics: Sequence[WorkflowDiagnostic]

    @property
    def has_errors(self) -> bool:
        """True if the workflow has errors and cannot run."""
        return any(diagnostic.level == "error" for diagnostic in self.diagnostics)

    def as_json(self) -> dict[str, Any]:
        """Return the file, name, number of steps and diagnostics as JSON values."""
        diagnostics = [
            {"level": diagnostic.level, "step": diagnostic.step, "message": diagnostic.message}
            for diagnostic in self.diagnostics
        ]
        return {"file": self.file, "name": self.name, "steps": self.steps, "mistakes": diagnostics}


class _Everything:
    def __contains__(self, _: object) -> bool:
        return True


def checked_file(file: str, found: Collected) -> CheckedWorkflow:
    """Check a workflow file against the known tasks."""
    try:
        definition = read_definition(file)
    except (RuntimeConfigError, TaskDefinitionError) as error:
        # The message names the file. If the module also declares tasks, the error has already been reported.
        known = {str(diagnostic) for diagnostic in found.errors}
        diagnostics = [] if str(error) in known else [WorkflowDiagnostic("error", None, str(error), "")]
        return CheckedWorkflow(file, None, 0, diagnostics)
    tasks = {task.name: task for task in found.tasks}
    # A missing task may be one with an invalid declaration, which has already been reported.
    elsewhere: Container[str] = _Everything() if found.errors else ()
    diagnostics = check_workflow(definition, tasks, file=file, elsewhere=elsewhere)
    steps = read_workflow(definition, named_only=True).steps
    return CheckedWorkflow(file, definition["name"], len(steps), diagnostics)


def refuse_diagnostics(
    definition: Mapping[str, Any],
    tasks: Iterable[TaskDefinition],
    *,
    file: str,
    given: Mapping[str, Any] | None = None,
    elsewhere: Container[str] = (),
) -> None:
    """Print a workflow's diagnostics, and end the command if one of them is an error."""
    by_name = {task.name: task for task in tasks}
    if print_diagnostics(check_workflow(definition, by_name, file=file, given=given, elsewhere=elsewhere)):
        raise typer.Exit(output.FAILED)


def print_diagnostics(diagnostics: Sequence[WorkflowDiagnostic]) -> bool:
    """Print diagnostics, warnings first. Returns whether any of them is an error."""
    errors = [diagnostic for diagnostic in diagnostics if diagnostic.level == "error"]
    for diagnostic in diagnostics:
        if diagnostic.level == "warning":
            output.warn(str(diagnostic))
    for diagnostic in errors:
        output.error(str(diagnostic))
    return bool(errors)
