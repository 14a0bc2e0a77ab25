"""An executor's log, where its supervisor writes it: `perago run` has a table on the terminal, and writes alone to it.

The rule: a record crosses as words.  Nothing of an exception is pickled, and the supervisor's own formats and masks apply.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

from perago.runtime.observe.logs import fields_of_record, trace_of
from perago.runtime.worker.messages import Logged


class PassedOn(logging.Handler):
    """Says each record to the supervisor; `beside` takes the lines of processes that a body has forked.

    Those have our end of the pipe too, and two that write to it would spoil it.
    """

    def __init__(self, say: Callable[[Logged], None], beside: Callable[[str], None]) -> None:
        super().__init__(logging.INFO)
        self._say = say
        self._beside = beside
        self._pid = os.getpid()
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Pass the record on."""
        try:
            if os.getpid() != self._pid:
                self._beside(self.format(record) + "\n")
                return
            words = (record.getMessage(), trace_of(record))
            self._say(Logged(record.name, record.levelno, *words, dict(fields_of_record(record))))
        except Exception:
            self.handleError(record)


def log_again(said: Logged) -> None:
    """In the supervisor: log what an executor has logged."""
    extra: dict[str, object] = {"trace": said.trace}
    if said.attempt:
        extra["attempt"] = said.attempt
    logging.getLogger(said.logger).log(said.level, "%s", said.text, extra=extra)
