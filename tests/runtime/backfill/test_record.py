"""The records of backfills on this machine: which one is resumed, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from perago.errors import RuntimeConfigError
from perago.runtime.backfill.record import (
    Backfill,
    BackfillRow,
    Flags,
    check_paths,
    find_to_resume,
    outcomes_file,
    paths_of,
)
from perago.runtime.maps.run_file import MapRunFile, digest_of, locked_run_file, run_file_path
from perago.runtime.runs.listing import map_row, remove_run
from perago.runtime.runs.map_runs import MapProgress, recorded
from perago.runtime.runs.record import MapRun, holding, read_records, runs_folder
from tests.support.worlds.backfill_world import daily_task

AT = ("songs", "main")


def begin(root: Path, run: str, *, task: str = "clean_day", at: tuple[str, str] = AT, done: int = 0) -> None:
    """Leave what a session of a backfill leaves, of two rows."""
    rows = [BackfillRow({"day": f"2026-01-0{day}"}, {"day": f"2026-01-0{day}"}) for day in (1, 2)]
    backfill = Backfill(*at, "a" * 64, paths_of(daily_task()), rows, Flags(("day=2026-01-01..2026-01-02",)))
    table = backfill.table()
    run_file = MapRunFile(run, 1000, task, "here", digest_of(table), len(table), backfill.to_json())
    outcomes = outcomes_file(root, run)
    outcomes.parent.mkdir(parents=True, exist_ok=True)
    over = " ".join(backfill.flags.over)
    words = ("perago", "backfill", "tasks.py:clean_day", "songs", "--resume", run)
    record = MapRun(run, task, over, str(outcomes), 2, 1.0, str(root), command=words, workspace="@".join(at))
    with locked_run_file(outcomes, run_file, resume=False), recorded(root, record) as recorder:
        recorder.save(MapProgress(done))


OLD, NEW, NEWEST = (f"backfill-2026010{number}-000000-aaaaaaaa" for number in (1, 2, 3))


def found(root: Path, name: str | None = None, *, at: tuple[str, str] = AT, task: str = "clean_day") -> str:
    return find_to_resume(root, name, task, "here", at).run


def test_the_newest_unfinished_one_of_the_task_and_the_branch_is_resumed(tmp_path: Path) -> None:
    begin(tmp_path, OLD)
    begin(tmp_path, NEW, done=1)
    begin(tmp_path, NEWEST, done=2)
    begin(tmp_path, "backfill-20260104-000000-aaaaaaaa", at=("songs", "dev"))
    begin(tmp_path, "backfill-20260105-000000-aaaaaaaa", task="other")
    run_file_path(outcomes_file(tmp_path, "backfill-20260106-000000-aaaaaaaa")).touch()

    assert found(tmp_path) == NEW
    with holding(runs_folder(tmp_path) / NEW):
        assert found(tmp_path) == OLD
    assert found(tmp_path, OLD) == OLD
    assert found(tmp_path, NEWEST[:17]) == NEWEST
    assert found(tmp_path, at=("songs", "dev")).startswith("backfill-20260104")


def test_one_that_is_not_there_or_is_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeConfigError, match="no unfinished backfill of task 'clean_day' on songs@main"):
        found(tmp_path)
    begin(tmp_path, OLD)
    with pytest.raises(RuntimeConfigError, match=f"no backfill 'backfill-2027' below .*did you mean|{OLD}"):
        found(tmp_path, "backfill-2027")
    with pytest.raises(
        RuntimeConfigError, match=r"is of task 'clean_day' on songs@main .* not of 'other' on songs@dev"
    ):
        found(tmp_path, OLD, task="other", at=("songs", "dev"))
    with holding(runs_folder(tmp_path) / OLD), pytest.raises(RuntimeConfigError, match="is running: wait"):
        found(tmp_path)
    run_file_path(outcomes_file(tmp_path, OLD)).write_text("{}")
    with pytest.raises(RuntimeConfigError, match="is damaged"):
        found(tmp_path, OLD)


def test_rows_and_flags_are_read_back_as_they_were(tmp_path: Path) -> None:
    begin(tmp_path, OLD)
    backfill = Backfill.of_json(find_to_resume(tmp_path, OLD, "clean_day", "here", AT).backfill or {})

    assert Backfill.of_json(backfill.to_json()) == backfill
    assert [row.partition["day"] for row in backfill.table()] == ["2026-01-01", "2026-01-02"]
    assert {row.ref for row in backfill.table()} == {"a" * 64}
    assert not backfill.sequential
    assert replace(backfill, flags=replace(backfill.flags, jobs=1)).sequential


def test_a_task_that_works_on_other_paths_now_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, OLD)
    backfill = Backfill.of_json(find_to_resume(tmp_path, OLD, "clean_day", "here", AT).backfill or {})

    check_paths(daily_task(), backfill, OLD)
    with pytest.raises(
        RuntimeConfigError, match=r"began with WorkspaceSpec\(writes=.*restore it, or start a new"
    ):
        check_paths(daily_task(writes=("tidy/day={day}",)), backfill, OLD)


def test_it_is_listed_as_a_backfill_and_removed_with_its_files(tmp_path: Path) -> None:
    begin(tmp_path, OLD, done=1)
    [run] = read_records(tmp_path)
    assert isinstance(run, MapRun)

    row = map_row(tmp_path, run)
    assert (row.kind, row.workflow, row.status) == ("backfill", "backfill clean_day", "STOPPED")
    assert row.input == {"over": "day=2026-01-01..2026-01-02", "rows": 2}
    assert row.resume.endswith(f"--resume {OLD}")
    assert run.title == "backfill of task clean_day on songs@main over day=2026-01-01..2026-01-02"
    assert remove_run(tmp_path, run) == "removed"
    assert not list((tmp_path / "backfills").iterdir())
