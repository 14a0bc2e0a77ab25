"""A pre-merge action that people put on the branch: publications pass it by merge, and never by moving the branch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import LakefsServer
from tests.support.worlds.lakefs_world import a_world, fence
from tests.support.worlds.world import World, abandon, change_nothing, make_task, published_ref

GATE = "_lakefs_actions/audit"
SCRIPT = 'if action.commit.metadata["audited"] ~= "no" then return end error("the audit says no")'
HOOK = f"hooks: [{{id: audit, type: lua, properties: {{script: '{SCRIPT}'}}}}]\n"


@pytest.fixture
def world(lakefs_server: LakefsServer, lakefs_repository: str, tmp_path: Path) -> Iterator[World]:
    with a_world(lakefs_server, lakefs_repository, tmp_path) as made:
        yield made


def gate(branches: str) -> dict[str, str]:
    return {GATE: f"name: audit\non: {{pre-merge: {{branches: [{branches}]}}}}\n{HOOK}"}


@pytest.mark.parametrize("body", [None, change_nothing])
def test_an_abandoned_publication_stays_where_a_gate_guards_the_branch(world: World, body: object) -> None:
    world.commit(gate("main, release"))
    definition = make_task()
    world.start(definition)
    abandoned = abandon(world, definition)
    again = make_task(body or definition.fn)  # type: ignore[arg-type]
    settled = world.execute(again, world.retry(again))
    reason = settled.outcome.reason or ""
    assert settled.refused
    assert GATE in reason
    assert 'on_abandoned="supersede"' in reason
    assert (world.head().id, world.replaced(), world.leftovers()) == (abandoned, [], [])


def test_a_commit_that_brings_a_gate_is_not_taken_off_the_branch_with_it(world: World) -> None:
    definition = make_task()
    world.start(definition)
    assignment, theirs = world.poll(definition), world.commit(gate("main"))
    settled = world.execute(definition, assignment)
    assert settled.refused
    assert GATE in (settled.outcome.reason or "")
    assert world.head().id == theirs


def test_supersede_publishes_through_the_gate(world: World) -> None:
    world.commit(gate("main"))
    definition = make_task(on_abandoned="supersede")
    world.start(definition)
    abandoned = abandon(world, definition)

    def body(workspace: Path, params: object) -> object:
        (workspace / "more.txt").write_text("more")
        return change_nothing(workspace, params)  # type: ignore[arg-type]

    second = make_task(body, on_abandoned="supersede")  # type: ignore[arg-type]
    ref = published_ref(world.execute(second, world.retry(second)))
    assert world.history()[:2] == [ref, abandoned]


def test_the_fence_and_actions_for_other_branches_are_no_gates(world: World) -> None:
    world.commit(gate("'release-*'"))
    fence(world)
    definition = make_task()
    world.start(definition)
    abandoned = abandon(world, definition)
    ref = published_ref(world.execute(definition, world.retry(definition)))
    assert (world.head().id, world.replaced()) == (ref, [abandoned])


@pytest.mark.parametrize("branches", ["main", "'ma*'", "'[^a-l]ain'", "'release-*'", "'[a-l]ain'", ""])
def test_every_action_that_the_server_runs_counts_as_a_gate(
    world: World, lakefs_server: LakefsServer, branches: str
) -> None:
    head = world.commit(gate(branches))
    world.lake.create_branch(world.repository, "side", head)
    world.commit({"data/new.txt": "new"}, branch="side")
    path = f"/repositories/{world.repository}/refs/side/merge/main"
    lakefs_server.call("POST", path, {"message": "by hand"})
    ran = lakefs_server.call("GET", f"/repositories/{world.repository}/actions/runs?branch=main")["results"]
    assert bool(world.lake.gates(world.repository, head, "main")) == bool(ran)
