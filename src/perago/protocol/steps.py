"""The steps of an attempt, in order, and what an execution may have made in the lake by each.

    step           staging branch     claim
    input          none               none
    revoke         none               none
    reuse          none               none
    workdir        direct             none
    download       direct             none
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

- direct: only direct Spark placement has made its branch by then; any: every placement may have.
- free: a claim may be there, and may be given up once the attempt is over.
- in flight: the call that moves the branch may still land after its sender died, so the claim stays, and tells the retry
  that it owes a barrier.  That holds while an ending is handed over, too: it may be that of a publish without an answer,
  and who died there has not told.
- handed over: the result is on its way, and whoever sends it drops the claim.
- A task without a workspace has only `input`, `body`, `result`, `hand over` and `cleanup`; a read-only one goes from
  `verify` to `hand over`.  An attempt whose body would be in vain goes from `download` to `claim` and then to `hand over`.
- verify: from here on all that was downloaded is known to be right.  If a step from `pre checks` to `post checks` fails, it
  comes next, so that nothing is reported that was made of wrong bytes.
- Any other step may fail and go to `hand over`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Step:
    """One step, by the name that logs, metrics and results give it."""

    name: str
    staging: Literal["none", "direct", "any"] = "none"
    claim: Literal["none", "free", "in flight", "handed over"] = "none"

    @property
    def may_have_staging(self) -> bool:
        """Whether an execution that died here may leave a staging branch."""
        return self.staging != "none"

    @property
    def may_give_up_claim(self) -> bool:
        """Whether the claim of an execution that died here may be dropped once its attempt is over."""
        return self.claim == "free"


NOT_BEGUN = Step("")
INPUT = Step("input")
REVOKE = Step("revoke")
REUSE = Step("reuse")
WORKDIR = Step("workdir", staging="direct")
DOWNLOAD = Step("download", staging="direct")
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
_BY_NAME = {step.name: step for step in (NOT_BEGUN, *ORDER)}


def step_named(name: str) -> Step:
    """The step of a name; the empty name is that of an execution that has not begun."""
    return _BY_NAME[name]
