"""`perago backfill` and `perago partitions` as a user runs them on this machine, on the embedded lake."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import date, timedelta
from pathlib import Path

import pytest

from perago.lake.local.lake import LocalLake
from perago.protocol.metadata import KEY, WRITES
from perago.testing.lake import put_objects
from tests.support.processes.commands import Shell

TASKS = Path(__file__).parents[1] / "support" / "tasks" / "daily_tasks.py"
CLEAN, IN_ORDER = f"{TASKS}:clean_day", f"{TASKS}:clean_in_order"
DAYS = [str(date(2026, 1, 1) + timedelta(days=number)) for number in range(60)]
SIXTY = f"day={DAYS[0]}..{DAYS[-1]}"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LocalLake]:
    made = LocalLake(tmp_path / ".perago" / "lake")
    made.create_repository("songs")
    files = {f"raw/day={day}/a.csv": f"lines of {day}" for day in DAYS}
    put_objects(made, "songs", "main", files, folder=tmp_path)
    made.commit("songs", "main", "by hand", {})
    yield made
    made.close()


def publications(lake: LocalLake) -> Counter[str]:
    """Return how many publications each day has."""
    made = [
        commit.metadata for commit in lake.log("songs", "main", 1000) if "/" in commit.metadata.get(KEY, "")
    ]
    return Counter(json.loads(one[WRITES])[0][-10:] for one in made)


def test_sixty_partitions_with_failures_and_dead_executors_and_resuming_does_exactly_the_rest(
    shell: Shell, lake: LocalLake, tmp_path: Path
) -> None:
    fixed = tmp_path / "fixed"
    bad = [day for day in DAYS if int(day[-2:]) in (3, 17)]
    killing = [day for day in DAYS if day.endswith("-09")]
    flags = ["--param", "fails_on=3,17", "--param", "kills_on=9", "--param", f"fails_without={fixed}"]

    first = shell.run("backfill", CLEAN, "songs", "--over", SIXTY, "-j", "2", *flags)

    assert first.code == 1, first.err
    assert "54 of 60 rows are done, 6 failed" in first.out
    assert f"row 3 (day={bad[0]}): FAILED: {bad[0]} cannot be cleaned yet" in first.err
    assert "4 rows (3, 17, 34, 48): FAILED" in first.err
    assert "2 rows (9, 40): FAILED: its executor died 3 times in a row" in first.err
    [listed] = json.loads(shell.run_here("runs", "--json").out)
    assert f"continue with `perago backfill {CLEAN} songs --resume {listed['id']}`" in first.err
    assert (listed["kind"], listed["status"]) == ("backfill", "FAILED")
    assert publications(lake) == Counter(set(DAYS) - set(bad) - set(killing))
    states = json.loads(shell.run_here("partitions", CLEAN, "songs", "--json").out)
    assert [one["partition"]["day"] for one in states if one["status"] == "failed"] == sorted(bad + killing)
    assert len(states) == 60
    planned = shell.run_here("backfill", CLEAN, "songs", "--over", SIXTY, "--only", "failed", "--dry-run")
    assert "clean_day would run on 6 of 60 partitions; nothing was run" in planned.out

    fixed.touch()
    ended = shell.run("backfill", CLEAN, "songs", "--resume", "--json")

    assert ended.code == 0, ended.err
    figures = json.loads(ended.out)
    assert (figures["run"], figures["done"], figures["rows"]) == (listed["id"], 60, 60)
    assert publications(lake) == Counter(DAYS)
    rows = [json.loads(line) for line in Path(figures["outcomes"]).read_text().splitlines()]
    assert Counter(row["attempts"] for row in rows) == {1: 54, 2: 4, 4: 2}
    assert "60 partitions: 60 published" in shell.run_here("partitions", CLEAN, "songs").err
    shown = shell.run_here("show", listed["id"])
    assert f"backfill of task clean_day on songs@main over {SIXTY} (60 rows)\nstatus COMPLETED" in shown.out
    nothing = shell.run_here("backfill", CLEAN, "songs", "--over", SIXTY)
    assert (nothing.code, nothing.out) == (
        0,
        "nothing to run: every partition is published (60 left out); --only all runs them again\n",
    )
    _publish_two_days_as_one_commit(shell, lake)
    over = shell.run_here("backfill", CLEAN, "songs", "--resume")
    assert (over.code, "there is no unfinished backfill" in over.err) == (1, True)


def _publish_two_days_as_one_commit(shell: Shell, lake: LocalLake) -> None:
    late = {f"raw/day={day}/late.csv": "late" for day in DAYS[:2]}
    put_objects(lake, "songs", "main", late, folder=shell.folder)
    lake.commit("songs", "main", "by hand", {})
    before = lake.head("songs", "main").id
    listed = json.loads(shell.run_here("partitions", CLEAN, "songs", "--json").out)
    assert [one["partition"]["day"] for one in listed if one["status"] == "stale"] == DAYS[:2]

    two = ("--over", f"day={DAYS[0]}..{DAYS[1]}", "--only", "all")
    done = shell.run("backfill", CLEAN, "songs", *two, "--atomic", "-j", "1")

    assert done.code == 0, done.err
    assert "3 of 3 rows are done" in done.out
    assert lake.head("songs", "main").first_parent == before
    assert "60 partitions: 60 published" in shell.run_here("partitions", CLEAN, "songs").err
    assert lake.branches("songs", "perago-") == []


def test_what_cannot_work_is_refused_before_anything_starts(shell: Shell, lake: LocalLake) -> None:
    before = lake.head("songs", "main").id
    two = ("--over", "day=2026-01-01..2026-01-02")
    refusals = {
        ("backfill", IN_ORDER, "songs", *two, "-j", "2"): 'declare WorkspaceSpec(on_advanced="rebase"',
        ("backfill", CLEAN, "songs"): "say which partitions, such as --over day=",
        (
            "backfill",
            CLEAN,
            "song",
            *two,
        ): "there is no repository 'song'; there are: songs; did you mean 'songs'?",
        ("backfill", CLEAN, "songs@mian", *two): "no branch, tag or commit 'mian'",
        ("backfill", CLEAN, "songs@perago-x", *two): "is one of Perago's own branches",
        (
            "backfill",
            CLEAN,
            "songs",
            "--over",
            "day=2026-01-01..x",
        ): "--over day: '2026-01-01..x' is not a date",
        ("backfill", CLEAN, "songs", *two, "backfill-1"): "add --resume to resume backfill-1",
        (
            "backfill",
            CLEAN,
            "songs",
            "--resume",
            *two,
            "--full",
            "-j",
            "1",
        ): "leave out --over, --jobs, --full",
        ("backfill", CLEAN, "songs", "--resume"): "there is no unfinished backfill of task 'clean_day'",
        ("partitions", CLEAN, "song"): "did you mean 'songs'?",
        ("partitions", f"{TASKS}:clean_dya", "songs"): "did you mean 'clean_day'?",
    }
    for words, said in refusals.items():
        refused = shell.run_here(*words)
        assert refused.code in (1, 2), words
        assert said in refused.err, (words, refused.err)
    assert lake.head("songs", "main").id == before
    assert lake.repositories() == ["songs"]
    assert not (shell.folder / ".perago" / "backfills").exists()


def test_a_dry_run_says_what_would_run_and_writes_nothing(shell: Shell, lake: LocalLake) -> None:
    before = lake.head("songs", "main").id

    said = shell.run_here(
        "backfill", CLEAN, "songs", "--over", "day=2026-01-01..2026-01-03", "--order", "desc", "--dry-run"
    )
    found = json.loads(
        shell.run_here("backfill", CLEAN, "songs", "--over", "day=2026-01-01", "--dry-run", "--json").out
    )

    assert said.out == (
        "run  day=2026-01-03\nrun  day=2026-01-02\nrun  day=2026-01-01\n"
        "clean_day would run on 3 of 3 partitions; nothing was run\n"
    )
    assert found == [
        {"partition": {"day": "2026-01-01"}, "params": {"day": "2026-01-01"}, "runs": True, "reason": ""}
    ]
    assert lake.head("songs", "main").id == before
    assert lake.repositories() == ["songs"]
    assert not (shell.folder / ".perago" / "runs").exists()
