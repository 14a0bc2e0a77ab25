"""Driving a map: the rows handed to an engine, the run's record, and resuming a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from perago.errors import RuntimeConfigError
from perago.lake.local.lake import LocalLake
from perago.runtime.maps.map_run import Map
from perago.runtime.maps.plan import COLUMNS, MapPlan, write_outcomes
from perago.runtime.maps.rows import Row, RowOutcome
from perago.runtime.maps.run_file import MapRunFile, digest_of, locked_run_file, run_file_path
from perago.runtime.maps.table import read_table
from tests.support.worlds.map_world import MapWorld
from tests.support.worlds.world import make_task


@dataclass(slots=True)
class Here:
    """An engine without processes: runs the rows in reverse, and may lose what it has to tell."""

    mapped: MapWorld
    loses: Callable[[Row], bool] = lambda _row: False
    breaks_after: int | None = None

    def check(self, plan: MapPlan) -> None:
        pass

    def outcomes(self, plan: MapPlan, rows: Sequence[Row]) -> Iterator[RowOutcome]:
        runner = self.mapped.runner()
        for count, row in enumerate(reversed(rows)):
            if count == self.breaks_after:
                raise RuntimeConfigError("the engine is gone")
            outcome = runner.run(row)
            if not self.loses(row):
                yield outcome


@pytest.fixture
def mapped(tmp_path: Path) -> Iterator[MapWorld]:
    lake = LocalLake(tmp_path / "lake")
    lake.create_repository("one")
    made = MapWorld(lake, "one", tmp_path, make_task(prefix="/"))
    lake.create_repository("two")
    lake.create_repository("three")
    yield made
    lake.close()


ROWS = [Row(1, "one", "main"), Row(2, "two", "main"), Row(3, "three", "main"), Row(4, "gone", "main")]


def a_map(mapped: MapWorld, rows: Sequence[Row] = ROWS) -> Map:
    made = Map(mapped.plan, rows, mapped.record)
    made.read_record()
    return made


class TestDriving:
    def test_tells_of_every_row_once_and_counts(self, mapped: MapWorld) -> None:
        session, told = a_map(mapped), list[RowOutcome]()

        session.drive(Here(mapped), session.left(), told.append)

        assert [one.row for one in told] == [4, 3, 2, 1]
        row_counts = session.row_counts()
        assert (row_counts.rows, row_counts.done, row_counts.failed, row_counts.left) == (4, 3, 1, 0)

    def test_rows_that_the_engine_lost_are_in_the_record(self, mapped: MapWorld) -> None:
        session, told = a_map(mapped), list[RowOutcome]()

        session.drive(Here(mapped, loses=lambda row: row.number < 3), session.left(), told.append)

        assert sorted(one.row for one in told) == [1, 2, 3, 4]
        assert session.row_counts().done == 3

    def test_a_session_whose_engine_broke_keeps_what_was_done(self, mapped: MapWorld) -> None:
        session = a_map(mapped)
        with pytest.raises(RuntimeConfigError, match="the engine is gone"):
            session.drive(Here(mapped, breaks_after=2), session.left(), lambda _one: None)

        assert {number: one.status for number, one in session.known.items()} == {
            1: "UNSETTLED",
            2: "UNSETTLED",
            3: "COMPLETED",
            4: "FAILED",
        }

    def test_a_later_session_does_only_what_is_not_done(self, mapped: MapWorld) -> None:
        first = a_map(mapped)
        first.drive(Here(mapped), first.left(2), lambda _one: None)
        again = a_map(mapped.resumed())

        assert [row.number for row in again.left()] == [3, 4]
        assert [row.number for row in again.left(1)] == [3]
        mapped.lake.create_repository("gone")
        again.drive(Here(mapped.resumed()), again.left(), lambda _one: None)

        assert again.row_counts().done == 4
        assert {name: len(list(mapped.lake.log(name, "main", 9))) for name in ("one", "two", "gone")} == {
            "one": 2,
            "two": 2,
            "gone": 2,
        }

    @pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet"])
    def test_the_outcomes_are_a_table(self, mapped: MapWorld, tmp_path: Path, ending: str) -> None:
        session = a_map(mapped)
        session.drive(Here(mapped), session.left(), lambda _one: None)

        write_outcomes(tmp_path / f"out.{ending}", session.known.values())

        table = read_table(tmp_path / f"out.{ending}")
        assert [int(row["row"]) for row in table] == [1, 2, 3, 4]
        assert set(table[0]) == set(COLUMNS)
        assert [row["status"] for row in table] == ["COMPLETED"] * 3 + ["FAILED"]
        assert table[0]["published"] == mapped.lake.head("one", "main").id


def test_a_table_keeps_its_digest_so_that_runs_of_older_versions_can_be_resumed() -> None:
    rows = [Row(1, "songs", "main", params={"n": 1}), Row(2, "songs", "main", diagnostic="no params")]

    # Computed by the version before the attribute `mistake` was renamed.
    assert digest_of(rows) == "6166b6d4d6b641c69f4a5a7e6b314ac77c64e4ec65ec8fb52cb64b79a2e7b732"


class TestRunFile:
    FRESH = MapRunFile("map-1", 1, "make", "embedded", digest_of(ROWS), 4)

    def test_a_run_is_resumed_by_what_lies_beside_its_outcomes(self, tmp_path: Path) -> None:
        out = tmp_path / "out.csv"
        with locked_run_file(out, self.FRESH, resume=False):
            pass
        with locked_run_file(out, replace(self.FRESH, run="map-2", started=2), resume=True) as found:
            assert found == self.FRESH

    def test_outcomes_that_are_there_are_not_written_over(self, tmp_path: Path) -> None:
        (tmp_path / "out.csv").touch()
        with (
            pytest.raises(RuntimeConfigError, match="add --resume"),
            locked_run_file(tmp_path / "out.csv", self.FRESH, resume=False),
        ):
            pass

    def test_resuming_without_a_run_is_refused(self, tmp_path: Path) -> None:
        with (
            pytest.raises(RuntimeConfigError, match="no run to resume"),
            locked_run_file(tmp_path / "out.csv", self.FRESH, resume=True),
        ):
            pass

    def test_a_run_has_one_driver_at_a_time(self, tmp_path: Path) -> None:
        out = tmp_path / "out.csv"
        with (
            locked_run_file(out, self.FRESH, resume=False),
            pytest.raises(RuntimeConfigError, match="another `perago map` is writing"),
            locked_run_file(out, self.FRESH, resume=True),
        ):
            pass

    @pytest.mark.parametrize("other", [{"task": "other"}, {"lake": "elsewhere"}, {"table": "changed"}])
    def test_resuming_with_another_table_task_or_lake_is_refused(
        self, tmp_path: Path, other: dict[str, str]
    ) -> None:
        out = tmp_path / "out.csv"
        with locked_run_file(out, self.FRESH, resume=False):
            pass
        with (
            pytest.raises(RuntimeConfigError, match="is not the one that run map-1 began with"),
            locked_run_file(
                out,
                replace(self.FRESH, **other),
                resume=True,  # type: ignore[arg-type]
            ),
        ):
            pass
        assert run_file_path(out).exists()
