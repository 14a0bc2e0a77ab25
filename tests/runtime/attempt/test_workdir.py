"""The workdir: private, marked, filled from one commit, and read back without reading what did not change."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeError, PostGuardrailViolation
from perago.lake.base import Download, Entry
from perago.lake.local.lake import LocalLake
from perago.protocol.attempt import Attempt
from perago.protocol.changes import changes_between
from perago.protocol.names import workdir_name
from perago.protocol.publication import Workspace
from perago.runtime.attempt.workdir import Workdir, list_prefix, scan_folder
from perago.runtime.root.identity import process_identity
from perago.runtime.root.workdirs import remove_workdir
from perago.runtime.sweep.workdirs import sweep_workdirs
from tests.support.forks import killed_before_call
from tests.support.lake_work import Work
from tests.support.opens import OPENS

ATTEMPT = Attempt("wf-1", "11111111-2222-3333-4444-555555555555", "step", "make", 2, 3, 0)
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


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with closing(LocalLake(tmp_path / "lake")) as lake:
        lake.create_repository("songs")
        yield Work(lake, "songs", tmp_path / "files")


def filled(
    work: Work, root: Path, objects: dict[str, bytes], *, prefix: str = ""
) -> tuple[Workdir, Workspace]:
    """A workdir that holds these objects."""
    commit = work.commit("main", objects)
    workspace = Workspace(work.repository, "main", commit, prefix)
    workdir = Workdir.create(root, ATTEMPT, "e1", now=1_700_000_000.0)
    workdir.fill(work.lake, workspace)
    return workdir, workspace


def changed(
    work: Work, root: Path, objects: dict[str, bytes], body: Callable[[Path], object]
) -> tuple[set, set]:
    """What a body changes: (put, deleted)."""
    commit = work.commit("main", objects)
    workspace = Workspace(work.repository, "main", commit, "")
    workdir = Workdir.create(root, ATTEMPT, "e1", now=0)
    base = workdir.fill(work.lake, workspace)
    body(workdir.path)
    changes = changes_between(base.states(), workdir.result(work.lake, workspace))
    workdir.drop()
    return set(changes.put), set(changes.delete)


class TestCreation:
    def test_it_is_for_nobody_else(self, tmp_path: Path) -> None:
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
    def test_it_is_no_part_of_the_result(self, work: Work, tmp_path: Path) -> None:
        workdir, workspace = filled(work, tmp_path, {"a": b"1"})
        assert set(workdir.result(work.lake, workspace)) == {"a"}

    @pytest.mark.parametrize("path", [MARKER, f"deep/{MARKER}"])
    def test_an_object_of_its_name_is_not_downloaded(self, work: Work, tmp_path: Path, path: str) -> None:
        workdir, workspace = filled(work, tmp_path, {"a": b"1", path: b"an object"})
        assert json.loads((workdir.path / MARKER).read_text())["execution_id"] == "e1"
        assert not (workdir.path / "deep").exists()
        assert set(workdir.result(work.lake, workspace)) == {"a"}

    @pytest.mark.parametrize("path", [MARKER, f"deep/{MARKER}"])
    def test_a_body_that_writes_it_is_refused_by_name(self, work: Work, tmp_path: Path, path: str) -> None:
        workdir, workspace = filled(work, tmp_path, {"deep/a": b"1"})
        (workdir.path / path).write_text("mine")
        with pytest.raises(PostGuardrailViolation, match=r"\.perago-attempt\.json"):
            workdir.result(work.lake, workspace)

    def test_a_body_that_removes_it_harms_nobody(self, work: Work, tmp_path: Path) -> None:
        workdir, workspace = filled(work, tmp_path, {"a": b"1"})
        (workdir.path / MARKER).unlink()
        assert set(workdir.result(work.lake, workspace)) == {"a"}


class TestIndex:
    MANY = {f"{number % 5}/{number}": b"%03d" % number for number in range(60)}  # noqa: RUF012 - never written

    def test_files_that_did_not_change_are_not_read(self, work: Work, tmp_path: Path) -> None:
        workdir, workspace = filled(work, tmp_path, self.MANY)
        OPENS.start(workdir.path)
        with OPENS.heard() as files:
            states = workdir.result(work.lake, workspace)
        assert files == []
        assert len(states) == 60

    def test_only_the_changed_file_is_read(self, work: Work, tmp_path: Path) -> None:
        workdir, workspace = filled(work, tmp_path, self.MANY)
        (workdir.path / "3" / "33").write_bytes(b"new")
        (workdir.path / "added").write_bytes(b"new")
        OPENS.start(workdir.path)
        with OPENS.heard() as files:
            workdir.result(work.lake, workspace)
        assert sorted(files) == ["3/33", "added"]

    @pytest.mark.parametrize("count", [1, 5, 16, 17, 60])
    def test_an_edit_in_the_tick_of_the_index_is_found_though_size_and_time_are_the_same(
        self, work: Work, tmp_path: Path, count: int
    ) -> None:
        objects = {f"f{number}": b"old" for number in range(count)}

        def edit_in_place(path: Path) -> None:
            before = (path / "f0").stat()
            with open(path / "f0", "r+b") as file:
                file.write(b"new")
            os.utime(path / "f0", ns=(before.st_atime_ns, before.st_mtime_ns))

        work.commit("main", {"seed": b"1"})
        for number in range(10):
            put, deleted = changed(work, tmp_path, {**objects, "seed": b"%d" % number}, edit_in_place)
            assert (put, deleted) == ({"f0"}, set())

    def test_bytes_written_again_as_they_were_are_no_change(self, work: Work, tmp_path: Path) -> None:
        put, deleted = changed(work, tmp_path, self.MANY, lambda path: (path / "0" / "0").write_bytes(b"000"))
        assert (put, deleted) == (set(), set())

    def test_a_touched_and_a_renamed_over_file_are_read_and_found_equal(
        self, work: Work, tmp_path: Path
    ) -> None:
        def body(path: Path) -> None:
            os.utime(path / "0" / "0")
            (path / "copy").write_bytes(b"001")
            (path / "copy").rename(path / "1" / "1")

        assert changed(work, tmp_path, self.MANY, body) == (set(), set())

    def test_a_clock_that_was_set_back_after_the_download_is_not_waited_for(
        self, work: Work, tmp_path: Path
    ) -> None:
        class Earlier:
            """The lake, whose files were written an hour from now."""

            def download(self, *args: Any) -> Mapping[str, str]:
                checksums = work.lake.download(*args)
                for file in args[2]:
                    os.utime(file.target, (time.time() + 3600,) * 2)
                return checksums

            def __getattr__(self, name: str) -> Any:
                return getattr(work.lake, name)

        waits: list[float] = []
        workspace = Workspace(work.repository, "main", work.commit("main", self.MANY), "")
        workdir = Workdir.create(tmp_path, ATTEMPT, "0" * 16, now=0, sleep=waits.append)
        base = workdir.fill(Earlier(), workspace)
        before = (workdir.path / "0/0").stat()
        (workdir.path / "0/0").write_bytes(b"xxx")
        os.utime(workdir.path / "0/0", ns=(before.st_atime_ns, before.st_mtime_ns))

        changes = changes_between(base.states(), workdir.result(work.lake, workspace))

        assert (changes.put, changes.delete) == (("0/0",), ())
        assert waits


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
        assert changed(work, tmp_path, objects, body) == ({"file/inside", "folder"}, {"file", "folder/a"})

    @pytest.mark.parametrize("name", ODD_NAMES)
    def test_odd_names_come_and_go_as_they_are(self, work: Work, tmp_path: Path, name: str) -> None:
        workdir, workspace = filled(work, tmp_path, {f"in/{name}": b"1", "other": b"2"}, prefix="in/")
        assert {path.name for path in workdir.path.iterdir()} == {name, MARKER}
        (workdir.path / f"deep-{name}"[:80]).mkdir()
        (workdir.path / f"deep-{name}"[:80] / name).write_bytes(b"3")
        assert set(workdir.result(work.lake, workspace)) == {name, f"deep-{name}"[:80] + f"/{name}"}

    def test_a_name_that_is_no_utf8_is_refused(self, work: Work, tmp_path: Path) -> None:
        workdir, workspace = filled(work, tmp_path, {"a": b"1"})
        (Path(os.fsdecode(os.fsencode(workdir.path) + b"/\xff\xfe"))).write_bytes(b"x")
        with pytest.raises(PostGuardrailViolation, match="no UTF-8"):
            workdir.result(work.lake, workspace)

    @pytest.mark.parametrize("prefix", ["", "_lakefs_actions_too/"])
    def test_only_the_real_actions_folder_is_out_of_reach(
        self, work: Work, tmp_path: Path, prefix: str
    ) -> None:
        workdir, workspace = filled(work, tmp_path, {f"{prefix}a": b"1"}, prefix=prefix)
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


class TestOddChecksums:
    """Objects that are listed with a checksum that is not that of their bytes."""

    @pytest.fixture
    def odd(self, work: Work) -> Any:
        class Odd:
            """The lake, which lists other checksums than it finds."""

            def list(self, *args: Any) -> Iterator[Entry]:
                for entry in work.lake.list(*args):
                    yield Entry(
                        entry.path, entry.size, "0" * 64 if entry.path.startswith("odd") else entry.checksum
                    )

            def download(
                self, repository: str, ref: str, files: Any, progress: Any = None
            ) -> Mapping[str, str]:
                real = {entry.path: entry for entry in work.lake.list(repository, ref, "")}
                return work.lake.download(
                    repository,
                    ref,
                    [Download(real[file.entry.path], file.target) for file in files],
                    progress,
                )

            def __getattr__(self, name: str) -> Any:
                return getattr(work.lake, name)

        return Odd()

    def test_they_count_as_unchanged_until_their_bytes_change(
        self, work: Work, odd: Any, tmp_path: Path
    ) -> None:
        commit = work.commit("main", {"odd1": b"1", "odd2": b"2", "plain": b"3"})
        workspace = Workspace(work.repository, "main", commit, "")
        workdir = Workdir.create(tmp_path, ATTEMPT, "e1", now=0)
        base = workdir.fill(odd, workspace)
        assert not workdir.result(odd, workspace).changes()
        (workdir.path / "odd2").write_bytes(b"new")
        assert workdir.result(odd, workspace).changes().put == ("odd2",)
        assert base.states()["odd1"].checksum == sha256(b"1").hexdigest()

    def test_a_later_listing_that_shows_them_alike_has_their_real_states(
        self, work: Work, odd: Any, tmp_path: Path
    ) -> None:
        first = work.commit("main", {"odd1": b"1", "odd2": b"2", "plain": b"3"})
        base = Workdir.create(tmp_path, ATTEMPT, "e1", now=0).fill(
            odd, Workspace(work.repository, "main", first, "")
        )
        later = work.commit("main", {"odd2": b"larger", "plain": b"4"})
        found = list_prefix(odd, work.repository, later, "").states(base)
        assert found["odd1"] == base.states()["odd1"]
        assert found["odd2"].checksum == "0" * 64
        assert found["plain"].checksum == sha256(b"4").hexdigest()


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

    def test_what_a_cut_removal_has_left_goes_with_it(self, tmp_path: Path) -> None:
        workdir = Workdir.create(tmp_path, ATTEMPT, "e1", now=0)
        name = workdir_name(ATTEMPT.task_id, "e1")
        for left in (name.making, name.removing):
            (tmp_path / left).mkdir()
            (tmp_path / left / "file").touch()
        remove_workdir(tmp_path, name)
        assert list(tmp_path.iterdir()) == []
        workdir.drop()

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
