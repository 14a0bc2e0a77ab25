"""What is said about a workflow: one line each, an error only where it is certain on every path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

Level = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class WorkflowMistake:
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


def meant(name: str, known: Iterable[str]) -> str | None:
    """The known name that was probably meant."""
    names = sorted(set(known))
    begun = [one for one in names if len(name) > 2 and one.startswith(name)]
    return next(iter([*get_close_matches(name, names, n=1, cutoff=0.6), *begun]), None)


def did_you_mean(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """The end of a message: the likely name, else `otherwise`."""
    close = meant(name, known)
    return f"; did you mean {close!r}?" if close is not None else otherwise
