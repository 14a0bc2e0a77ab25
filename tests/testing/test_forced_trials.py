"""`force` and `full` of a trial: a body runs though nothing has changed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import BaseModel

from perago import WorkspaceSpec, changes, task
from perago.testing import Trial, TrialError, TrialWorker
from perago.testing.environment import open_environment
from tests.support.tasks.workflows import simple, workflow


class Nothing(BaseModel):
    pass


class Seen(BaseModel):
    added: int


@task(
    name="collect",
    owner_email="a@example.com",
    version="1",
    skip_unchanged=True,
    workspace=WorkspaceSpec(reads=("raw",), writes=("out",)),
)
def collect(workspace: Path, params: Nothing) -> Seen:
    print("the body runs")
    (workspace / "out").mkdir(exist_ok=True)
    (workspace / "out/made").write_text("made")
    return Seen(added=len(changes(workspace, "raw").added))


FLOW = workflow(
    simple("one", name="collect", inputParameters={"workspace": "${workflow.input.workspace}", "params": {}})
)


@pytest.fixture
def worker() -> Iterator[TrialWorker]:
    with open_environment() as environment:
        made = TrialWorker(environment)
        made.lake.create({"raw/a": "1", "raw/b": "1"})
        assert ran(made.try_task(collect), 2)
        yield made


def ran(trial: Trial, added: int) -> bool:
    """Return whether the body ran; either way its result says how many files it saw as added."""
    assert trial.result == {"added": added}
    return "the body runs" in trial.log


def test_an_unchanged_task_is_skipped_unless_it_is_forced(worker: TrialWorker) -> None:
    assert not ran(worker.try_task(collect), 2)
    assert ran(worker.try_task(collect, force=True), 0)
    assert ran(worker.try_task(collect, full=True), 2)


def test_a_step_of_a_workflow_is_forced_by_its_name(worker: TrialWorker) -> None:
    assert "the body runs" not in worker.try_workflow(FLOW, collect).log
    assert "the body runs" in worker.try_workflow(FLOW, collect, force=["one"]).log
    assert worker.try_workflow(FLOW, collect, full=True).steps["one"].result == {"added": 2}


@pytest.mark.parametrize(
    ("force", "message"),
    [(["noe"], "did you mean 'one'"), ("one", r"give a list of steps, such as \['one'\]")],
)
def test_a_step_that_is_not_there_is_refused(
    worker: TrialWorker, force: list[str] | str, message: str
) -> None:
    with pytest.raises(TrialError, match=message):
        worker.try_workflow(FLOW, collect, force=force)
