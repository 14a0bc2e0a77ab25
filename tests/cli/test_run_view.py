"""The progress of a workflow without a terminal, and its summary at the end."""

from __future__ import annotations

from dataclasses import replace

import pytest

from perago.cli.run_view import Viewer, summary
from perago.orchestrator.base import TaskState, WorkflowState
from perago.protocol.attempt import Attempt
from perago.protocol.attempt_record import AttemptRecord, record_line
from perago.runtime.observe.events import Event
from perago.runtime.runs.inspect import LoggedAttempt
from tests.support.worlds.clock import Clock

ATTEMPT = Attempt("wf", "t1", "clean", "clean_events", retry_count=0, seq=1, iteration=0)
TASK = TaskState("clean", "clean_events", "SIMPLE", "t1", "IN_PROGRESS", 0, 0, 1, started=10.0)
FAILED = replace(TASK, status="FAILED", reason="ValueError: one\ntwo", ended=11.5)
RETRY = replace(
    TASK, task_id="t2", retry_count=1, seq=2, status="SCHEDULED", started=None, reason=FAILED.reason
)


def state(*tasks: TaskState, status: str = "RUNNING", reason: str | None = None) -> WorkflowState:
    return WorkflowState("wf", status, reason, {"rows": None}, tasks, name="flow", started=10.0, ended=15.0)


class TestWhileRunning:
    def test_an_attempts_reason_is_shown_when_another_follows_and_once(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with Viewer(silent=False) as viewer:
            for one in (state(TASK), state(FAILED), state(FAILED, RETRY), state(FAILED, RETRY)):
                viewer.show(one)
        out, err = capsys.readouterr()
        assert out == ""
        assert err == (
            "clean: IN_PROGRESS\n"
            "clean: FAILED after 1.5 s\n"
            "clean: FAILED after 1.5 s: ValueError: one\ntwo; retry 1 now\n"
            "clean (retry 1): SCHEDULED\n"
        )

    def test_a_body_is_heard_as_it_is_and_records_are_not_for_people(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with Viewer(silent=False) as viewer:
            viewer.on_event(Event("printed", ATTEMPT, text="[red]hello"))
            viewer.on_event(Event("printed", ATTEMPT, text=record_line(AttemptRecord("e", "COMPLETED"))))
            viewer.on_event(Event("died", ATTEMPT, step="body", text="signal 9"))
        assert capsys.readouterr().err == (
            "clean | [red]hello\nthe executor of clean at step 'body' died: signal 9\n"
        )

    @pytest.mark.parametrize(("verbose", "count"), [(False, 3), (True, 4)])
    def test_stacks_of_a_jvm_are_folded_by_attempt_unless_asked_for(
        self, capsys: pytest.CaptureFixture[str], verbose: bool, count: int
    ) -> None:
        other = replace(ATTEMPT, task_id="t9", reference_task_name="load")
        with Viewer(silent=False, verbose=verbose) as viewer:
            for attempt, text in (
                (ATTEMPT, "\tat a.B.c(B.java:1)"),
                (other, "loading"),
                (ATTEMPT, "\tat a.B.d(B.java:2)"),
                (ATTEMPT, "java.lang.Error: x"),
            ):
                viewer.on_event(Event("printed", attempt, text=text))
        lines = capsys.readouterr().err.splitlines()
        assert len(lines) == count
        assert ("--verbose shows it" in lines[0], lines[1]) == (not verbose, "load | loading")

    @pytest.mark.parametrize(
        ("seconds", "told"), [(2.34, ["clean: Spark session ready after 2.3 s"]), (0.04, [])]
    )
    def test_the_wait_for_a_spark_session_is_shown_with_its_seconds(
        self, capsys: pytest.CaptureFixture[str], seconds: float, told: list[str]
    ) -> None:
        clock = Clock(0.0)
        with Viewer(silent=False, clock=clock) as viewer:
            for step in ("download", "session", "session", "pre checks", "body"):
                viewer.on_event(Event("step", ATTEMPT, step=step))
                clock.sleep(seconds / 2)
        assert capsys.readouterr().err.splitlines() == told

    def test_a_spark_session_that_did_not_start_is_not_called_ready(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        clock = Clock(0.0)
        with Viewer(silent=False, clock=clock) as viewer:
            for step in ("download", "session", "verify", "hand over"):
                viewer.on_event(Event("step", ATTEMPT, step=step))
                clock.sleep(4.0)
        assert capsys.readouterr().err.splitlines() == ["clean: no Spark session after 4.0 s"]

    def test_quiet_keeps_bodies_out_and_silent_all(self, capsys: pytest.CaptureFixture[str]) -> None:
        for viewer in (Viewer(silent=False, prints=False), Viewer(silent=True)):
            with viewer:
                viewer.on_event(Event("printed", ATTEMPT, text="hello"))
                viewer.show(state(TASK))
        assert capsys.readouterr().err == "clean: IN_PROGRESS\n"


class TestAtTheEnd:
    def test_a_reason_is_said_for_the_step_and_not_again_for_the_workflow(self) -> None:
        last = replace(FAILED, task_id="t2", retry_count=1, seq=2)
        why = "Task t2 failed with status: FAILED and reason: 'ValueError: one\ntwo'"
        ended = state(FAILED, last, status="FAILED", reason=why)
        lines = [line for line, _ in summary(ended, [LoggedAttempt(FAILED), LoggedAttempt(last)])]
        assert lines == [
            "clean  FAILED        2 attempts     3.0 s",
            "       ValueError: one",
            "       two",
            "workflow flow: FAILED in 5.0 s",
        ]

    def test_a_reason_that_no_step_gives_is_the_workflows(self) -> None:
        done = replace(TASK, status="COMPLETED", ended=11.0)
        ended = state(done, status="TIMED_OUT", reason="the workflow took too long")
        lines = [line for line, _ in summary(ended, [LoggedAttempt(done)])]
        assert lines[-2:] == ["workflow flow: TIMED_OUT in 5.0 s", "  the workflow took too long"]

    def test_a_publication_is_shown_with_its_number_of_files(self) -> None:
        workspace = {"repository": "songs", "branch": "main", "ref": "abc"}
        done = replace(TASK, status="COMPLETED", ended=11.0, output={"workspace": workspace})
        attempt = LoggedAttempt(done, records=[AttemptRecord("e", "COMPLETED", changed=2)])
        first, *_ = [line for line, _ in summary(state(done, status="COMPLETED"), [attempt])]
        assert first == "clean  COMPLETED     1 attempt      1.0 s  songs main abc (2 put, 0 removed)"
