"""Conductor: whether it answers and what it is, and whether it has the TaskDefs that modules declare.

How a repository's branch is fenced: by the server itself, or by a look at the head right before each merge.

The lake: whether it answers, knows the keys, and what it is; and one repository of it, with what the keys allow there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from perago.declare.task import TaskDefinition
from perago.errors import LakeError, LakeForbidden, LakeUnauthenticated, OrchestratorError
from perago.lake.base import Lake
from perago.orchestrator.base import Orchestrator
from perago.protocol.policies import REPLACE, declared
from perago.runtime.doctor.finding import Finding, Level
from perago.runtime.doctor.permission_probe import DROPPED, Scratched, Tried, failures
from perago.runtime.lake_lookup import suggesting_existing_names
from perago.runtime.registration import Change, plan_changes
from perago.settings import FenceMode, TransferMode

PART = "Conductor"
_URL = "CONDUCTOR_SERVER_URL"
_MOST_FIELDS = 3


def check_conductor(orchestrator: Orchestrator, where: str) -> Finding:
    """Whether Conductor is there."""
    try:
        return Finding(PART, "ok", f"{orchestrator.server()} at {where}")
    except OrchestratorError as error:
        cause = str(error).partition("; check ")[0]
        keys = "CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"
        remedy = (
            f"check {keys}"
            if keys in str(error)
            else f"check {_URL}, which ends in /api, and that Conductor is up"
        )
        return Finding(PART, "fail", f"there is no Conductor at {where} ({cause})", remedy)


def check_taskdefs(
    orchestrator: Orchestrator, tasks: Sequence[TaskDefinition], targets: Sequence[str]
) -> Iterator[Finding]:
    """A line for each task that is not registered as it is declared, or one for all that are."""
    register = f"run `perago register {' '.join(targets)}`"
    try:
        changes = plan_changes(orchestrator, tasks)
    except OrchestratorError as error:
        yield Finding("TaskDefs", "fail", str(error), f"check {_URL}, and that Conductor is up")
        return
    wrong = [change for change in changes if change.action != "keep"]
    for change in wrong:
        yield Finding("TaskDefs", "fail", _told(change), register)
    if not wrong:
        yield Finding(
            "TaskDefs", "ok", f"registered as declared: {', '.join(change.name for change in changes)}"
        )


def _told(change: Change) -> str:
    if change.action == "create":
        return f"{change.name} is not registered, and a worker refuses to start without it"
    fields = ", ".join(path for path, _, _ in change.fields[:_MOST_FIELDS])
    more = f" and {len(change.fields) - _MOST_FIELDS} more" if len(change.fields) > _MOST_FIELDS else ""
    return (
        f"{change.name} is registered otherwise than declared ({fields}{more}), and a worker refuses to start"
    )


ACTIONS_ON = "set `actions.enabled: true` in the lakeFS configuration"


def check_fence(lake: Lake, repository: str, branch: str, head: str, mode: FenceMode) -> Finding:
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


_ENDPOINT = "LAKECTL_SERVER_ENDPOINT_URL"
_KEYS = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
_PROTECTED = "protected branch"
_MEND = "mend what the server says, then run this command again"


class KnowsItsStore(Protocol):
    """The lake of a server."""

    def server(self) -> str:
        """What it is, with its version."""

    def storage(self) -> tuple[str, bool]:
        """The kind of object store behind it, and whether it hands out presigned addresses."""


def check_lakefs(lake: KnowsItsStore, where: str, transfer: TransferMode) -> Iterator[Finding]:
    """Whether lakeFS is there and knows the keys; more only if so."""
    try:
        name = lake.server()
        store, presigns = lake.storage()
    except LakeUnauthenticated as error:
        yield Finding(
            "lakeFS", "fail", f"at {where} does not know the keys ({_lake_cause(error)})", f"check {_KEYS}"
        )
        return
    except LakeError as error:
        says = f"there is no lakeFS at {where} ({_lake_cause(error)})"
        yield Finding("lakeFS", "fail", says, f"check {_ENDPOINT}, and that lakeFS is up")
        return
    yield Finding("lakeFS", "ok", f"{name} at {where}, and it knows the keys")
    yield check_transfer(transfer, store, offered=presigns and store == "s3")


def check_transfer(mode: TransferMode, store: str, *, offered: bool) -> Finding:
    """Which way bytes go, by the setting and by what the server offers; whether the store can be reached shows in use."""
    support = f"{'supported' if offered else 'not supported'} ({store} store)"
    if mode == "presigned" and not offered:
        says = f"{support}, and PERAGO_TRANSFER=presigned moves no bytes without it"
        return Finding("presign", "fail", says, "set PERAGO_TRANSFER=auto")
    if mode == "gateway" and offered:
        return Finding(
            "presign", "ok", f"{support}; PERAGO_TRANSFER=gateway sends bytes through lakeFS all the same"
        )
    way = "straight between worker and store" if offered else "through lakeFS's S3 gateway"
    return Finding("presign", "ok", f"{support}; bytes go {way}")


def check_repository(lake: Lake, repository: str, branch: str, *, remote: bool) -> tuple[Finding, str | None]:
    """Whether repository and branch are there, and the branch's head."""
    option = " --remote" if remote else ""
    made_by = (
        f"perago put {repository} FOLDER --create{option}",
        f"perago branch {repository} {branch}{option}",
    )
    part = f"repository {repository}"
    try:
        with suggesting_existing_names(lake, repository, branch, remedy=made_by):
            head = lake.head(repository, branch).id
    except LakeForbidden as error:
        needed = "fs:ReadRepository, fs:ReadBranch, fs:ReadCommit and fs:ListCommits"
        return Finding(part, "fail", str(error), _grant(needed, repository)), None
    except LakeError as error:
        says, _, remedy = str(error).rpartition("; ")
        return Finding(part, "fail", says or str(error), remedy if says else ""), None
    return Finding(part, "ok", f"{branch} is at {head}"), head


