"""Every error Perago raises, in families by who must act.

    PeragoError
    ├── TaskDefinitionError        the task's author: a declaration is wrong
    ├── TrialError                 the author of a test: a trial of `perago.testing` is set up wrongly
    ├── RuntimeConfigError         the operator: settings, servers, folders
    ├── TaskInputError             who started the workflow: the input does not fit the contract
    ├── TaskResultError            the task's author: the body's result does not fit the contract
    ├── GuardrailViolation         the data: a check did not hold
    │   ├── PreGuardrailViolation      before the body: terminal
    │   └── PostGuardrailViolation     after the body: an ordinary failure
    ├── TaskExecutionError         raised by authors, on purpose, from a body
    │   ├── TaskFailed                 FAILED, may be retried
    │   └── TaskTerminalError          FAILED_WITH_TERMINAL_ERROR
    ├── StaleAttemptError          nobody: Conductor has moved on from this attempt
    ├── PublishFenceError          nobody, or start again from the new head: the branch may not be moved
    ├── PublishUnknownError        the runtime: a publish call's outcome is not known yet
    ├── LakeError                  the lake's operator
    │   ├── LakeNotFound               no such repository, branch, ref or object
    │   ├── LakeConflict               the name is taken
    │   ├── LakeForbidden              not allowed, e.g. a protected branch
    │   │   └── LakeUnauthenticated        the keys are unknown: nothing is allowed
    │   ├── LakeRefused                the server decided against the call and nothing changed
    │   │   ├── HeadMoved                  the branch is not at the expected head
    │   │   ├── LakeBusy                   the server put the call off
    │   │   ├── BranchDirty                the branch has uncommitted objects
    │   │   └── NothingToCommit            the branch has none
    │   ├── LandedElsewhere            a merge landed, on another parent than the expected head
    │   └── LakeUnavailable            no answer, or one that says nothing: the call may have happened
    └── OrchestratorError          the orchestrator's operator
        ├── OrchestratorNotFound       no such task, workflow or definition
        ├── OrchestratorRefused        the server decided against the call
        └── OrchestratorUnavailable    no answer, or one that says nothing

Texts name the step, the path and what to do. They never hold a secret.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path


class PeragoError(Exception):
    """Root of everything Perago raises on purpose."""


class TaskDefinitionError(PeragoError, ValueError):
    """A task is declared wrongly; names the task, the field, the value and the rule."""


class TrialError(PeragoError, ValueError):
    """A trial of `perago.testing` is set up in a way that cannot tell anything; names what to change."""


class RuntimeConfigError(PeragoError, ValueError):
    """Settings, servers or folders are not what the command needs; names the remedy."""


class TaskInputError(PeragoError, ValueError):
    """The attempt's input does not fit the declared contract; only another worker's code, or another input, may help."""


class TaskResultError(PeragoError, ValueError):
    """The body's result does not fit the declared contract; another try may return one that does."""


class GuardrailViolation(PeragoError):
    """A workspace check did not hold."""


class PreGuardrailViolation(GuardrailViolation):
    """A check before the body did not hold: trying again on the same input is no use."""


class PostGuardrailViolation(GuardrailViolation):
    """A check after the body did not hold: nothing is published."""


class TaskExecutionError(PeragoError):
    """Base of what task authors raise; `reason` is what Conductor shows."""

    def __init__(self, reason: str) -> None:
        if not isinstance(reason, str):
            raise TypeError(f"reason must be a str, not {type(reason).__name__}")
        super().__init__(reason)
        self.reason = reason


class TaskFailed(TaskExecutionError):
    """The attempt failed and may be tried again."""


class TaskTerminalError(TaskExecutionError):
    """The attempt failed and trying again is no use."""


class StaleAttemptError(PeragoError):
    """Conductor's current attempt is not this one any more."""


class PublishFenceError(PeragoError):
    """The target branch may not be moved by this attempt."""


class PublishUnknownError(PeragoError):
    """A publish call ended without an answer; the branch must be read to settle it."""


class LakeError(PeragoError):
    """The lake could not do what it was asked."""


class LakeNotFound(LakeError):
    """No such repository, branch, ref or object."""


class LakeConflict(LakeError):
    """The name is taken."""


class LakeForbidden(LakeError):
    """The lake does not allow it: credentials, or a protected branch."""


class LakeUnauthenticated(LakeForbidden):
    """The lake does not know the keys."""


class LakeRefused(LakeError):
    """The server decided against the call, and nothing changed."""


class HeadMoved(LakeRefused):
    """The branch is not at the head the caller expected."""


class LakeBusy(LakeRefused):
    """The server put the call off, and nothing changed."""


class BranchDirty(LakeRefused):
    """The branch has uncommitted objects."""


class NothingToCommit(LakeRefused):
    """The branch has no uncommitted objects."""


class LandedElsewhere(LakeError):
    """A merge landed on another parent than the expected head; `commit` is the id of what it made."""

    def __init__(self, text: str, commit: str) -> None:
        super().__init__(text)
        self.commit = commit


class LakeUnavailable(LakeError):
    """No answer, or one that says nothing about the outcome: the call may have happened."""


class OrchestratorError(PeragoError):
    """The orchestrator could not do what it was asked."""


class OrchestratorNotFound(OrchestratorError):
    """No such task, workflow or definition."""


class OrchestratorRefused(OrchestratorError):
    """The server decided against the call."""


class OrchestratorUnavailable(OrchestratorError):
    """No answer, or one that says nothing about the outcome."""


def install_extra(extra: str) -> str:
    """Return the command that adds an extra to the Perago that runs this.

    pip keeps an installed Perago of this very version and installs only what the extra needs.  Without the version, pip
    of another environment would install the package called perago from the index, which is another product.
    """
    # Slow to import, and every command imports this module.
    from importlib.metadata import PackageNotFoundError, version

    try:
        requirement = f"perago[{extra}]=={version('perago')}"
    except PackageNotFoundError:
        # On PYTHONPATH, from a checkout.
        requirement = f"{Path(__file__).parents[2]}[{extra}]"
    return shlex.join([sys.executable, "-m", "pip", "install", requirement])
