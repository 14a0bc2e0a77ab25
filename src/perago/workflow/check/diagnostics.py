"""What is said about a workflow: one line each, an error only where it is certain on every path."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class WorkflowDiagnostic:
    """One thing that is wrong (`error`) or may go wrong (`warning`); `step` is None where it concerns the whole workflow."""

    level: Level
    file: str
    step: str | None
    message: str

    def __str__(self) -> str:
        return f"{self.message} ({self.file})" if self.file else self.message


@dataclass(frozen=True, slots=True)
class Finding:
    """A mistake before it is known which file it is in."""

    level: Level
    step: str | None
    message: str


def error(step: str | None, message: str) -> Finding:
    """Wrong on every path."""
    return Finding("error", step, message)


def warning(step: str | None, message: str) -> Finding:
    """Wrong on some path."""
    return Finding("warning", step, message)
