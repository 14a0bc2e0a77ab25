"""What every transaction of a process shares: the ports, the root, and what a test or an executor passes in."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from perago.lake.base import Lake
from perago.orchestrator.base import AttemptsOwner
from perago.protocol.attempt import AttemptSnapshot
from perago.protocol.outcome import WrongInput
from perago.runtime.attempt.overlap import Overlap, at_once
from perago.runtime.attempt.place import OpenPlace, in_workdir
from perago.runtime.attempt.traffic import Note, say_nothing
from perago.runtime.attempt.tries import Pace
from perago.runtime.process.state import as_before
from perago.settings import FenceMode

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
class Surroundings:
    """What every transaction of a process shares; `clean_up` may put dropping off to another thread."""

    lake: Lake
    orchestrator: AttemptsOwner
    workspace_root: Path
    fence: FenceMode = "auto"
    overlap: Overlap = at_once
    observe: Observer = lambda _step: None
    clock: Callable[[], float] = time.time
    clean_up: Callable[[ExitStack], None] = clean_up_now
    max_result_bytes: int | None = None
    open_place: OpenPlace = in_workdir
    persist: Persist = ask_once
    note: Note = say_nothing
    pace: Pace = field(default_factory=Pace)
    as_before: Callable[[], AbstractContextManager[None]] = as_before
    on_error: Callable[[Exception], None] = lambda _error: None
    """Is told what ended an attempt, as the object that was raised; decides nothing."""
    wrong_input: WrongInput = "failed"
    mask: Callable[[str], str] = str
    """Hides the secrets in a text that is about to be cut."""
