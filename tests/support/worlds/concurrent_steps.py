"""Two workflow steps that publish to one branch: worlds, events between their calls, and the verdict at the end.

The verdict reads the branch as a person would, commit by commit and file by file, and shares no code with the protocol.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from perago.declare.task import TaskDefinition
from perago.lake.base import Commit
from perago.orchestrator.base import Assignment
from perago.protocol.metadata import KEY, TASK_ID
from perago.protocol.outcome import Outcome
from perago.runtime.attempt.publish_retry import Timing
from tests.support.faults.gates import Gated
from tests.support.worlds.histories import fresh_world
from tests.support.worlds.world import Made, World, make_task

TIMING = Timing(clock=lambda: 0.0, sleep=lambda _seconds: None)
_parts = itertools.count(1)


def body(workspace: Path, params: Any) -> Made:
    """Write a file that no other execution writes, from what the step reads."""
    name = f"part-{next(_parts)}"
    (workspace / "out").mkdir(exist_ok=True)
    (workspace / "out" / name).write_text(f"from {(workspace / 'input.txt').read_text()}")
    return Made(said=name)


def no_change(workspace: Path, params: Any) -> Made:
    """Change nothing."""
    return Made(said="")


@dataclass(slots=True)
class Side:
    """One step: its task, its workflow, and its current attempt."""

    world: World
    task: TaskDefinition
    prefix: str
    workflow: str
    current: Assignment
    gates: list[Gated] = field(default_factory=list)

    @property
    def key(self) -> str:
        return f"{self.workflow}/step"

    def gated(self, task: TaskDefinition | None = None) -> Gated:
        """Return an execution of the current attempt that stops before every call."""
        given, assignment = task or self.task, self.current

        def run(lake: Any, orchestrator: Any) -> object:
            return self.world.execute(given, assignment, lake=lake, orchestrator=orchestrator, timing=TIMING)

        self.gates.append(Gated(run, self.world.lake, self.world.orchestrator))
        return self.gates[-1]

    def execute(self) -> Any:
        return self.world.execute(self.task, self.current, timing=TIMING)

    def retry(self) -> bool:
        """Fail the current attempt, as if its worker had died; returns whether another attempt follows."""
        dead = Outcome("FAILED", reason="the worker is dead")
        self.world.orchestrator.complete(self.current.attempt, dead, worker_id="tests")
        polled = self.world.orchestrator.poll(self.task.name, worker_id="tests", count=1, wait_seconds=0)
        if polled:
            self.current = polled[0]
        return bool(polled)


def a_task(name: str, *, policy: str = "supersede", made: Any = body, **spec: Any) -> TaskDefinition:
    """Return the task of a step that works below /<name> and publishes on top of others' commits."""
    said = {"prefix": f"/{name}", "on_abandoned": policy, "on_advanced": "rebase", **spec}
    return make_task(made, name=f"make_{name}", retries=6, **said)


def a_side(world: World, name: str, *, policy: str = "supersede", made: Any = body, **spec: Any) -> Side:
    """Start and poll a step that works below /<name>, or below `sees`."""
    sees = spec.pop("sees", name)
    task = a_task(name, policy=policy, made=made, **{"prefix": f"/{sees}", **spec})
    workflow = world.start(task)
    return Side(world, task, f"{sees}/", workflow, world.poll(task))


def a_world(folder: Path, *, hard: bool = True) -> World:
    world = fresh_world(folder, hard=hard)
    world.commit({"left/input.txt": "left 0", "right/input.txt": "right 0", "other.txt": "other"})
    return world


# --- the verdict -------------------------------------------------------------------------------------------------


def finish(side: Side) -> None:
    """Run the rest of the step's retries on a healthy worker, after all executions are over."""
    while side.world.workflow(side.workflow).running:
        if not side.retry():
            break
        side.execute()


