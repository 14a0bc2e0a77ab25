"""What an execution meets that people want to see afterwards: what its checks found, what it published, where its author's
code raised.

The rule: a witness decides nothing.  Whatever it has kept, or could not keep, the attempt ends the same.

What an execution moves between its workdir and the lake, and what it does not need to; with words on it for people.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pydantic import BaseModel

from perago.declare.checks import Check, Phase, evaluated
from perago.declare.file_tree import Tree
from perago.declare.user_code import author_lines, described
from perago.errors import PeragoError
from perago.protocol.changes import Changes
from perago.protocol.outcome import Outcome, WrongInput, classify
from perago.protocol.steps import Step
from perago.runtime.execution_result import BytesMoved, Observations

log = logging.getLogger("perago.transaction")


class ExecutionTrace:
    """Follows one execution; `seen` is what it has kept so far, its traceback without what `mask` hides."""

    def __init__(self, mask: Callable[[str], str] = str, wrong_input: WrongInput = "failed") -> None:
        self._mask = mask
        self._wrong_input = wrong_input
        self.seen = Observations()

    @contextmanager
    def of_author(self) -> Iterator[None]:
        """Around an author's code: the traceback of what it raises is kept.

        To be entered before the process's state is kept, so that the text is made with everything put back.
        """
        try:
            yield
        except Exception as error:
            self.seen = replace(self.seen, trace=tuple(author_lines(error, self._mask)))
            raise

    def forget_trace(self) -> None:
        """What the author's code raised is not what ends the attempt."""
        self.seen = replace(self.seen, trace=())

    def check(self, phase: Phase, checks: Sequence[Check], tree: Tree, params: BaseModel) -> None:
        """Run the checks of a phase and keep what each has found, the one that fails included."""
        for found in evaluated(phase, checks, tree, params):
            self.seen = replace(self.seen, checks=(*self.seen.checks, found))

    def published(self, changes: Changes) -> None:
        """So much is visible now."""
        self.seen = replace(self.seen, changed=len(changes.put), deleted=len(changes.delete))

    def outcome_of(self, error: Exception, step: Step) -> Outcome:
        """The ending that an error means; the reason names the author's line where their code raised it."""
        outcome = classify(error, self._wrong_input)
        if self.seen.trace:
            return replace(outcome, reason=described(error))
        # How attempts end is said by the worker.  An error that is nobody's on purpose is shown whole, once, here.
        level = logging.DEBUG if isinstance(error, PeragoError) else logging.ERROR
        log.log(level, "step %r failed: %s", step.name, outcome.reason, exc_info=error)
        return outcome


Note = Callable[[str], None]
"""Takes a few words about what a body is doing, for people; from any thread."""

_QUIET_SECONDS = 0.5
"""Transfers say how far they are no more often than this, and those that are over sooner say nothing."""


def say_nothing(_text: str) -> None:
    """The note-taker of a transaction that nobody watches."""


class Traffic:
    """Counts the bytes of one execution, from any thread; `down` and `up` are what a lake reports to.

    `note` gets a few words on a transfer that takes long.
    """

    def __init__(self, note: Note = say_nothing, clock: Callable[[], float] = time.monotonic) -> None:
        self._note = note
        self._clock = clock
        self._lock = threading.Lock()
        self._moved = BytesMoved()
        self._files = {"download": 0, "upload": 0}
        self._said_at = clock()

    @property
    def moved(self) -> BytesMoved:
        """What has been counted so far."""
        return self._moved

    def down(self, files: int, size: int) -> None:
        """So many files are here, so many bytes came."""
        self._add("download", files, downloaded=size)

    def up(self, files: int, size: int) -> None:
        """So many files are there, so many bytes went."""
        self._add("upload", files, uploaded=size)

    def say(self, text: str) -> None:
        """A few words about what the body is doing."""
        self._note(text)

    def save(self, size: int) -> None:
        """So many bytes were here, or there, already."""
        self._add("", 0, saved=size)

    def _add(self, what: str, files: int, *, downloaded: int = 0, uploaded: int = 0, saved: int = 0) -> None:
        words = ""
        with self._lock:
            now = self._moved
            self._moved = BytesMoved(now.downloaded + downloaded, now.uploaded + uploaded, now.saved + saved)
            if what:
                self._files[what] += files
                words = self._due_words(what)
        if words:
            self._note(words)

    def _due_words(self, what: str) -> str:
        now = self._clock()
        if now - self._said_at < _QUIET_SECONDS:
            return ""
        self._said_at = now
        size = self._moved.downloaded if what == "download" else self._moved.uploaded
        return f"{what}: {self._files[what]:,} files, {size / 1e6:,.1f} MB"
