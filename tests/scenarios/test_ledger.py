"""The ledger: what has changed since a task's last publication, and steps that are skipped because nothing has."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago import changes
from tests.support.worlds.world import Made, Params, World, change_nothing, make_task, published_ref

SPEC = {"prefix": "/", "reads": ("raw",), "writes": ("out",)}


def collect(workspace: Path, params: Params) -> Made:
    """Append the names of new files to the list of those seen so far."""
    found = changes(workspace, "raw")
    out = workspace / "out" / "seen.txt"
    out.parent.mkdir(exist_ok=True)
    with out.open("a") as file:
        file.writelines(f"{path} {(workspace / path).read_text()}\n" for path in found.present)
    return Made(said=f"{len(found.added)} {len(found.changed)} {len(found.removed)}")


def said(world: World, definition, **start) -> str:
    result = world.run(definition, **start)
    assert result.outcome.status == "COMPLETED", result.outcome.reason
    return result.outcome.output["result"]["said"]


def test_a_task_sees_what_has_changed_since_its_last_publication(world: World) -> None:
    task = make_task(collect, **SPEC)
    world.commit({"raw/a": "1", "raw/b": "1", "other/x": "1"})

    assert said(world, task) == "2 0 0"
    world.commit({"raw/b": "2", "raw/c": "1", "raw/a": None, "other/x": "2"})
    assert said(world, task) == "1 1 1"
    assert said(world, task) == "0 0 0"
    assert world.files()["out/seen.txt"] == "raw/a 1\nraw/b 1\nraw/b 2\nraw/c 1\n"


def test_equal_bytes_written_again_are_no_change(world: World) -> None:
    task = make_task(collect, **SPEC)
    world.commit({"raw/a": "1"})
    said(world, task)
    world.commit({"raw/a": "2"})
    world.commit({"raw/a": "1"})

    assert said(world, task) == "0 0 0"


def test_a_revert_of_the_output_leads_back_to_the_publication_before(world: World) -> None:
    task = make_task(collect, **SPEC)
    world.commit({"raw/a": "1"})
    said(world, task)
    before = world.files()["out/seen.txt"]
    world.commit({"raw/b": "1"})
    said(world, task)

    world.commit({"out/seen.txt": before})

    assert said(world, task) == "1 0 0"
    assert world.files()["out/seen.txt"] == "raw/a 1\nraw/b 1\n"


def test_an_output_that_somebody_else_changed_is_refused_by_name(world: World) -> None:
    task = make_task(collect, **SPEC)
    world.commit({"raw/a": "1"})
    said(world, task)
    edit = world.commit({"out/seen.txt": "edited"}, message="fix a typo")

    result = world.run(task)

    assert result.outcome.status == "FAILED"
    assert edit[:12] in result.outcome.reason
    assert "out/seen.txt" in result.outcome.reason
    assert "--full" in result.outcome.reason


@pytest.mark.parametrize(("rewritten", "expected"), [("full", "2 0 0"), ("keep", "1 0 0")])
def test_a_task_says_what_counts_if_its_output_was_changed(
    world: World, rewritten: str, expected: str
) -> None:
    task = make_task(collect, **SPEC, on_rewritten=rewritten)
    world.commit({"raw/a": "1"})
    said(world, task)
    world.commit({"out/seen.txt": "edited", "raw/b": "1"})

    assert said(world, task) == expected


def test_an_unchanged_step_is_skipped_with_its_recorded_result(world: World) -> None:
    ran = []

    def body(workspace: Path, params: Params) -> Made:
        ran.append(params.text)
        (workspace / "out").mkdir(exist_ok=True)
        (workspace / "out/made.txt").write_text(params.text)
        return Made(said=f"{params.text} {len(ran)}")

    task = make_task(body, **SPEC, skip_unchanged=True)
    world.commit({"raw/a": "1"})
    first = published_ref(world.run(task))
    world.commit({"other/x": "1"})
    head = world.head().id

    again = world.run(task)

    assert ran == ["made"]
    assert published_ref(again) == head == world.head().id
    assert again.outcome.output["result"] == {"said": "made 1"}
    assert again.seen.skipped == first
    assert said(world, task, text="else") == "else 2"


def test_a_plain_body_that_changed_nothing_is_no_entry(world: World) -> None:
    task = make_task(change_nothing, **SPEC, skip_unchanged=True)
    world.commit({"raw/a": "1"})
    world.run(task)

    assert not world.run(task).seen.skipped
