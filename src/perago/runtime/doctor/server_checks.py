"""Checks of the servers for `perago doctor`.

Conductor   its version, and the registered TaskDefs compared with the declared ones
lake        its version and store, whether it accepts the keys, one repository, and what the keys allow there
fence       hard if the server compares heads inside the merge, soft if we compare them right before it
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from perago.declare.task import TaskDefinition
from perago.errors import LakeError, LakeForbidden, LakeUnauthenticated, OrchestratorError
from perago.lake.base import ReadableLake
from perago.orchestrator.base import Orchestrator
from perago.protocol.policies import REPLACE, declaration_text
from perago.protocol.run_steps import MARKER_PATH
from perago.runtime.doctor.finding import Finding, Level
from perago.runtime.doctor.permission_probe import DROPPED, ProbedOperation, ProbeResult, failures
from perago.runtime.lake_lookup import has_marker, suggesting_existing_names
from perago.runtime.registration import TaskDefChange, plan_changes
from perago.settings import FenceMode, TransferMode

if TYPE_CHECKING:
    from perago.backend import LakeFSLake

PART = "Conductor"
_URL = "CONDUCTOR_SERVER_URL"
_MOST_FIELDS = 3
ACTIONS_ON = "set `actions.enabled: true` in the lakeFS configuration"
_ENDPOINT = "LAKECTL_SERVER_ENDPOINT_URL"
_KEYS = "LAKECTL_CREDENTIALS_ACCESS_KEY_ID and LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY"
_PROTECTED = "protected branch"
_FIX = "fix what the server reports, then run this command again"


def check_conductor(orchestrator: Orchestrator, where: str) -> Finding:
    """Check that Conductor responds."""
    try:
        return Finding(PART, "ok", f"{orchestrator.server()} at {where}")
    except OrchestratorError as error:
        keys = "CONDUCTOR_AUTH_KEY and CONDUCTOR_AUTH_SECRET"
        remedy = (
            f"check {keys}"
            if keys in str(error)
            else f"check {_URL}, which ends in /api, and that Conductor is up"
        )
        return Finding(PART, "fail", f"there is no Conductor at {where} ({_server_cause(error)})", remedy)


def check_taskdefs(
    orchestrator: Orchestrator, tasks: Sequence[TaskDefinition], targets: Sequence[str]
) -> Iterator[Finding]:
    """Yield a finding for each task whose TaskDef is missing or differs, or a single one if all match."""
    register = f"run `perago register {' '.join(targets)}`"
    try:
        changes = plan_changes(orchestrator, tasks)
    except OrchestratorError as error:
        yield Finding("TaskDefs", "fail", str(error), f"check {_URL}, and that Conductor is up")
        return
    wrong = [change for change in changes if change.action != "keep"]
    for change in wrong:
        yield Finding("TaskDefs", "fail", _describe_change(change), register)
    if not wrong:
        yield Finding(
            "TaskDefs", "ok", f"registered as declared: {', '.join(change.name for change in changes)}"
        )


def _describe_change(change: TaskDefChange) -> str:
    if change.action == "create":
        return f"{change.name} is not registered, and a worker refuses to start without it"
    fields = ", ".join(path for path, _, _ in change.fields[:_MOST_FIELDS])
    more = f" and {len(change.fields) - _MOST_FIELDS} more" if len(change.fields) > _MOST_FIELDS else ""
    return f"{change.name} is registered differently from its declaration ({fields}{more}), and a worker refuses to start"


def check_fence(lake: ReadableLake, repository: str, branch: str, head: str, mode: FenceMode) -> Finding:
    """Report the fence level of workflows that start from the branch's head, and whether the setting accepts it."""
    part = f"fence of {repository}/{branch}"
    if mode == "soft":
        return Finding(part, "ok", "soft, because PERAGO_FENCE=soft asks for it")
    try:
        if lake.fence_level(repository, head) == "hard":
            return Finding(part, "ok", "hard: the server itself compares the head inside the merge")
        why = lake.fence_gap(repository, head, branch)
    except LakeError as error:
        return Finding(part, "fail", f"unknown: {error}", f"run `perago fence prove {repository} {branch}`")
    if mode == "hard":
        says = f"soft, and PERAGO_FENCE=hard refuses to publish then: its head {_cause(why)}"
        return Finding(part, "fail", says, _remedy(why, repository, branch))
    says = f"soft: of two publications at the same moment both may land; its head {_cause(why)}"
    return Finding(part, "warn", says, _remedy(why, repository, branch))


