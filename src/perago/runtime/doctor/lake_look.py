"""The lake: whether it answers, knows the keys, and what it is; and one repository of it, with what the keys allow there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from perago.errors import LakeError, LakeForbidden, LakeUnauthenticated
from perago.lake.base import Lake
from perago.protocol.policies import REPLACE, declared
from perago.runtime.doctor.fence_look import ACTIONS_ON
from perago.runtime.doctor.finding import Finding, Level
from perago.runtime.doctor.scratch import DROPPED, Scratched, Tried, failures
from perago.runtime.lake_names import telling_what_there_is
from perago.settings import TransferMode

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


def look_at_server(lake: KnowsItsStore, where: str, transfer: TransferMode) -> Iterator[Finding]:
    """Whether lakeFS is there and knows the keys; more only if so."""
    try:
        name = lake.server()
        store, presigns = lake.storage()
    except LakeUnauthenticated as error:
        yield Finding(
            "lakeFS", "fail", f"at {where} does not know the keys ({_cause(error)})", f"check {_KEYS}"
        )
        return
    except LakeError as error:
        says = f"there is no lakeFS at {where} ({_cause(error)})"
        yield Finding("lakeFS", "fail", says, f"check {_ENDPOINT}, and that lakeFS is up")
        return
    yield Finding("lakeFS", "ok", f"{name} at {where}, and it knows the keys")
    yield look_at_transfer(transfer, store, offered=presigns and store == "s3")


def look_at_transfer(mode: TransferMode, store: str, *, offered: bool) -> Finding:
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


def look_at_repository(
    lake: Lake, repository: str, branch: str, *, remote: bool
) -> tuple[Finding, str | None]:
    """Whether repository and branch are there, and the branch's head."""
    option = " --remote" if remote else ""
    made_by = (
        f"perago put {repository} FOLDER --create{option}",
        f"perago branch {repository} {branch}{option}",
    )
    part = f"repository {repository}"
    try:
        with telling_what_there_is(lake, repository, branch, remedy=made_by):
            head = lake.head(repository, branch).id
    except LakeForbidden as error:
        needed = "fs:ReadRepository, fs:ReadBranch, fs:ReadCommit and fs:ListCommits"
        return Finding(part, "fail", str(error), _grant(needed, repository)), None
    except LakeError as error:
        says, _, remedy = str(error).rpartition("; ")
        return Finding(part, "fail", says or str(error), remedy if says else ""), None
    return Finding(part, "ok", f"{branch} is at {head}"), head


def look_at_permissions(scratched: Scratched, repository: str) -> Iterator[Finding]:
    """A line for all that is allowed, and one for each thing that is not."""
    for one in failures(scratched.tried):
        level: Level = "warn" if one.for_replacing else "fail"
        yield Finding(_part(repository), level, *_told(one, repository))
    done = [one.what for one in scratched.tried if one.error is None]
    if len(done) == len(scratched.tried):
        yield Finding(
            _part(repository), "ok", f"on a scratch branch, now gone, the keys may {', '.join(done)}"
        )


def look_at_actions(scratched: Scratched) -> Finding:
    """Whether the server runs pre-merge actions, without which it cannot fence."""
    if scratched.level is None:
        return Finding("actions", "skip", "not seen, because nothing could be committed on a scratch branch")
    if scratched.level == "hard":
        return Finding("actions", "ok", "enabled: the server refused a merge that it must refuse")
    why = scratched.why_soft.rpartition("not seen to hold: ")[2].partition(": set `")[0]
    remedy = ACTIONS_ON if "actions.enabled" in scratched.why_soft else _MEND
    return Finding("actions", "warn", f"not seen to run, so no fence is hard: {why}", remedy)


def _told(one: Tried, repository: str) -> tuple[str, str]:
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


def _cause(error: Exception) -> str:
    """What went wrong, without the remedy that the line gives already."""
    return str(error).partition("; check ")[0]
