"""Every error that Perago raises, grouped by who must act.

    PeragoError
    ├── TaskDefinitionError        the task's author: a declaration is invalid
    ├── TrialError                 the test's author: a trial in `perago.testing` is set up incorrectly
    ├── RuntimeConfigError         the operator: settings, servers, folders
    ├── TaskInputError             the caller who started the workflow: the input does not match the contract
    ├── TaskResultError            the task's author: the body's result does not match the contract
    ├── GuardrailViolation         the data: a check failed
    │   ├── PreGuardrailViolation      before the body: terminal
    │   └── PostGuardrailViolation     after the body: an ordinary failure
    ├── TaskExecutionError         raised deliberately by task authors, from a body
    │   ├── TaskFailed                 FAILED, may be retried
    │   └── TaskTerminalError          FAILED_WITH_TERMINAL_ERROR
    ├── OutputRewritten            the task's author: others have changed the task's output, so nobody knows what is new
    ├── StaleAttemptError          no action: Conductor has moved on from this attempt
    ├── PublishFenceError          no action, or restart from the new head: the branch may not be moved
    ├── PublishUnknownError        the runtime: a publish call's outcome is not known yet
    ├── LakeError                  the lake's operator
    │   ├── LakeNotFound               no such repository, branch, ref or object
    │   ├── LakeConflict               the name is taken
    │   ├── LakeForbidden              not allowed, e.g. a protected branch
    │   │   └── LakeUnauthenticated        the keys are unknown: nothing is allowed
    │   ├── LakeRefused                the server refused the call, and nothing changed
    │   │   ├── HeadMoved                  the branch is not at the expected head
    │   │   ├── LakeBusy                   the server postponed the call
    │   │   ├── BranchDirty                the branch has uncommitted objects
    │   │   ├── UnpublishedRun             the source of a merge belongs to a run that is not published
    │   │   └── NothingToCommit            the branch has no uncommitted objects
    │   ├── LandedElsewhere            a merge landed on a parent other than the expected head
    │   └── LakeUnavailable            no answer, or an inconclusive one: the call may have happened
    └── OrchestratorError          the orchestrator's operator
        ├── OrchestratorNotFound       no such task, workflow or definition
        ├── OrchestratorRefused        the server refused the call
        └── OrchestratorUnavailable    no answer, or an inconclusive one

Messages name the step, the path and the remedy. They never contain a secret.
"""

from __future__ import annotations

import errno
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3


class PeragoError(Exception):
    """Base class of all errors that Perago raises deliberately."""


class TaskDefinitionError(PeragoError, ValueError):
    """A task's declaration is invalid. The message names the task, the field, the value and the rule."""


class TrialError(PeragoError, ValueError):
    """A trial in `perago.testing` is set up incorrectly and would prove nothing. The message says what to change."""


class RuntimeConfigError(PeragoError, ValueError):
    """Settings, servers or folders do not meet the command's needs. The message names the remedy."""


class TaskInputError(PeragoError, ValueError):
    """The attempt's input does not match the declared contract. Only a different input or worker version can help."""


class TaskResultError(PeragoError, ValueError):
    """The body's result does not match the declared contract. A retry may return a valid one."""


class GuardrailViolation(PeragoError):
    """A workspace check failed."""


class PreGuardrailViolation(GuardrailViolation):
    """A check failed before the body ran. Retrying with the same input will not help."""


class PostGuardrailViolation(GuardrailViolation):
    """A check failed after the body ran. Nothing is published."""


class TaskExecutionError(PeragoError):
    """Base class of the errors that task authors raise. Conductor shows `reason`."""

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str):
            raise TypeError(f"reason must be a str, not {type(reason).__name__}")
        super().__init__(reason)
        self.reason = reason


class TaskFailed(TaskExecutionError):
    """The attempt failed and may be retried."""


class TaskTerminalError(TaskExecutionError):
    """The attempt failed and must not be retried."""


class OutputRewritten(PeragoError):
    """The output of the task's last publication was changed, so nobody knows what is new. Every retry finds the same."""


class StaleAttemptError(PeragoError):
    """Conductor no longer considers this attempt current."""


class PublishFenceError(PeragoError):
    """This attempt may not move the target branch.

    `final` is True if no later head could let any attempt with this input publish, so that retrying is useless.
    """

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


class PublishUnknownError(PeragoError):
    """A publish call ended without a response. The branch must be read to find out whether it landed."""


class LakeError(PeragoError):
    """A call to the lake failed."""


class LakeNotFound(LakeError):
    """The repository, branch, ref or object does not exist."""


class LakeConflict(LakeError):
    """The name of a new repository, branch, tag or object is already taken."""


class LakeForbidden(LakeError):
    """The lake does not allow the call: missing permissions, or a protected branch."""


class LakeUnauthenticated(LakeForbidden):
    """The lake does not accept the credentials."""


class LakeRefused(LakeError):
    """The lake refused the call, and nothing changed."""


class HeadMoved(LakeRefused):
    """The branch is not at the head that the caller expected."""


class LakeBusy(LakeRefused):
    """The server postponed the call, and nothing changed."""


class UnpublishedRun(LakeRefused):
    """The source of a merge has the marker of an unpublished run, and the target is not a run branch."""


class BranchDirty(LakeRefused):
    """The branch has uncommitted objects."""


class NothingToCommit(LakeRefused):
    """The branch has no uncommitted objects."""


class LandedElsewhere(LakeError):
    """A merge landed on a parent other than the expected head. `commit` is the id of the merge commit."""

    def __init__(self, text: str, commit: str) -> None:
        super().__init__(text)
        self.commit = commit


class LakeUnavailable(LakeError):
    """The lake did not respond, or its response was inconclusive. The call may have taken effect."""


class OrchestratorError(PeragoError):
    """A call to the orchestrator failed."""


class OrchestratorNotFound(OrchestratorError):
    """The task, workflow or definition does not exist."""


class OrchestratorRefused(OrchestratorError):
    """The orchestrator refused the call."""


class OrchestratorUnavailable(OrchestratorError):
    """The orchestrator did not respond, or its response was inconclusive."""


def storage_remedy(error: OSError | sqlite3.Error) -> str:
    """Return what to do about a file: who may write it, a full disk, damage.  Returns "" for other errors."""
    name = getattr(error, "sqlite_errorname", "") or errno.errorcode.get(
        getattr(error, "errno", None) or 0, ""
    )
    if name.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN")) or name in ("EACCES", "EPERM", "EROFS"):
        return "; let this user write there, run the command as the user who owns it, or name another root with --root"
    if name.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
        return "; the file is damaged: bring it back from a backup, or name another root with --root"
    return "; make room on that disk" if name in ("SQLITE_FULL", "ENOSPC", "EDQUOT") else ""


def install_extra(extra: str) -> str:
    """Return the command that adds an extra to this Perago installation.

    With the exact version, pip keeps the installed Perago and installs only the extra's requirements.  Without it, a
    pip in another environment would install the package called perago from the index, which is a different product.
    """
    # Imported here because it is slow to import, and every command imports this module.
    from importlib.metadata import PackageNotFoundError, version

    try:
        requirement = f"perago[{extra}]=={version('perago')}"
    except PackageNotFoundError:
        # Perago is not installed, but runs from a checkout on PYTHONPATH.
        requirement = f"{Path(__file__).parents[2]}[{extra}]"
    return shlex.join([sys.executable, "-m", "pip", "install", requirement])
