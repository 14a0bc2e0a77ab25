"""Fails a direct-placement attempt if it changed paths on its staging branch that the task may not write.

The whole branch becomes a commit, so the whole branch is checked.  With prefix `audio/`, a change to `audiobook/` is
out of scope, and a change to `_lakefs_actions/` always is, whatever the prefix.  If a task declares `writes`,
everything else under its prefix is out of scope too, including its reads.  Hadoop creates and deletes directory markers
in parent folders; these are restored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from perago.errors import LakeNotFound, PostGuardrailViolation
from perago.lake.base import ReadableLake, StagingLake
from perago.protocol.paths import ACTIONS
from perago.protocol.publication import Workspace
from perago.runtime.attempt.place import MAX_NAMED_PATHS, outside_writes

_LAST = "\U0010ffff"


def check_write_scope(lake: ReadableLake, workspace: Workspace, branch: str) -> list[str]:
    """Raise `PostGuardrailViolation`, naming the paths, if changes on the branch are out of scope.

    Returns the changed directory markers of parent folders.
    """
    above: list[str] = []
    roots = workspace.view.write_roots

    def out_of_scope() -> Iterator[str]:
        for path in _changed_outside(lake, workspace, branch):
            if path.endswith("/") and any(root.startswith(path) for root in roots):
                above.append(path)
            else:
                yield path

    found = list(islice(out_of_scope(), MAX_NAMED_PATHS + 1))
    if found:
        raise _refusal(found, workspace)
    return above


def restore_objects(lake: StagingLake, workspace: Workspace, branch: str, paths: Sequence[str]) -> None:
    """Restore these objects on a branch to their state in the input."""
    for path in paths:
        try:
            lake.stat(workspace.repository, workspace.ref, path)
        except LakeNotFound:
            lake.delete(workspace.repository, branch, [path])
        else:
            lake.copy(workspace.repository, branch, workspace.ref, [path])


def _changed_outside(lake: ReadableLake, workspace: Workspace, branch: str) -> Iterator[str]:
    repository, roots = workspace.repository, workspace.view.write_roots
    if roots == ("",):
        yield from lake.uncommitted_paths(repository, branch, prefix=ACTIONS)
        return
    folders = [root if root.endswith("/") else f"{root}/" for root in roots]
    after, more = "", True
    while more:
        more = False
        for path in lake.uncommitted_paths(repository, branch, after=after):
            folder = next((one for one in folders if path.startswith(one)), None)
            if folder is None:
                if not roots.hold(path):
                    yield path
            elif path < (behind := folder + _LAST):
                # Skip the rest of the folder, which may contain any number of changes. The few paths in the folder that
                # sort after `behind` are skipped one by one.
                after, more = behind, True
                break


def _refusal(found: Sequence[str], workspace: Workspace) -> PostGuardrailViolation:
    more = " and more" if len(found) > MAX_NAMED_PATHS else ""
    prefix = workspace.prefix
    if workspace.view.declared:
        named = [path.removeprefix(prefix) if path.startswith(prefix) else f"/{path}" for path in found]
        return outside_writes(named, workspace.view, more)
    return PostGuardrailViolation(
        f"the task changed {', '.join(found[:MAX_NAMED_PATHS])}{more}: outside its prefix /{prefix.rstrip('/')}, or "
        "lakeFS's own. Nothing is published; write through the workspace (workspace.write, workspace.uri), or declare a "
        "prefix that holds it"
    )
