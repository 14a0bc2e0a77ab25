"""What a body with direct placement changed on its staging branch outside its prefix: nothing, or the attempt fails.

The branch becomes a commit as a whole, so the look is at the whole branch: with prefix `audio/` a change to
`audiobook/` is outside, and one to `_lakefs_actions/` always is, whatever the prefix.  Markers of the folders above the
prefix come and go with Hadoop's own doing; they are put back as they were.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from perago.errors import PostGuardrailViolation
from perago.lake.base import Lake
from perago.protocol.paths import ACTIONS
from perago.protocol.publication import Workspace

_NAMED = 5
_LAST = "\U0010ffff"


def check_outside(lake: Lake, workspace: Workspace, branch: str) -> list[str]:
    """Refuse, by name, what was changed outside; returns the folder markers above the prefix that were."""
    above: list[str] = []

    def wrong() -> Iterator[str]:
        for path in _changed_outside(lake, workspace, branch):
            if path.endswith("/") and workspace.prefix.startswith(path):
                above.append(path)
            else:
                yield path

    found = list(islice(wrong(), _NAMED + 1))
    if found:
        names = ", ".join(found[:_NAMED]) + (" and more" if len(found) > _NAMED else "")
        raise PostGuardrailViolation(
            f"the task changed {names}: outside its prefix /{workspace.prefix.rstrip('/')}, or lakeFS's own. Nothing is "
            f"published; write through the workspace (workspace.write, workspace.uri), or declare a prefix that holds it"
        )
    return above


def reset(lake: Lake, workspace: Workspace, branch: str, paths: Sequence[str]) -> None:
    """Make objects of a branch what they are in the input."""
    for path in paths:
        first = next(iter(lake.list(workspace.repository, workspace.ref, path)), None)
        if first is not None and first.path == path:
            lake.copy(workspace.repository, branch, workspace.ref, [path])
        else:
            lake.delete(workspace.repository, branch, [path])


def _changed_outside(lake: Lake, workspace: Workspace, branch: str) -> Iterator[str]:
    repository, prefix = workspace.repository, workspace.prefix
    if not prefix:
        yield from lake.changed_paths(repository, branch, prefix=ACTIONS)
        return
    for path in lake.changed_paths(repository, branch):
        if path.startswith(prefix):
            break
        yield path
    else:
        return
    # Past the prefix, which may hold any number of changes; the few that sort behind its end are passed over.
    for path in lake.changed_paths(repository, branch, after=prefix + _LAST):
        if not path.startswith(prefix):
            yield path
