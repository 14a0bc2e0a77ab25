"""Workflows in Python: steps that run Perago tasks, for the official Conductor client's workflow classes.

This is the public API for workflow authors, and a test pins it.  The official client is slow to import, so the names below
are loaded on first use.  The workflow model and the checks, which also live in this package, do not need the client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from perago.workflow.builder import PublishedRun, Run, Step, fork, given, new_workflow, open_run, step
    from perago.workflow.references import INPUT_WORKSPACE, Workspace, expression

__all__ = [
    "INPUT_WORKSPACE",
    "PublishedRun",
    "Run",
    "Step",
    "Workspace",
    "expression",
    "fork",
    "given",
    "new_workflow",
    "open_run",
    "step",
]

_BUILDER, _REFERENCES = "perago.workflow.builder", "perago.workflow.references"
_MODULES = {
    "INPUT_WORKSPACE": _REFERENCES,
    "PublishedRun": _BUILDER,
    "Run": _BUILDER,
    "Step": _BUILDER,
    "Workspace": _REFERENCES,
    "expression": _REFERENCES,
    "fork": _BUILDER,
    "given": _BUILDER,
    "new_workflow": _BUILDER,
    "open_run": _BUILDER,
    "step": _BUILDER,
}


def __getattr__(name: str) -> object:
    """Import a public name from its module on first use."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
