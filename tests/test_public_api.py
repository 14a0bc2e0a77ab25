"""The exports of `perago` are a promise: a change here is a change for every task author."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import perago
from perago import protocol

EXPORTS = {
    "__version__",
    # declaring
    "task",
    "TaskDefinition",
    "WorkspaceSpec",
    "SparkWorkspace",
    "TaskControls",
    "RetryPolicy",
    "TimeoutPolicy",
    "ExecutionLimits",
    "PublishBudget",
    "SparkControls",
    # checks
    "require_file",
    "require_foreign_key",
    "require_dir",
    "require_glob",
    "forbid_glob",
    # what has changed since the last publication
    "changes",
    "InputChanges",
    "check_guardrails",
    # checks on the tables of Spark tasks
    "require",
    "require_columns",
    "require_rows",
    "forbid_nulls",
    "require_unique",
    "require_values",
    # loading
    "load_tasks",
    "load_module_task",
    "build_taskdef",
    "write_taskdef",
    # notebooks
    "read",
    "ReadWorkspace",
    # errors
    "PeragoError",
    "TaskDefinitionError",
    "RuntimeConfigError",
    "TaskInputError",
    "TaskResultError",
    "GuardrailViolation",
    "PreGuardrailViolation",
    "PostGuardrailViolation",
    "TaskExecutionError",
    "TaskFailed",
    "TaskTerminalError",
    "StaleAttemptError",
    "PublishFenceError",
}


def test_perago_exports_exactly_this_and_each_name_once() -> None:
    assert sorted(perago.__all__) == sorted(EXPORTS)


def test_every_export_is_there_without_the_help_of_getattr() -> None:
    assert EXPORTS - vars(perago).keys() == set()


def test_the_version_is_that_of_the_project() -> None:
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]

    assert perago.__version__ == project["version"]


@pytest.mark.parametrize("name", ["MetricSpec", "MetricRecorder"])
def test_the_metrics_names_of_061_point_to_opentelemetry(name: str) -> None:
    with pytest.raises(perago.TaskDefinitionError, match=f"perago.{name}: is not supported.*OpenTelemetry"):
        getattr(perago, name)


def test_other_names_are_missing_as_usual() -> None:
    assert not hasattr(perago, "no_such_name")


@pytest.mark.parametrize(
    "name",
    [
        "WorkspaceInput",
        "StagedWorkspace",
        "WorkspacePublicationPlan",
        "build_workspace_publication_plan",
        "assert_current_attempt_snapshot",
        "StaleAttemptError",
        "PublishFenceError",
    ],
)
def test_the_protocol_exports_the_names_of_its_specification(name: str) -> None:
    assert getattr(protocol, name).__name__ == name
    assert name in protocol.__all__


def test_the_short_name_of_the_workspace_input_still_works() -> None:
    assert protocol.Workspace is protocol.WorkspaceInput
