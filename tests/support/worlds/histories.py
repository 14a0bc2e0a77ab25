"""Enumerated histories: worlds on a lake with a server's order, stops at critical calls, and the verdict."""

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
POLICIES = ["replace", "replace-signed", "supersede", "reuse"]

History = tuple[str, World, str]
"""A description, the world at the end, and the workflow's id."""


def writing(text: str) -> Callable[[Path, Any], Made]:
    """Return a body that publishes this text."""

    def body(workspace: Path, params: Any) -> Made:
        (workspace / "result.txt").write_text(text)
        return Made(said=text)

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


def _scheduled_backwards(value: Any) -> Any:
    return replace(value, scheduled_time=10**15 - value.scheduled_time)


def fresh_world(folder: Path, *, hard: bool = True, clock_goes_back: bool = False) -> World:
    """Return an embedded world in which a publish request can be in flight."""
    # Copied from a prepared world: creating its databases takes a quarter of a history's time.
    return copied_world(_prepared_world(folder.parent), folder, hard=hard, clock_goes_back=clock_goes_back)


def copied_world(made: Path, folder: Path, *, hard: bool = True, clock_goes_back: bool = False) -> World:
    """Return a copy of a closed world."""
    # Contents only: no history depends on the times or modes of files.
    shutil.copytree(made, folder, dirs_exist_ok=True, copy_function=shutil.copyfile)
    world = World(ServerOrder(LocalLake(folder / "lake"), hard=hard), "songs", folder)  # type: ignore[arg-type]
    if clock_goes_back:
        world.orchestrator = ClockGoesBack(world.orchestrator)  # type: ignore[assignment]
    return world


def close_world(world: World) -> None:
    """Close a world, so that it can be copied."""
    world.orchestrator.close()
    world.lake.close()


def _prepared_world(folder: Path) -> Path:
    """Return the folder of a world in which nothing has happened yet; the first history of a folder creates it."""
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
    """Return an execution that stops before every call."""
    return Gated(
        lambda lake, orchestrator: world.execute(
            definition, assignment, lake=lake, orchestrator=orchestrator, overlap=overlap
        ),
        world.lake,
        world.orchestrator,
    )


def advance(execution: Gated, stop: int | None) -> bool:
    """Run until critical call number `stop`, counted from 0, or to the end; returns whether it stopped there."""
    while not execution.ended:
        if execution.waiting in CRITICAL and stop is not None:
            if stop == 0:
                return True
            stop -= 1
        execution.grant("do")
    return False


def advance_to(execution: Gated, call: str) -> bool:
    """Run until the execution waits at that call; returns whether it got there."""
    while not execution.ended and execution.waiting != call:
        execution.grant("do")
    return not execution.ended


def violations(found: Iterable[History], definition: TaskDefinition) -> Iterator[str]:
    """Yield what is wrong at the end of each history: an output that is not on the branch, or an unfinished workflow."""
    for where, world, workflow in found:
        state = world.workflow(workflow)
        while state.running:
            # All executions are over: what is still open times out and is retried.
            world.execute(definition, world.retry(definition))
            state = world.workflow(workflow)
        if state.status != "COMPLETED":
            yield f"{where}: the workflow is {state.status}: {state.reason}"
        elif state.output["ref"] != world.head().id:
            yield f"{where}: the accepted output {state.output['ref']} is not the head"
        close_world(world)
