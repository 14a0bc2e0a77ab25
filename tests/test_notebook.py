"""`perago.read`: tables and files at one commit, on both lakes, and nothing left behind."""

from __future__ import annotations

import gzip
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import perago
from perago.backend import open_lakefs, open_local_lake
from perago.errors import LakeNotFound, RuntimeConfigError
from perago.settings import load_settings
from tests.conftest import LakefsServer
from tests.support.worlds.cli_lake import HIDDEN
from tests.support.worlds.lake_work import Work


def parquet(**columns: list[object]) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue()


FILES = {
    "plays/day=2026-11-18/a.parquet": parquet(id=[1, 2]),
    "plays/day=2026-11-19/b.parquet": parquet(id=[3], title=["Naima"]),
    "plays/_SUCCESS": b"",
    "songs.csv": b"id,title\n1,So What\n",
    "packed.csv.gz": gzip.compress(b"id\n7\n"),
    "tabs/a.tsv": b"id\ttitle\n1,5\tx\n",
    "lines.jsonl": b'{"id": 1, "tags": ["a"]}\n{"id": 2}\n',
    "notes/one[1].txt": b"first",
    "delta/_delta_log/00000000000000000000.json": b"{}",
}


@pytest.fixture(params=["embedded", pytest.param("lakefs", marks=pytest.mark.servers)])
def work(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """A lake that the environment names, with the files on main; what is read leaves nothing behind."""
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setenv("PERAGO_ROOT", str(tmp_path / "root"))
    if request.param == "lakefs":
        server: LakefsServer = request.getfixturevalue("lakefs_server")
        name = request.getfixturevalue("lakefs_repository")
        monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", server.url)
        monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", server.access_key_id)
        monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", server.secret_access_key)
        monkeypatch.setenv("PERAGO_SERVERS", "remote")
        lake = open_lakefs(load_settings(os.environ))
    else:
        for one in HIDDEN:
            if one != "PERAGO_ROOT":
                monkeypatch.delenv(one, raising=False)
        name = "songs"
        lake = open_local_lake(load_settings({"PERAGO_ROOT": str(tmp_path / "root")}))
        lake.create_repository(name)
    made = Work(lake, name, tmp_path / "files")
    made.commit("main", FILES)
    yield made
    lake.close()
    assert list(temporary.iterdir()) == []


def test_a_workspace_stays_at_its_commit(work: Work) -> None:
    head = work.head()
    with perago.read(f"{work.repository}@main") as workspace:
        work.commit("main", {"songs.csv": b"id\n9\n", "more": b"1"})

        assert workspace.ref == head
        assert workspace.read_bytes("songs.csv") == FILES["songs.csv"]
        assert workspace.path("songs.csv").read_bytes() == FILES["songs.csv"]
        assert "more" not in workspace.files()
        assert workspace.files("notes") == workspace.files("notes/") == ["notes/one[1].txt"]
        assert repr(workspace) == f"<ReadWorkspace {work.repository}@{head}>"


def test_paths_are_downloaded_once_and_removed_at_the_end(work: Work) -> None:
    with perago.read(work.repository) as workspace:
        folder = workspace.path("plays")

        assert workspace.path("plays/") == folder
        assert sorted(one.name for one in folder.rglob("*.parquet")) == ["a.parquet", "b.parquet"]
        assert workspace.path("notes/one[1].txt").name == "one[1].txt"
    assert not folder.exists()
    with pytest.raises(RuntimeConfigError, match="is closed: read inside its `with` block"):
        workspace.path("plays")
    workspace.close()


def test_a_partitioned_table_has_the_columns_of_all_its_files(work: Work) -> None:
    with perago.read(work.repository) as workspace:
        table = workspace.arrow("plays")
        frame = workspace.pandas("plays")

    rows = sorted(table.to_pylist(), key=lambda row: row["id"])
    assert [(row["id"], row["title"]) for row in rows] == [(1, None), (2, None), (3, "Naima")]
    assert {str(row["day"]) for row in rows} == {"2026-11-18", "2026-11-19"}
    assert sorted(frame["id"]) == [1, 2, 3]


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("songs.csv", [{"id": 1, "title": "So What"}]),
        ("packed.csv.gz", [{"id": 7}]),
        ("tabs", [{"id": "1,5", "title": "x"}]),
        ("lines.jsonl", [{"id": 1, "tags": ["a"]}, {"id": 2, "tags": None}]),
    ],
)
def test_csv_and_json_lines_are_tables(work: Work, path: str, rows: list[dict[str, object]]) -> None:
    with perago.read(work.repository) as workspace:
        assert workspace.arrow(path).to_pylist() == rows


def test_what_is_no_table_or_not_there_is_refused(work: Work) -> None:
    with perago.read(work.repository) as workspace:
        with pytest.raises(RuntimeConfigError, match="'delta' is a Delta table"):
            workspace.arrow("delta")
        with pytest.raises(RuntimeConfigError, match="'notes' is not a table"):
            workspace.pandas("notes")
        with pytest.raises(LakeNotFound, match="there is no object 'nope'"):
            workspace.arrow("nope")
        with pytest.raises(LakeNotFound, match="there is nothing below 'nope/'"):
            workspace.path("nope")
    with pytest.raises(LakeNotFound, match=r"has no branch, tag or commit 'mian'.*did you mean 'main'\?"):
        perago.read(f"{work.repository}@mian")
    with pytest.raises(RuntimeConfigError, match=r"is not REPO\[@REF\]"):
        perago.read("songs@")


def test_a_root_without_a_lake_is_named(tmp_path: Path) -> None:
    with pytest.raises(RuntimeConfigError, match=f"there is no lake below {tmp_path}: name its root"):
        perago.read("songs", root=str(tmp_path), remote=False)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("package", ["pyarrow", "pandas", "pyspark"])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    with closing(open_local_lake(load_settings({"PERAGO_ROOT": str(tmp_path)}))) as lake:
        lake.create_repository("songs")
    monkeypatch.setitem(sys.modules, package, None)
    method = {"pyarrow": "arrow", "pandas": "pandas", "pyspark": "spark"}[package]

    with (
        perago.read("songs", root=tmp_path, remote=False) as workspace,
        pytest.raises(RuntimeConfigError, match=rf"needs {package}, which.*perago\[spark\]"),
    ):
        getattr(workspace, method)("plays")


def test_importing_perago_imports_no_lake_and_nothing_to_read_tables() -> None:
    heavy = ["perago.backend", "perago.lake", "pyarrow", "pandas", "sqlite3", "urllib3"]
    script = f"import sys, perago; print([one for one in {heavy} if one in sys.modules])"

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.stdout.strip() == "[]", done.stderr
