"""Slots on a machine that has no descriptors left, or whose executors cannot be talked to."""

from __future__ import annotations

import gc
import os
import resource
import signal
import subprocess
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import Pipe, resource_tracker
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from perago.runtime.worker.executions import Execution, Executions
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.inbox import ExecutorGone, Inbox, Message
from perago.runtime.worker.local_executor import Processes, ProcessLink
from perago.runtime.worker.plan import SlotPool
from perago.runtime.worker.slots import Slot, Slots
from perago.settings import load_settings
from tests.support.servers.scripted_orchestrator import NoBackend, an_assignment
from tests.support.worlds.clock import eventually
from tests.support.worlds.inboxes import HandledAtOnce


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process can open so many more descriptors."""
    # The lowest free numbers are given out first, so gaps count as well.
    used = {int(name) for name in os.listdir("/proc/self/fd")}
    numbers = (number for number in range(10_000) if number not in used)
    limit = [next(numbers) for _ in range(count + 1)][-1]
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def some_slots(folder: Path, count: int) -> tuple[Slots, SimpleQueue[int]]:
    gone: SimpleQueue[int] = SimpleQueue()

    def handle(message: Message) -> None:
        if isinstance(message, ExecutorGone):
            gone.put(message.slot)

    leases: Any = None
    task_logs: Any = None
    spec = ExecutorSpec(NoBackend(load_settings({}, root=folder)), (), ())
    executions = Executions({}, leases, task_logs)
    return Slots([SlotPool(("make",), count, Processes(spec))], HandledAtOnce(handle), executions), gone


def a_link(slot: Slot, pipe: Any, pid: int = 0) -> ProcessLink:
    """Return a link over this pipe, to a process that is no executor."""
    process: Any = SimpleNamespace(pid=pid)
    return ProcessLink(slot.number, process, pipe, Inbox())


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("left", range(11))
def test_a_slot_that_finds_no_descriptors_waits_and_leaves_nothing_behind(tmp_path: Path, left: int) -> None:
    resource_tracker.ensure_running()
    # What earlier tests have left would be closed at some moment of this one.
    gc.collect()
    before = open_descriptors()
    slots, _ = some_slots(tmp_path, 1)

    with descriptors_left(left):
        [(slot, error)] = slots.start_due(100.0)

    assert isinstance(error, OSError)
    assert (slot.state, slot.start_at) == ("waiting", 101.0)
    eventually(lambda: open_descriptors() == before, "every descriptor is closed again", 10)


def test_a_slot_that_cannot_start_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    slots, gone = some_slots(tmp_path, 2)
    with descriptors_left(1):
        assert all(isinstance(error, OSError) for _, error in slots.start_due(100.0))

    started = dict(slots.start_due(101.0))

    assert list(started.values()) == [1, 1]
    slots.kill_all()
    assert {gone.get(timeout=30), gone.get(timeout=30)} == {0, 1}


def test_an_attempt_that_cannot_be_handed_over_is_reported_and_the_next_one_takes_the_slot(
    tmp_path: Path,
) -> None:
    slots, _ = some_slots(tmp_path, 1)
    with descriptors_left(1):
        [(slot, _)] = slots.start_due(0.0)
    ours, _theirs = Pipe()
    slot.state, slot._link = "idle", a_link(slot, ours)
    unfit = Execution("unfit", replace(an_assignment(), input={"params": lambda: None}))
    good = Execution("good", an_assignment("task-2"))

    refused = list(slots.hand_out(deque([unfit, good])))

    assert [execution for execution, _ in refused] == [unfit]
    assert slot.execution is good


def test_an_executor_whose_words_cannot_be_read_is_killed(tmp_path: Path) -> None:
    """A body that writes into foreign descriptors: the end of its attempt would go unnoticed."""
    slots, gone = some_slots(tmp_path, 1)
    [(slot, _)] = slots.start_due(0.0)
    slots.kill_all()
    gone.get(timeout=30)
    ours, theirs = Pipe()
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as executor:
        theirs.send_bytes(b"what is this?")

        assert a_link(slot, ours, executor.pid).pass_on() is False

        assert executor.wait(10) == -signal.SIGKILL
