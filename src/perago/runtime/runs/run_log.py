"""run.log: all that a run showed and did, as text in the run's folder, with the worker's own log.

The rules: every line begins with its moment in UTC, a text of several lines stays together, no secret of the settings and
nothing that controls a terminal is in it, and a disk that takes no more of it does not end the run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from perago.orchestrator.base import WorkflowState
from perago.protocol.attempt_record import parse_record
from perago.runtime.observe.events import Event
from perago.runtime.observe.logs import trace_of
from perago.runtime.observe.printable import printable
from perago.runtime.runs.attempts import OPEN, worker_tasks
from perago.runtime.runs.words import moment, printed, record_lines, status_line, who

ENDINGS = "perago.attempts"
"""The logger that says how executions ended."""
Mask = Callable[[str], str]


class RunLog(logging.Handler):
    """An onlooker of the run and a handler of the worker's log, into one file."""

    def __init__(self, file: TextIO, mask: Mask, clock: Callable[[], float] = time.time) -> None:
        super().__init__(logging.INFO)
        self._file = file
        self._mask = mask
        self._clock = clock
        self._seen: dict[str, str] = {}
        self._at: dict[str, str] = {}
        self._status = ""

    def write(self, text: str) -> None:
        """Add a text; lines after its first are indented."""
        whole = printable(self._mask(text)).replace("\n", "\n    ")
        # The worker logs from several threads.
        self.acquire()
        try:
            with suppress(OSError, ValueError):
                self._file.write(f"{moment(self._clock())}  {whole}\n")
                self._file.flush()
        finally:
            self.release()

    def show(self, state: WorkflowState) -> None:
        """Where the workflow stands now."""
        for task in worker_tasks(state):
            if self._seen.get(task.task_id) != task.status:
                self._seen[task.task_id] = task.status
                why = f": {task.reason}" if task.reason and task.status not in OPEN | {"COMPLETED"} else ""
                self.write(status_line(task) + why)
        if self._status != state.status:
            self._status = state.status
            why = f": {state.reason}" if state.reason and not state.running else ""
            self.write(f"workflow {state.name} ({state.id}): {state.status}{why}")

    def heard(self, event: Event) -> None:
        """What the worker tells; its own log has the rest."""
        if event.attempt is None:
            return
        reference, retry = event.attempt.reference_task_name, event.attempt.retry_count
        if event.kind == "step":
            # Some steps are said twice, by the worker and by the executor.
            if self._at.get(event.attempt.task_id) != event.step:
                self.write(f"{who(reference, retry)}: {event.step}")
            self._at[event.attempt.task_id] = event.step
        elif event.kind == "printed":
            record = parse_record(event.text)
            if record is None:
                self.write(printed(reference, retry, event.text))
                return
            for line in record_lines(record):
                self.write(f"{who(reference, retry)}: {line}")

    def emit(self, record: logging.LogRecord) -> None:
        """A record of the worker's log; what a body prints comes as an event."""
        fields = getattr(record, "attempt", None)
        if record.name == "perago.output" and fields:
            return
        of = f"  [{fields['reference']}, execution {fields['execution']}]" if isinstance(fields, dict) else ""
        try:
            text = f"{record.levelname} {record.name.removeprefix('perago.')}: {record.getMessage()}{of}"
            # An author's traceback is there already, as lines of the step.
            if record.name != ENDINGS and (trace := trace_of(record)):
                text += "\n" + trace
        except Exception:
            self.handleError(record)
            return
        self.write(text)
