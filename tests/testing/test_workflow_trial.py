"""`try_workflow`, as the author of a pipeline uses it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perago import PublishFenceError
from perago.testing import Clock, TrialError, TrialWorker, advance_head, crash, lose_lease, try_workflow
from tests.support.tasks.workflows import loop, simple, switch, workflow
from tests.testing import tasks
from tests.testing.tasks import Params, counting, make, plain

PLAIN = Path(__file__).parents[2] / "examples" / "plain"


def step(
    reference: str, task: str, workspace: str = "${workflow.input.workspace}", **params: Any
) -> dict[str, Any]:
    return simple(reference, name=task, inputParameters={"workspace": workspace, "params": params})


ONE = workflow(step("count", "count"), outputParameters={"length": "${count.output.result.length}"})
DATA = {"data/in.txt": "in"}


def test_a_workflow_file_runs_on_a_folder_of_data() -> None:
    trial = try_workflow(PLAIN / "workflow.json", str(PLAIN / "tasks.py"), PLAIN / "data")

    assert (trial.status, trial.reason) == ("COMPLETED", None)
    assert list(trial.steps) == ["clean", "count", "audit"]
    assert trial.steps["clean"].result == {"kept": trial.output["kept"], "dropped": 3}
    assert trial.output["ref"] == trial.history[0].id
    assert [commit.by for commit in trial.history] == ["count", "clean", ""]
    assert "clean/plays.csv" in trial.files


def test_a_definition_may_be_a_dict_and_tasks_a_module() -> None:
    definition = workflow(
        step("make", "make", text="!"), step("count", "make", "${make.output.workspace}", text="?")
    )

    trial = try_workflow(definition, tasks, {"data/in.txt": "in", "other.txt": b"\x00"})

    assert trial.status == "COMPLETED"
    assert trial.files == {"data/in.txt": b"in", "data/out.txt": b"in?", "other.txt": b"\x00"}


def test_the_input_reaches_the_steps() -> None:
    definition = workflow(
        simple("one", name="plain", inputParameters={"params": {"text": "${workflow.input.word}"}})
    )

    assert try_workflow(definition, [plain], input={"word": "seven!!"}).steps["one"].result == {"length": 7}


def test_retries_are_honoured_and_cost_no_time() -> None:
    clock = Clock()
    began = clock.now

    trial = try_workflow(ONE, [counting(fails=2, delay=3600)], DATA, clock=clock)

    assert (trial.status, trial.output) == ("COMPLETED", {"length": 3})
    assert [attempt.status for attempt in trial.steps["count"].attempts] == ["FAILED", "FAILED", "COMPLETED"]
    assert trial.log == trial.steps["count"].log == ("run 1", "run 2", "run 3")
    assert clock.now - began == 7200


def test_a_workflow_in_python_is_taken_as_an_object_and_by_its_name(tmp_path: Path) -> None:
    from perago.workflow import INPUT_WORKSPACE, new_workflow
    from perago.workflow import step as typed_step

    counted = counting()
    count = typed_step(counted, "count", workspace=INPUT_WORKSPACE, params=Params())
    made = new_workflow("counting", owner_email="a@b.c")
    made >> count
    (tmp_path / "flows.py").write_text(
        "from perago.workflow import new_workflow\nempty = new_workflow('empty')\n"
    )

    assert try_workflow(made, [counted], DATA).steps["count"].status == "COMPLETED"
    with pytest.raises(TrialError, match="the workflow has no steps"):
        try_workflow(f"{tmp_path}/flows.py:empty", [counted], DATA)


def test_a_step_without_retries_left_fails_the_workflow() -> None:
    trial = try_workflow(ONE, [counting(fails=9, retries=1)], DATA)

    assert (trial.status, trial.steps["count"].status, len(trial.steps["count"].attempts)) == (
        "FAILED",
        "FAILED",
        2,
    )
    assert "run 2 fails" in (trial.reason or "")
    assert str(trial.steps["count"].error) == "run 2 fails"
    assert trial.steps["count"].result is None
    assert trial.files == {"data/in.txt": b"in"}


@pytest.mark.parametrize(
    ("word", "taken", "not_taken"), [("long", "big", "small"), ("short", "small", "big")]
)
def test_only_the_branch_of_a_switch_that_is_taken_runs(word: str, taken: str, not_taken: str) -> None:
    params = {"params": {"text": word}}
    which = switch(
        "which",
        expression="word",
        inputParameters={"word": "${workflow.input.word}"},
        decisionCases={"long": [simple("big", name="plain", inputParameters=params)]},
        defaultCase=[simple("small", name="plain", inputParameters=params)],
    )

    trial = try_workflow(workflow(which), plain, input={"word": word})

    assert taken in trial.steps
    assert not_taken not in trial.steps


def test_every_iteration_of_a_loop_is_a_step() -> None:
    twice = loop("again", simple("turn", name="plain", inputParameters={"params": {"text": "ab"}}))

    trial = try_workflow(workflow(twice), plain, faults={"turn__2": {"body": crash()}})

    assert list(trial.steps) == ["turn__1", "turn__2"]
    assert [len(one.attempts) for one in trial.steps.values()] == [1, 2]


def test_a_crash_in_one_step_is_made_good_by_its_retry() -> None:
    definition = workflow(step("count", "count"), step("make", "make", "${count.output.workspace}"))

    trial = try_workflow(
        definition, [counting("reuse"), make], DATA, faults={"count": {"hand over": crash()}}
    )

    assert trial.status == "COMPLETED"
    assert [attempt.status for attempt in trial.steps["count"].attempts] == ["TIMED_OUT", "COMPLETED"]
    assert trial.log == ("run 1",)
    assert [commit.by for commit in trial.history] == ["make", "count", ""]


def test_a_commit_replaced_by_a_retry_is_shown() -> None:
    trial = try_workflow(ONE, counting("replace"), DATA, faults={"count": {"hand over": lose_lease()}})

    assert [commit.by for commit in trial.replaced] == ["count"]
    assert trial.files["data/out.txt"] == b"of run 2"


@pytest.mark.parametrize("faults", [{}, {"open": {"stage": crash()}, "publish": {"publish": crash()}}])
def test_a_whole_run_is_opened_and_published(faults: dict[str, Any]) -> None:
    definition = workflow(
        step("open", "perago_open"),
        step("make", "make", "${open.output.workspace}", text="!"),
        step("publish", "perago_publish", "${make.output.workspace}", origin="${open.output.origin}"),
    )

    trial = try_workflow(definition, tasks, {"data/in.txt": "in"}, faults=faults)

    assert (trial.status, trial.reason) == ("COMPLETED", None)
    assert trial.files == {"data/in.txt": b"in", "data/out.txt": b"in!"}
    assert [commit.by for commit in trial.history] == ["publish", ""]


def test_a_foreign_commit_ends_a_workflow_whose_step_may_not_cover_it() -> None:
    faults = {"count": {"publish": advance_head("x.csv", by="other")}}

    trial = try_workflow(ONE, counting(retries=1), DATA, faults=faults)

    assert trial.status == "FAILED"
    assert isinstance(trial.steps["count"].error, PublishFenceError)
    assert trial.history[0].by == "other"


def test_only_the_tasks_that_a_workflow_uses_are_checked() -> None:
    # The module holds Spark tasks of other workflows, say: nothing is imported for them.
    assert try_workflow(ONE, [counting(), tasks], DATA).status == "COMPLETED"


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no workflow": (
        {"workflow": 3},
        "workflow is int; give a dict, the path of a JSON file, or a workflow in Python",
    ),
    "no such file": ({"workflow": "no-such.json"}, "the workflow file no-such.json cannot be read"),
    "no name": ({"workflow": {"tasks": []}}, 'the workflow has no name; add "name"'),
    "no tasks": ({"tasks": []}, "tasks is empty"),
    "an unknown task": (
        {"tasks": [plain]},
        "step 'count' runs the task 'count', which no given module declares",
    ),
    "two of one name": ({"tasks": [counting(), counting()]}, "two of the tasks are called 'count'"),
    "a module without tasks": ({"tasks": json}, "module 'json' declares no task"),
    "data that is none": ({"data": 3}, "data is int; give a dict of contents by path"),
    "no such folder": (
        {"data": "no-such-folder"},
        "data: cannot import no-such-folder: there is no such folder",
    ),
    "an unknown step": (
        {"faults": {"cuont": {}}},
        "has no such step that runs a task; did you mean 'count'?",
    ),
    "an unknown step of an attempt": (
        {"faults": {"count": {"bdy": 1}}},
        "faults['count']['bdy']: an attempt has no such step",
    ),
    "faults not by step": ({"faults": [crash()]}, "faults is list; give a dict such as"),
    "what never happens": (
        {"faults": {"count__2": {"body": crash()}}},
        "of 'count__2', because the attempt never came",
    ),
}


@pytest.mark.parametrize("error", WRONG)
def test_wrong_use_is_told_in_one_line(error: str) -> None:
    given, expected = WRONG[error]

    with pytest.raises(TrialError) as told:
        try_workflow(**{"workflow": ONE, "tasks": [counting()], "data": DATA, **given})

    assert expected in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_is_not_json_is_told(tmp_path: Path) -> None:
    (tmp_path / "flow.json").write_text("{")
    with pytest.raises(TrialError, match=r"flow\.json is not JSON"):
        try_workflow(tmp_path / "flow.json", [plain])


def test_a_workflow_that_never_ends_is_given_up(perago_worker: TrialWorker) -> None:
    turn = simple("turn", name="plain", inputParameters={"params": {}})
    endless = workflow(loop("again", turn, loopCondition="true"))

    with pytest.raises(TrialError, match="does not end: 50 attempts have run, the last of step 'turn__50'"):
        perago_worker.try_workflow(endless, plain, most_attempts=50)
