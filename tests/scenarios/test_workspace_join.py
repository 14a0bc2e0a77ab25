"""A step after a JOIN is given several workspaces, and works from the commit that holds all of them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perago.protocol import publication
from perago.protocol.metadata import INPUT_REF, KEY
from perago.runtime.execution_result import ExecutionResult, pending_result_of
from tests.support.faults.ports import Wrapped
from tests.support.worlds.concurrent_steps import TIMING, a_side, inside, outside, there_and_back
from tests.support.worlds.world import Made, World, make_task, published_ref


def look(workspace: Path, params: Any) -> Made:
    """Says which files it was given."""
    found = sorted(str(path.relative_to(workspace)) for path in workspace.rglob("*") if path.is_file())
    return Made(said=" ".join(one for one in found if "/out/" in one))


def collect(workspace: Path, params: Any) -> Made:
    made = look(workspace, params)
    (workspace / "joined.txt").write_text(made.said)
    return made


READER = make_task(look, name="look", retries=0, prefix="/", read_only=True)
WRITER = make_task(collect, name="collect", prefix="/")


@pytest.fixture(autouse=True)
def inputs(world: World) -> None:
    world.commit({"left/input.txt": "left 0", "right/input.txt": "right 0", "other.txt": "other"})


def workspaces(world: World, *refs: str, **other: str) -> list[dict[str, str]]:
    return [
        {"repository": world.repository, "branch": "main", "ref_type": "commit", "ref": ref, **other}
        for ref in refs
    ]


def join(world: World, *refs: str, task: Any = READER) -> ExecutionResult:
    return join_given(world, workspaces(world, *refs), task=task)


def join_given(world: World, given: Any, *, task: Any = READER) -> ExecutionResult:
    world.start_with(task, {"workspace": given, "params": {"text": "x"}})
    return world.execute(task, world.poll(task), timing=TIMING)


def two_sides(world: World) -> tuple[str, str]:
    """Two steps from one commit, published one on top of the other."""
    left, right = a_side(world, "left"), a_side(world, "right")
    return published_ref(left.execute()), published_ref(right.execute())


def refused(settled: ExecutionResult) -> str:
    assert settled.outcome.status == "FAILED", settled.outcome
    assert settled.outcome.reason is not None
    assert "\n" not in settled.outcome.reason
    return settled.outcome.reason


def said(settled: ExecutionResult) -> str:
    assert settled.outcome.output is not None, settled.outcome
    return str(settled.outcome.output["result"]["said"])


class TestTheLastOneIsWorkedFrom:
    @pytest.mark.parametrize("turned", [False, True])
    def test_a_joined_step_sees_what_both_have_published_in_whichever_order_they_are_sent(
        self, world: World, turned: bool
    ) -> None:
        first, last = two_sides(world)
        joined = join(world, *((last, first) if turned else (first, last)))
        assert published_ref(joined) == last
        left, right = said(joined).split()
        assert (left.startswith("left/out/part-"), right.startswith("right/out/part-")) == (True, True)

    def test_a_joined_writer_publishes_one_workspace_on_the_last_one(self, world: World) -> None:
        first, last = two_sides(world)
        made = published_ref(join(world, first, last, task=WRITER))
        head = world.head()
        assert (head.id, head.parents, head.metadata[INPUT_REF]) == (made, (last,), last)
        assert len(world.files()["joined.txt"].split()) == 2
        assert world.leftovers() == []

    def test_three_are_joined_and_the_first_may_be_the_input_of_all(self, world: World) -> None:
        a = world.head().id
        first, last = two_sides(world)
        outside(world)
        assert published_ref(join(world, a, last, first)) == last

    def test_equal_refs_and_a_list_of_one_are_that_one(self, world: World) -> None:
        a = world.head().id
        assert published_ref(join(world, a)) == a
        assert published_ref(join(world, a, a[:12], a)) == a

    def test_the_output_is_spelled_like_the_one_that_was_chosen(self, world: World) -> None:
        first, last = two_sides(world)
        camel = {"repository": world.repository, "branch": "main", "refType": "commit", "ref": last}
        joined = join_given(world, [*workspaces(world, first), camel])
        assert joined.outcome.output is not None
        assert joined.outcome.output["workspace"] == camel

    def test_a_result_that_keeps_its_input_speaks_of_no_publication(self, world: World) -> None:
        """Else its delivery would wait for a head that it did not make."""
        refs = two_sides(world)
        world.start_with(READER, {"workspace": workspaces(world, *refs), "params": {"text": "x"}})
        assignment = world.poll(READER)
        settled = world.execute(READER, assignment)
        assert pending_result_of("one", assignment, settled).publication is None

    def test_reuse_answers_for_the_same_join(self, world: World) -> None:
        task = make_task(collect, name="collect", prefix="/", on_abandoned="reuse")
        first, last = two_sides(world)
        world.start_with(task, {"workspace": workspaces(world, first, last), "params": {"text": "x"}})
        world.execute(task, world.poll(task), orchestrator=_deaf(world))
        made = world.head()
        retried = world.execute(task, world.retry(task))
        assert (published_ref(retried), world.head().id) == (made.id, made.id)


class TestWorkspacesThatNoCommitHolds:
    def test_a_workspace_of_another_history_is_named(self, world: World) -> None:
        first, last = two_sides(world)
        world.lake.create_branch(world.repository, "aside", first, hidden=False)
        odd = world.commit({"other.txt": "aside"}, branch="aside")
        for order in itertools.permutations([first, last, odd]):
            reason = refused(join(world, *order))
            assert f"workspace[{order.index(odd)}].ref {odd}" in reason
            assert f"workspace[{order.index(last)}].ref {last}" in reason

    def test_a_workspace_too_far_back_is_refused(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("perago.protocol.workspace_join.MAX_RANGE", 3)
        monkeypatch.setattr("perago.runtime.attempt.workspace_join.MAX_RANGE", 3)
        assert publication.MAX_RANGE == 1024
        refs = [world.head().id]
        for _ in range(4):
            outside(world)
            refs.append(world.head().id)
        assert published_ref(join(world, refs[1], refs[4])) == refs[4]
        reason = refused(join(world, refs[0], refs[4]))
        assert "is not among the first-parent ancestors of" in reason
        assert f"workspace[0].ref {refs[0]}" in reason
        assert f"workspace[1].ref {refs[4]}" in reason

    def test_a_ref_that_is_a_branch_is_named_with_its_place(self, world: World) -> None:
        given = workspaces(world, world.head().id, "main")
        assert "workspace[1].ref 'main' is a branch" in refused(join_given(world, given))


class TestWorkThatWasChangedMeanwhile:
    def test_a_commit_over_what_a_step_has_written_refuses_and_is_named(self, world: World) -> None:
        left, right = a_side(world, "left"), a_side(world, "right")
        first = published_ref(left.execute())
        outside(world)
        inside(world)
        culprit = world.head().id
        outside(world)
        last = published_ref(right.execute())
        reason = refused(join(world, first, last))
        assert f"workspace[0].ref {first} cannot be joined with workspace[1].ref {last}" in reason
        assert f"{culprit} (not made by Perago: 'by hand') changed 'left/input.txt'" in reason

    def test_a_change_that_was_taken_back_and_one_elsewhere_refuse_nothing(self, world: World) -> None:
        left, right = a_side(world, "left"), a_side(world, "right")
        first = published_ref(left.execute())
        outside(world)
        there_and_back(world)
        assert published_ref(join(world, first, published_ref(right.execute()))) == world.head().id

    def test_a_commit_that_is_no_publication_has_nothing_to_protect(self, world: World) -> None:
        imported, right = world.head().id, a_side(world, "right")
        inside(world)
        last = published_ref(right.execute())
        assert published_ref(join(world, imported, last)) == last

    @pytest.mark.parametrize("own", [True, False])
    def test_a_step_of_this_workflow_may_change_what_it_was_given(self, world: World, own: bool) -> None:
        """The same commit of another workflow refuses."""
        first = published_ref(a_side(world, "left").execute())
        mine = world.start_with(READER, {"workspace": [], "params": {"text": "x"}})
        world.poll(READER)
        key = f"{mine}/later" if own else "another/later"
        last = world.commit({"left/out/more": "x"}, metadata={KEY: key, INPUT_REF: first})
        assert _joined_by(world, mine, first, last) == ("COMPLETED" if own else "FAILED")

    def test_a_step_of_this_workflow_that_started_before_it_may_not(self, world: World) -> None:
        before = world.head().id
        first = published_ref(a_side(world, "left").execute())
        mine = world.start_with(READER, {"workspace": [], "params": {"text": "x"}})
        world.poll(READER)
        last = world.commit({"left/out/more": "x"}, metadata={KEY: f"{mine}/beside", INPUT_REF: before})
        assert _joined_by(world, mine, first, last) == "FAILED"


class TestUnsendableResults:
    def test_an_empty_list(self, world: World) -> None:
        assert "workspace is an empty list; send one workspace" in refused(join_given(world, []))

    @pytest.mark.parametrize("field", ["repository", "branch"])
    def test_workspaces_of_two_branches_or_repositories(self, world: World, field: str) -> None:
        a = world.head().id
        given = [*workspaces(world, a), *workspaces(world, a, **{field: "elsewhere"})]
        reason = refused(join_given(world, given))
        assert f"workspace[1].{field} is not that of workspace[0]" in reason

    @pytest.mark.parametrize("odd", [None, "main", 7, []])
    def test_an_element_that_is_no_workspace(self, world: World, odd: object) -> None:
        given = [*workspaces(world, world.head().id), odd]
        assert "workspace[1] must be an object" in refused(join_given(world, given))


def _joined_by(world: World, workflow_id: str, *refs: str) -> str:
    """Return the result of a step of the same workflow that joins these."""
    world.start_with(READER, {"workspace": workspaces(world, *refs), "params": {"text": "x"}})
    assignment = world.poll(READER)
    attempt = replace(assignment.attempt, workflow_instance_id=workflow_id)
    return world.execute(READER, replace(assignment, attempt=attempt)).outcome.status


def _deaf(world: World) -> Any:
    """An orchestrator that never hears of the result."""

    def around(name: str, call: Any, arguments: Sequence[Any]) -> Any:
        return None if name == "complete" else call(*arguments)

    return Wrapped(world.orchestrator, around)
