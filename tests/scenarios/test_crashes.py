"""A worker that dies before or after every single call to either port.

The calls are counted, not picked: a first run tells how many there are, then one world is made for each of them.
The worker is a child process that leaves by `os._exit`, so not one `finally` runs.  The retry then has to find
its way from whatever was left behind.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from perago.declare.task import TaskDefinition
from perago.lake.local.lake import LocalLake
from perago.runtime.attempt.context import Submit, run_inline
from perago.runtime.sweep.workdirs import sweep_workdirs
from tests.support.faults.gates import ORDERS
from tests.support.faults.ports import Wrapped
from tests.support.worlds.histories import close_world
from tests.support.worlds.world import World, change_nothing, make_task, published_ref, write_result

DIED = 86
POLICIES = ["replace", "replace-signed", "supersede", "reuse"]


class Countdown:
    """Counts the calls of both ports together and ends the process at one of them."""

    def __init__(self, at: int | None, when: str) -> None:
        self.calls: list[str] = []
        self._at = at
        self._when = when

    def __call__(self, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        number = len(self.calls)
        self.calls.append(name)
        if number == self._at and self._when == "before":
            os._exit(DIED)
        try:
            answer = call(*arguments)
        except Exception:
            if number == self._at:
                os._exit(DIED)
            raise
        if number == self._at:
            # An iterator has only been made so far: the call is over when it has been read.
            list(answer) if isinstance(answer, Iterator) else None
            os._exit(DIED)
        return answer


@dataclass(frozen=True, slots=True)
class Beginning:
    """A world that every crash of a test begins in: made once and closed, then copied."""

    folder: Path
    a: str
    files: dict[str, str]

    def copied(self, folder: Path) -> World:
        shutil.copytree(self.folder, folder)
        return World(LocalLake(folder / "lake"), "songs", folder)


def begin(folder: Path, prepare: Callable[[World], None]) -> Beginning:
    lake = LocalLake(folder / "lake")
    lake.create_repository("songs")
    world = World(lake, "songs", folder)
    world.commit({"data/input.txt": "in", "data/drop.txt": "drop me", "other.txt": "other"})
    made = Beginning(folder, world.head().id, world.files())
    prepare(world)
    close_world(world)
    return made


def body(workspace: Path, params: Any) -> Any:
    (workspace / "drop.txt").unlink()
    return write_result(workspace, params)


def die_in_a_child(
    world: World, definition: TaskDefinition, countdown: Countdown, overlap: Submit = run_inline
) -> None:
    assignment = world.poll(definition)
    child = os.fork()
    if child == 0:
        try:
            world.execute(
                definition,
                assignment,
                lake=Wrapped(world.lake, countdown),
                orchestrator=Wrapped(world.orchestrator, countdown),
                overlap=overlap,
            )
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == DIED


def count_calls(world: World, definition: TaskDefinition, overlap: Submit) -> list[str]:
    countdown = Countdown(None, "never")
    settled = world.execute(
        definition,
        world.poll(definition),
        lake=Wrapped(world.lake, countdown),
        orchestrator=Wrapped(world.orchestrator, countdown),
        overlap=overlap,
    )
    published_ref(settled)
    return countdown.calls


def first_try(definition: TaskDefinition) -> Callable[[World], None]:
    return lambda world: void(world.start(definition))


def after_an_abandoned_publication(definition: TaskDefinition) -> Callable[[World], None]:
    """The crash hits a retry that finds the commit of a dead attempt, made with other bytes."""

    def prepare(world: World) -> None:
        world.start(definition)
        other = make_task(_other_bytes, on_abandoned=definition.workspace.on_abandoned)
        die_in_a_child(world, other, DieAtCompletion())
        world.orchestrator.time_out_in_progress("dead")

    return prepare


class DieAtCompletion(Countdown):
    def __init__(self) -> None:
        super().__init__(None, "before")

    def __call__(self, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == "complete":
            os._exit(DIED)
        return call(*arguments)


def _other_bytes(workspace: Path, params: Any) -> Any:
    (workspace / "result.txt").write_text("of a dead attempt")
    return change_nothing(workspace, params)


def void(_: object) -> None:
    return None


BODIES = {"changing": body, "no-op": change_nothing}
STARTS = {"first try": first_try, "abandoned before": after_an_abandoned_publication}


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("kind", BODIES)
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("order", ORDERS)
def test_a_crash_at_any_call_leaves_a_world_that_the_retry_makes_right(
    tmp_path: Path, order: str, policy: str, kind: str, start: str
) -> None:
    # Reuse would answer the abandoned publication's record before the calls that are to be crashed at.
    version = "2" if policy == "reuse" else "1"
    definition = make_task(BODIES[kind], on_abandoned=policy, version=version, retries=5)
    beginning = begin(tmp_path / "beginning", STARTS[start](definition))
    calls = count_calls(beginning.copied(tmp_path / "count"), definition, ORDERS[order])
    assert len(calls) >= 8
    for number, when in ((n, when) for n in range(len(calls)) for when in ("before", "after")):
        world = beginning.copied(tmp_path / f"{number}-{when}")
        visible = set(world.history())
        die_in_a_child(world, definition, Countdown(number, when), ORDERS[order])
        visible |= set(world.history())
        where = f"{when} call {number} ({calls[number]})"
        completion = calls.index("complete")
        reported = number > completion or (number == completion and when == "after")
        retried = None if reported else world.execute(definition, world.retry(definition))
        check_the_end(world, where, beginning, changing=kind == "changing")
        assert nothing_is_lost(world, visible), where
        assert retried is None or published_ref(retried) == world.head().id, where
        close_world(world)


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_crash_at_any_call_of_a_skipped_attempt_is_made_right_by_the_retry(
    tmp_path: Path, policy: str, start: str
) -> None:
    """The step has published before, and nothing has changed since: the result is the input, whatever was abandoned."""
    # With reuse, the abandoned publication's record would be used before the ledger is read.
    version = "2" if policy == "reuse" else "1"
    definition = make_task(body, on_abandoned=policy, version=version, skip_unchanged=True, retries=5)

    def prepare(world: World) -> None:
        published_ref(world.run(definition))
        STARTS[start](definition)(world)

    beginning = begin(tmp_path / "beginning", prepare)
    calls = count_calls(beginning.copied(tmp_path / "count"), definition, ORDERS["revoke and claim first"])
    assert "download" not in calls
    for number, when in ((n, when) for n in range(len(calls)) for when in ("before", "after")):
        world = beginning.copied(tmp_path / f"{number}-{when}")
        visible, where = set(world.history()), f"{when} call {number} ({calls[number]})"
        die_in_a_child(world, definition, Countdown(number, when))
        visible |= set(world.history())
        completion = calls.index("complete")
        if number < completion or (number == completion and when == "before"):
            retried = world.execute(definition, world.retry(definition))
            # The first execution may have published an entry of its own.
            assert retried.seen.skipped or policy == "reuse", where
        check_the_end(world, where, beginning, changing=True)
        assert nothing_is_lost(world, visible), where
        close_world(world)


def check_the_end(world: World, where: str, beginning: Beginning, *, changing: bool) -> None:
    """Check that one correct result is on the branch, reported once, and that a sweep removes all that is left."""
    workflow = world.workflow(world.orchestrator.workflows(100)[0].id)
    assert workflow.status == "COMPLETED", where
    assert workflow.output["ref"] == world.head().id, where
    expected = {**beginning.files, "data/result.txt": "made"} if changing else beginning.files
    if changing:
        del expected["data/drop.txt"]
    assert world.files() == expected, where
    assert beginning.a in world.history(), where
    sweep_workdirs(world.root, now=0, ttl=0)
    assert world.workdirs() == [], where
    assert world.lake.fsck() == [], where  # type: ignore[attr-defined]


def nothing_is_lost(world: World, visible: set[str]) -> bool:
    """Every commit that was ever the head is in the history or under a tag."""
    return visible <= set(world.history()) | set(world.replaced())