def violations(world: World, *sides: Side, a: str, may_fail: bool = False) -> Iterator[str]:
    """Yield a sentence for everything that is wrong with the branch or with an accepted result."""
    chain = list(world.lake.log(world.repository, "main", 1000))[::-1]
    chain = chain[[commit.id for commit in chain].index(a) :]
    for one, two in itertools.pairwise(chain):
        if two.parents != (one.id,):
            yield f"{two.id} has parents {two.parents}: history is not one line"
    for side in sides:
        yield from _published(world, side, chain)
        yield from _accepted(world, side, chain, may_fail=may_fail)


def _published(world: World, side: Side, chain: list[Commit]) -> Iterator[str]:
    """Check that each publication builds on what the step saw, changes only its own files, and is its attempt's only one."""
    seen, tasks = below(world, chain[0].id, side.prefix), set()
    for parent, commit in itertools.pairwise(chain):
        if commit.metadata.get(KEY) != side.key:
            continue
        if below(world, parent.id, side.prefix) != seen:
            yield f"{side.prefix}: {commit.id} was published over a change by others"
        before, after = world.files(parent.id), world.files(commit.id)
        touched = [path for path in before.keys() | after.keys() if before.get(path) != after.get(path)]
        if any(not path.startswith(side.prefix) for path in touched):
            yield f"{side.prefix}: {commit.id} changed {touched}"
        if commit.metadata[TASK_ID] in tasks:
            yield f"{side.prefix}: one attempt has published twice"
        tasks.add(commit.metadata[TASK_ID])
        seen = below(world, commit.id, side.prefix)


def _accepted(world: World, side: Side, chain: list[Commit], *, may_fail: bool) -> Iterator[str]:
    """Check that the accepted result is on the branch, comes from one attempt, and was not overwritten by another."""
    state = world.workflow(side.workflow)
    if state.status != "COMPLETED":
        if not may_fail:
            yield f"{side.prefix}: the workflow is {state.status}: {state.reason}"
        return
    ids = [commit.id for commit in chain]
    ref, said = state.output["ref"], state.tasks[-1].output["result"]["said"]
    if ref not in ids:
        yield f"{side.prefix}: the accepted {ref} is not on the branch"
        return
    files = below(world, ref, side.prefix)
    parts = {path: text for path, text in files.items() if path.startswith(f"{side.prefix}out/")}
    wanted = {f"{side.prefix}out/{said}": f"from {files[side.prefix + 'input.txt']}"} if said else {}
    if parts != wanted:
        yield f"{side.prefix}: accepted {wanted}, and {ref} holds {parts}"
    later = [commit.id for commit in chain[ids.index(ref) + 1 :] if commit.metadata.get(KEY) == side.key]
    if later:
        yield f"{side.prefix}: {later} came after the accepted {ref}"


def below(world: World, ref: str, prefix: str) -> Mapping[str, str]:
    """Return the files of a folder at a ref."""
    return {path: text for path, text in world.files(ref).items() if path.startswith(prefix)}


# --- events -----------------------------------------------------------------------------------------------------

Event = Callable[[World], None]


def outside(world: World) -> None:
    """Commit a file that no step reads."""
    world.commit({"other.txt": f"other {next(_parts)}"})


def inside(world: World) -> None:
    """Change what the left step reads."""
    world.commit({"left/input.txt": f"left {next(_parts)}"})


def there_and_back(world: World) -> None:
    """Change what the left step reads, and revert it."""
    was = world.files()["left/input.txt"]
    world.commit({"left/input.txt": "for a moment"})
    world.commit({"left/input.txt": was})


def takes_ours_back(world: World) -> None:
    """Remove what the left step has published."""
    ours = [path for path in world.files() if path.startswith("left/out/")]
    if ours:
        world.commit(dict.fromkeys(ours))


def a_barrier(world: World) -> None:
    """Send a barrier, as a retry of another step does: the record is renewed, the head is the same."""
    world.lake.barrier(world.repository, "main", 1)


EVENTS: dict[str, Event] = {
    "a commit elsewhere": outside,
    "a change of the view": inside,
    "a change and its revert": there_and_back,
    "a revert of ours": takes_ours_back,
    "a barrier": a_barrier,
}
CHANGES_THE_VIEW = {"a change of the view", "a revert of ours"}
