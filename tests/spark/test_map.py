"""`perago map` as a user runs it on this machine, on the embedded lake: killed, resumed, and what it refuses."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from perago.lake.local.lake import LocalLake
from tests.support.processes.commands import Shell

TASK = f"{Path(__file__).parents[1] / 'support' / 'tasks' / 'map_tasks.py'}:tag_song"
WAIT_SECONDS = 300.0


def wait_for(what: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Until it has happened; only a command that hangs takes so long."""
    ends = time.monotonic() + WAIT_SECONDS
    while not what():
        assert process.poll() is None, "the command ended early"
        assert time.monotonic() < ends
        time.sleep(0.1)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made.environ |= {"PERAGO_SPARK_MASTER": "local[2]"}
    return made


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LocalLake]:
    made = LocalLake(tmp_path / ".perago" / "lake")
    yield made
    made.close()


def heads(lake: LocalLake) -> dict[str, list[str]]:
    return {
        name: [commit.id for commit in lake.log(name, "main", 9)]
        for name in lake.repositories()
        if name != "perago-maps"
    }


def outcomes(file: Path) -> dict[int, dict[str, str]]:
    with file.open(newline="") as opened:
        return {int(row["row"]): row for row in csv.DictReader(opened)}


def test_a_driver_that_is_killed_loses_nothing_that_was_shown_and_resuming_does_the_rest(
    shell: Shell, lake: LocalLake, tmp_path: Path
) -> None:
    go, fixed = tmp_path / "go", tmp_path / "fixed"
    rows: list[dict[str, object]] = []
    for number in range(1, 13):
        lake.create_repository(f"song-{number:02d}")
        rows.append({"repository": f"song-{number:02d}", "title": f"t{number}"})
    # Row 2 is slow and delays no other, row 3 fails, row 4 kills its process, row 13 has no repository.
    rows[1]["waits_for"] = str(go)
    rows[2]["fails_without"] = str(fixed)
    rows[3]["kills"] = True
    rows.append({"repository": "no-such-song", "title": "x"})
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    before = heads(lake)
    shown = tmp_path / "shown.txt"

    with shown.open("w") as told:
        driver = subprocess.Popen(
            [sys.executable, "-m", "perago", "map", TASK, "rows.jsonl", "-o", "out.csv"],
            cwd=tmp_path,
            env=shell.environ,
            stdout=told,
            stderr=told,
            start_new_session=True,
            text=True,
        )
        # Every row but the slow one has ended, and the last of them was shown.
        wait_for(lambda: "row 13 (no-such-song@main): FAILED" in shown.read_text(), driver)
        wait_for((tmp_path / "go.inside").exists, driver)
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    # The body's own process is in another group; unless it has seen its JVM die, it would continue, and end its row.
    with suppress(ProcessLookupError):
        os.kill(int((tmp_path / "go.inside").read_text().split()[0]), signal.SIGKILL)
    [stopped] = json.loads(shell.run("runs", "--json").out)
    assert (stopped["kind"], stopped["status"]) == ("map", "STOPPED")
    assert "out.csv --resume" in stopped["resume"]
    assert "row 3 (song-03@main): FAILED: t3 cannot be tagged yet" in shown.read_text()
    assert "row 4 (song-04@main): FAILED: its executor died 3 times in a row" in shown.read_text()
    done = heads(lake)

    go.touch()
    fixed.touch()
    ended = shell.run("map", TASK, "rows.jsonl", "-o", "out.csv", "--resume")

    found = outcomes(tmp_path / "out.csv")
    assert ended.code == 1, ended.err
    assert "11 of 13 rows are done, 2 failed" in ended.out
    assert {number for number, row in found.items() if row["status"] != "COMPLETED"} == {4, 13}
    after = heads(lake)
    # One new commit for each good row; what was done when the driver died was not touched.
    assert {name: len(ids) - len(before[name]) for name, ids in after.items()} == {
        name: 0 if name == "song-04" else 1 for name in before
    }
    assert {name for name in done if done[name] != before[name]} == {
        name for name in before if name not in ("song-02", "song-03", "song-04")
    }
    assert all(after[name] == ids for name, ids in done.items() if ids != before[name])
    assert found[2]["attempts"] == "2"
    shown_by_id = shell.run("show", stopped["id"][:14])
    assert "map of task tag_song over rows.jsonl (13 rows)\nstatus FAILED in " in shown_by_id.out
    assert "\nresumed " in shown_by_id.out
    assert (
        "rows: 11 of 13 rows are done, 2 failed\n    row 4: FAILED: its executor died 3 times"
        in shown_by_id.out
    )
    assert f"outcomes: {tmp_path / 'out.csv'}\n" in shown_by_id.out
    assert "next: perago map " in shown_by_id.err
    assert "tagging t1\n" in shell.run("logs").out
    assert found[2]["published"] == after["song-02"][0]
    assert [branch.name for name in before for branch in lake.branches(name, "perago-")] == []
    logs = "".join(file.read_text() for file in (tmp_path / ".perago" / "maps").glob("*.log"))
    assert "tagging t1\n" in logs
    assert "tagging" not in shown.read_text() + ended.out + ended.err


def test_a_second_driver_and_a_second_run_are_refused_before_spark_starts(
    shell: Shell, lake: LocalLake, tmp_path: Path
) -> None:
    lake.create_repository("song")
    (tmp_path / "rows.csv").write_text("repository,title\nsong,a\n")
    (tmp_path / "out.csv").touch()

    again = shell.run("map", TASK, "rows.csv", "-o", "out.csv")
    nothing = shell.run("map", TASK, "rows.csv", "-o", "other.csv", "--resume")
    wrong = shell.run("map", f"{TASK}s", "rows.csv", "-o", "other.csv")
    shape = shell.run("map", TASK.partition(":")[0], "rows.csv", "-o", "other.csv")
    cluster = Shell(tmp_path, {**shell.environ, "PERAGO_SPARK_MASTER": "spark://127.0.0.1:7077"})
    elsewhere = cluster.run("map", TASK, "rows.csv", "-o", "other.csv")

    assert (again.code, "add --resume" in again.err) == (1, True)
    assert (nothing.code, "no run to resume" in nothing.err) == (1, True)
    assert (wrong.code, "did you mean 'tag_song'?" in wrong.err) == (1, True)
    assert (shape.code, "TARGET:TASK" in shape.err) == (2, True)
    assert (elsewhere.code, "add --remote" in elsewhere.err) == (1, True)
    assert not (tmp_path / "other.csv.map").exists()


def test_a_dry_run_tells_what_would_fail_and_runs_nothing(
    shell: Shell, lake: LocalLake, tmp_path: Path
) -> None:
    lake.create_repository("song")
    before = heads(lake)
    (tmp_path / "rows.csv").write_text("repository,title,kills\nsong,a,\nsongs,b,\nother,c,perhaps\n")

    said = shell.run("map", TASK, "rows.csv", "-o", "out.csv", "--dry-run")

    assert said.code == 1
    assert "row 2 (songs@main) would fail: there is no repository 'songs'; did you mean 'song'?" in said.out
    assert "row 3 (other@main) would fail: params does not fit Song: params.kills" in said.out
    assert "tag_song would run on 1 of 3 rows" in said.out
    assert heads(lake) == before
    assert lake.repositories() == ["song"]
    assert not (tmp_path / "out.csv.map").exists()
