"""The attempt context: the lake, orchestrator, clock and settings shared by all transactions in a process.

Overlap: a transaction declares which calls may run concurrently, and the caller decides whether they do.  An executor
passes a thread pool's `submit`; the default runs everything inline.  Calls that change something are always awaited.

The attempt fence waits while the orchestrator is unavailable (`ask_until_answered`), so that a server restart does not
discard the work of every attempt that finishes during it.  Waiting is safe: the response describes the state at the
moment it is given, and nothing is published without one.  The step that publishes a run waits in the same way while it
reads the run's workflow.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from perago.errors import OrchestratorUnavailable
from perago.lake.base import PublishingLake
from perago.orchestrator.base import AttemptReporter
from perago.protocol.backoff import Backoff
from perago.protocol.ledger import NOTHING_FORCED, Recompute
from perago.protocol.outcome import WrongInput
from perago.runtime.attempt.observer import Note, say_nothing
from perago.runtime.attempt.place import OpenPlace, open_workdir_place
from perago.runtime.attempt.publish_retry import Timing
from perago.runtime.process.process_state import preserving_process_state
from perago.settings import FenceMode

log = logging.getLogger("perago.orchestrator_wait")

LONGEST_WAIT_SECONDS = 300.0
BACKOFF = Backoff(0.2, longest=5.0, jitter=(0.5, 1.0))

T = TypeVar("T")


class Submit(Protocol):
    """Starts work and returns its `Future`, like `ThreadPoolExecutor.submit`."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]: ...


def run_inline(work: Callable[[], T], /) -> Future[T]:
    """Run the work now, in the calling thread."""
    done: Future[T] = Future()
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)
    return done


def cancel_or_wait(task: Future[Any]) -> BaseException | None:
    """Cancel the task, or wait for it if it is already running.  Returns its exception, if any."""
    return None if task.cancel() else task.exception()


Observer = Callable[[str], None]
"""Receives the name of each step when it begins."""


class RetryQuery(Protocol):
    """Calls a function that asks the orchestrator, possibly with retries, and returns its result."""

    def __call__(self, ask: Callable[[], T], /) -> T:
        """Call the function."""


def ask_once(ask: Callable[[], T]) -> T:
    """Ask the orchestrator about an attempt once, without retrying."""
    return ask()


def clean_up_now(cleanup: ExitStack) -> None:
    """Drop the staging branches and the workdir before the transaction returns."""
    cleanup.close()


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """Dependencies and settings shared by all transactions in a process.

    `clean_up` may defer its work to another thread.
    """

    lake: PublishingLake
    orchestrator: AttemptReporter
    workspace_root: Path
    fence: FenceMode = "auto"
    overlap: Submit = run_inline
    observe: Observer = lambda _step: None
    clock: Callable[[], float] = time.time
    clean_up: Callable[[ExitStack], None] = clean_up_now
    max_result_bytes: int | None = None
    open_place: OpenPlace = open_workdir_place
    retry_query: RetryQuery = ask_once
    note: Note = say_nothing
    timing: Timing = field(default_factory=Timing)
    preserving_process_state: Callable[[], AbstractContextManager[None]] = preserving_process_state
    on_error: Callable[[Exception], None] = lambda _error: None
    """Called with the exception that ended an attempt.  It cannot change the outcome."""
    wrong_input: WrongInput = "failed"
    recompute: Recompute = NOTHING_FORCED
    """The work that is done again although nothing has changed."""
    image: str = ""
    """The container image that PERAGO_IMAGE names."""
    mask: Callable[[str], str] = str
    """Hides secrets in text.  It is applied before the text is truncated."""


def ask_until_answered(
    ask: Callable[[], T],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """Repeat a call until the orchestrator responds.

    Raises `OrchestratorUnavailable` after five minutes without a response.
    """
    until, failures = clock() + LONGEST_WAIT_SECONDS, 0
    while True:
        try:
            return ask()
        except OrchestratorUnavailable as error:
            if clock() >= until:
                raise
            log.warning("orchestrator unavailable, the attempt waits: %s", error)
        failures += 1
        sleep(BACKOFF.delay(failures))
