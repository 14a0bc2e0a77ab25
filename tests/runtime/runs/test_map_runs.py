"""Map runs on the machine of their command: their record, their progress, and reading them again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from perago.backend import Embedded
from perago.errors import RuntimeConfigError
from perago.runtime.runs.inspect import find
from perago.runtime.runs.listing import chosen_runs, list_runs, map_row, remove_run
from perago.runtime.runs.map_runs import (
    SAVE_SECONDS,
    MapFailure,
    MapProgress,
    find_map,
    printed_by_map,
    progress_of,
    recorded,
)
from perago.runtime.runs.record import MapRun, Run, map_log, read_record, runs_folder, save_map, save_run
from perago.settings import load_settings
from tests.support.worlds.clock import Clock

FAILURE = MapFailure("FAILED", "no such tune", 2, (2, 4))
SOME = MapProgress(1, 2, (FAILURE,), 1)


def a_map(root: Path, name: str = "map-20260101-000000-aaaaaaaa", rows: int = 4) -> MapRun:
    words = ("perago", "map", "tasks.py:tag", "rows.csv", "-o", "out.csv", "--resume")
    return MapRun(name, "tag", "rows.csv", "out.csv", rows, 7.0, str(root), lake="here", command=words)


def servers(root: Path) -> Embedded:
    return Embedded(load_settings({}, root=root))


def test_a_map_is_running_while_its_command_runs_and_then_has_its_outcome(tmp_path: Path) -> None:
    with recorded(tmp_path, a_map(tmp_path)) as recorder:
        assert map_row(tmp_path, recorder.run).status == "RUNNING"
        with pytest.raises(RuntimeConfigError, match="is running: stop it first"):
            chosen_runs(tmp_path, ["map-2026"])
        assert remove_run(tmp_path, recorder.run) == "keep: it is running"
        recorder.save(MapProgress(2, 2, (FAILURE,), 1))

    [row] = list_runs(servers(tmp_path), 5)
    assert (row.kind, row.status, row.workflow) == ("map", "FAILED", "map tag")
    assert row.failed == "2 of 4 rows failed: no such tune"
    assert str(progress_of(tmp_path, row.id).failures[0]) == "2 rows (2, 4): FAILED: no such tune"


@pytest.mark.parametrize(
    ("progress", "status"), [(MapProgress(4), "COMPLETED"), (SOME, "STOPPED"), (MapProgress(), "STOPPED")]
)
def test_the_status_tells_whether_rows_are_left(tmp_path: Path, progress: MapProgress, status: str) -> None:
    with recorded(tmp_path, a_map(tmp_path)) as recorder:
        recorder.save(progress)

    row = map_row(tmp_path, a_map(tmp_path))
    assert (row.status, bool(row.resume)) == (status, status == "STOPPED")


def test_a_session_that_an_error_ended_is_stopped_with_that_error_and_resuming_keeps_the_start(
    tmp_path: Path,
) -> None:
    with pytest.raises(RuntimeConfigError), recorded(tmp_path, a_map(tmp_path)):
        raise RuntimeConfigError("the Spark job failed\nat length")
    stopped = map_row(tmp_path, a_map(tmp_path))
    assert (stopped.status, stopped.failed) == ("STOPPED", "the Spark job failed")

    clock = Clock(50.0)
    with recorded(tmp_path, MapRun(**{**_values(a_map(tmp_path)), "started": 40.0}), clock) as recorder:
        assert (recorder.run.started, recorder.run.resumed) == (7.0, (50.0,))
        recorder.save(MapProgress(4))

    assert map_row(tmp_path, recorder.run).status == "COMPLETED"


def test_progress_is_saved_now_and_then_and_not_for_each_row(tmp_path: Path) -> None:
    clock, read = Clock(0.0), list[MapProgress]()

    def progress() -> MapProgress:
        read.append(SOME)
        return SOME

    with recorded(tmp_path, a_map(tmp_path), clock) as recorder:
        for _ in range(100):
            clock.sleep(SAVE_SECONDS / 50)
            recorder.update(progress)
        assert len(read) == 2
        assert progress_of(tmp_path, recorder.run.id).done == 1


def test_a_killed_command_leaves_a_stopped_map_with_the_last_progress(tmp_path: Path) -> None:
    save_map(tmp_path, a_map(tmp_path))

    assert map_row(tmp_path, a_map(tmp_path)).status == "STOPPED"
    assert progress_of(tmp_path, a_map(tmp_path).id).text(a_map(tmp_path)) == "0 of 4 rows are done, 4 left"


def test_maps_are_found_by_unique_beginnings_and_by_being_the_newest(tmp_path: Path) -> None:
    first, second = a_map(tmp_path), a_map(tmp_path, "map-20260102-000000-bbbbbbbb")
    save_map(tmp_path, first)
    save_map(tmp_path, second)
    here = servers(tmp_path)

    assert [one.id if one else "" for one in (find_map(here, "map-20260101"), find_map(here, None))] == [
        first.id,
        second.id,
    ]
    assert find_map(here, "map_rows") is find_map(here, "map-2025") is find_map(here, "map-../..") is None
    with pytest.raises(RuntimeConfigError, match="several ids begin with 'map-2026'"):
        find_map(here, "map-2026")
    with pytest.raises(RuntimeConfigError, match=f"{first.id} is a map.*--resume`"):
        find(here, first.id)
    save_run(tmp_path, Run("20260103-000000-abcdef", "w", "flow", ["tasks.py"], str(tmp_path)))
    assert find_map(here, None) is None, "the newest run is a workflow"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"failures": [1]}', '{"failures": [], "later": 1}'])
def test_damaged_progress_hides_no_map(tmp_path: Path, text: str) -> None:
    save_map(tmp_path, a_map(tmp_path))
    (runs_folder(tmp_path) / a_map(tmp_path).id / "rows.json").write_text(text)

    assert progress_of(tmp_path, a_map(tmp_path).id) == MapProgress()
    assert [row.kind for row in list_runs(servers(tmp_path), 5)] == ["map"]


def test_a_record_of_before_the_lakes_name_was_in_it_is_read(tmp_path: Path) -> None:
    save_map(tmp_path, a_map(tmp_path))
    file = runs_folder(tmp_path) / a_map(tmp_path).id / "map.json"
    values = json.loads(file.read_text())
    del values["lake"]
    file.write_text(json.dumps(values))

    found = read_record(tmp_path, a_map(tmp_path).id)
    assert isinstance(found, MapRun)
    assert found.lake == ""


def test_following_a_map_ends_with_its_command_and_misses_no_line(tmp_path: Path) -> None:
    run = a_map(tmp_path)
    with recorded(tmp_path, run) as recorder:
        log = map_log(tmp_path, run.id)
        later = iter([b"two\nthr", b"ee"])
        lines = printed_by_map(tmp_path, run, follow=True, pause=lambda _s: _write(log, next(later)))
        _write(log, b"one\n10 %\r20 %\n")
        shown = [next(lines), next(lines), next(lines)]
        recorder.save(MapProgress(4))

    assert [*shown, *lines] == ["one", "20 %", "two", "three"]


def test_removing_a_map_removes_its_log_too(tmp_path: Path) -> None:
    with recorded(tmp_path, a_map(tmp_path)) as recorder:
        _write(map_log(tmp_path, recorder.run.id), b"one\n")

    [judged] = chosen_runs(tmp_path, [recorder.run.id])
    assert remove_run(tmp_path, judged.run) == "removed"
    assert list(runs_folder(tmp_path).iterdir()) == list((tmp_path / "maps").iterdir()) == []


def _values(run: MapRun) -> dict[str, object]:
    return {name: getattr(run, name) for name in run.__slots__}


def _write(file: Path, data: bytes) -> None:
    with file.open("ab") as opened:
        opened.write(data)
