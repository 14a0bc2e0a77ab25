"""The ledger: what has changed since a task's last publication, and steps that are skipped because nothing has."""

from __future__ import annotations

from pathlib import Path

import pytest

from perago import changes
from tests.support.worlds.world import Made, Params, World, abandon, change_nothing, make_task, published_ref

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


def test_each_partition_has_a_ledger_of_its_own(world: World) -> None:
    def body(workspace: Path, params: Params) -> Made:
        found = changes(workspace, f"raw/day={params.text}")
        out = workspace / f"out/day={params.text}"
        out.mkdir(parents=True, exist_ok=True)
        there = sorted(path.name for path in (workspace / "raw").rglob("*") if path.is_file())
        (out / "seen").write_text(f"{len(there)}")
        return Made(said=f"{' '.join(found.present)}; here: {' '.join(there)}")

    task = make_task(
        body,
        prefix="/",
        reads=("raw/day={text}",),
        writes=("out/day={text}",),
        changes_only=("raw/day={text}",),
        skip_unchanged=True,
    )
    world.commit({"raw/day=1/a": "1", "raw/day=2/b": "2"})

    assert said(world, task, text="1") == "raw/day=1/a; here: a"
    assert said(world, task, text="2") == "raw/day=2/b; here: b"
    world.commit({"raw/day=1/c": "3"})
    assert world.run(task, text="2").seen.skipped
    assert said(world, task, text="1") == "raw/day=1/c; here: c"


def test_files_that_were_not_downloaded_stay_when_a_result_is_staged_again(world: World) -> None:
    task = make_task(collect, **SPEC, changes_only=("raw",), on_abandoned="supersede")
    world.commit({"raw/a": "1"})
    said(world, task)
    world.commit({"raw/b": "1"})
    world.start(task)
    abandon(world, task)

    published_ref(world.execute(task, world.retry(task)))

    assert world.files()["out/seen.txt"] == "raw/a 1\nraw/b 1\n"
    assert {"raw/a", "raw/b"} <= set(world.files())


def test_a_file_that_was_not_downloaded_cannot_be_written(world: World) -> None:
    def body(workspace: Path, params: Params) -> Made:
        found = changes(workspace, "raw")
        (workspace / "out").mkdir(exist_ok=True)
        (workspace / "out/n").write_text(f"{len(found.present)}")
        if found.since:
            (workspace / "raw").mkdir(exist_ok=True)
            (workspace / "raw/a").write_text("overwritten")
        return Made(said="")

    task = make_task(body, **SPEC, changes_only=("raw",))
    world.commit({"raw/a": "1"})
    said(world, task)

    refused = world.run(task).outcome

    assert "raw/a" in (refused.reason or "")
    assert "outside what it may change" in (refused.reason or "")
    assert world.files()["raw/a"] == "1"


def test_changes_of_what_the_task_may_write_are_an_error(world: World) -> None:
    def body(workspace: Path, params: Params) -> Made:
        changes(workspace, "out")
        return Made(said="")

    assert "may change that path itself" in (world.run(make_task(body, **SPEC)).outcome.reason or "")


def test_a_read_only_task_has_no_publications_to_compare_with(world: World) -> None:
    def body(workspace: Path, params: Params) -> Made:
        changes(workspace, "data")
        return Made(said="")

    assert "has no publications" in (
        world.run(make_task(body, prefix="/", read_only=True)).outcome.reason or ""
    )


def test_a_path_that_the_task_does_not_see_is_an_error(world: World) -> None:
    def body(workspace: Path, params: Params) -> Made:
        changes(workspace, "other")
        return Made(said="")

    assert "does not see that path" in (world.run(make_task(body, **SPEC)).outcome.reason or "")


def test_outside_an_attempt_all_files_count_as_added(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    (tmp_path / "raw/a").write_text("1")

    assert changes(tmp_path, "raw").added == ("raw/a",)
    assert changes(tmp_path, "raw").since is None


def test_a_result_too_large_to_record_is_never_skipped(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def body(workspace: Path, params: Params) -> Made:
        (workspace / "out").mkdir(exist_ok=True)
        (workspace / "out/made").write_text("made")
        return Made(said="x" * 70_000)

    task = make_task(body, **SPEC, skip_unchanged=True)
    world.run(task)

    assert "will not be skipped" in caplog.text
    assert not world.run(task).seen.skipped


def test_a_soft_publication_that_landed_elsewhere_is_no_entry(world: World) -> None:
    task = make_task(collect, **SPEC)
    world.commit({"raw/a": "1"})
    said(world, task)
    entry = world.head()
    world.commit({"raw/b": "1"})
    # As if it had landed on another head than its publisher expected.
    world.commit({"out/seen.txt": "by accident"}, metadata=entry.metadata)

    result = world.run(task)

    assert "by accident" not in world.files().get("raw/a", "")
    assert "is not known" in (result.outcome.reason or "")


def test_two_sources_that_share_an_output_have_ledgers_of_their_own(world: World) -> None:
    def body(workspace: Path, params: Params) -> Made:
        found = changes(workspace, "raw")
        out = workspace / "out/seen.txt"
        out.parent.mkdir(exist_ok=True)
        with out.open("a") as file:
            file.writelines(f"{params.text} {path}\n" for path in found.present)
        return Made(said=" ".join(found.present))

    task = make_task(body, **SPEC, ledger_key=("text",), skip_unchanged=True)
    world.commit({"raw/1": "1"})

    assert said(world, task, text="a") == "raw/1"
    assert said(world, task, text="b") == "raw/1"
    assert world.run(task, text="a").seen.skipped
    assert world.run(task, text="b").seen.skipped
    world.commit({"raw/2": "2"})
    assert said(world, task, text="a") == "raw/2"
    assert said(world, task, text="b") == "raw/2"
    assert world.files()["out/seen.txt"] == "a raw/1\nb raw/1\na raw/2\nb raw/2\n"

    world.commit({"out/seen.txt": "edited"})
    for text in ("a", "b"):
        assert "is not known" in (world.run(task, text=text).outcome.reason or "")
