"""A whole worker: real processes, on the embedded servers and on the real ones."""

from __future__ import annotations

import os
import signal

import pytest

from perago.protocol.attempt_record import parse_record
from perago.protocol.provenance import is_packages_line
from tests.runtime.conftest import PRODUCTION, REAL
from tests.support.processes.processes import is_running
from tests.support.worlds.clock import eventually
from tests.support.worlds.worker_world import WorkerWorld

LEFT = ["leave a session", "leave a daemon"]


@pytest.mark.slow
@pytest.mark.parametrize("world", ["local", REAL, PRODUCTION], indirect=True)
def test_a_workflow_of_three_steps_completes_with_refs_chained_from_step_to_step(world: WorkerWorld) -> None:
    before = world.head().id
    worker = world.start_worker()

    done = world.finished(world.start_workflow({"text": "one"}, {"text": "two"}, {"text": "three"}))

    assert done.status == "COMPLETED", done.reason
    commits = [before, *(task.output["workspace"]["ref"] for task in done.tasks)]
    assert [task.input["workspace"]["ref"] for task in done.tasks] == commits[:-1]
    assert [commit.id for commit in world.history()[:4]] == list(reversed(commits))
    assert world.files().keys() == {"data/input.txt", "data/one.txt", "data/two.txt", "data/three.txt"}
    assert worker.drain() == 0
    assert (world.workdirs(), world.branches(), world.outbox()) == ([], [], [])


@pytest.mark.slow
def test_a_bodys_output_is_in_the_task_log_before_its_result_is_known(world: WorkerWorld) -> None:
    world.start_worker(slots=1)

    done = world.finished(world.start_workflow({"do": "print"}))

    lines = eventually(lambda: world.task_log(done.tasks[0].task_id), "the log is there")
    assert "printed by the body made" in lines
    assert "printed past Python" in lines


@pytest.mark.slow
@pytest.mark.parametrize("world", ["local", REAL, PRODUCTION], indirect=True)
def test_a_nul_in_a_reason_or_a_line_is_written_out_and_one_in_a_result_is_refused(
    world: WorkerWorld,
) -> None:
    """PostgreSQL keeps no U+0000: Conductor on it would answer 500, and the workflow would hang."""
    world.start_worker(slots=1)

    said = world.finished(world.start_workflow({"do": "say NUL"}))
    returned = world.finished(world.start_workflow({"do": "return NUL"}))

    assert (said.status, len(said.tasks)) == ("FAILED", 1)
    assert r"a \x00 byte" in (said.tasks[0].reason or "")
    lines = eventually(lambda: world.task_log(said.tasks[0].task_id), "the log is there")
    shown = [line.replace("\0", r"\x00") for line in lines]
    assert shown[shown.index("before") :][:3] == ["before", r"a\x00b", "after"]
    assert world.kind == "local" or not any("\0" in line for line in lines)
    assert returned.status == "FAILED"
    assert "result.said holds U+0000" in (returned.tasks[0].reason or "")


@pytest.mark.slow
@pytest.mark.parametrize("world", ["local"], indirect=True)
@pytest.mark.parametrize("do", ["fork and return", "fork and raise"])
def test_a_fork_of_the_body_that_comes_back_is_no_second_executor(world: WorkerWorld, do: str) -> None:
    before = world.head().id
    world.start_worker(slots=1)

    done = world.finished(world.start_workflow({"text": "a", "do": do}, {"text": "b"}))

    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)] * 2
    assert [task.output["result"] for task in done.tasks] == [{"said": "a"}, {"said": "b"}]
    assert len(world.noted("forked")) == 1
    assert [commit.id for commit in world.history()].index(before) == 2
    assert len(set(world.noted("body"))) == 1, "one executor ran both"


@pytest.mark.slow
@pytest.mark.parametrize("world", ["local"], indirect=True)
@pytest.mark.parametrize("do", LEFT)
def test_a_process_that_a_body_leaves_in_a_new_session_is_found_and_ended(
    world: WorkerWorld, do: str
) -> None:
    worker = world.start_worker(slots=1)

    done = world.finished(world.start_workflow({"do": do}))

    [left] = world.noted("left")
    assert (done.tasks[0].status, done.tasks[0].retry_count) == ("COMPLETED", 0)
    eventually(lambda: not is_running(left), "it is ended")
    eventually(lambda: "is replaced: the task left a program running" in worker.said(), "the log says so")


@pytest.mark.slow
@pytest.mark.parametrize("world", ["local"], indirect=True)
@pytest.mark.parametrize("killed", ["worker", "executor"])
@pytest.mark.parametrize("do", LEFT)
def test_a_process_that_a_body_started_in_a_new_session_does_not_survive_a_kill(
    world: WorkerWorld, do: str, killed: str
) -> None:
    worker = world.start_worker(slots=1)
    world.start_workflow({"do": do, "seconds": 60})
    [left] = eventually(lambda: world.noted("left"), "the body has started it")

    os.kill(worker.process.pid if killed == "worker" else worker.executors()[0], signal.SIGKILL)

    eventually(lambda: not is_running(left), "it is ended")


@pytest.mark.slow
def test_a_body_that_breaks_its_streams_loses_neither_its_result_nor_the_next_bodys_output(
    world: WorkerWorld,
) -> None:
    world.start_worker(slots=1)

    done = world.finished(
        world.start_workflow(
            {"text": "a", "do": "leave a tee"},
            {"text": "b", "do": "close descriptor 1"},
            {"text": "c", "do": "print"},
        )
    )

    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)] * 3
    assert len({line.split()[1] for line in world.bodies()}) == 1, "one executor ran them all"
    about_itself = [parse_record, is_packages_line]
    logs = [
        {line for line in world.task_log(task.task_id) if not any(is_one(line) for is_one in about_itself)}
        for task in done.tasks
    ]
    assert logs == [
        {"printed before the tee"},
        {"printed before the closing"},
        {"printed by the body c", "printed past Python"},
    ]


