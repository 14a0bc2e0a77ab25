"""The publication protocol as pure functions: what an attempt is, how it may publish, and how it ends.

Imports only the standard library and `perago.errors`.
"""

from perago.errors import PublishFenceError, StaleAttemptError
from perago.protocol.attempt import Attempt, AttemptSnapshot, assert_current_attempt_snapshot
from perago.protocol.outcome import Outcome, classify
from perago.protocol.publication import (
    Commit,
    StagedWorkspace,
    TargetBranch,
    Workspace,
    WorkspaceInput,
    WorkspacePublicationPlan,
    build_workspace_publication_plan,
)

__all__ = [
    "Attempt",
    "AttemptSnapshot",
    "Commit",
    "Outcome",
    "PublishFenceError",
    "StagedWorkspace",
    "StaleAttemptError",
    "TargetBranch",
    "Workspace",
    "WorkspaceInput",
    "WorkspacePublicationPlan",
    "assert_current_attempt_snapshot",
    "build_workspace_publication_plan",
    "classify",
]
