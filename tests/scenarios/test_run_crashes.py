"""Open and publish, killed at every call, and two executions of them interleaved at every pair of calls.

Whatever happens, the workflow ends, readers of the target see either nothing or all of the run, and the run is published
once.  The calls are counted, not picked.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from perago.declare.run_steps import OPEN, PUBLISH
from perago.declare.task import TaskDefinition
from perago.lake.local.lake import LocalLake
from perago.protocol.signing import is_in_place
from perago.runtime.attempt.context import Submit
from tests.scenarios.test_crashes import Countdown, count_calls, die_in_a_child
from tests.support.faults.gates import ORDERS
from tests.support.worlds.histories import advance, close_world, gated
from tests.support.worlds.run_world import RunWorld, opening, publishing, running, writing
from tests.support.worlds.server_order import ServerOrder
from tests.support.worlds.world import World

ONE, TWO = writing("one"), writing("two")
MADE = {"data/one.txt": "made", "data/two.txt": "made"}
GIVEN = {"data/input.txt": "in"}


class Beginning:
    """A world in which a run is about to open or to publish: made once and closed, then copied."""

    def __init__(
        self, folder: Path, step: TaskDefinition, prepare: Callable[[World, RunWorld], None]
    ) -> None:
        self._made = folder / "made-before"
        lake = LocalLake(self._made / "lake")
        lake.create_repository("songs")
        world = World(lake, "songs", self._made)
        world.commit(GIVEN)
        runs = RunWorld.of(world, [ONE, TWO])
        steps = [opening(), running(ONE), running(TWO, "one"), publishing("two")]
        self.workflow = runs.start(steps)
        self.origin = world.head().id
        if step is PUBLISH:
            for task in (OPEN, ONE, TWO):
                assert runs.execute(runs.poll(task)).outcome.status == "COMPLETED"
        prepare(world, runs)
        close_world(world)

    def copy(self, folder: Path, *, hard: bool | None = None) -> World:
        shutil.copytree(self._made, folder, copy_function=shutil.copyfile)
        lake = LocalLake(folder / "lake")
        return World(lake if hard is None else ServerOrder(lake, hard=hard), "songs", folder)  # type: ignore[arg-type]

    def violations(self, world: World) -> Iterator[str]:
        """Drive the workflow to its end, and yield what is wrong with what readers can see."""
        runs = RunWorld(world, {one.name: one for one in (OPEN, ONE, TWO, PUBLISH)})
        state = world.workflow(self.workflow)
        while state.running:
            world.orchestrator.time_out_in_progress("the worker is dead")
            attempt = runs.next()
            if attempt is None:
                yield "nothing is left to poll, and the workflow runs"
                return
            runs.execute(attempt)
            state = world.workflow(self.workflow)
        commits = list(world.lake.log("songs", "main", 20))
        new = commits[: [one.id for one in commits].index(self.origin)]
        if state.status != "COMPLETED":
            yield f"the workflow is {state.status}: {state.reason}"
        elif state.output["ref"] != new[0].id:
            yield f"the accepted output {state.output['ref']} is not the head"
        elif len(new) != 1 or not is_in_place(new[0]):
            yield f"the run was published {len(new)} times"
        if world.files() != GIVEN | MADE:
            yield f"main has {sorted(world.files())}"


def unprepared(world: World, runs: RunWorld) -> None:
    pass


def published_by_a_dead_attempt(world: World, runs: RunWorld) -> None:
    runs.die_before_completing(runs.poll(PUBLISH))
    world.orchestrator.time_out_in_progress("the worker is dead")


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("step", "prepare"),
    [(OPEN, unprepared), (PUBLISH, unprepared), (PUBLISH, published_by_a_dead_attempt)],
    ids=["open", "publish", "publish again"],
)
def test_a_worker_may_die_at_any_call(
    tmp_path: Path, step: TaskDefinition, prepare: Callable[[World, RunWorld], None], order: str
) -> None:
    beginning = Beginning(tmp_path, step, prepare)
    world = beginning.copy(tmp_path / "counted")
    calls = count_calls(world, step, ORDERS[order])
    close_world(world)

    found = []
    for number, when in itertools.product(range(len(calls)), ("before", "after")):
        world = beginning.copy(tmp_path / f"{number}-{when}")
        die_in_a_child(world, step, Countdown(number, when), ORDERS[order])
        found += [f"{when} {calls[number]} ({number}): {text}" for text in beginning.violations(world)]
        close_world(world)

    assert len(calls) > 5
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("twins", [True, False], ids=["twins", "a dead attempt and its retry"])
@pytest.mark.parametrize("hard", [True, False], ids=["hard", "soft"])
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("step", [OPEN, PUBLISH], ids=["open", "publish"])
def test_no_way_to_interleave_two_executions_shows_a_part_of_a_run(
    tmp_path: Path, step: TaskDefinition, order: str, hard: bool, twins: bool
) -> None:
    beginning = Beginning(tmp_path, step, unprepared)
    found = list(interleaved(beginning, tmp_path, step, ORDERS[order], hard=hard, twins=twins))
    assert found == []


def interleaved(
    beginning: Beginning, folder: Path, step: TaskDefinition, overlap: Submit, *, hard: bool, twins: bool
) -> Iterator[str]:
    """Yield the violations in every world that two executions with two switches between them can end in."""
    for i in itertools.count():
        first_stopped = True
        for j in itertools.count():
            world = beginning.copy(folder / f"{i}-{j}", hard=hard)
            assignment = world.poll(step)
            one = gated(world, step, assignment, overlap)
            first_stopped = advance(one, i)
            if not twins and world.orchestrator.current(assignment.attempt).status != "IN_PROGRESS":
                close_world(world)
                break  # the first attempt is accepted by now, so there is no retry
            two = gated(world, step, assignment if twins else world.retry(step), overlap)
            second_stopped = advance(two, j)
            advance(one, None)
            advance(two, None)
            for text in beginning.violations(world):
                yield f"first stopped at its critical call {i}, second at {j}: {text}"
            close_world(world)
            shutil.rmtree(folder / f"{i}-{j}")
            if not second_stopped:
                break
        if not first_stopped:
            break
