"""Workflows in Python: steps of Perago tasks for the official Conductor client's workflow classes.

This is what authors of workflows import; a test pins it.  Importing it brings the official client along, which takes a
while, so keep workflows in a module of their own, apart from the tasks that every executor loads.
"""

from __future__ import annotations

from perago.orchestrator.conductor.workflow_objects import new_workflow
from perago.workflow.fork import fork
from perago.workflow.params import given
from perago.workflow.references import INPUT_WORKSPACE, Workspace, expression
from perago.workflow.step import Step, step

__all__ = ["INPUT_WORKSPACE", "Step", "Workspace", "expression", "fork", "given", "new_workflow", "step"]
