"""From tables to rows: which columns there are, what params become, and what is refused before anything runs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest
from pyarrow import parquet
from pydantic import BaseModel, model_validator

from perago import WorkspaceSpec, task
from perago.declare.task import TaskDefinition
from perago.errors import RuntimeConfigError
from perago.runtime.maps.parse import check_columns, diagnostic_in, rows_of
from perago.runtime.maps.rows import FailureGroup, Row, RowOutcome, failure_groups
from perago.runtime.maps.table import read_table, write_table


class Key(StrEnum):
    MINOR = "minor"


class Tune(BaseModel):
    title: str = ""
    beats: int = 4
    loud: bool = False
    tags: list[str] = []
    key: Key | None = None
    mode: Literal["a", "b"] = "a"


class Done(BaseModel):
    ok: bool = True


def tune_task(**spec: Any) -> TaskDefinition:
    @task(name="tune", owner_email="tests@example.com", workspace=WorkspaceSpec(prefix="/", **spec))
    def tune(workspace: Path, params: Tune) -> Done:
        return Done()

    definition: TaskDefinition = tune.__perago_task__
    return definition


def rows(
    records: Sequence[Mapping[str, Any]], *, text: bool = False, of: TaskDefinition | None = None
) -> list[Row]:
    return rows_of(of or tune_task(), records, text=text)


class Night(BaseModel):
    day: date
    price: Decimal
    at: datetime | None = None
    tags: list[str] = []


class TestTypedTables:
    """Tables as Spark writes them: Parquet has more types than JSON."""

    @staticmethod
    def night_task() -> TaskDefinition:
        @task(name="night", owner_email="tests@example.com", workspace=WorkspaceSpec(prefix="/"))
        def night(workspace: Path, params: Night) -> Done:
            return Done()

        definition: TaskDefinition = night.__perago_task__
        return definition

    def test_dates_decimals_and_lists_arrive_as_the_model_declares_them(self, tmp_path: Path) -> None:
        moment = datetime(2026, 1, 1, 20, 15, tzinfo=UTC)
        cells = {"day": date(2026, 1, 1), "price": Decimal("1.50"), "at": moment, "tags": ["a"]}
        table = pa.Table.from_pylist([{"repository": "songs", **cells}])
        parquet.write_table(table, tmp_path / "t.parquet")

        [row] = rows(read_table(tmp_path / "t.parquet"), of=self.night_task())

        check_columns(self.night_task(), [row])
        assert diagnostic_in(self.night_task(), row) == ""
        assert self.night_task().parse_params(json.dumps(row.params)) == Night(**cells)

    def test_a_wrong_column_of_a_typed_table_is_named_before_spark_starts(self, tmp_path: Path) -> None:
        parquet.write_table(
            pa.table({"repository": ["songs"], "dya": [date(2026, 1, 1)]}), tmp_path / "t.parquet"
        )

        with pytest.raises(RuntimeConfigError, match="column dya: is not a param; did you mean 'day'"):
            check_columns(self.night_task(), rows(read_table(tmp_path / "t.parquet"), of=self.night_task()))

    def test_bytes_that_are_no_text_fail_their_own_row(self) -> None:
        [bad, good] = rows(
            [{"repository": "songs", "title": b"\xff"}, {"repository": "other", "title": b"So What"}]
        )
        assert ("no JSON form" in bad.diagnostic, good.params) == (True, {"title": "So What"})


class TestColumns:
    def test_branch_and_ref_may_be_left_out(self) -> None:
        assert rows([{"repository": "songs"}]) == [Row(1, "songs", "main")]

    def test_every_other_column_is_a_param(self) -> None:
        [row] = rows([{"repository": "songs", "branch": "dev", "ref": "abc", "title": "x", "beats": 3}])
        assert row == Row(1, "songs", "dev", "abc", {"title": "x", "beats": 3})

    def test_cells_of_text_become_what_the_params_take(self) -> None:
        cells = {"title": "007", "beats": "3", "loud": "true", "tags": '["x"]', "key": "minor", "mode": "b"}
        [row] = rows([{"repository": "songs", **cells}], text=True)
        assert row.params == {
            "title": "007",
            "beats": 3,
            "loud": True,
            "tags": ["x"],
            "key": "minor",
            "mode": "b",
        }
        assert diagnostic_in(tune_task(), row) == ""

    def test_an_empty_cell_leaves_the_param_to_its_default(self) -> None:
        [row] = rows([{"repository": "songs", "title": "", "beats": ""}], text=True)
        assert row.params == {}

    def test_a_cell_that_does_not_fit_is_told_by_its_name(self) -> None:
        [row] = rows([{"repository": "songs", "beats": "many"}], text=True)
        assert "params.beats" in diagnostic_in(tune_task(), row)

    @pytest.mark.parametrize("params", ['{"beats": 3}', {"beats": 3}])
    def test_params_may_be_one_object_beside_columns_that_are_none(self, params: object) -> None:
        [row] = rows([{"repository": "songs", "params": params, "remark": "nice"}])
        assert row.params == {"beats": 3}

    def test_a_table_without_repositories_is_refused(self) -> None:
        with pytest.raises(RuntimeConfigError, match=r"no column 'repository'.*did you mean 'repositry'"):
            rows([{"repositry": "songs", "title": "x"}])


class TestColumnsAgainstTheParamsModel:
    @pytest.mark.parametrize(
        ("records", "said"),
        [
            ([{"beatz": 3}, {}], r"column beatz: is not a param; did you mean 'beats'\?"),
            ([{"beats": "x"}, {"beats": "y"}], "column beats: got a string, send a valid integer"),
            ([{"xyzzy": 1, "beats": None}], "column xyzzy: is not a param; there are: beats, "),
        ],
    )
    def test_refuse_the_table(self, records: list[dict[str, Any]], said: str) -> None:
        table = rows([{"repository": f"songs{n}", **record} for n, record in enumerate(records)])
        with pytest.raises(RuntimeConfigError, match=f"does not fit the params of task 'tune': {said}"):
            check_columns(tune_task(), table)

    def test_a_required_param_that_no_row_has_refuses_the_table(self) -> None:
        class Needs(BaseModel):
            title: str

        @task(name="needs", owner_email="tests@example.com", workspace=WorkspaceSpec(prefix="/"))
        def needs(workspace: Path, params: Needs) -> Done:
            return Done()

        definition: TaskDefinition = needs.__perago_task__
        with pytest.raises(RuntimeConfigError, match="column title: is missing, send it"):
            check_columns(definition, rows([{"repository": "songs"}], of=definition))
        one_has_it = rows([{"repository": "songs"}, {"repository": "other", "title": "x"}], of=definition)
        check_columns(definition, one_has_it)

    def test_one_wrong_cell_among_good_ones_fails_only_its_row(self) -> None:
        check_columns(
            tune_task(), rows([{"repository": "songs", "beats": "x"}, {"repository": "b", "beats": 3}])
        )

    def test_a_validator_that_raises_anything_is_left_to_its_row(self) -> None:
        class Odd(BaseModel):
            @model_validator(mode="before")
            @classmethod
            def read(cls, _value: object) -> object:
                raise KeyError("odd")

        @task(name="odd", owner_email="tests@example.com", workspace=WorkspaceSpec(prefix="/"))
        def odd(workspace: Path, params: Odd) -> Done:
            return Done()

        check_columns(odd.__perago_task__, rows([{"repository": "songs"}], of=odd.__perago_task__))


class TestEqualFailures:
    def test_are_one_group_with_the_numbers_of_its_rows(self) -> None:
        outcomes = [
            RowOutcome(
                number, f"songs{number}", "main", "FAILED", f"no table in songs{number}@main at {number:064x}"
            )
            for number in range(1, 8)
        ]
        outcomes += [RowOutcome(8, "x", "main", "FAILED", "full"), RowOutcome(9, "y", "main", "COMPLETED")]
        many, one = failure_groups(reversed(outcomes))
        assert many.rows == (1, 2, 3, 4, 5, 6, 7)
        assert str(many) == f"7 rows (1, 2, 3, 4, 5, …): FAILED: no table in songs1@main at {1:064x}"
        assert one == FailureGroup("FAILED", "full", (8,))
        assert str(one) == "row 8: FAILED: full"

    def test_that_only_look_alike_are_kept_apart(self) -> None:
        outcomes = [RowOutcome(n, "songs", "main", "FAILED", f"song{n} is empty") for n in (1, 2)]
        assert len(failure_groups(outcomes)) == 2


class TestRowsThatAreWrong:
    @pytest.mark.parametrize(
        ("record", "said"),
        [
            ({"repository": " "}, "repository is empty"),
            ({"repository": 3}, "repository must be a string, not an integer"),
            ({"repository": "songs", "params": "{"}, "params is not JSON"),
            ({"repository": "songs", "params": "[1]"}, "params is an array"),
            ({"repository": "songs", "params": {"beats": float("nan")}}, "no JSON form"),
        ],
    )
    def test_fail_by_themselves(self, record: dict[str, Any], said: str) -> None:
        good, bad = rows([{"repository": "other"}, record])
        assert (good.diagnostic, said in bad.diagnostic) == ("", True)


class TestRowsOfOneBranch:
    RECORDS: Sequence[Mapping[str, Any]] = (
        {"repository": "songs"},
        {"repository": "other"},
        {"repository": "songs", "branch": "main"},
    )

    def test_rows_of_one_branch_are_refused_with_both_numbers(self) -> None:
        with pytest.raises(RuntimeConfigError, match=r"rows 1 and 3 \(songs@main\)"):
            rows(self.RECORDS)

    @pytest.mark.parametrize(
        "spec", [{"read_only": True}, {"on_advanced": "rebase", "on_abandoned": "supersede"}]
    )
    def test_rows_of_one_branch_are_accepted_if_they_cannot_conflict(self, spec: dict[str, Any]) -> None:
        assert len(rows(self.RECORDS, of=tune_task(**spec))) == 3

    def test_branches_of_one_repository_are_two(self) -> None:
        assert len(rows([{"repository": "songs"}, {"repository": "songs", "branch": "dev"}])) == 2


class TestTasks:
    def test_without_a_workspace_are_refused(self) -> None:
        @task(name="plain", owner_email="tests@example.com")
        def plain(params: Tune) -> Done:
            return Done()

        with pytest.raises(RuntimeConfigError, match="'plain' has no workspace"):
            rows([{"repository": "songs"}], of=plain.__perago_task__)  # type: ignore[attr-defined]


class TestTables:
    @pytest.mark.parametrize("ending", ["csv", "jsonl", "ndjson", "parquet"])
    def test_a_written_table_is_read_back(self, tmp_path: Path, ending: str) -> None:
        path = tmp_path / f"table.{ending}"
        write_table(path, ["repository", "title", "beats"], [{"repository": "söngs", "title": 'a,"b"\n'}])

        [row] = read_table(path)

        assert (row["repository"], row["title"]) == ("söngs", 'a,"b"\n')
        assert not row["beats"]
        assert [file.name for file in tmp_path.iterdir()] == [path.name]

    @pytest.mark.parametrize(
        ("name", "content", "said"),
        [
            ("t.csv", b"repository\n", "has no rows"),
            ("t.csv", b"", "has no rows"),
            ("t.csv", b"repository,repository\na,b\n", "column 'repository' appears twice"),
            ("t.csv", b"repository,title\na,b\nc\n", "line 3 has 1 cells, and the header 2"),
            ("t.csv", b"repository\nca\xe9\n", "is not UTF-8"),
            ("t.csv", b'repository\n"a\n', "line 2: unexpected end of data"),
            ("t.jsonl", b'{"repository": "a"}\n{\n', "line 2 is not JSON"),
            ("t.jsonl", b"[1]\n", "line 1 is not a JSON object"),
            ("t.parquet", b"nothing of the kind", "is not a Parquet table"),
            ("t.txt", b"", "ends in .csv"),
        ],
    )
    def test_tables_that_cannot_be_understood_are_refused(
        self, tmp_path: Path, name: str, content: bytes, said: str
    ) -> None:
        (tmp_path / name).write_bytes(content)
        with pytest.raises(RuntimeConfigError, match=said):
            read_table(tmp_path / name)

    def test_missing_tables_are_reported(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeConfigError, match="there is no table"):
            read_table(tmp_path / "t.csv")

    def test_a_mark_at_the_beginning_and_odd_bytes_are_no_part_of_a_name(self, tmp_path: Path) -> None:
        (tmp_path / "t.csv").write_bytes("\ufeffrepository,title\r\nsongs,a\x00b\r\n\r\n".encode())
        assert read_table(tmp_path / "t.csv") == [{"repository": "songs", "title": "a\x00b"}]

    def test_values_keep_their_types(self, tmp_path: Path) -> None:
        (tmp_path / "t.jsonl").write_text(json.dumps({"repository": "songs", "beats": 3, "tags": ["x"]}))
        [row] = rows(read_table(tmp_path / "t.jsonl"))
        assert row.params == {"beats": 3, "tags": ["x"]}