@pytest.mark.slow
def test_a_failing_body_is_reported_with_a_short_reason_and_retried(world: WorkerWorld) -> None:
    world.start_worker(slots=1)

    workflow_id = world.start_workflow({"do": "fail"})

    first = eventually(
        lambda: [task for task in world.workflow(workflow_id).tasks if task.status == "FAILED"], "a failure"
    )[0]
    assert first.reason.startswith("ValueError: as asked")
    assert len(first.reason) <= 500
    assert world.finished(workflow_id).status == "FAILED"
    assert len(world.bodies()) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setting", "statuses"),
    [({}, ["FAILED"] * 6), ({"PERAGO_WRONG_INPUT": "terminal"}, ["FAILED_WITH_TERMINAL_ERROR"])],
    ids=["tried again", "terminal"],
)
def test_invalid_input_is_reported_in_one_line_and_retried_as_the_setting_says(
    world: WorkerWorld, setting: dict[str, str], statuses: list[str]
) -> None:
    world.start_worker(slots=1, **setting)

    done = world.finished(world.start_workflow({"text": ["hunter2"], "sise": 1}))

    assert (done.status, [task.status for task in done.tasks]) == ("FAILED", statuses)
    reason = done.tasks[0].reason or ""
    assert "params.text: got an array, send a valid string" in reason
    assert "params.sise: is not declared, leave it out" in reason
    assert ("hunter2" in reason, "\n" in reason) == (False, False)
    assert world.bodies() == []


@pytest.mark.slow
def test_a_body_that_raises_what_would_end_a_process_fails_and_its_executor_lives_on(
    world: WorkerWorld,
) -> None:
    worker = world.start_worker(slots=1)

    done = world.finished(world.start_workflow({"do": "interrupt"}))

    (reason,) = {task.reason for task in done.tasks}
    assert reason.startswith("the task raised KeyboardInterrupt: by the body (steps.py:")
    assert len({line.split()[1] for line in world.bodies()}) == 1
    assert worker.drain() == 0


@pytest.mark.slow
def test_a_result_that_conductor_would_not_take_fails_before_anything_is_published(
    world: WorkerWorld,
) -> None:
    before = world.head().id
    world.start_worker(slots=1)

    done = world.finished(world.start_workflow({"size": 4_000_000}))

    assert done.status == "FAILED"
    assert "put bulk into the workspace" in (done.tasks[0].reason or "")
    assert world.head().id == before


@pytest.mark.slow
def test_an_executor_is_recycled_after_so_many_tasks(world: WorkerWorld) -> None:
    worker = world.start_worker(slots=1, PERAGO_EXECUTOR_MAX_TASKS="2")

    done = world.finished(world.start_workflow(*[{"text": f"t{n}"} for n in range(3)]))

    assert done.status == "COMPLETED"
    pids = [line.split()[1] for line in world.bodies()]
    assert pids[0] == pids[1] != pids[2]
    assert worker.drain() == 0


@pytest.mark.slow
@pytest.mark.parametrize("world", ["local"], indirect=True)
def test_sweeps_leave_a_running_attempt_its_workdir_though_the_body_has_removed_the_marker(
    world: WorkerWorld,
) -> None:
    go_on = world.folder / "go-on"
    mine = world.folder / "root" / "workspaces" / "mine"
    mine.mkdir(parents=True)
    os.utime(mine, (0, 0))
    worker = world.start_worker(PERAGO_WORKSPACE_GC_INTERVAL="1s", PERAGO_WORKSPACE_GC_TTL="0s")
    workflow_id = world.start_workflow({"do": "remove the marker", "wait_for": str(go_on)})
    eventually(go_on.with_name("go-on.waits").exists, "the marker is gone")
    # A workdir of no execution shows when a sweep has run.
    dead = mine.with_name(f"perago-workdir-dead-{'0' * 16}")
    dead.mkdir()
    eventually(lambda: not dead.exists(), "a sweep has been there")
    go_on.touch()

    done = world.finished(workflow_id)

    assert [task.status for task in done.tasks] == ["COMPLETED"], [task.reason for task in done.tasks]
    assert worker.drain() == 0
    assert world.workdirs() == ["mine"]


@pytest.mark.slow
def test_a_body_cannot_spoil_the_next_one_in_its_executor(world: WorkerWorld) -> None:
    worker = world.start_worker(slots=1)

    done = world.finished(
        world.start_workflow(
            {"text": "a", "do": "spoil the process"}, {"text": "b", "seconds": 1}, {"text": "c"}
        )
    )

    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)] * 3
    assert len({line.split()[1] for line in world.bodies()}) == 1
    assert worker.drain() == 0
    assert world.workdirs() == []


@pytest.mark.slow
def test_a_thread_that_never_ends_means_a_fresh_executor_at_once_and_holds_nothing_up(
    world: WorkerWorld,
) -> None:
    worker = world.start_worker(slots=1)

    done = world.finished(
        world.start_workflow(
            {"text": "a", "do": "leave a thread"}, {"text": "b"}, {"text": "c", "do": "leave a thread"}
        )
    )

    assert [(task.status, task.retry_count) for task in done.tasks] == [("COMPLETED", 0)] * 3
    pids = [line.split()[1] for line in world.bodies()]
    assert pids[0] != pids[1] == pids[2]
    assert worker.drain() == 0
    assert worker.said().count("executor 0 is replaced: the task left a thread running: never-ends") == 2
    assert "died" not in worker.said()
    assert (world.workdirs(), world.branches(), world.outbox()) == ([], [], [])
