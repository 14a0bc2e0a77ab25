"""A prefix that held nothing: a likely reason for a failure that looks for files, so that failure's text says so.

The rule: an empty prefix is no mistake by itself, since a task may be the first to write there.
"""

from __future__ import annotations

from dataclasses import replace

from perago.errors import LakeError, PreGuardrailViolation
from perago.protocol.outcome import Outcome
from perago.runtime.attempt.publisher import Publisher
from perago.runtime.lake_names import nothing_below

_SPARK_HAS_NO_FILES = "PATH_NOT_FOUND"


def with_folders(outcome: Outcome, error: Exception, publisher: Publisher | None) -> Outcome:
    """The same outcome; if files were missing and the prefix holds none at all, its reason names the folders there are."""
    if publisher is None or not _misses_files(error, outcome):
        return outcome
    lake, workspace = publisher.lake, publisher.signature.workspace
    if not workspace.prefix:
        return outcome
    try:
        if next(iter(lake.list(workspace.repository, workspace.ref, workspace.prefix)), None) is not None:
            return outcome
        hint = nothing_below(lake, workspace.repository, workspace.ref, workspace.prefix)
    except LakeError:
        # The failure itself is told in any case.
        return outcome
    return replace(outcome, reason=f"{outcome.reason} ({hint})")


def _misses_files(error: Exception, outcome: Outcome) -> bool:
    if isinstance(error, PreGuardrailViolation | FileNotFoundError):
        return True
    return _SPARK_HAS_NO_FILES in (outcome.reason or "")
