from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import ExecutionResult
from perago.runtime.worker.executions import Execution, Executions
from perago.runtime.worker.executor import ExecutorSpec
from perago.runtime.worker.inbox import Inbox
from perago.runtime.worker.local_executor import Processes, describe_exit
from perago.runtime.worker.slots import Slot
from perago.settings import load_settings
from tests.support.servers.scripted_orchestrator import NoBackend, an_assignment


@pytest.fixture
def slot(tmp_path: Path) -> Slot:
    """A slot whose executor is never really started."""
    leases: Any = None
    task_logs: Any = None
    spec = ExecutorSpec(NoBackend(load_settings({}, root=tmp_path)), (), ())
    return Slot(0, Processes(spec), Inbox(), Executions({}, leases, task_logs))


def test_each_executor_death_delays_the_next_start_longer_up_to_30_seconds(slot: Slot) -> None:
    waits = []
    for _ in range(7):
        slot.on_exit(100.0, by_itself=True)
        waits.append(slot.start_at - 100.0)

    assert waits == [1, 2, 4, 8, 16, 30, 30]


def test_an_attempt_with_a_result_forgives_earlier_deaths(slot: Slot) -> None:
    slot.on_exit(0.0, by_itself=True)
    slot.on_exit(0.0, by_itself=True)
    slot.execution = Execution("execution", an_assignment())

    slot.end_execution("execution", ExecutionResult(Outcome("COMPLETED")))
    slot.on_exit(100.0, by_itself=True)

    assert slot.start_at == 101.0


def test_an_executor_that_was_asked_to_exit_is_replaced_at_once(slot: Slot) -> None:
    slot.on_exit(100.0, by_itself=False)

    assert slot.start_at == 100.0


def test_a_dead_executor_may_have_left_its_attempt_and_uncleaned_executions(slot: Slot) -> None:
    finished = slot.execution = Execution("finished", an_assignment())
    slot.end_execution("finished", ExecutionResult(Outcome("COMPLETED")))
    running = slot.execution = Execution("running", an_assignment("task-2"))

    assert slot.on_exit(0.0, by_itself=True) == [finished, running]
    assert slot.on_exit(0.0, by_itself=True) == []


def test_an_ending_of_another_execution_changes_nothing(slot: Slot) -> None:
    running = slot.execution = Execution("running", an_assignment())

    assert slot.end_execution("another", ExecutionResult(Outcome("COMPLETED"))) is None
    assert slot.execution is running


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (0, "exit code 0"),
        (7, "exit code 7"),
        (-9, "signal SIGKILL"),
        (-11, "signal SIGSEGV"),
        (-99, "signal 99"),
    ],
)
def test_an_exit_code_is_described_in_words(code: int, text: str) -> None:
    assert describe_exit(code) == text
