"""Perago: typed tasks for Conductor workflows, over workspaces that live in lakeFS.

Task authors import these names, and a test pins the list.  Everything else is imported from its own module.
"""

from __future__ import annotations

from typing import Any

from perago.declare.checks import check_guardrails, forbid_glob, require_dir, require_file, require_glob
from perago.declare.controls import ExecutionLimits, PublishBudget, RetryPolicy, TaskControls, TimeoutPolicy
from perago.declare.discovery import load_module_task, load_tasks
from perago.declare.input_changes import InputChanges, changes
from perago.declare.spark_controls import SparkControls
from perago.declare.table_checks import (
    forbid_nulls,
    require,
    require_columns,
    require_foreign_key,
    require_rows,
    require_unique,
    require_values,
)
from perago.declare.task import TaskDefinition, metrics_are_gone, task
from perago.declare.taskdef import build_taskdef, write_taskdef
from perago.declare.workspace import WorkspaceSpec
from perago.errors import (
    GuardrailViolation,
    PeragoError,
    PostGuardrailViolation,
    PreGuardrailViolation,
    PublishFenceError,
    RuntimeConfigError,
    StaleAttemptError,
    TaskDefinitionError,
    TaskExecutionError,
    TaskFailed,
    TaskInputError,
    TaskResultError,
    TaskTerminalError,
)
from perago.notebook import ReadWorkspace, read
from perago.spark.workspace import SparkWorkspace

__version__ = "1.0.0.dev0"

__all__ = [
    "ExecutionLimits",
    "GuardrailViolation",
    "InputChanges",
    "PeragoError",
    "PostGuardrailViolation",
    "PreGuardrailViolation",
    "PublishBudget",
    "PublishFenceError",
    "ReadWorkspace",
    "RetryPolicy",
    "RuntimeConfigError",
    "SparkControls",
    "SparkWorkspace",
    "StaleAttemptError",
    "TaskControls",
    "TaskDefinition",
    "TaskDefinitionError",
    "TaskExecutionError",
    "TaskFailed",
    "TaskInputError",
    "TaskResultError",
    "TaskTerminalError",
    "TimeoutPolicy",
    "WorkspaceSpec",
    "__version__",
    "build_taskdef",
    "changes",
    "check_guardrails",
    "forbid_glob",
    "forbid_nulls",
    "load_module_task",
    "load_tasks",
    "read",
    "require",
    "require_columns",
    "require_dir",
    "require_file",
    "require_foreign_key",
    "require_glob",
    "require_rows",
    "require_unique",
    "require_values",
    "task",
    "write_taskdef",
]


def __getattr__(name: str) -> Any:
    if name in {"MetricRecorder", "MetricSpec"}:
        return metrics_are_gone(name)
    raise AttributeError(f"module 'perago' has no attribute {name!r}")
