"""Work that may overlap with other work: begun here, asked for later; what changes anything is always waited for.

A transaction says what may overlap; whether it does is up to who runs it.  An executor gives it threads, so that
servers are waited for at the same time.  By default nothing overlaps: what is begun is done at once.

What every transaction of a process shares: the ports, the root, and what a test or an executor passes in.

Waiting for an orchestrator that is away, at the one place where an attempt cannot go on without it: a fence.

A server that is restarted must not cost the work of every attempt that ends in that minute.  Waiting is safe: the
answer, when it comes, is about that moment, and no answer still means that nothing is published.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from perago.errors import OrchestratorUnavailable
from perago.lake.base import Lake
from perago.orchestrator.base import AttemptReporter
from perago.protocol.attempt import AttemptSnapshot
from perago.protocol.outcome import WrongInput
from perago.runtime.attempt.observer import Note, say_nothing
from perago.runtime.attempt.place import OpenPlace, in_workdir
from perago.runtime.attempt.publish_retry import Timing
from perago.runtime.process.process_state import preserving_process_state
from perago.settings import FenceMode

T = TypeVar("T")


class Submit(Protocol):
    """Begins work; its `Future` has the answer.  `ThreadPoolExecutor.submit` is one."""

    def __call__(self, work: Callable[[], T], /) -> Future[T]: ...


def run_inline(work: Callable[[], T], /) -> Future[T]:
    """Do the work now."""
    done: Future[T] = Future()
    try:
        done.set_result(work())
    except Exception as error:
        done.set_exception(error)
    return done


def cancel_or_wait(begun: Future[Any]) -> BaseException | None:
    """Have begun work not done, or wait for its end; returns what it raised, if it was done."""
    return None if begun.cancel() else begun.exception()


Observer = Callable[[str], None]
"""Called with the name of each step as it begins."""

Persist = Callable[[Callable[[], AttemptSnapshot]], AttemptSnapshot]
"""Asks the orchestrator about an attempt, more than once if it must."""


def ask_once(ask: Callable[[], AttemptSnapshot]) -> AttemptSnapshot:
    """Take the first answer, or error, for what it is."""
    return ask()


def clean_up_now(cleanup: ExitStack) -> None:
    """Drop staging and workdir before the transaction returns."""
    cleanup.close()


@dataclass(frozen=True, slots=True)
class AttemptContext:
    """What every transaction of a process shares; `clean_up` may put dropping off to another thread."""

    lake: Lake
    orchestrator: AttemptReporter
    workspace_root: Path
    fence: FenceMode = "auto"
    overlap: Submit = run_inline
    observe: Observer = lambda _step: None
    clock: Callable[[], float] = time.time
    clean_up: Callable[[ExitStack], None] = clean_up_now
    max_result_bytes: int | None = None
    open_place: OpenPlace = in_workdir
    persist: Persist = ask_once
    note: Note = say_nothing
    pace: Timing = field(default_factory=Timing)
    preserving_process_state: Callable[[], AbstractContextManager[None]] = preserving_process_state
    on_error: Callable[[Exception], None] = lambda _error: None
    """Is told what ended an attempt, as the object that was raised; decides nothing."""
    wrong_input: WrongInput = "failed"
    mask: Callable[[str], str] = str
    """Hides the secrets in a text that is about to be cut."""


log = logging.getLogger("perago.orchestrator_wait")

LONGEST_WAIT_SECONDS = 300.0
LONGEST_PAUSE = 5.0


def ask_until_answered(
    ask: Callable[[], T],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> T:
    """The first answer; `OrchestratorUnavailable` when none has come for five minutes."""
    until, pause = clock() + LONGEST_WAIT_SECONDS, 0.2
    while True:
        try:
            return ask()
        except OrchestratorUnavailable as away:
            if clock() >= until:
                raise
            log.warning("the attempt fence waits for the orchestrator: %s", away)
        sleep(pause * random.uniform(0.5, 1.0))
        pause = min(LONGEST_PAUSE, pause * 2)
