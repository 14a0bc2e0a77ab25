"""What a body with direct placement changed on its staging branch outside what its task may change: nothing, or the attempt
fails.

The branch becomes a commit as a whole, so the look is at the whole branch: with prefix `audio/` a change to
`audiobook/` is outside, and one to `_lakefs_actions/` always is, whatever the prefix.  Where a task declares `writes`, so is
everything else of its prefix, what it reads included.  Markers of the folders above come and go with Hadoop's own doing;
they are put back as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from perago.errors import LakeNotFound, PostGuardrailViolation
from perago.lake.base import Lake
from perago.protocol.paths import ACTIONS
from perago.protocol.publication import Workspace
from perago.runtime.attempt.place import NAMED, outside_writes

_LAST = "\U0010ffff"


def check_outside(lake: Lake, workspace: Workspace, branch: str) -> list[str]:
    """Refuse, by name, what was changed outside; returns the folder markers above that were."""
    above: list[str] = []
    roots = workspace.view.write_roots

    def wrong() -> Iterator[str]:
        for path in _changed_outside(lake, workspace, branch):
            if path.endswith("/") and any(root.startswith(path) for root in roots):
                above.append(path)
            else:
                yield path

    found = list(islice(wrong(), NAMED + 1))
    if found:
        raise _refusal(found, workspace)
    return above


def reset(lake: Lake, workspace: Workspace, branch: str, paths: Sequence[str]) -> None:
    """Make objects of a branch what they are in the input."""
    for path in paths:
        try:
            lake.stat(workspace.repository, workspace.ref, path)
        except LakeNotFound:
            lake.delete(workspace.repository, branch, [path])
        else:
            lake.copy(workspace.repository, branch, workspace.ref, [path])


def _changed_outside(lake: Lake, workspace: Workspace, branch: str) -> Iterator[str]:
    repository, roots = workspace.repository, workspace.view.write_roots
    if roots == ("",):
        yield from lake.changed_paths(repository, branch, prefix=ACTIONS)
        return
    folders = [root if root.endswith("/") else f"{root}/" for root in roots]
    after, going_on = "", True
    while going_on:
        going_on = False
        for path in lake.changed_paths(repository, branch, after=after):
            folder = next((one for one in folders if path.startswith(one)), None)
            if folder is None:
                if not roots.hold(path):
                    yield path
            elif path < (behind := folder + _LAST):
                # Past the folder, which may hold any number of changes; the few that sort behind its end are passed over.
                after, going_on = behind, True
                break


def _refusal(found: Sequence[str], workspace: Workspace) -> PostGuardrailViolation:
    more = " and more" if len(found) > NAMED else ""
    prefix = workspace.prefix
    if workspace.view.declared:
        named = [path.removeprefix(prefix) if path.startswith(prefix) else f"/{path}" for path in found]
        return outside_writes(named, workspace.view, more)
    return PostGuardrailViolation(
        f"the task changed {', '.join(found[:NAMED])}{more}: outside its prefix /{prefix.rstrip('/')}, or lakeFS's "
        "own. Nothing is published; write through the workspace (workspace.write, workspace.uri), or declare a prefix "
        "that holds it"
    )
