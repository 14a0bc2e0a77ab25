"""The decider on its own: a run, what happened, and what it makes of it; no file, no clock."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from perago.orchestrator.base import NO_LIMITS, RetryLimits
from perago.orchestrator.local.decider import decide, end_run, run_deadline
from perago.orchestrator.local.parse import read_workflow
from perago.orchestrator.local.state import Env, Run, Task
from perago.orchestrator.local.taskdef import TaskRules
from tests.support.tasks.workflows import fork, join, loop, simple, switch, workflow

RULES = TaskRules("work", retry_count=1, retry_delay_seconds=10, response_timeout_seconds=30)


class Play:
    """A run with a clock and ids that the test can foresee."""

    def __init__(
        self,
        source: Mapping[str, Any],
        rules: TaskRules = RULES,
        limits: RetryLimits = NO_LIMITS,
        **values: Any,
    ) -> None:
        self.now = 1000.0
        self.limits = limits
        self.useless = ""
        self.ids = count(1)
        self.run = Run("w1", read_workflow(source), {"work": rules}, dict(values), self.now)
        self.decide()

    @property
    def env(self) -> Env:
        return Env(self.now, lambda: f"t{next(self.ids)}", lambda: 0.0, self.limits, self.useless)

    def decide(self) -> None:
        decide(self.run, self.env)

    def take(self, reference: str) -> Task:
        task = self.run.latest(reference)
        assert task is not None
        assert task.status == "SCHEDULED"
        task.status, task.started, task.updated = "IN_PROGRESS", self.now, self.now
        return task

    def finish(
        self, reference: str, status: str = "COMPLETED", reason: str | None = None, **output: Any
    ) -> None:
        task = self.take(reference)
        task.output, task.reason = output, reason
        task.end(status, self.now)
        self.decide()

    def brief(self) -> list[tuple[str, str, int]]:
        return [(task.reference, task.status, task.retry_count) for task in self.run.tasks]


@pytest.mark.parametrize(("longest", "delay"), [(None, 10), (1.0, 1), (3600.0, 10)])
def test_a_retry_waits_as_declared_or_as_long_as_the_limits_allow(
    longest: float | None, delay: float
) -> None:
    play = Play(workflow(simple("a")), limits=RetryLimits(longest))
    play.finish("a", "FAILED", "broken")
    retry = play.run.latest("a")
    assert retry is not None
    assert (retry.retry_count, retry.available) == (1, play.now + delay)


@pytest.mark.parametrize("status", ["FAILED", "TIMED_OUT"])
def test_a_run_without_retries_ends_with_its_first_failure(status: str) -> None:
    play = Play(workflow(simple("a")), limits=RetryLimits(no_retries=True))
    play.finish("a", status, "broken")
    assert (play.brief(), play.run.status) == ([("a", status, 0)], status)


def test_a_failure_that_every_retry_would_repeat_is_not_retried() -> None:
    play = Play(workflow(simple("a")))
    play.useless = "t1"
    play.finish("a", "FAILED", "refused")
    assert (play.brief(), play.run.status) == ([("a", "FAILED", 0)], "FAILED")


def test_an_optional_step_that_would_only_be_refused_again_does_not_end_the_run() -> None:
    play = Play(workflow(simple("a", optional=True), simple("b")))
    play.useless = "t1"
    play.finish("a", "FAILED", "refused")
    assert play.brief() == [("a", "COMPLETED_WITH_ERRORS", 0), ("b", "SCHEDULED", 0)]


def test_a_new_run_schedules_its_first_step() -> None:
    play = Play(workflow(simple("a"), simple("b")))
    assert play.brief() == [("a", "SCHEDULED", 0)]
    assert play.run.status == "RUNNING"


def test_deciding_again_changes_nothing() -> None:
    play = Play(workflow(fork("f", [simple("a")], [simple("b")]), join("j", "a", "b"), simple("z")))
    play.finish("a")
    before = play.brief()
    for task in play.run.tasks:
        task.changed = False
    play.decide()
    assert play.brief() == before
    assert not any(task.changed for task in play.run.tasks)


def test_a_finished_run_is_left_alone() -> None:
    play = Play(workflow(simple("a")))
    play.finish("a", n=1)
    assert (play.run.status, play.run.output) == ("COMPLETED", {"n": 1})
    end = play.run.ended
    play.now += 100
    play.decide()
    assert play.run.ended == end


def test_a_retry_is_a_new_task_due_after_the_delay_and_numbered_on() -> None:
    play = Play(
        workflow(simple("a", inputParameters={"id": "${CPEWF_TASK_ID}", "x": "${workflow.input.x}"})), x=1
    )
    play.finish("a", "FAILED", "boom")
    first, second = play.run.tasks
    assert play.brief() == [("a", "FAILED", 0), ("a", "SCHEDULED", 1)]
    assert (first.retried, second.retried) == (True, False)
    assert (first.seq, second.seq) == (1, 2)
    assert second.available == play.now + 10
    assert second.first_scheduled == first.first_scheduled
    assert second.reason == "boom"
    assert second.input == {"id": second.id, "x": 1}
    assert second.id != first.id


def test_the_steps_own_retry_count_goes_over_the_taskdefs() -> None:
    play = Play(workflow(simple("a", retryCount=2)))
    for _ in range(2):
        play.finish("a", "FAILED", "again")
    assert play.run.status == "RUNNING"
    play.finish("a", "FAILED", "last")
    assert play.run.status == "FAILED"


@pytest.mark.parametrize(
    ("status", "workflow_status"),
    [("FAILED", "FAILED"), ("TIMED_OUT", "TIMED_OUT"), ("CANCELED", "TERMINATED")],
)
def test_the_last_attempts_outcome_decides_the_workflows_outcome(status: str, workflow_status: str) -> None:
    play = Play(workflow(simple("a", retryCount=0), simple("b")))
    play.finish("a", status, "why")
    assert play.run.status == workflow_status
    assert play.run.reason == f"Task t1 failed with status: {workflow_status} and reason: 'why'"


def test_a_lease_that_runs_out_is_a_time_out_and_a_retry() -> None:
    play = Play(workflow(simple("a")))
    play.take("a")
    play.now += 29.9
    play.decide()
    assert play.brief() == [("a", "IN_PROGRESS", 0)]
    play.now += 0.1
    play.decide()
    assert play.brief() == [("a", "TIMED_OUT", 0), ("a", "SCHEDULED", 1)]


def test_a_time_out_that_ends_the_workflow_cancels_the_rest() -> None:
    rules = TaskRules("work", timeout_seconds=5, response_timeout_seconds=5, timeout_policy="TIME_OUT_WF")
    play = Play(workflow(fork("f", [simple("a")], [simple("b")]), join("j", "a", "b")), rules)
    play.take("a")
    play.now += 6
    play.decide()
    assert play.run.status == "TIMED_OUT"
    assert play.brief() == [
        ("f", "COMPLETED", 0),
        ("a", "TIMED_OUT", 0),
        ("b", "CANCELED", 0),
        ("j", "CANCELED", 0),
    ]


def test_no_retry_follows_once_the_total_time_is_up() -> None:
    rules = TaskRules(
        "work", retry_count=9, retry_delay_seconds=0, total_timeout_seconds=20, timeout_policy="RETRY"
    )
    play = Play(workflow(simple("a")), rules)
    play.now += 12
    play.finish("a", "FAILED", "slow")
    assert play.run.status == "RUNNING"
    play.now += 8
    play.finish("a", "FAILED", "slower")
    assert play.run.status == "FAILED"
    assert "exceeded total timeout of 20 seconds (elapsed 20 seconds" in str(play.run.reason)


def test_the_workflow_itself_can_run_out_of_time() -> None:
    play = Play(workflow(simple("a"), simple("b"), timeoutSeconds=60, timeoutPolicy="TIME_OUT_WF"))
    assert run_deadline(play.run) == 1060
    play.finish("a")
    play.now += 60
    play.decide()
    assert play.run.status == "TIMED_OUT"
    assert str(play.run.reason).startswith("Workflow timed out after 60 seconds.")
    assert play.brief() == [("a", "COMPLETED", 0), ("b", "CANCELED", 0)]


def test_a_workflow_that_only_alerts_has_no_deadline() -> None:
    play = Play(workflow(simple("a"), timeoutSeconds=60, timeoutPolicy="ALERT_ONLY"))
    assert run_deadline(play.run) is None
    play.now += 600
    play.decide()
    assert play.run.status == "RUNNING"


def test_a_failed_branch_cancels_its_siblings_and_keeps_what_was_joined() -> None:
    play = Play(workflow(fork("f", [simple("a")], [simple("b")], [simple("c")]), join("j", "a", "b", "c")))
    play.finish("a", n=1)
    play.finish("b", "FAILED_WITH_TERMINAL_ERROR", "broke")
    assert play.run.status == "FAILED"
    assert play.brief() == [
        ("f", "COMPLETED", 0),
        ("a", "COMPLETED", 0),
        ("b", "FAILED_WITH_TERMINAL_ERROR", 0),
        ("c", "CANCELED", 0),
        ("j", "CANCELED", 0),
    ]
    joined = play.run.latest("j")
    assert joined is not None
    assert joined.output == {"a": {"n": 1}}


def test_an_optional_step_that_is_last_keeps_its_own_status_as_on_conductor() -> None:
    play = Play(workflow(simple("a", optional=True)))
    play.finish("a", "FAILED_WITH_TERMINAL_ERROR", "never mind")
    assert play.run.status == "COMPLETED"
    assert play.brief() == [("a", "FAILED_WITH_TERMINAL_ERROR", 0)]


def test_a_loop_starts_over_with_fresh_references() -> None:
    play = Play(workflow(loop("l", switch("s", inputParameters={"x": "a"}), simple("b"))))
    play.finish("s_a__1")
    play.finish("b__1")
    assert play.brief() == [
        ("l", "IN_PROGRESS", 0),
        ("s__1", "COMPLETED", 0),
        ("s_a__1", "COMPLETED", 0),
        ("b__1", "COMPLETED", 0),
        ("s__2", "COMPLETED", 0),
        ("s_a__2", "SCHEDULED", 0),
    ]
    assert [task.iteration for task in play.run.tasks] == [2, 1, 1, 1, 2, 2]


def test_a_start_delay_holds_the_task_back() -> None:
    play = Play(workflow(simple("a", startDelay=7)))
    assert play.run.tasks[0].available == play.now + 7


def test_the_templates_of_the_taskdef_fill_what_is_missing_or_null() -> None:
    rules = TaskRules("work", input_template={"x": "tx", "y": "${workflow.input.k}", "z": "tz"})
    play = Play(workflow(simple("a", inputParameters={"x": "${workflow.input.none}", "z": 1})), rules, k=5)
    assert play.run.tasks[0].input == {"x": "tx", "y": 5, "z": 1}


def test_ending_a_run_cancels_what_is_not_over() -> None:
    play = Play(workflow(simple("a"), simple("b"), outputParameters={"n": "${a.output.n}"}))
    play.finish("a", n=4)
    end_run(play.run, "TERMINATED", "stopped by hand", play.env)
    assert (play.run.status, play.run.reason, play.run.output) == ("TERMINATED", "stopped by hand", {"n": 4})
    assert play.brief() == [("a", "COMPLETED", 0), ("b", "CANCELED", 0)]
