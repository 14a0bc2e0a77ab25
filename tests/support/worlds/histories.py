"""What enumerated histories share: worlds on a lake with a server's order, stops at critical calls, and the verdict."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from perago.declare.task import TaskDefinition
from perago.lake.local.lake import LocalLake
from perago.orchestrator.base import Assignment
from perago.runtime.attempt.context import Submit, run_inline
from tests.support.faults.gates import SWAP, Gated
from tests.support.worlds.server_order import ServerOrder
from tests.support.worlds.world import Made, World, change_nothing

CRITICAL = frozenset(
    {
        "create_branch",
        "head",
        "current",
        "commit",
        "merge",
        "relocate",
        SWAP,
        "barrier",
        "create_tag",
        "complete",
        "drop_branch",
    }
)
POLICIES = ["replace", "supersede", "reuse"]

History = tuple[str, World, str]
"""What happened, the world it ended in, and the workflow's id."""


def writing(said: str) -> Callable[[Path, Any], Made]:
    """A body that publishes what it says."""

    def body(workspace: Path, params: Any) -> Made:
        (workspace / "result.txt").write_text(said)
        return Made(said=said)

    return body


BODIES = {"changing": writing("by the second"), "no-op": change_nothing}


class ClockGoesBack:
    """An orchestrator whose wall clock goes back: each task is scheduled before the one that it follows."""

    def __init__(self, orchestrator: Any) -> None:
        self._orchestrator = orchestrator

    def __getattr__(self, name: str) -> Any:
        return getattr(self._orchestrator, name)

    def poll(self, *given: Any, **named: Any) -> list[Assignment]:
        polled = self._orchestrator.poll(*given, **named)
        return [replace(one, attempt=_scheduled_backwards(one.attempt)) for one in polled]

    def current(self, attempt: Any) -> Any:
        return _scheduled_backwards(self._orchestrator.current(attempt))


def _scheduled_backwards(told: Any) -> Any:
    return replace(told, scheduled_time=10**15 - told.scheduled_time)


def fresh_world(folder: Path, *, hard: bool = True, clock_goes_back: bool = False) -> World:
    """An embedded world in which a publish request can be in flight."""
    # A copy of one that was made before: making its databases takes a quarter of a history's time.
    return copied_world(_made_before(folder.parent), folder, hard=hard, clock_goes_back=clock_goes_back)


def copied_world(made: Path, folder: Path, *, hard: bool = True, clock_goes_back: bool = False) -> World:
    """A world like another one, which is closed."""
    # The bytes only: no history goes by the times or the modes of files.
    shutil.copytree(made, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
    world = World(ServerOrder(LocalLake(folder / "lake"), hard=hard), "songs", folder)  # type: ignore[arg-type]
    if clock_goes_back:
        world.orchestrator = ClockGoesBack(world.orchestrator)  # type: ignore[assignment]
    return world


def close_world(world: World) -> None:
    """End a world, so that it can be copied."""
    world.orchestrator.close()
    world.lake.close()


def _made_before(folder: Path) -> Path:
    """A world in which nothing has happened yet, made for the first history of a folder."""
    made = folder / "made-before"
    if not made.exists():
        lake = LocalLake(made / "lake")
        lake.create_repository("songs")
        world = World(lake, "songs", made)
        world.commit({"data/input.txt": "in"})
        close_world(world)
    return made


def gated(
    world: World, definition: TaskDefinition, assignment: Assignment, overlap: Submit = run_inline
) -> Gated:
    """An execution that stops before every call."""
    return Gated(
        lambda lake, orchestrator: world.execute(
            definition, assignment, lake=lake, orchestrator=orchestrator, overlap=overlap
        ),
        world.lake,
        world.orchestrator,
    )


def advance(execution: Gated, stop: int | None) -> bool:
    """Let it go on to its critical call of that number, counted from 0, or to its end; whether it came to a stop."""
    while not execution.ended:
        if execution.waiting in CRITICAL and stop is not None:
            if stop == 0:
                return True
            stop -= 1
        execution.grant("do")
    return False


def advance_to(execution: Gated, call: str) -> bool:
    """Let it go on until it waits at that call; whether it came there."""
    while not execution.ended and execution.waiting != call:
        execution.grant("do")
    return not execution.ended


def violations(found: Iterable[History], definition: TaskDefinition) -> Iterator[str]:
    """What is wrong with each end: an output that is not on the branch, or a workflow that cannot end."""
    for where, world, workflow in found:
        state = world.workflow(workflow)
        while state.running:
            # All executions are over: whatever is still open times out and is retried.
            world.execute(definition, world.retry(definition))
            state = world.workflow(workflow)
        if state.status != "COMPLETED":
            yield f"{where}: the workflow is {state.status}: {state.reason}"
        elif state.output["ref"] != world.head().id:
            yield f"{where}: the accepted output {state.output['ref']} is not the head"
        close_world(world)
