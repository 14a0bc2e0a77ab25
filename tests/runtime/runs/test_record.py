"""The records of `perago run`, and bringing a folder into a lake."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from perago.errors import RuntimeConfigError
from perago.runtime.folder_upload import folder_uploads
from perago.runtime.runs.record import Run, find_run, holding, is_running, new_run_id, runs_folder, save_run


def a_run(run_id: str) -> Run:
    return Run(run_id, "workflow-1", "clean", ("tasks.py", "app.more"), "/somewhere")


class TestRuns:
    def test_a_saved_run_is_found_by_its_id(self, tmp_path: Path) -> None:
        save_run(tmp_path, a_run("one"))
        save_run(tmp_path, a_run("two"))
        found = find_run(tmp_path, "one")
        assert (found.id, found.workflow_id, found.workflow_name, found.folder) == (
            "one",
            "workflow-1",
            "clean",
            "/somewhere",
        )
        assert list(found.targets) == ["tasks.py", "app.more"]

    def test_without_an_id_the_newest_is_found(self, tmp_path: Path) -> None:
        ids = [new_run_id(now) for now in (1_600_000_000.0, 1_700_000_000.0, 1_650_000_000.0)]
        for run_id in ids:
            save_run(tmp_path, a_run(run_id))
        assert find_run(tmp_path, None).id == ids[1]

    def test_runs_that_begin_within_a_second_are_sorted_by_their_ids_too(self) -> None:
        ids = [new_run_id(1_700_000_000 + millisecond / 1000) for millisecond in range(999)]
        assert ids == sorted(ids)

    def test_ids_of_one_second_differ_and_say_when(self) -> None:
        ids = {new_run_id(0.0) for _ in range(50)}
        assert len(ids) == 50
        assert all(run_id.startswith("19700101-000000-") for run_id in ids)

    def test_an_unknown_id_names_those_there_are(self, tmp_path: Path) -> None:
        save_run(tmp_path, a_run("one"))
        with pytest.raises(
            RuntimeConfigError, match=r"no run 'other' below .* that `perago run` has started; there are: one"
        ):
            find_run(tmp_path, "other")

    @pytest.mark.parametrize("workflow", ["flow.py:plays", "flow.json", "flows/plays.py"])
    def test_a_workflow_in_place_of_a_run_is_named_as_such(self, tmp_path: Path, workflow: str) -> None:
        save_run(tmp_path, a_run("one"))
        with pytest.raises(
            RuntimeConfigError, match=r"; name a run and not a workflow, or leave it out for the newest run$"
        ):
            find_run(tmp_path, workflow)

    def test_a_root_without_runs_says_so(self, tmp_path: Path) -> None:
        with pytest.raises(RuntimeConfigError, match="there is no run below"):
            find_run(tmp_path, None)

    def test_a_record_is_written_whole_and_over_an_old_one(self, tmp_path: Path) -> None:
        save_run(tmp_path, a_run("one"))
        save_run(tmp_path, Run("one", "workflow-2", "clean", (), "/else"))
        assert find_run(tmp_path, "one").workflow_id == "workflow-2"
        assert os.listdir(runs_folder(tmp_path) / "one") == ["run.json"]

    def test_a_run_that_died_before_its_record_was_whole_is_passed_over(self, tmp_path: Path) -> None:
        (runs_folder(tmp_path) / "zzz-half").mkdir(parents=True)
        (runs_folder(tmp_path) / "zzz-half" / "run.json.new").write_text("{")
        save_run(tmp_path, a_run("one"))
        assert find_run(tmp_path, None).id == "one"


class TestImporting:
    def uploads(self, folder: Path, leave_out: Path | None = None) -> dict[str, tuple[int, str]]:
        found = folder_uploads(folder, "sha256", leave_out=leave_out or folder / ".perago")
        assert all(upload.source == folder / upload.path for upload in found)
        return {upload.path: (upload.size, upload.checksum) for upload in found}

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        (tmp_path / "raw" / "ünï").mkdir(parents=True)
        (tmp_path / "raw" / "ünï" / "a b.csv").write_bytes(b"1,2")
        (tmp_path / "empty file").touch()
        (tmp_path / "empty folder").mkdir()
        return tmp_path

    def test_every_file_comes_with_its_size_and_checksum(self, folder: Path) -> None:
        (folder / ".perago").mkdir()
        assert self.uploads(folder) == {
            "raw/ünï/a b.csv": (3, hashlib.sha256(b"1,2").hexdigest()),
            "empty file": (0, hashlib.sha256(b"").hexdigest()),
        }

    def test_peragos_own_root_inside_the_folder_is_left_out(self, folder: Path) -> None:
        (folder / "state" / "lake").mkdir(parents=True)
        (folder / "state" / "lake" / "lake.db").touch()
        (folder / "raw" / "state").mkdir()
        (folder / "raw" / "state" / "kept").touch()
        found = self.uploads(folder, leave_out=folder / "state")
        assert set(found) == {"raw/ünï/a b.csv", "empty file", "raw/state/kept"}

    def test_a_root_that_is_not_there_yet_is_no_matter(self, folder: Path) -> None:
        assert len(self.uploads(folder, leave_out=folder / "not" / "yet")) == 2

    def test_a_file_that_a_workspace_cannot_hold_is_refused_by_name(self, folder: Path) -> None:
        (folder / "raw" / "link").symlink_to("/etc/hostname")
        with pytest.raises(RuntimeConfigError, match=r"cannot import .*raw/link"):
            self.uploads(folder)

    @pytest.mark.parametrize("name", ["missing", "empty file"])
    def test_a_path_that_is_no_folder_is_refused(self, folder: Path, name: str) -> None:
        with pytest.raises(RuntimeConfigError, match=r"not a folder|no such folder"):
            self.uploads(folder / name)


@pytest.mark.parametrize("text", ['{"id": "x"', '{"id": "x", "of_another_version": 1}', "[1]"])
def test_a_record_that_cannot_be_read_is_told_and_no_older_run_taken_in_its_place(
    tmp_path: Path, text: str
) -> None:
    save_run(tmp_path, Run("20260101-000000-aaaaaa", "w1", "flow", ["tasks.py"], "/"))
    damaged = runs_folder(tmp_path) / "20260102-000000-bbbbbb" / "run.json"
    damaged.parent.mkdir()
    damaged.write_text(text)

    with pytest.raises(
        RuntimeConfigError, match=r"run 20260102-000000-bbbbbb cannot be resumed: .*run\.json"
    ):
        find_run(tmp_path, None)
    assert find_run(tmp_path, "20260101-000000-aaaaaa").workflow_id == "w1"


HOLD = """
import sys
from pathlib import Path
from perago.runtime.runs.record import holding
with holding(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.mark.slow
def test_a_run_counts_as_running_while_its_process_lives_and_no_longer(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert not is_running(tmp_path / "another")
        assert holder.stdout.readline() == b"held\n"
        assert is_running(tmp_path)
        with pytest.raises(RuntimeConfigError, match="is running in another process"):  # noqa: SIM117
            with holding(tmp_path, pause=lambda _: None):
                pass
        holder.kill()
        holder.wait()
        assert not is_running(tmp_path)


def test_inspecting_does_not_keep_a_run_from_starting(tmp_path: Path) -> None:
    with holding(tmp_path):
        assert is_running(tmp_path)
    assert not is_running(tmp_path)
    with holding(tmp_path):
        assert is_running(tmp_path)