def check_marker(lake: ReadableLake, repository: str, branch: str, head: str) -> Iterator[Finding]:
    """Report the marker of a run on an ordinary branch, which keeps every publication from it."""
    try:
        if not has_marker(lake, repository, head):
            return
    except LakeError:
        return
    yield Finding(
        f"marker on {repository}/{branch}",
        "fail",
        f"its head has {MARKER_PATH}, the marker of a run that is not published, so no merge into it succeeds: somebody has "
        "moved the branch to a commit of a run, or picked one",
        f"run `perago branch {repository} {branch} --remove-marker`",
    )


def _cause(why: str) -> str:
    """Return why the fence is soft, without the remedy, which the finding states separately."""
    return why.partition(": run `")[0].partition(": set `")[0]


def _remedy(why: str, repository: str, branch: str) -> str:
    verb = "install" if "fence install" in why else "prove"
    actions = f"{ACTIONS_ON}, then " if "actions.enabled" in why else ""
    return f"{actions}run `perago fence {verb} {repository} {branch}`"


def check_lakefs(lake: LakeFSLake, where: str, transfer: TransferMode) -> Iterator[Finding]:
    """Check that lakeFS responds and accepts the keys.  If it does, also check how data is transferred."""
    try:
        name = lake.server()
        store, presigns = lake.storage()
    except LakeUnauthenticated as error:
        yield Finding(
            "lakeFS", "fail", f"at {where} does not know the keys ({_server_cause(error)})", f"check {_KEYS}"
        )
        return
    except LakeError as error:
        says = f"there is no lakeFS at {where} ({_server_cause(error)})"
        yield Finding("lakeFS", "fail", says, f"check {_ENDPOINT}, and that lakeFS is up")
        return
    yield Finding("lakeFS", "ok", f"{name} at {where}, and it knows the keys")
    yield check_transfer(transfer, store, offered=presigns and store == "s3")


def check_transfer(mode: TransferMode, store: str, *, offered: bool) -> Finding:
    """Report which route data takes, given the setting and the server's support for presigned URLs.

    This does not check that the store is reachable.
    """
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


def check_repository(
    lake: ReadableLake, repository: str, branch: str, *, remote: bool
) -> tuple[Finding, str | None]:
    """Check that the repository and the branch exist.  Also returns the branch's head, or None on failure."""
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


def check_permissions(result: ProbeResult, repository: str) -> Iterator[Finding]:
    """Yield a finding for each operation that failed, or a single one if all succeeded."""
    for one in failures(result.operations):
        level: Level = "warn" if one.for_replacing else "fail"
        yield Finding(_part(repository), level, *_lake_message(one, repository))
    done = [one.what for one in result.operations if one.error is None]
    if len(done) == len(result.operations):
        yield Finding(
            _part(repository), "ok", f"on a scratch branch, now gone, the keys may {', '.join(done)}"
        )


def check_actions(result: ProbeResult) -> Finding:
    """Check that the server runs pre-merge actions, which a hard fence requires."""
    if result.level is None:
        return Finding("actions", "skip", "not seen, because nothing could be committed on a scratch branch")
    if result.level == "hard":
        return Finding("actions", "ok", "enabled: the server refused a merge that it must refuse")
    why = result.fence_gap.rpartition("not seen to hold: ")[2].partition(": set `")[0]
    remedy = ACTIONS_ON if "actions.enabled" in result.fence_gap else _FIX
    return Finding("actions", "warn", f"not seen to run, so no fence is hard: {why}", remedy)


def _lake_message(one: ProbedOperation, repository: str) -> tuple[str, str]:
    """Return the text and the remedy for a failed operation."""
    if one.what.startswith(DROPPED):
        name = one.what.removeprefix(f"{DROPPED}: ")
        says = f"the scratch branch {name} could not be dropped: {one.error}"
        return (
            says,
            f"run `lakectl branch delete lakefs://{repository}/{name}`, and {_grant(one.permissions, repository)}",
        )
    says = f"the keys cannot {one.what}: {one.error}"
    if one.for_replacing:
        says += (
            f"; an abandoned publication cannot be replaced then ({declaration_text(REPLACE)}, the default)"
        )
    if _PROTECTED in str(one.error):
        return says, "let no branch protection rule of the repository match names that begin with perago-"
    if isinstance(one.error, LakeForbidden):
        return says, _grant(one.permissions, repository)
    return says, _FIX


def _part(repository: str) -> str:
    return f"permissions on {repository}"


def _grant(permissions: str, repository: str) -> str:
    return f"give the keys {permissions} on repository {repository} (docs/lakefs.md, Permissions)"


def _server_cause(error: Exception) -> str:
    """Return the error's text without the remedy, which the finding states separately."""
    return str(error).partition("; check ")[0]
