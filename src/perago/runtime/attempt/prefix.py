"""A prefix or view that held nothing: a likely reason for a failure that looks for files, so that failure's text says so.

The rule: an empty one is no mistake by itself, since a task may be the first to write there.  And the failure is told in
any case: a lake that has no answer, or takes long, only leaves its text as it is.  What is outside a view is not listed, not
even for a hint.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from perago.errors import PreGuardrailViolation
from perago.lake.base import Lake
from perago.protocol.outcome import Outcome
from perago.protocol.publication import Workspace
from perago.protocol.view import View
from perago.runtime.attempt.listing import objects_in
from perago.runtime.attempt.publisher import Publisher
from perago.runtime.lake_names import nothing_below

ASKING_SECONDS = 5.0
"""The failure's result waits no longer than this for the folders' names."""
_SPARK_HAS_NO_FILES = "PATH_NOT_FOUND"


def with_folders(
    outcome: Outcome, error: Exception, publisher: Publisher | None, *, within: float = ASKING_SECONDS
) -> Outcome:
    """The same outcome; if files were missing and the prefix holds none at all, its reason names the folders there are."""
    if publisher is None or not _misses_files(error, outcome):
        return outcome
    asked = publisher.staging.overlap(partial(_hint, publisher.lake, publisher.signature.workspace))
    try:
        hint = asked.result(within)
    except Exception:
        asked.cancel()
        return outcome
    return replace(outcome, reason=f"{outcome.reason} ({hint})") if hint else outcome


def _hint(lake: Lake, workspace: Workspace) -> str:
    """The folders there are, where the prefix holds nothing, or the view that does; else an empty text."""
    view = workspace.view
    if not view.whole:
        found = objects_in(lake, workspace.repository, workspace.ref, view)
        where = f"at {workspace.ref} of repository {workspace.repository!r}"
        return "" if any(True for _ in found) else f"there is nothing at {_named(view)} {where}"
    if not workspace.prefix:
        return ""
    if next(iter(lake.list(workspace.repository, workspace.ref, workspace.prefix)), None) is not None:
        return ""
    return nothing_below(lake, workspace.repository, workspace.ref, workspace.prefix)


def _named(view: View) -> str:
    return " and ".join(repr(root) for root in view.roots)


def _misses_files(error: Exception, outcome: Outcome) -> bool:
    if isinstance(error, PreGuardrailViolation | FileNotFoundError):
        return True
    return _SPARK_HAS_NO_FILES in (outcome.reason or "")
