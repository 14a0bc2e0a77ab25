"""How a repository's branch is fenced: by the server itself, or by a look at the head right before each merge."""

from __future__ import annotations

from perago.errors import LakeError
from perago.lake.base import Lake
from perago.runtime.doctor.finding import Finding
from perago.settings import FenceMode

ACTIONS_ON = "set `actions.enabled: true` in the lakeFS configuration"


def look_at_fence(lake: Lake, repository: str, branch: str, head: str, mode: FenceMode) -> Finding:
    """The level that a workflow gets which starts from the branch's head, beside the one that is asked for."""
    part = f"fence of {repository}/{branch}"
    if mode == "soft":
        return Finding(part, "ok", "soft, because PERAGO_FENCE=soft asks for it")
    try:
        if lake.fence_level(repository, head) == "hard":
            return Finding(part, "ok", "hard: the server itself compares the head inside the merge")
        why = lake.why_soft(repository, head, branch)
    except LakeError as error:
        return Finding(
            part, "fail", f"cannot be told: {error}", f"run `perago fence prove {repository} {branch}`"
        )
    if mode == "hard":
        says = f"soft, and PERAGO_FENCE=hard refuses to publish then: its head {_cause(why)}"
        return Finding(part, "fail", says, _remedy(why, repository, branch))
    says = f"soft: of two publications at the same moment both may land; its head {_cause(why)}"
    return Finding(part, "warn", says, _remedy(why, repository, branch))


def _cause(why: str) -> str:
    """Why it is soft, without the remedy that the line gives already."""
    return why.partition(": run `")[0].partition(": set `")[0]


def _remedy(why: str, repository: str, branch: str) -> str:
    verb = "install" if "fence install" in why else "prove"
    actions = f"{ACTIONS_ON}, then " if "actions.enabled" in why else ""
    return f"{actions}run `perago fence {verb} {repository} {branch}`"
