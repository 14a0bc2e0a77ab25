"""What an execution meets that people want to see afterwards: what its checks found, what it published, where its author's
code raised.

The rule: a witness decides nothing.  Whatever it has kept, or could not keep, the attempt ends the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pydantic import BaseModel

from perago.declare.author_traceback import author_lines, described
from perago.declare.checks import Check, Phase, Tree, evaluated
from perago.errors import PeragoError
from perago.protocol.changes import Changes
from perago.protocol.outcome import Outcome, WrongInput, classify
from perago.protocol.steps import Step
from perago.runtime.ending import Seen

log = logging.getLogger("perago.transaction")


class Witness:
    """Follows one execution; `seen` is what it has kept so far, its traceback without what `mask` hides."""

    def __init__(self, mask: Callable[[str], str] = str, wrong_input: WrongInput = "failed") -> None:
        self._mask = mask
        self._wrong_input = wrong_input
        self.seen = Seen()

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
