"""The workdir: private, marked, filled from one commit, and read back without reading what did not change."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

from perago.errors import LakeError, PostGuardrailViolation
from perago.protocol.names import workdir_name
from perago.protocol.publication import Workspace
from perago.runtime.attempt.workdir import Workdir, scan_folder
from perago.runtime.root.state_dir import process_identity
from perago.runtime.root.workdirs import remove_workdir
from perago.runtime.sweep.workdirs import sweep_workdirs
from tests.support.processes.forked_child import killed_before_call
from tests.support.worlds.lake_work import ATTEMPT, Work, changes_by, filled_workdir

MARKER = ".perago-attempt.json"
ODD_NAMES = [
    "with space",
    " leading and trailing ",
    "-rf",
    "~",
    "$HOME",
    "a;b|c&d",
    "quo'te\"s",
    "new\nline",
    "tab\there",
    "back\\slash",
    "*?[x]",
    "ünï-日本-🎧",
    "e\u0301 is not \u00e9",
    ".hidden",
    "...",
    "n" * 255,
]


class TestCreation:
    def test_a_workdir_is_private_to_its_user(self, tmp_path: Path) -> None:
        workdir = Workdir.create(tmp_path / "new" / "root", ATTEMPT, "e1", now=0)
        assert workdir.path.stat().st_mode & 0o777 == 0o700
        assert (tmp_path / "new" / "root").stat().st_mode & 0o777 == 0o700

    def test_the_marker_says_whose_it_is(self, tmp_path: Path) -> None:
        workdir = Workdir.create(tmp_path, ATTEMPT, "e1", now=1_700_000_000.5)
        assert json.loads((workdir.path / MARKER).read_text()) == {
            "attempt": {
                "workflow_instance_id": "wf-1",
                "task_id": ATTEMPT.task_id,
                "reference_task_name": "step",
                "task_name": "make",
                "retry_count": 2,
            },
            "execution_id": "e1",
            **process_identity(),
            "started": 1_700_000_000.5,
        }

    def test_two_executions_of_one_attempt_have_two(self, tmp_path: Path) -> None:
        one = Workdir.create(tmp_path, ATTEMPT, "e1", now=0)
        two = Workdir.create(tmp_path, ATTEMPT, "e2", now=0)
        assert one.path != two.path

    def test_a_folder_that_is_there_is_never_taken_over(self, tmp_path: Path) -> None:
        Workdir.create(tmp_path, ATTEMPT, "e1", now=0)
        with pytest.raises(FileExistsError):
            Workdir.create(tmp_path, ATTEMPT, "e1", now=0)


class TestMarker:
    def test_the_marker_is_no_part_of_the_result(self, work: Work, tmp_path: Path) -> None:
        workdir, workspace = filled_workdir(work, tmp_path, {"a": b"1"})
        assert set(workdir.result(work.lake, workspace)) == {"a"}

    @pytest.mark.parametrize("path", [MARKER, f"deep/{MARKER}"])
    def test_an_object_of_its_name_is_not_downloaded(self, work: Work, tmp_path: Path, path: str) -> None:
        workdir, workspace = filled_workdir(work, tmp_path, {"a": b"1", path: b"an object"})
        assert json.loads((workdir.path / MARKER).read_text())["execution_id"] == "e1"
        assert not (workdir.path / "deep").exists()
        assert set(workdir.result(work.lake, workspace)) == {"a"}

    @pytest.mark.parametrize("path", [MARKER, f"deep/{MARKER}"])
    def test_a_body_that_writes_it_is_refused_by_name(self, work: Work, tmp_path: Path, path: str) -> None:
        workdir, workspace = filled_workdir(work, tmp_path, {"deep/a": b"1"})
        (workdir.path / path).write_text("mine")
        with pytest.raises(PostGuardrailViolation, match=r"\.perago-attempt\.json"):
            workdir.result(work.lake, workspace)

    def test_a_body_that_removes_it_harms_nobody(self, work: Work, tmp_path: Path) -> None:
        workdir, workspace = filled_workdir(work, tmp_path, {"a": b"1"})
        (workdir.path / MARKER).unlink()
        assert set(workdir.result(work.lake, workspace)) == {"a"}


class TestResult:
    def test_files_and_folders_may_swap_places(self, work: Work, tmp_path: Path) -> None:
        def body(path: Path) -> None:
            (path / "file").unlink()
            (path / "file").mkdir()
            (path / "file" / "inside").write_bytes(b"x")
            (path / "folder" / "a").unlink()
            (path / "folder").rmdir()
            (path / "folder").write_bytes(b"y")
            (path / "empty").mkdir()

        objects = {"file": b"1", "folder/a": b"2", "kept": b"3"}
        assert changes_by(work, tmp_path, objects, body) == ({"file/inside", "folder"}, {"file", "folder/a"})

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_come_and_go_as_they_are(self, work: Work, tmp_path: Path, name: str) -> None:
        workdir, workspace = filled_workdir(work, tmp_path, {f"in/{name}": b"1", "other": b"2"}, prefix="in/")
        assert {path.name for path in workdir.path.iterdir()} == {name, MARKER}
        (workdir.path / f"deep-{name}"[:80]).mkdir()
        (workdir.path / f"deep-{name}"[:80] / name).write_bytes(b"3")
        assert set(workdir.result(work.lake, workspace)) == {name, f"deep-{name}"[:80] + f"/{name}"}

    def test_a_name_that_is_no_utf8_is_refused(self, work: Work, tmp_path: Path) -> None:
        workdir, workspace = filled_workdir(work, tmp_path, {"a": b"1"})
        (Path(os.fsdecode(os.fsencode(workdir.path) + b"/\xff\xfe"))).write_bytes(b"x")
        with pytest.raises(PostGuardrailViolation, match="not valid UTF-8"):
            workdir.result(work.lake, workspace)

    @pytest.mark.parametrize("prefix", ["", "_lakefs_actions_too/"])
    def test_only_the_real_actions_folder_is_out_of_reach(
        self, work: Work, tmp_path: Path, prefix: str
    ) -> None:
        workdir, workspace = filled_workdir(work, tmp_path, {f"{prefix}a": b"1"}, prefix=prefix)
        (workdir.path / "_lakefs_actions").mkdir()
        (workdir.path / "_lakefs_actions" / "x.yaml").touch()
        if prefix:
            assert "_lakefs_actions/x.yaml" in workdir.result(work.lake, workspace)
        else:
            with pytest.raises(PostGuardrailViolation, match=r"_lakefs_actions/x\.yaml"):
                workdir.result(work.lake, workspace)

    def test_an_impossible_object_is_refused_before_a_folder_is_made(
        self, work: Work, tmp_path: Path
    ) -> None:
        commit = work.commit("main", {"a/b": b"1", "z/../../etc/x": b"2"})
        workdir = Workdir.create(tmp_path, ATTEMPT, "e1", now=0)
        with pytest.raises(LakeError, match=r"z/\.\./\.\./etc/x"):
            workdir.fill(work.lake, Workspace(work.repository, "main", commit, ""))
        assert [path.name for path in workdir.path.iterdir()] == [MARKER]


class TestScan:
    def test_a_folder_to_leave_out_is_left_out_by_what_it_is_not_by_its_name(self, tmp_path: Path) -> None:
        for path in ("a/file", "b/a/file"):
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).touch()
        assert [path for path, _ in scan_folder(tmp_path, leave_out=tmp_path / "a")] == ["b/a/file"]


class TestRemoval:
    def test_a_folder_that_is_gone_is_no_error(self, tmp_path: Path) -> None:
        workdir = Workdir.create(tmp_path, ATTEMPT, "e1", now=0)
        workdir.drop()
        workdir.drop()
        assert not workdir.path.exists()

    def test_the_rest_of_an_interrupted_removal_is_removed_too(self, tmp_path: Path) -> None:
        workdir = Workdir.create(tmp_path, ATTEMPT, "e1", now=0)
        name = workdir_name(ATTEMPT.task_id, "e1")
        for left in (name.making, name.removing):
            (tmp_path / left).mkdir()
            (tmp_path / left / "file").touch()
        remove_workdir(tmp_path, name)
        assert list(tmp_path.iterdir()) == []
        workdir.drop()

    @pytest.mark.slow
    def test_a_kill_at_any_moment_of_its_life_leaves_nothing_that_a_sweep_does_not_remove(
        self, tmp_path: Path
    ) -> None:
        execution_id = "0123456789abcdef"
        working = workdir_name(ATTEMPT.task_id, execution_id).working

        def live() -> None:
            workdir = Workdir.create(Path("root"), ATTEMPT, execution_id, now=0)
            (workdir.path / "deep" / "deeper").mkdir(parents=True)
            (workdir.path / "deep" / "file").touch()
            workdir.drop()

        found: list[str] = []
        for number in itertools.count(1):
            if not killed_before_call(number, tmp_path, live):
                break
            left = [path.name for path in tmp_path.glob("root/*")]
            # Under its own name it is whole: with its marker, and with all that the body has made.
            assert working not in left or (tmp_path / "root" / working / MARKER).exists()
            found += left
            sweep_workdirs(tmp_path / "root", now=0, ttl=0)
            assert list(tmp_path.glob("root/*")) == []
        assert {name.partition(ATTEMPT.task_id)[0] for name in found} == {
            "perago-workdir-",
            ".perago-making-",
            ".perago-removing-",
        }
