"""The ledger of runs that are published as one commit: each step has its entry there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perago import changes
from perago.declare.task import TaskDefinition
from perago.protocol import ledger
from tests.support.worlds.run_world import RunWorld, opening, publishing, running
from tests.support.worlds.world import Made, Params, World, make_task


def step(name: str, reads: str, *, writes: str = "") -> TaskDefinition:
    """Return a task that says which files of a folder have changed, and writes the content of all to another."""

    def body(workspace: Path, params: Params) -> Made:
        found = changes(workspace, reads)
        place = workspace / (writes or name)
        place.mkdir(exist_ok=True)
        files = sorted(path for path in (workspace / reads).rglob("*") if path.is_file())
        (place / f"{name}.txt").write_text("".join(file.read_text() for file in files))
        return Made(said=" ".join(found.present))

    return make_task(
        body,
        name=name,
        version="1",
        skip_unchanged=True,
        prefix="/",
        reads=(reads,),
        writes=(writes or name,),
    )


CLEAN, COUNT = step("clean", "raw"), step("count", "clean")
BOTH = (CLEAN, COUNT)
STEPS = [opening(), running(CLEAN), running(COUNT, "clean"), publishing("count")]


def play(world: World, runs: RunWorld, steps: list[dict[str, object]] | None = None) -> dict[str, str]:
    """Run the workflow, and return for each step what it said, or that it was skipped."""
    workflow, told = runs.start(steps or STEPS), {}
    while (assignment := runs.next()) is not None:
        ended = runs.execute(assignment)
        assert ended.outcome.status == "COMPLETED", ended.outcome.reason
        said = ended.outcome.output.get("result", {}).get("said", "")
        told[assignment.attempt.reference_task_name] = "skipped" if ended.seen.skipped else said
    assert world.workflow(workflow).status == "COMPLETED"
    return {name: text for name, text in told.items() if name not in ("open", "publish")}


def test_the_steps_of_a_published_run_are_skipped_in_the_next_run(world: World) -> None:
    runs = RunWorld.of(world, BOTH)
    world.commit({"raw/a": "1"})
    assert play(world, runs) == {"clean": "raw/a", "count": "clean/clean.txt"}
    head = world.head().id

    assert play(world, runs) == {"clean": "skipped", "count": "skipped"}
    assert world.head().id == head

    world.commit({"raw/b": "2"})
    assert play(world, runs) == {"clean": "raw/b", "count": "clean/clean.txt"}
    assert world.files()["count/count.txt"] == "12"


def test_a_step_is_skipped_outside_of_runs_by_what_a_run_has_published(world: World) -> None:
    runs = RunWorld.of(world, BOTH)
    world.commit({"raw/a": "1"})
    play(world, runs)

    alone = world.run(CLEAN)

    assert alone.seen.skipped == world.head().id
    assert alone.outcome.output["result"] == {"said": "raw/a"}


def test_a_step_whose_view_a_later_step_has_changed_has_no_entry(world: World) -> None:
    again = step("again", "raw", writes="clean")
    runs = RunWorld.of(world, (CLEAN, again))
    world.commit({"raw/a": "1"})
    steps = [opening(), running(CLEAN), running(again, "clean"), publishing("again")]
    play(world, runs, steps)

    entries = json.loads(world.head().metadata["perago.run_entries"])

    assert [entry[1] for entry in entries] == ["again"]


def test_a_run_with_too_many_entries_for_a_commit_keeps_them_with_its_own_commits(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "_MOST_ENTRIES", 1)
    runs = RunWorld.of(world, BOTH)
    world.commit({"raw/a": "1"})
    play(world, runs)
    assert world.head().metadata["perago.run_entries"] == "tag"

    assert play(world, runs) == {"clean": "skipped", "count": "skipped"}
