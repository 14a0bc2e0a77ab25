"""What a body changed outside its task's `writes`: nothing, or the attempt fails before anything is staged.

The rule: new, changed and deleted files count alike, wherever in the workdir they are, and the reason names them.
"""

from __future__ import annotations

from collections.abc import Sequence

from perago.errors import PostGuardrailViolation
from perago.protocol.changes import Changes
from perago.protocol.view import View

NAMED = 5
"""So many paths are named; of the rest people learn that there are more."""


def check_writes(changes: Changes, view: View) -> None:
    """Refuse, by name, changes to paths below the prefix that the task may not change."""
    roots = view.write_roots
    outside = [path for path in (*changes.put, *changes.delete) if not roots.hold(view.prefix + path)]
    if outside:
        raise outside_writes(sorted(outside), view)


def outside_writes(paths: Sequence[str], view: View, more: str = "") -> PostGuardrailViolation:
    """The refusal for these paths; `more` is what to say of those beyond, where they are not counted."""
    beyond = len(paths) - NAMED
    rest = f" and {beyond} more" if beyond > 0 else ""
    return PostGuardrailViolation(
        f"the task changed {', '.join(paths[:NAMED])}{more or rest}, outside what it may change "
        f"({view.told(view.write_roots)}). Nothing is published; leave such files as they were, or name them in "
        "WorkspaceSpec(writes=…)"
    )
