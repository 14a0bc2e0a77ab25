"""Run branches, their marker, and the commits that belong to a run."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import yaml

from perago.protocol.attempt import Attempt
from perago.protocol.names import (
    is_run_branch,
    is_run_branch_of,
    published_tag_name,
    run_branch_name,
    run_branch_workflow,
)
from perago.protocol.publication import Commit, Workspace
from perago.protocol.run_steps import (
    MARKER_PATH,
    MARKER_TEXT,
    MOST_STEPS,
    REFUSAL,
    RUN_KEY,
    UNPUBLISHED,
    foreign_commit,
    is_run_marker,
    marker_commit,
    may_merge_marked,
    origin_of,
    steps_text,
)
from perago.protocol.signing import RunSummary, Signature, author_of, maker_of

WORKFLOW = "4df9afe8-9f5b-436a-bc8c-b3ab1be69a09"
OPENING = Attempt(
    WORKFLOW, "task-1", "open", "perago_open", 0, 1, 0, scheduled_time=1000, workflow_name="plays"
)
MARKED = Commit(
    "M",
    ("A",),
    metadata={
        "perago.logical_task_key": RUN_KEY,
        "perago.input_ref": "A",
        "perago.task_id": OPENING.task_id,
        "perago.scheduled_time": str(OPENING.scheduled_time),
    },
)


def made(number: int, step: str = "clean", workflow: str = WORKFLOW) -> Commit:
    return Commit(f"c{number}", (), metadata={"perago.logical_task_key": f"{workflow}/{step}"})


class TestNames:
    def test_a_run_branch_names_its_workflow_and_is_the_attempts_own(self) -> None:
        name = run_branch_name(OPENING)
        other_task = Attempt(WORKFLOW, "task-2", "open", "perago_open", 1, 1, 0, scheduled_time=1000)
        rerun = Attempt(WORKFLOW, "task-1", "open", "perago_open", 0, 1, 0, scheduled_time=2000)

        assert name.startswith(f"perago-run-{WORKFLOW}-")
        assert len({name, run_branch_name(other_task), run_branch_name(rerun)}) == 3
        assert is_run_branch(name)
        assert run_branch_workflow(name) == WORKFLOW
        assert is_run_branch_of(name, WORKFLOW)
        assert not is_run_branch_of(name, "another")

    def test_a_workflow_that_no_branch_name_can_hold_becomes_a_slug(self) -> None:
        odd = Attempt("wf/of ü", "task-1", "open", "perago_open", 0, 1, 0)
        assert is_run_branch_of(run_branch_name(odd), "wf/of ü")

    @pytest.mark.parametrize(
        "name", ["main", "perago-run-", "perago-run-wf", "perago-staging-x", "my-perago-run-x"]
    )
    def test_other_names_are_no_run_branches(self, name: str) -> None:
        assert not is_run_branch(name)
        assert run_branch_workflow(name) is None

    def test_the_tag_of_a_published_run_names_workflow_and_commit(self) -> None:
        assert published_tag_name(WORKFLOW, "0123456789abcdef") == f"perago-published-{WORKFLOW}-0123456789ab"


class TestMarker:
    def test_it_is_an_action_that_refuses_merges_into_all_but_run_branches(self) -> None:
        action = yaml.load(MARKER_TEXT, Loader=yaml.BaseLoader)
        assert action["on"] == {"pre-merge": ""}
        [hook] = action["hooks"]
        script = hook["properties"]["script"]
        assert 'action.branch_id:sub(1, 11) ~= "perago-run-"' in script
        assert REFUSAL in script
        assert UNPUBLISHED in REFUSAL
        assert '"' not in REFUSAL
        assert may_merge_marked(run_branch_name(OPENING))
        assert not may_merge_marked("main")

    def test_only_the_exact_marker_on_a_run_branch_is_no_gate(self) -> None:
        branch, text = run_branch_name(OPENING), MARKER_TEXT.encode()
        assert is_run_marker(MARKER_PATH, text, branch)
        assert not is_run_marker(MARKER_PATH, text + b"#", branch)
        assert not is_run_marker("_lakefs_actions/other.yaml", text, branch)
        assert not is_run_marker(MARKER_PATH, text, "main")


class TestCommits:
    def test_the_marked_commit_says_where_the_run_started(self) -> None:
        branch = run_branch_name(OPENING)
        assert marker_commit([made(2), made(1), MARKED], branch) is MARKED
        assert marker_commit([made(1)], branch) is None
        assert origin_of(MARKED) == "A"
        assert origin_of(replace(MARKED, parents=("B",))) == ""
        assert author_of(MARKED) == "perago run"
        assert maker_of(MARKED) is None

    def test_the_marked_commit_of_another_run_is_not_that_of_a_branch(self) -> None:
        # Somebody has moved the target to a commit of an earlier run, so its history contains that run's marker.
        later = replace(OPENING, scheduled_time=OPENING.scheduled_time + 1)
        assert marker_commit([MARKED], run_branch_name(later)) is None
        assert marker_commit([MARKED], "main") is None

    @pytest.mark.parametrize(
        "foreign",
        [
            Commit("x", ()),
            made(9, workflow="other"),
            Commit("x", (), metadata={"perago.logical_task_key": "perago-put"}),
        ],
    )
    def test_the_newest_commit_of_somebody_else_is_found(self, foreign: Commit) -> None:
        ours = [made(2), made(1, workflow="sub-workflow")]
        assert foreign_commit(ours, {WORKFLOW, "sub-workflow"}) is None
        assert foreign_commit([ours[0], foreign, ours[1]], {WORKFLOW, "sub-workflow"}) is foreign

    def test_the_steps_are_listed_oldest_first_and_only_the_newest_of_too_many(self) -> None:
        assert json.loads(steps_text([made(2, "count"), made(1)])) == [["clean", "c1"], ["count", "c2"]]
        many = [made(number) for number in range(MOST_STEPS + 5)]
        assert json.loads(steps_text(many))[-1] == ["clean", "c0"]
        assert len(json.loads(steps_text(many))) == MOST_STEPS


class TestMessage:
    @pytest.mark.parametrize(
        ("steps", "end"),
        [
            ([made(2, "count"), made(1)], "run plays (workflow wf): clean c1, count c2"),
            ([made(number) for number in range(12)], "clean c3, clean c2 and 2 more"),
        ],
    )
    def test_it_names_the_run_and_its_first_steps(self, steps: list[Commit], end: str) -> None:
        publish = Attempt("wf", "task-9", "publish", "perago_publish", 0, 1, 0, workflow_name="plays")
        summary = RunSummary("R", steps_text(steps))
        signature = Signature(publish, "e1", Workspace("songs", "main", "A", ""), "digest", summary)
        assert signature.message("publishes").startswith(
            "perago: publishes the run plays (workflow wf): clean "
        )
        assert signature.message("publishes").endswith(end)
        assert signature.identity().keys() == {
            "perago.task_id",
            "perago.retry_count",
            "perago.scheduled_time",
            "perago.execution_id",
        }

    def test_a_run_of_an_unnamed_workflow_is_named_by_its_id(self) -> None:
        publish = Attempt("wf", "task-9", "publish", "perago_publish", 0, 1, 0)
        text = RunSummary("R", "[]").message(publish, "stages")
        assert text == "perago: stages the run (workflow wf): "
