"""Publications made again, on both lakes: the same files, or the names of those that differ; and nothing is left."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from perago import changes
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError
from perago.orchestrator.local.orchestrator import LocalOrchestrator
from perago.protocol.provenance import Provenance
from perago.runtime.reproduce import (
    Reproduction,
    choose_task,
    describe_differences,
    find_original,
    reproduce,
)
from tests.support.worlds.run_world import RunWorld, opening, publishing, running
from tests.support.worlds.traced_history import make_history, tasks
from tests.support.worlds.world import Made, Params, World, make_task, published_ref


def again(
    world: World, commit: str, definition: TaskDefinition, params: Mapping[str, Any] | None = None
) -> Reproduction:
    """Make a publication again; what is on the lake must be as before."""
    before = branches(world)
    original = find_original(world.lake, world.repository, commit)
    with closing(LocalOrchestrator(world.folder / f"again-{commit}.db")) as own:
        try:
            return reproduce(
                original,
                choose_task(original, [definition]),
                {"text": "made"} if params is None else params,
                world.attempt_context(orchestrator=own),
                branch=(1e9, "0" * 12),
                orchestrator=own,
            )
        finally:
            assert branches(world) == before


def branches(world: World) -> dict[str, str]:
    return {one.name: one.commit for one in world.lake.branches(world.repository, "")}


def counting() -> TaskDefinition:
    """Return a task whose second run writes something else, and another file."""
    ran: list[None] = []

    def body(workspace: Path, params: Params) -> Made:
        ran.append(None)
        (workspace / "same.txt").write_text("same")
        (workspace / "count.txt").write_text(str(len(ran)))
        (workspace / f"{len(ran)}.txt").write_text("")
        return Made(said="")

    return make_task(body, name="counting")


def test_a_deterministic_step_is_identical(world: World) -> None:
    definition = make_task()
    commit = published_ref(world.run(definition))
    world.commit({"data/input.txt": "changed since"})

    made = again(world, commit, definition)

    assert made.identical
    assert made.same_params
    assert describe_differences(made.original.made_with, made.made_with) == []


def test_the_files_that_differ_are_named(world: World) -> None:
    definition = counting()
    commit = published_ref(world.run(definition))

    made = again(world, commit, definition)

    assert {one.path: one.kind for one in made.changes} == {
        "data/1.txt": "removed",
        "data/2.txt": "added",
        "data/count.txt": "changed",
    }


def test_every_step_of_a_history_is_identical_again(world: World) -> None:
    made = make_history(world)
    for definition in tasks():
        if definition.name != "left":  # it counts its runs
            assert again(world, made.made[definition.name], definition).identical, definition.name


def test_a_skipping_step_runs_and_sees_the_changes_that_it_saw(world: World) -> None:
    seen: list[list[str]] = []

    def body(workspace: Path, params: Params) -> Made:
        seen.append(list(changes(workspace, "raw").present))
        (workspace / "out").mkdir(exist_ok=True)
        (workspace / "out" / "seen").write_text(" ".join(seen[-1]))
        return Made(said="")

    spec: dict[str, Any] = {"prefix": "/", "reads": ("raw",), "writes": ("out",), "skip_unchanged": True}
    definition = make_task(body, name="skips", **spec)
    world.commit({"raw/a": "1"})
    world.run(definition)
    world.commit({"raw/b": "1"})
    commit = published_ref(world.run(definition))

    assert again(world, commit, definition).identical
    assert seen == [["raw/a"], ["raw/b"], ["raw/b"]]


def test_other_params_are_said(world: World) -> None:
    definition = make_task()
    commit = published_ref(world.run(definition))

    made = again(world, commit, definition, {"text": "other"})

    assert not made.same_params
    assert [one.path for one in made.changes] == ["data/result.txt"]


def test_a_step_that_fails_again_says_why_and_leaves_nothing(world: World) -> None:
    commit = published_ref(world.run(make_task()))

    def fail(workspace: Path, params: Params) -> Made:
        raise ValueError("not this time")

    with pytest.raises(RuntimeConfigError, match=r"did not complete again.*not this time"):
        again(world, commit, make_task(fail))


def test_what_cannot_be_made_again_says_what_to_name(world: World) -> None:
    definition = make_task(name="first")
    runs = RunWorld.of(world, [definition])
    runs.start([opening(), running(definition), publishing("first")])
    while (assignment := runs.next()) is not None:
        runs.execute(assignment)
    [[step, commit]] = json.loads(world.head().metadata["perago.run_steps"])

    with pytest.raises(RuntimeConfigError, match=commit):
        again(world, world.head().id, definition)
    assert again(world, commit, definition).identical
    with pytest.raises(RuntimeConfigError, match="no attempt made commit"):
        again(world, world.commit({"x": "1"}), definition)
    with pytest.raises(RuntimeConfigError, match="was made by task 'first', and --tasks has make"):
        again(world, commit, make_task())
    assert step == "first"


def test_code_and_environment_are_compared() -> None:
    before = Provenance("a", "p", "perago 1", "songs:1")
    now = Provenance("b", "p", "perago 2", "")

    assert describe_differences(before, now) == [
        "code: a then, b now",
        "runtime: perago 1 then, perago 2 now",
        "image: songs:1 then, none now",
    ]
    assert describe_differences(Provenance(), now) == []
