"""The test kit for task authors: real runs of tasks and workflows on the embedded servers, in one process::

    from perago.testing import crash, try_task

    def test_clean():
        trial = try_task(clean_plays, {"raw/monday.csv": "So What,545\\n"}, params={"min_seconds": 30})
        assert trial.status == "COMPLETED"
        assert trial.files["clean/plays.csv"] == b"So What,545\\n"

    def test_a_crash_is_survived():
        trial = try_task(clean_plays, FILES, faults={"hand over": crash()}, retries=1)
        assert [attempt.status for attempt in trial.attempts] == ["TIMED_OUT", "COMPLETED"]

Input validation, checks, staging, fences, publication and retries all work as in production, except that retries do not
wait.  The pytest fixtures `perago_lake`, `perago_worker` and `perago_spark` come with Perago.
"""

from perago.errors import TrialError
from perago.testing.environment import Clock
from perago.testing.faults import STEPS, Crashed, advance_head, crash, goes_stale, head_moves, lose_lease
from perago.testing.lake import TrialLake
from perago.testing.results import Changes, Trial, TrialAttempt, TrialCommit, TrialStep, WorkflowTrial
from perago.testing.trial import try_task, try_workflow
from perago.testing.worker import TrialWorker

__all__ = [
    "STEPS",
    "Changes",
    "Clock",
    "Crashed",
    "Trial",
    "TrialAttempt",
    "TrialCommit",
    "TrialError",
    "TrialLake",
    "TrialStep",
    "TrialWorker",
    "WorkflowTrial",
    "advance_head",
    "crash",
    "goes_stale",
    "head_moves",
    "lose_lease",
    "try_task",
    "try_workflow",
]
