"""The embedded orchestrator beyond the contract: its clock, its file, its limits, and what tests may ask of it."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from perago.errors import (
    OrchestratorNotFound,
    OrchestratorRefused,
    OrchestratorUnavailable,
    RuntimeConfigError,
)
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.attempt import Attempt
from perago.protocol.outcome import Outcome, completed
from tests.support.servers.local_orchestrator import TASKDEF, brief, opened, poll, start
from tests.support.tasks.workflows import fork, join, simple, workflow
from tests.support.worlds.clock import Clock


class TestResuming:
    def test_a_workflow_continues_where_it_was_after_the_file_is_reopened(
        self, path: Path, clock: Clock
    ) -> None:
        with closing(opened(path, clock)) as before:
            before.register_taskdefs([TASKDEF])
            workflow_id = start(before, simple("a"), simple("b", inputParameters={"n": "${a.output.n}"}))
            (one,) = poll(before)
            before.complete(one.attempt, completed({"n": 7}), worker_id="me")
        with closing(LocalOrchestrator(path, clock=clock, sleep=clock.sleep)) as after:
            (two,) = poll(after)
            assert two.input == {"n": 7}
            assert after.complete(two.attempt, completed({"end": True}), worker_id="me")
            state = after.workflow(workflow_id)
            assert (state.status, state.output) == ("COMPLETED", {"end": True})

    @pytest.mark.slow
    def test_a_process_that_is_killed_loses_nothing_it_was_told(self, path: Path) -> None:
        script = (
            "import os, sys\n"
            "from pathlib import Path\n"
            "from perago.orchestrator.local.orchestrator import LocalOrchestrator\n"
            "orchestrator = LocalOrchestrator(Path(sys.argv[1]))\n"
            "task = {'name': 'work', 'taskReferenceName': 'a', 'type': 'SIMPLE'}\n"
            "orchestrator.register_workflow({'name': 'flow', 'tasks': [task]})\n"
            "started = orchestrator.start_workflow('flow', input={})\n"
            "(one,) = orchestrator.poll('work', worker_id='w', count=1, wait_seconds=0)\n"
            "print(started, one.attempt.task_id, flush=True)\n"
            "os.kill(os.getpid(), 9)\n"
        )
        child = subprocess.run(
            [sys.executable, "-c", script, str(path)], check=False, capture_output=True, text=True
        )
        assert child.returncode == -9, child.stderr
        started, task_id = child.stdout.split()
        with closing(LocalOrchestrator(path)) as orchestrator:
            state = orchestrator.workflow(started)
            assert [(task.task_id, task.status) for task in state.tasks] == [(task_id, "IN_PROGRESS")]

    def test_the_tasks_of_a_dead_worker_are_timed_out_at_once_and_count_as_a_try(
        self, orchestrator: LocalOrchestrator, clock: Clock
    ) -> None:
        workflow_id = start(orchestrator, fork("f", [simple("a")], [simple("b")]), join("j", "a", "b"))
        (one,) = poll(orchestrator)
        assert orchestrator.time_out_in_progress("the worker is gone") == [one.attempt.task_id]
        assert brief(orchestrator, workflow_id) == [
            ("f", "COMPLETED", 0),
            ("a", "TIMED_OUT", 0),
            ("b", "SCHEDULED", 0),
            ("j", "IN_PROGRESS", 0),
            ("a", "SCHEDULED", 1),
        ]
        assert orchestrator.workflow(workflow_id).tasks[1].reason == "the worker is gone"
        clock.now += 10
        assert [one.attempt.reference_task_name for one in poll(orchestrator, 5)] == ["b", "a"]
        assert len(orchestrator.time_out_in_progress("gone again")) == 2
        assert orchestrator.workflow(workflow_id).status == "TIMED_OUT"

    def test_runs_are_listed_newest_first(self, orchestrator: LocalOrchestrator, clock: Clock) -> None:
        first = start(orchestrator)
        clock.now += 1
        second = start(orchestrator)
        orchestrator.terminate_workflow(first, "enough")
        found = [(run.id, run.name, run.status, run.started) for run in orchestrator.workflows(100)]
        assert found == [
            (second, "flow", "RUNNING", 1_000_001.0),
            (first, "flow", "TERMINATED", 1_000_000.0),
        ]


class TestSeveralAtOnce:
    @pytest.mark.slow
    def test_processes_that_poll_one_queue_get_every_task_once(self, path: Path) -> None:
        script = (
            "import sys\n"
            "from pathlib import Path\n"
            "from perago.orchestrator.local.orchestrator import LocalOrchestrator\n"
            "from perago.protocol.outcome import completed\n"
            "orchestrator = LocalOrchestrator(Path(sys.argv[1]))\n"
            "while found := orchestrator.poll('work', worker_id=sys.argv[2], count=2, wait_seconds=0.5):\n"
            "    for one in found:\n"
            "        print(one.attempt.task_id)\n"
            "        assert orchestrator.complete(one.attempt, completed({}), worker_id=sys.argv[2])\n"
        )
        with closing(LocalOrchestrator(path)) as orchestrator:
            orchestrator.register_workflow(workflow(simple("a"), simple("b")))
            started = [orchestrator.start_workflow("flow", input={}) for _ in range(40)]
            children = [
                subprocess.Popen(
                    [sys.executable, "-c", script, str(path), f"worker-{number}"],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                )
                for number in range(4)
            ]
            outputs = [child.communicate() for child in children]
            assert [child.returncode for child in children] == [0] * 4, outputs
            taken = [task_id for output, _ in outputs for task_id in output.split()]
            assert len(taken) == len(set(taken)) == 80
            assert {orchestrator.workflow(one).status for one in started} == {"COMPLETED"}

    def test_several_may_open_a_new_file_at_the_same_moment(self, path: Path) -> None:
        found: list[LocalOrchestrator] = []
        ready = threading.Barrier(8)

        def open_it() -> None:
            ready.wait()
            found.append(LocalOrchestrator(path))

        threads = [threading.Thread(target=open_it) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        for one in found:
            one.close()

    def test_threads_of_one_process_share_it(self, path: Path) -> None:
        with closing(LocalOrchestrator(path)) as orchestrator:
            orchestrator.register_workflow(workflow(simple("a")))
            for _ in range(20):
                orchestrator.start_workflow("flow", input={})
            taken: list[str] = []

            def drain() -> None:
                while found := poll(orchestrator):
                    orchestrator.extend_lease(found[0].attempt, worker_id="me")
                    taken.append(found[0].attempt.task_id)

            threads = [threading.Thread(target=drain) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(taken) == len(set(taken)) == 20


class TestDefinitions:
    def test_a_running_workflow_keeps_the_definitions_it_was_started_with(
        self, orchestrator: LocalOrchestrator
    ) -> None:
        workflow_id = start(orchestrator, simple("a"), simple("b"))
        orchestrator.register_workflow(workflow(simple("a"), simple("other")))
        orchestrator.register_taskdefs([{**TASKDEF, "retryCount": 0, "responseTimeoutSeconds": 5}])
        (one,) = poll(orchestrator)
        assert one.attempt.response_timeout_seconds == 30
        orchestrator.complete(one.attempt, completed({}), worker_id="me")
        assert brief(orchestrator, workflow_id)[-1] == ("b", "SCHEDULED", 0)

    def test_the_newest_version_runs_unless_another_is_asked_for(
        self, orchestrator: LocalOrchestrator
    ) -> None:
        orchestrator.register_workflow({**workflow(simple("old")), "version": 2})
        orchestrator.register_workflow({**workflow(simple("new")), "version": 10})
        newest = orchestrator.start_workflow("flow", input={})
        older = orchestrator.start_workflow("flow", version=2, input={})
        assert brief(orchestrator, newest) == [("new", "SCHEDULED", 0)]
        assert brief(orchestrator, older) == [("old", "SCHEDULED", 0)]
        with pytest.raises(OrchestratorNotFound, match="flow version 3"):
            orchestrator.start_workflow("flow", version=3, input={})

    def test_a_refused_definition_leaves_the_registered_one_alone(
        self, orchestrator: LocalOrchestrator
    ) -> None:
        start(orchestrator, simple("kept"))
        with pytest.raises(OrchestratorRefused, match="TERMINATE"):
            orchestrator.register_workflow(
                workflow({"name": "x", "taskReferenceName": "stop", "type": "TERMINATE"})
            )
        assert brief(orchestrator, orchestrator.start_workflow("flow", input={})) == [
            ("kept", "SCHEDULED", 0)
        ]

    def test_one_wrong_taskdef_of_several_stops_all(self, orchestrator: LocalOrchestrator) -> None:
        with pytest.raises(OrchestratorRefused, match="retryCount"):
            orchestrator.register_taskdefs([{"name": "good"}, {"name": "bad", "retryCount": -1}])
        assert orchestrator.taskdef("good") is None

    def test_the_workflows_template_goes_below_an_input_that_is_not_empty(
        self, orchestrator: LocalOrchestrator
    ) -> None:
        step = simple("a", inputParameters={"all": "${workflow.input}"})
        start(orchestrator, step, inputTemplate={"x": 9, "y": 8})
        assert poll(orchestrator)[0].input == {"all": {"x": 1, "y": 8}}


class TestResults:
    def test_a_requeued_task_is_delivered_again_under_the_same_id(
        self, orchestrator: LocalOrchestrator
    ) -> None:
        workflow_id = start(orchestrator)
        (one,) = poll(orchestrator)
        orchestrator.requeue(one.attempt.task_id)
        (twin,) = poll(orchestrator)
        assert twin.attempt == one.attempt
        assert orchestrator.complete(twin.attempt, completed({"by": "twin"}), worker_id="other")
        assert not orchestrator.complete(one.attempt, completed({"by": "one"}), worker_id="me")
        assert orchestrator.workflow(workflow_id).output == {"by": "twin"}
        with pytest.raises(OrchestratorRefused, match="COMPLETED, not in progress"):
            orchestrator.requeue(one.attempt.task_id)

    def test_a_result_that_must_not_be_sent_is_refused(self, orchestrator: LocalOrchestrator) -> None:
        start(orchestrator)
        (one,) = poll(orchestrator)
        with pytest.raises(OrchestratorRefused, match="LOST_TO_TWIN"):
            orchestrator.complete(one.attempt, Outcome("LOST_TO_TWIN", send=False), worker_id="me")

    def test_an_output_that_is_not_json_is_refused_and_the_task_stays(
        self, orchestrator: LocalOrchestrator
    ) -> None:
        start(orchestrator)
        (one,) = poll(orchestrator)
        for bad in ({"x": object()}, {"x": float("nan")}):
            with pytest.raises(OrchestratorRefused, match="is not JSON"):
                orchestrator.complete(one.attempt, completed(bad), worker_id="me")
        assert orchestrator.current(one.attempt).status == "IN_PROGRESS"

    def test_a_terminated_workflow_takes_no_result(self, orchestrator: LocalOrchestrator) -> None:
        workflow_id = start(orchestrator)
        (one,) = poll(orchestrator)
        orchestrator.terminate_workflow(workflow_id, "changed my mind")
        assert not orchestrator.complete(one.attempt, completed({}), worker_id="me")
        state = orchestrator.workflow(workflow_id)
        assert (state.status, state.reason) == ("TERMINATED", "changed my mind")

    def test_no_timeout_applies_while_a_workflow_is_paused(
        self, orchestrator: LocalOrchestrator, clock: Clock
    ) -> None:
        workflow_id = start(orchestrator)
        (one,) = poll(orchestrator)
        orchestrator.pause_workflow(workflow_id)
        clock.now += 10**6

        assert orchestrator.current(one.attempt).status == "IN_PROGRESS"
        orchestrator.resume_workflow(workflow_id)

        assert orchestrator.current(one.attempt).status == "TIMED_OUT"

    def test_logs_read_back_and_keep_the_newest_lines(self, orchestrator: LocalOrchestrator) -> None:
        start(orchestrator)
        (one,) = poll(orchestrator)
        orchestrator.log(one.attempt, ["first", "é" * 5000])
        assert [len(line.text) for line in orchestrator.task_log(one.attempt.task_id)] == [5, 4096]
        orchestrator.log(one.attempt, [f"line {number}" for number in range(3000)])
        kept = [line.text for line in orchestrator.task_log(one.attempt.task_id)]
        assert (len(kept), kept[0], kept[-1]) == (2000, "line 1000", "line 2999")
        assert orchestrator.task_log("unknown") == []


class TestTheFile:
    def test_a_file_of_another_format_is_refused(self, path: Path) -> None:
        path.parent.mkdir()
        with closing(sqlite3.connect(path)) as file:
            file.execute("PRAGMA user_version=99")
        with pytest.raises(RuntimeConfigError, match="format 99"):
            LocalOrchestrator(path)

    def test_a_file_that_is_no_database_is_unavailable(self, path: Path) -> None:
        path.parent.mkdir()
        path.write_bytes(b"not a database, but long enough to be looked at" * 100)
        with pytest.raises(OrchestratorUnavailable, match="not a database"):
            LocalOrchestrator(path)

    def test_a_folder_that_cannot_be_made_is_an_operators_matter(self, tmp_path: Path) -> None:
        (tmp_path / "taken").write_text("a file")
        with pytest.raises(RuntimeConfigError, match="cannot create the folder"):
            LocalOrchestrator(tmp_path / "taken" / "orchestrator.db")

    def test_stored_values_are_plain_json(self, orchestrator: LocalOrchestrator, path: Path) -> None:
        start(orchestrator, simple("a", inputParameters={"é": "${workflow.input.x}"}))
        with closing(sqlite3.connect(path)) as file:
            assert json.loads(file.execute("SELECT input FROM task").fetchone()[0]) == {"é": 1}


class TestResume:
    def test_no_retry_count_ends_a_workflow_whose_process_died(
        self, orchestrator: LocalOrchestrator, clock: Clock
    ) -> None:
        orchestrator.register_taskdefs([{**TASKDEF, "retryCount": 0}])
        workflow_id = start(orchestrator)
        for retry_count in range(3):
            (held,) = poll(orchestrator)
            assert held.attempt.retry_count == retry_count
            orchestrator.take_over(workflow_id, "the process is gone")
        # At once, and not after the TaskDef's delay of ten seconds.
        assert len(poll(orchestrator)) == 1
        assert brief(orchestrator, workflow_id) == [
            *(("a", "TIMED_OUT", retry_count) for retry_count in range(3)),
            ("a", "IN_PROGRESS", 3),
        ]

    def test_a_workflow_that_is_taken_over_goes_by_the_taskdefs_of_now(
        self, orchestrator: LocalOrchestrator
    ) -> None:
        orchestrator.register_taskdefs([{**TASKDEF, "retryCount": 0, "retryDelaySeconds": 0}])
        workflow_id = start(orchestrator)
        (first,) = poll(orchestrator)
        orchestrator.complete(first.attempt, Outcome("FAILED", reason="x"), worker_id="me")
        orchestrator.register_taskdefs([{**TASKDEF, "retryCount": 3, "retryDelaySeconds": 0}])

        orchestrator.take_over(workflow_id, "the process is gone")
        orchestrator.retry_workflow(workflow_id)

        for _ in range(2):
            (again,) = poll(orchestrator)
            orchestrator.complete(again.attempt, Outcome("FAILED", reason="x"), worker_id="me")
        assert orchestrator.workflow(workflow_id).status == "RUNNING"
        (last,) = poll(orchestrator)
        assert last.attempt.retry_count == 3
        orchestrator.complete(last.attempt, Outcome("FAILED", reason="x"), worker_id="me")
        assert orchestrator.workflow(workflow_id).status == "FAILED"

    def test_resuming_by_hand_restarts_the_total_time(
        self, orchestrator: LocalOrchestrator, clock: Clock
    ) -> None:
        orchestrator.register_taskdefs([{**TASKDEF, "totalTimeoutSeconds": 100}])
        workflow_id = start(orchestrator)
        poll(orchestrator)
        clock.now += 101
        assert orchestrator.workflow(workflow_id).status == "TIMED_OUT"
        orchestrator.retry_workflow(workflow_id)
        clock.now += 99
        assert orchestrator.workflow(workflow_id).status == "RUNNING"
        clock.now += 2
        assert orchestrator.workflow(workflow_id).status == "TIMED_OUT"

    def test_a_switch_that_failed_is_evaluated_again_and_its_cases_are_not_passed_over(
        self, orchestrator: LocalOrchestrator
    ) -> None:
        broken = {
            "name": "switch",
            "taskReferenceName": "which",
            "type": "SWITCH",
            "evaluatorType": "javascript",
            "expression": "$.nothing.deep",
            "decisionCases": {"yes": [simple("a")]},
        }
        workflow_id = start(orchestrator, broken, simple("after"))
        orchestrator.retry_workflow(workflow_id)
        assert orchestrator.workflow(workflow_id).status == "FAILED"
        assert brief(orchestrator, workflow_id) == [("which", "FAILED", 0), ("which", "FAILED", 1)]

    def test_a_loop_whose_condition_failed_evaluates_it_again_as_the_same_task(
        self, orchestrator: LocalOrchestrator
    ) -> None:
        broken = {
            "name": "loop",
            "taskReferenceName": "loop",
            "type": "DO_WHILE",
            "loopCondition": "$.nothing.deep < 3",
            "loopOver": [simple("a")],
        }
        workflow_id = start(orchestrator, broken)
        (one,) = poll(orchestrator)
        orchestrator.complete(one.attempt, completed({}), worker_id="me")
        orchestrator.retry_workflow(workflow_id)
        assert brief(orchestrator, workflow_id) == [
            ("loop", "FAILED_WITH_TERMINAL_ERROR", 1),
            ("a__1", "COMPLETED", 0),
        ]

    def test_a_file_of_the_format_before_is_brought_up_to_date(self, path: Path, clock: Clock) -> None:
        with closing(opened(path, clock)) as orchestrator:
            orchestrator.register_taskdefs([TASKDEF])
            workflow_id = start(orchestrator)
        with closing(sqlite3.connect(path)) as connection:
            for column in ("retried_at", "branches"):
                connection.execute(f"ALTER TABLE run DROP COLUMN {column}")
            connection.execute("PRAGMA user_version=1")
            connection.commit()
        with closing(opened(path, clock)) as orchestrator:
            assert brief(orchestrator, workflow_id) == [("a", "SCHEDULED", 0)]
            assert len(poll(orchestrator)) == 1


class TestAttemptsOfOtherFiles:
    """Every run below a root has a file of its own, and a preflight asks about the step of another run."""

    @pytest.fixture
    def made(self, path: Path, clock: Clock) -> Attempt:
        with closing(opened(path, clock)) as other:
            other.register_taskdefs([TASKDEF])
            start(other, simple("a"))
            (one,) = poll(other)
            other.complete(one.attempt, completed({}), worker_id="me")
        return one.attempt

    def test_are_read_where_their_workflow_is(self, path: Path, clock: Clock, made: Attempt) -> None:
        asked: list[str] = []

        def file_of(workflow_id: str) -> Path:
            asked.append(workflow_id)
            return path

        own = path.with_name("own.db")
        with closing(LocalOrchestrator(own, clock=clock, sleep=clock.sleep, file_of=file_of)) as orchestrator:
            assert orchestrator.current(made).status == "COMPLETED"
        assert asked == [made.workflow_instance_id]

    @pytest.mark.parametrize("content", [None, "not a database" * 100])
    def test_are_unknown_if_that_file_is_gone_or_broken(
        self, path: Path, clock: Clock, made: Attempt, content: str | None
    ) -> None:
        path.unlink()
        if content is not None:
            path.write_text(content)
        own = path.with_name("own.db")
        with (
            closing(
                LocalOrchestrator(own, clock=clock, sleep=clock.sleep, file_of=lambda _: path)
            ) as orchestrator,
            pytest.raises(OrchestratorNotFound),
        ):
            orchestrator.current(made)

    def test_are_unknown_if_the_file_is_its_own(self, path: Path, clock: Clock, made: Attempt) -> None:
        with (
            closing(
                LocalOrchestrator(path, clock=clock, sleep=clock.sleep, file_of=lambda _: path)
            ) as orchestrator,
            pytest.raises(OrchestratorNotFound),
        ):
            orchestrator.current(replace(made, task_id="another"))
