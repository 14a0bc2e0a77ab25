"""The progress of `perago map` without a terminal, and maps as `runs`, `show`, `logs` and `runs rm` tell of them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from perago.cli.map_view import LINE_SECONDS, MOST_FAILURES, MapView
from perago.runtime.maps.rows import RowOutcome
from perago.runtime.runs.map_runs import MapFailure, MapProgress, recorded
from perago.runtime.runs.record import MapRun, map_log
from tests.support.processes.commands import Shell
from tests.support.worlds.clock import Clock


def ended(number: int, reason: str = "") -> RowOutcome:
    return RowOutcome(number, "songs", "main", "FAILED" if reason else "COMPLETED", reason)


def test_rate_time_left_and_failures_are_told_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    with MapView(400, quiet=False, clock=clock) as view:
        for number in range(1, 101):
            clock.sleep(LINE_SECONDS / 50)
            view.on_outcome(ended(number, "no such tune" if number == 3 else ""))

    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "row 3 (songs@main): FAILED: no such tune",
        "50 of 400 rows, 1 failed, 5.0 a second, 1 min 10 s left",
        "100 of 400 rows, 1 failed, 5.0 a second, 1 min 0 s left",
    ]


def test_many_failures_are_not_all_told(capsys: pytest.CaptureFixture[str]) -> None:
    with MapView(100, quiet=False, clock=Clock()) as view:
        for number in range(1, 101):
            view.on_outcome(ended(number, f"tune {number} is bad"))

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == MOST_FAILURES + 1
    assert lines[-1] == "more rows failed: the table of outcomes will have all of them"


@pytest.mark.parametrize(("verbose", "count"), [(False, 1), (True, 30)])
def test_equal_failures_are_told_once_and_all_of_them_on_request(
    capsys: pytest.CaptureFixture[str], verbose: bool, count: int
) -> None:
    with MapView(100, quiet=False, verbose=verbose, clock=Clock()) as view:
        for number in range(1, 31):
            view.on_outcome(ended(number, "bad"))

    assert len(capsys.readouterr().err.splitlines()) == count


def test_nothing_is_told_beside_json(capsys: pytest.CaptureFixture[str]) -> None:
    with MapView(1, quiet=True, clock=Clock()) as view:
        view.on_outcome(ended(1, "bad"))

    assert capsys.readouterr().err == ""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    """A folder in which a map has ended: one row is done, and two failed for one reason."""
    root = tmp_path / ".perago"
    words = ["perago", "map", "tasks.py:tag", "rows.csv", "-o", "out.csv", "--resume"]
    run = MapRun(
        "map-20260101-000000-aaaaaaaa", "tag", "rows.csv", "out.csv", 3, 7.0, str(tmp_path), command=words
    )
    with recorded(root, run) as recorder:
        recorder.save(MapProgress(1, 2, [MapFailure("FAILED", "no [red]such tune\nline 2", 2, (1, 3))], 1))
        map_log(root, run.id).write_text("tagging\x1b[2J a\n")
    return Shell(tmp_path)


def test_a_map_is_shown_with_its_failures_by_reason_and_the_command_that_follows(shell: Shell) -> None:
    listed = shell.run_here("runs")
    said = shell.run_here("show")
    data = json.loads(shell.run_here("show", "map-2026", "--json").out)

    assert "map tag  FAILED" in listed.out
    assert "2 of 3 rows failed: no [red]such tune" in listed.out
    assert (
        "rows: 1 of 3 rows are done, 2 failed\n    2 rows (1, 3): FAILED: no [red]such tune\n      line 2\n"
        in said.out
    )
    assert "next: perago map tasks.py:tag rows.csv -o out.csv --resume\n" in said.err
    assert (data["run"], data["kind"], data["status"]) == ("map-20260101-000000-aaaaaaaa", "map", "FAILED")
    assert (data["done"], data["failed"], data["left"], data["outcomes"]) == (
        1,
        2,
        0,
        str(shell.folder / "out.csv"),
    )
    assert shell.run_here("logs").out == "tagging a\n"
    assert json.loads(shell.run_here("logs", "map-2026", "--json").out) == [{"text": "tagging\x1b[2J a"}]


def test_a_map_of_which_all_lines_are_folded_has_printed_nothing(shell: Shell) -> None:
    noise = "WARNING: Using incubator modules: jdk.incubator.vector\n"
    map_log(shell.folder / ".perago", "map-20260101-000000-aaaaaaaa").write_text(noise)
    said = shell.run_here("logs")
    assert (said.out, said.code) == ("", 0)
    assert "map-20260101-000000-aaaaaaaa printed nothing on this machine" in said.err
    said = shell.run_here("logs", "--verbose")
    assert said.out == noise
    assert "printed nothing" not in said.err


def test_a_map_has_neither_steps_nor_a_workflow(shell: Shell) -> None:
    assert "one log for all rows: leave out 'row_1'" in shell.run_here("logs", "map-2026", "row_1").err
    for command in (("retry",), ("run", "--resume"), ("run", "--from", "tag")):
        for name in ("map-20260101-000000-aaaaaaaa", "map-2026"):
            assert "map-20260101-000000-aaaaaaaa is a map" in shell.run_here(*command, name).err


def test_a_removed_map_keeps_what_resuming_needs_and_says_so(shell: Shell) -> None:
    said = shell.run_here("runs", "rm", "map-2026", "--yes")

    assert "1 removed" in said.out
    assert "its record in the lake (repository perago-maps) stay" in said.err
    assert shell.run_here("runs", "--json").out == "[]\n"


def test_what_the_jvm_prints_is_folded_and_kept_in_the_log(tmp_path: Path) -> None:
    script = tmp_path / "start.py"
    script.write_text(
        "import subprocess, sys\n"
        "from pathlib import Path\n"
        "from perago.cli.map_view import folding_jvm\n"
        "said = r'WARNING: Using incubator modules: jdk.incubator.vector\\nError: x\\n\\tat a.B.c(B.java:1)\\nend\\n'\n"
        "with folding_jvm(Path(sys.argv[1]), verbose=len(sys.argv) > 2):\n"
        "    subprocess.run(['sh', '-c', 'printf \"$0\" >&2', said], check=True)\n"
        "print('own line', file=sys.stderr)\n"
        "while sys.argv[2:] == [] and 'end' not in Path(sys.argv[1]).read_text(): pass\n"
    )
    log = tmp_path / "map.log"
    log.touch()

    def said(*more: str) -> str:
        command = [sys.executable, str(script), str(log), *more]
        return subprocess.run(command, capture_output=True, text=True, check=True).stderr

    folded, whole = said(), said("verbose")

    assert "own line\n" in folded
    assert "Error: x\n" in folded
    assert "incubator" not in folded
    assert "B.java" not in folded
    assert "\tat a.B.c(B.java:1)\nend\n" in log.read_text()
    assert whole.startswith("WARNING: Using incubator modules")
