"""Reports errors in declarations.

Declarations are checked when they are evaluated, so importing a module finds its errors.  A declaration with errors
raises one `TaskDefinitionError`.  Inside a `collect_diagnostics()` block the errors are collected instead: the
declaration evaluates to a placeholder and the import continues, so that one run finds every error.  An error's text
names the file and line, the task if known, the field, the value and the rule.
"""

from __future__ import annotations

import ast
import linecache
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import pydantic

from perago.errors import TaskDefinitionError

_UNSET = object()
_VALUE_LENGTH = 120
_NOT_AUTHORS = (
    str(Path(__file__).parents[1]) + os.sep,
    str(Path(pydantic.__file__).parent) + os.sep,
    "<frozen ",
)
"""Path prefixes of files that never contain an author's declaration: Perago's, pydantic's and the import system's."""


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A rule that a declaration breaks: the field, its value, and what the value should be."""

    field: str
    rule: str
    value: object = _UNSET

    def __str__(self) -> str:
        if self.value is _UNSET:
            return f"{self.field}: {self.rule}"
        return f"{self.field} = {short_repr(self.value)}: {self.rule}"


class BrokenRule(ValueError):
    """Raised in a validator to name a field, or an item of a list, and the rule that it breaks."""

    def __init__(self, field: str | int, rule: str, value: object = _UNSET) -> None:
        super().__init__(rule)
        self.field = field
        self.value = value


@dataclass(frozen=True, slots=True)
class SourceLocation:
    """The file and line of a declaration, and the name of its task if known."""

    file: str
    line: int
    task: str | None = None

    def __str__(self) -> str:
        where = f"{_relative_path(self.file)}:{self.line}"
        return where if self.task is None else f"{where}: task {self.task!r}"


@dataclass(frozen=True, slots=True)
class LocatedDiagnostic:
    """A collected diagnostic, with the same text as the error that it replaces."""

    message: str
    place: SourceLocation | None = None

    def __str__(self) -> str:
        return self.message if self.place is None else f"{self.place}: {self.message}"


_collector: ContextVar[list[LocatedDiagnostic] | None] = ContextVar("perago_noted_mistakes", default=None)


@contextmanager
def collect_diagnostics() -> Iterator[list[LocatedDiagnostic]]:
    """Collect diagnostics into the yielded list instead of raising the first."""
    diagnostics: list[LocatedDiagnostic] = []
    token = _collector.set(diagnostics)
    try:
        yield diagnostics
    finally:
        _collector.reset(token)


def report(diagnostics: Sequence[Diagnostic], place: SourceLocation) -> None:
    """Raise one error with all `diagnostics`, or collect them if called inside a `collect_diagnostics()` block."""
    collected = _collector.get()
    if collected is None:
        raise TaskDefinitionError(f"{place}: {'; '.join(map(str, diagnostics))}") from None
    for diagnostic in diagnostics:
        found = LocatedDiagnostic(str(diagnostic), place)
        if found not in collected:  # `from perago import X` looks up X twice
            collected.append(found)


def calling_place() -> SourceLocation:
    """Return the location of the author's code that is currently being executed.

    It includes the task's name if the line is part of a task's decorator.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_NOT_AUTHORS):
        frame = frame.f_back
    file, line = frame.f_code.co_filename, frame.f_lineno
    return SourceLocation(file, line, _decorated_task(file, line))


def short_repr(value: object) -> str:
    """Return the value as code, shortened if it is long."""
    name = getattr(value, "__qualname__", None) if callable(value) else None
    text = name or repr(value)
    return text if len(text) <= _VALUE_LENGTH else text[: _VALUE_LENGTH - 1] + "…"


def one_line(text: str) -> str:
    """Return the text as a single line, with whitespace collapsed."""
    return " ".join(text.split())


def _decorated_task(file: str, line: int) -> str | None:
    # A policy is built before @task runs, so its task is not known yet.  The source shows which decorator call the
    # line belongs to.
    linecache.checkcache(file)
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for call in node.decorator_list:
            if isinstance(call, ast.Call) and call.lineno <= line <= (call.end_lineno or call.lineno):
                return _literal_name(call)
    return None


def _literal_name(call: ast.Call) -> str | None:
    for keyword in call.keywords:
        if keyword.arg == "name" and isinstance(keyword.value, ast.Constant):
            return str(keyword.value.value)
    return None


def _relative_path(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except ValueError:
        return file
