"""Diagnostics of a workflow: one line each.  An error is certain on every path; everything else is a warning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class WorkflowDiagnostic:
    """One mistake (`error`) or possible mistake (`warning`); `step` is None if it concerns the whole workflow."""

    level: Level
    file: str
    step: str | None
    message: str

    def __str__(self) -> str:
        return f"{self.message} ({self.file})" if self.file else self.message


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnostic without its file."""

    level: Level
    step: str | None
    message: str


def error(step: str | None, message: str) -> Finding:
    """Return a finding that is wrong on every path."""
    return Finding("error", step, message)


def warning(step: str | None, message: str) -> Finding:
    """Return a finding that is wrong on some path."""
    return Finding("warning", step, message)
