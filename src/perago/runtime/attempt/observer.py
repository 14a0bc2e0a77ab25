"""Records observations about one execution: check results, published changes, user tracebacks, bytes moved and saved.

Observers decide nothing: an attempt ends the same way whether or not anything was recorded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel

from perago.declare.checks import Check, Phase, evaluate_checks
from perago.declare.file_tree import Tree
from perago.declare.user_code import describe_with_place, user_traceback
from perago.errors import PeragoError
from perago.protocol.attempt_record import SparkFigures
from perago.protocol.changes import Changes
from perago.protocol.outcome import Outcome, WrongInput, classify
from perago.protocol.steps import Step
from perago.runtime.execution_result import BytesMoved, Observations

log = logging.getLogger("perago.transaction")


Note = Callable[[str], None]
"""Receives a short, human-readable text about the body's progress.  May be called from any thread."""

_QUIET_SECONDS = 0.5
"""Minimum interval between progress notes.  Transfers that take less time send none."""


class ExecutionTrace:
    """Records one execution.  `seen` holds the observations so far; `mask` hides secrets in the traceback."""

    def __init__(self, mask: Callable[[str], str] = str, wrong_input: WrongInput = "failed") -> None:
        self._mask = mask
        self._wrong_input = wrong_input
        self._folder: Path | None = None
        self.seen = Observations()

    @contextmanager
    def capturing_user_errors(self) -> Iterator[None]:
        """Record the traceback if the user code in this block raises.

        Enter the block before the process state is saved, so that the traceback is formatted after the state has been
        restored.
        """
        try:
            yield
        except Exception as error:
            self.seen = replace(self.seen, trace=tuple(user_traceback(error, self._shown)))
            raise

    def use_workdir(self, folder: Path) -> None:
        """Show paths below the attempt's folder, which is gone after the attempt, as paths in the workspace."""
        self._folder = folder

    def _shown(self, text: str) -> str:
        text = self._mask(text)
        return with_workspace_paths(text, str(self._folder)) if self._folder is not None else text

    def forget_trace(self) -> None:
        """Discard the user traceback because a different error ends the attempt."""
        self.seen = replace(self.seen, trace=())

    def check(self, phase: Phase, checks: Sequence[Check], tree: Tree, params: BaseModel) -> None:
        """Run the checks of a phase and record each result, including a failed one."""
        for found in evaluate_checks(phase, checks, tree, params):
            self.seen = replace(self.seen, checks=(*self.seen.checks, found))

    def published(self, changes: Changes, replaced_unsigned: str) -> None:
        """Record how many files the publication changed and deleted, and the tag of an unsigned commit it replaced."""
        self.seen = replace(
            self.seen,
            changed=len(changes.put),
            deleted=len(changes.delete),
            replaced_unsigned=replaced_unsigned,
        )

    def skipped(self, commit: str) -> None:
        """Record the publication since which nothing has changed, so that the body is skipped."""
        self.seen = replace(self.seen, skipped=commit)

    def outcome_of(self, error: Exception, step: Step) -> Outcome:
        """Return the outcome for an error.  If user code raised it, the reason names the line."""
        outcome = classify(error, self._wrong_input)
        if self.seen.trace:
            outcome = replace(outcome, reason=describe_with_place(error))
        if outcome.reason and self._folder is not None:
            outcome = replace(outcome, reason=with_workspace_paths(outcome.reason, str(self._folder)))
        if self.seen.trace:
            return outcome
        # The worker logs the outcome itself.  This logs the traceback of an unexpected error, once.
        level = logging.DEBUG if isinstance(error, PeragoError) else logging.ERROR
        log.log(level, "step %r failed: %s", step.name, outcome.reason, exc_info=error)
        return outcome


def with_workspace_paths(text: str, base: str) -> str:
    """Return the text with the paths below `base`, a folder or a URI, as paths in the workspace."""
    folder = base.removeprefix("file://").rstrip("/")
    if not folder:
        return text
    # Whole URIs first, so that no scheme is left over.
    for start in (f"file://{folder}", f"file:{folder}", folder):
        text = text.replace(start + "/", "").replace(start, ".")
    return text


def say_nothing(_text: str) -> None:
    """Ignore a progress note."""


class Traffic:
    """Counts the bytes moved by one execution.  Thread-safe.

    `down` and `up` are the lake's progress callbacks.  `note` receives the progress of a long transfer.  `spark` holds
    what Spark itself read and wrote, once its work has ended.
    """

    spark: SparkFigures | None = None

    def __init__(self, note: Note = say_nothing, clock: Callable[[], float] = time.monotonic) -> None:
        self._note = note
        self._clock = clock
        self._lock = threading.Lock()
        self._moved = BytesMoved()
        self._files = {"download": 0, "upload": 0}
        self._noted_at = clock()

    @property
    def moved(self) -> BytesMoved:
        """The numbers of bytes moved and saved so far."""
        return self._moved

    def down(self, files: int, size: int) -> None:
        """Add to the counts of downloaded files and bytes."""
        self._add("download", files, downloaded=size)

    def up(self, files: int, size: int) -> None:
        """Add to the counts of uploaded files and bytes."""
        self._add("upload", files, uploaded=size)

    def say(self, text: str) -> None:
        """Send a note about the body's progress."""
        self._note(text)

    def save(self, size: int) -> None:
        """Add to the count of bytes that did not have to be moved."""
        self._add("", 0, saved=size)

    def _add(self, what: str, files: int, *, downloaded: int = 0, uploaded: int = 0, saved: int = 0) -> None:
        text = ""
        with self._lock:
            now = self._moved
            self._moved = BytesMoved(now.downloaded + downloaded, now.uploaded + uploaded, now.saved + saved)
            if what:
                self._files[what] += files
                text = self._progress_text(what)
        if text:
            self._note(text)

    def _progress_text(self, what: str) -> str:
        """Return the progress of a transfer, or "" if the last note is too recent."""
        now = self._clock()
        if now - self._noted_at < _QUIET_SECONDS:
            return ""
        self._noted_at = now
        size = self._moved.downloaded if what == "download" else self._moved.uploaded
        return f"{what}: {self._files[what]:,} files, {size / 1e6:,.1f} MB"