def check_permissions(scratched: Scratched, repository: str) -> Iterator[Finding]:
    """A line for all that is allowed, and one for each thing that is not."""
    for one in failures(scratched.tried):
        level: Level = "warn" if one.for_replacing else "fail"
        yield Finding(_part(repository), level, *_lake_message(one, repository))
    done = [one.what for one in scratched.tried if one.error is None]
    if len(done) == len(scratched.tried):
        yield Finding(
            _part(repository), "ok", f"on a scratch branch, now gone, the keys may {', '.join(done)}"
        )


def check_actions(scratched: Scratched) -> Finding:
    """Whether the server runs pre-merge actions, without which it cannot fence."""
    if scratched.level is None:
        return Finding("actions", "skip", "not seen, because nothing could be committed on a scratch branch")
    if scratched.level == "hard":
        return Finding("actions", "ok", "enabled: the server refused a merge that it must refuse")
    why = scratched.why_soft.rpartition("not seen to hold: ")[2].partition(": set `")[0]
    remedy = ACTIONS_ON if "actions.enabled" in scratched.why_soft else _MEND
    return Finding("actions", "warn", f"not seen to run, so no fence is hard: {why}", remedy)


def _lake_message(one: Tried, repository: str) -> tuple[str, str]:
    """What did not work, and what to do."""
    if one.what.startswith(DROPPED):
        name = one.what.removeprefix(f"{DROPPED}: ")
        says = f"the scratch branch {name} could not be dropped: {one.error}"
        return (
            says,
            f"run `lakectl branch delete lakefs://{repository}/{name}`, and {_grant(one.permissions, repository)}",
        )
    says = f"the keys cannot {one.what}: {one.error}"
    if one.for_replacing:
        says += f"; an abandoned publication cannot be replaced then ({declared(REPLACE)}, the default)"
    if _PROTECTED in str(one.error):
        return says, "let no branch protection rule of the repository match names that begin with perago-"
    if isinstance(one.error, LakeForbidden):
        return says, _grant(one.permissions, repository)
    return says, _MEND


def _part(repository: str) -> str:
    return f"permissions on {repository}"


def _grant(permissions: str, repository: str) -> str:
    return f"give the keys {permissions} on repository {repository} (docs/lakefs.md, Permissions)"


def _lake_cause(error: Exception) -> str:
    """What went wrong, without the remedy that the line gives already."""
    return str(error).partition("; check ")[0]
