"""A failure in one attempt or slot ends no other: full disks, no descriptors, and internal errors."""

from __future__ import annotations

import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from perago.assembly import assemble_worker
from perago.backend import Embedded
from perago.declare.discovery import load_tasks
from perago.declare.taskdef import build_taskdef
from perago.errors import RuntimeConfigError
from perago.orchestrator.base import Assignment
from perago.protocol.outcome import Outcome
from perago.runtime.execution_result import PendingResult
from perago.runtime.observe.events import Event
from perago.runtime.observe.health import HealthState, check
from perago.runtime.observe.sanitize import Masker
from perago.runtime.root.state_dir import LOCK, locked_root
from perago.runtime.worker.inbox import Inbox, Message, Polled, PollerEnded, StopRequested
from perago.runtime.worker.job_scheduler import JobScheduler
from perago.runtime.worker.leases import LeaseKeeper
from perago.runtime.worker.outbox import Outbox
from perago.runtime.worker.poller import Poller
from perago.runtime.worker.result_sender import ResultSender
from perago.runtime.worker.supervisor import Supervisor
from perago.settings import load_settings
from tests.support.faults.disks import spoil
from tests.support.servers.scripted_orchestrator import (
    ScriptedOrchestrator,
    an_assignment,
    an_attempt,
    snapshot,
)
from tests.support.tasks import steps
from tests.support.worlds.clock import eventually
from tests.support.worlds.inboxes import HandledAtOnce, ResultReports
from tests.support.worlds.worker_world import WorkerWorld

ATTEMPT = an_attempt()
DONE = Outcome("COMPLETED", output={"result": {}})
LOCAL_ONLY = pytest.mark.parametrize("world", ["local"], indirect=True)


# --- the outbox --------------------------------------------------------------------------------------------------


@LOCAL_ONLY
@pytest.mark.slow
def test_a_worker_whose_outbox_cannot_be_written_sends_its_results_from_memory(world: WorkerWorld) -> None:
    worker = world.start_worker(slots=2)
    go_on = world.folder / "go-on"
    workflow_id = world.start_workflow({"wait_for": str(go_on)}, {"text": "two"})
    eventually(world.bodies, "the body runs")

    spoil(world.folder / "root" / "workspaces" / "outbox")
    go_on.touch()

    assert world.finished(workflow_id).status == "COMPLETED"
    assert worker.drain() == 0
    assert "is sent from memory" in worker.said()


