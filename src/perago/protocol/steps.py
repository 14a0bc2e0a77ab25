"""The steps of an attempt, in order, and what an execution that dies at a step may have left in the lake.

    step           staging branch     claim
    input          none               none
    revoke         none               none
    reuse          none               none
    workdir        direct             none
    download       direct             none
    session        direct             none
    pre checks     direct             none
    body           direct             none
    result         direct             none
    post checks    direct             none
    verify         direct             none
    changes        direct             none
    first fence    direct             none
    stage          any                free
    claim          any                free
    publish        any                in flight
    hand over      any                in flight
    cleanup        any                handed over

- direct: only a task with direct Spark placement may have created its branch by then.
- any: every task may have created its branch by then.
- free: a claim may exist, and may be dropped once the attempt has ended.
- in flight: the call that moves the branch may still land after the process that sent it has died.  So the claim stays,
  and tells the retry that it must send a barrier.  This also holds during `hand over`: the result may be that of an
  unanswered publish, and an executor that died there has not reported it.
- handed over: the result is being sent, and the result sender drops the claim.
- session: the wait for the Spark session, which starts beside `workdir` and `download`.  Only Spark tasks take this step.
- A task without a workspace has only the steps `input`, `body`, `result`, `hand over` and `cleanup`.  A read-only task
  goes from `verify` to `hand over`.  An attempt that preflight refuses goes from `download` to `claim` and then to
  `hand over`.
- verify: after this step, every downloaded byte has been verified.  If a step from `session` to `post checks` fails,
  `verify` comes next, so that no outcome based on corrupt data is reported.
- If any other step fails, `hand over` comes next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Step:
    """One step of an attempt.  Its name appears in logs, metrics and results."""

    name: str
    staging: Literal["none", "direct", "any"] = "none"
    claim: Literal["none", "free", "in flight", "handed over"] = "none"

    @property
    def may_have_staging(self) -> bool:
        """True if an execution that died at this step may have left a staging branch behind."""
        return self.staging != "none"

    @property
    def may_give_up_claim(self) -> bool:
        """True if the claim of an execution that died at this step may be dropped once its attempt has ended."""
        return self.claim == "free"


NOT_BEGUN = Step("")
INPUT = Step("input")
REVOKE = Step("revoke")
REUSE = Step("reuse")
WORKDIR = Step("workdir", staging="direct")
DOWNLOAD = Step("download", staging="direct")
SESSION = Step("session", staging="direct")
PRE_CHECKS = Step("pre checks", staging="direct")
BODY = Step("body", staging="direct")
RESULT = Step("result", staging="direct")
POST_CHECKS = Step("post checks", staging="direct")
VERIFY = Step("verify", staging="direct")
CHANGES = Step("changes", staging="direct")
FIRST_FENCE = Step("first fence", staging="direct")
STAGE = Step("stage", staging="any", claim="free")
CLAIM = Step("claim", staging="any", claim="free")
PUBLISH = Step("publish", staging="any", claim="in flight")
HAND_OVER = Step("hand over", staging="any", claim="in flight")
CLEANUP = Step("cleanup", staging="any", claim="handed over")

ORDER = (
    INPUT,
    REVOKE,
    REUSE,
    WORKDIR,
    DOWNLOAD,
    SESSION,
    PRE_CHECKS,
    BODY,
    RESULT,
    POST_CHECKS,
    VERIFY,
    CHANGES,
    FIRST_FENCE,
    STAGE,
    CLAIM,
    PUBLISH,
    HAND_OVER,
    CLEANUP,
)
PLAIN_ORDER = tuple(step for step in ORDER if step is not SESSION)
"""The steps of a plain task."""
_BY_NAME = {step.name: step for step in (NOT_BEGUN, *ORDER)}


def step_named(name: str) -> Step:
    """Return the step with this name; the empty name stands for an execution that has not started.

    Raises `KeyError` if there is no such step.
    """
    return _BY_NAME[name]