def test_a_result_that_could_not_be_kept_is_written_as_soon_as_that_works(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    spoil(tmp_path / "outbox")
    reports = ResultReports()
    mended = threading.Event()

    class Mending(ScriptedOrchestrator):
        def complete(self, *arguments: Any, **keywords: Any) -> bool:
            if not mended.is_set():
                (tmp_path / "outbox").unlink()
                mended.set()
                raise OSError("no buffer space")
            return super().complete(*arguments, **keywords)

    orchestrator: Any = Mending(complete=[True])
    with JobScheduler("test", threads=1) as table:
        sender = ResultSender(
            *(orchestrator, None, outbox, table, "worker", 500),  # type: ignore[arg-type]
            inbox=reports,
            mask=Masker([]),
        )
        sender.send(PendingResult("execution", ATTEMPT, DONE))

        assert reports.delivered.get(timeout=10).accepted

    assert isinstance(reports.stored.get(), OSError)
    assert reports.stored.get() is None


def test_a_result_that_cannot_leave_the_outbox_is_delivered_all_the_same(tmp_path: Path) -> None:
    reports = ResultReports()

    class Unwilling(Outbox):
        def drop(self, execution_id: str) -> None:
            raise OSError("read-only file system")

    orchestrator: Any = ScriptedOrchestrator(complete=[True])
    with JobScheduler("test", threads=1) as table:
        sender = ResultSender(
            *(orchestrator, None, Unwilling(tmp_path), table, "worker", 500),  # type: ignore[arg-type]
            inbox=reports,
            mask=Masker([]),
        )
        sender.send(PendingResult("execution", ATTEMPT, DONE))

        assert reports.delivered.get(timeout=10).accepted

    assert len(orchestrator.asked("complete")) == 1


def test_a_reason_with_half_a_character_is_kept_and_found_again(tmp_path: Path) -> None:
    outcome = Outcome("FAILED", reason="no such file: caf\udce9.csv")
    outbox = Outbox(tmp_path)

    outbox.put(PendingResult("execution", ATTEMPT, outcome))

    assert [pending.outcome for pending in outbox.unsent()] == [outcome]


def test_a_result_that_cannot_be_written_down_at_all_is_sent_from_memory(tmp_path: Path) -> None:
    reports = ResultReports()
    orchestrator: Any = ScriptedOrchestrator(complete=[True])
    with JobScheduler("test", threads=1) as table:
        sender = ResultSender(
            *(orchestrator, None, Outbox(tmp_path), table, "worker", 500),  # type: ignore[arg-type]
            inbox=reports,
            mask=Masker([]),
        )
        sender.send(PendingResult("execution", ATTEMPT, Outcome("COMPLETED", output={"result": object()})))

        assert reports.delivered.get(timeout=10).accepted


def test_an_outbox_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    spoil(tmp_path / "outbox")

    assert list(outbox.unsent()) == []
    assert list(Outbox(tmp_path).unsent()) == []


def test_a_file_in_the_way_in_the_outbox_harms_no_other_result(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path)
    outbox.put(PendingResult("good", ATTEMPT, DONE))
    (tmp_path / "outbox" / ".folder.tmp").mkdir()
    (tmp_path / "outbox" / "list.json").write_text("[]")

    assert [pending.execution_id for pending in outbox.unsent()] == ["good"]


# --- internal errors ---------------------------------------------------------------------------------------------


def test_a_message_whose_handling_fails_keeps_none_of_the_others_from_being_handled() -> None:
    inbox, made = Inbox(), list[str]()
    for signal_name in ("one", "", "two"):
        inbox.post(StopRequested(signal_name))

    def handle(message: Any) -> None:
        made.append(message.signal or 1 / 0)

    inbox.handle_all(handle, timeout=0.0)

    assert made == ["one", "two"]


def test_a_poller_continues_after_an_unexpected_error() -> None:
    polled: SimpleQueue[Sequence[Assignment]] = SimpleQueue()
    ended = threading.Event()
    orchestrator: Any = ScriptedOrchestrator(poll=[MemoryError(), [an_assignment()], []])

    def handle(message: Message) -> None:
        if isinstance(message, Polled):
            polled.put(message.found)
        elif isinstance(message, PollerEnded):
            ended.set()

    inbox = HandledAtOnce(handle)
    poller = Poller(orchestrator, ["make"], "worker", inbox, pool=0, health_state=HealthState(["make"]))

    poller.start()
    poller.offer(1, taken=0)

    assert polled.get(timeout=10) == [an_assignment()]
    poller.stop()
    assert ended.wait(10)


def test_a_lease_is_extended_at_its_next_beat_after_an_error_that_nobody_expected() -> None:
    """Not after the five seconds of a job that failed: the lease would be gone by then."""
    failed = threading.Event()
    trouble = [MemoryError(), MemoryError(), snapshot(ATTEMPT)]
    orchestrator: Any = ScriptedOrchestrator(
        current=trouble, extend_lease=[OSError(24, "no"), OSError(24, "no"), None]
    )

    with LeaseKeeper(orchestrator, "worker", HandledAtOnce(lambda _: failed.set())) as leases:
        leases.keep("execution", ATTEMPT, 0.01)

        assert orchestrator.used_up["extend_lease"].wait(4)

    assert failed.is_set()


@LOCAL_ONLY
@pytest.mark.slow
def test_a_failing_listener_ends_nothing(world: WorkerWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor in this process; every event that it tells of is answered with an error."""
    monkeypatch.setenv("TEST_NOTES", str(world.notes))
    target = str(Path(steps.__file__))
    settings = load_settings({}, root=world.root)
    tasks = load_tasks([target])
    world.suffix = "here"
    world.orchestrator.register_taskdefs([build_taskdef(task) for task in tasks])
    workflow_id = world.start_workflow({})
    plan = assemble_worker(Embedded(settings), [target], tasks, slots=1)

    def look_on(event: Event) -> None:
        raise BrokenPipeError(event.kind)

    worker = Supervisor(plan, world.orchestrator, world.lake)

    code = worker.run(until=lambda: not world.workflow(workflow_id).running, on_event=look_on)

    assert code == 0
    assert world.workflow(workflow_id).status == "COMPLETED"


@LOCAL_ONLY
@pytest.mark.slow
def test_a_worker_says_that_it_is_healthy_only_while_a_signal_drains_it(
    world: WorkerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor in this process, from before it runs until it is healthy."""
    monkeypatch.setenv("TEST_NOTES", str(world.notes))
    target = str(Path(steps.__file__))
    settings = load_settings({}, root=world.root)
    plan = assemble_worker(Embedded(settings), [target], load_tasks([target]), slots=1)
    default = signal.getsignal(signal.SIGTERM)
    seen: list[tuple[bool, bool]] = []

    def look(health_state: HealthState) -> bool:
        healthy, handled = check(health_state).healthy, signal.getsignal(signal.SIGTERM) != default
        seen.append((healthy, handled))
        return healthy

    worker = Supervisor(plan, world.orchestrator, world.lake)
    before = look(worker.health_state)

    code = worker.run(until=lambda: look(worker.health_state))

    assert not before
    assert code == 0
    assert (True, True) in seen
    assert (True, False) not in seen


# --- the lock ----------------------------------------------------------------------------------------------------


def test_a_root_that_has_no_room_for_the_pid_is_locked_all_the_same(tmp_path: Path) -> None:
    """The lock file is the device that is always full."""
    (tmp_path / LOCK).symlink_to("/dev/full")

    with locked_root(tmp_path), pytest.raises(RuntimeConfigError, match="in use"), locked_root(tmp_path):
        pass
