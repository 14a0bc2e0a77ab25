"""Finding what a body changed in a workdir: by stat where that suffices, by bytes where it does not."""

from __future__ import annotations

import mmap
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from perago.errors import PostGuardrailViolation
from perago.lake.base import Download, Entry
from perago.protocol.changes import changes_between
from perago.protocol.publication import Workspace
from perago.protocol.view import View
from perago.runtime.attempt.listing import list_view
from perago.runtime.attempt.workdir import Workdir
from tests.support.processes.processes import OPENED_FILES
from tests.support.worlds.lake_work import ATTEMPT, Work, changes_by, filled_workdir


class TestIndex:
    MANY = {f"{number % 5}/{number}": b"%03d" % number for number in range(60)}  # noqa: RUF012 - never written

    def test_files_that_did_not_change_are_not_read(self, work: Work, on_disk: Path) -> None:
        workdir, workspace = filled_workdir(work, on_disk, self.MANY)
        OPENED_FILES.start(workdir.path)
        with OPENED_FILES.recorded() as files:
            states = workdir.result(work.lake, workspace)
        assert files == []
        assert len(states) == 60

    def test_only_the_changed_file_is_read(self, work: Work, on_disk: Path) -> None:
        workdir, workspace = filled_workdir(work, on_disk, self.MANY)
        (workdir.path / "3" / "33").write_bytes(b"new")
        (workdir.path / "added").write_bytes(b"new")
        OPENED_FILES.start(workdir.path)
        with OPENED_FILES.recorded() as files:
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
            put, deleted = changes_by(work, tmp_path, {**objects, "seed": b"%d" % number}, edit_in_place)
            assert (put, deleted) == ({"f0"}, set())

    def test_bytes_written_again_as_they_were_are_no_change(self, work: Work, tmp_path: Path) -> None:
        put, deleted = changes_by(
            work, tmp_path, self.MANY, lambda path: (path / "0" / "0").write_bytes(b"000")
        )
        assert (put, deleted) == (set(), set())

    def test_a_touched_and_a_renamed_over_file_are_read_and_found_equal(
        self, work: Work, tmp_path: Path
    ) -> None:
        def body(path: Path) -> None:
            os.utime(path / "0" / "0")
            (path / "copy").write_bytes(b"001")
            (path / "copy").rename(path / "1" / "1")

        assert changes_by(work, tmp_path, self.MANY, body) == (set(), set())

    def test_a_clock_that_was_set_back_after_the_download_is_not_waited_for(
        self, work: Work, tmp_path: Path
    ) -> None:
        class Earlier:
            """The lake, whose files were written an hour from now."""

            def download(self, *args: Any, **options: Any) -> Mapping[str, str]:
                checksums = work.lake.download(*args, **options)
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
                self, repository: str, ref: str, files: Any, progress: Any = None, **options: Any
            ) -> Mapping[str, str]:
                real = {entry.path: entry for entry in work.lake.list(repository, ref, "")}
                return work.lake.download(
                    repository,
                    ref,
                    [Download(real[file.entry.path], file.target) for file in files],
                    progress,
                    **options,
                )

            def __getattr__(self, name: str) -> Any:
                return getattr(work.lake, name)

        return Odd()

    def test_files_with_odd_checksums_count_as_unchanged_until_their_bytes_change(
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
        found = list_view(odd, work.repository, later, View("")).states(base)
        assert found["odd1"] == base.states()["odd1"]
        assert found["odd2"].checksum == "0" * 64
        assert found["plain"].checksum == sha256(b"4").hexdigest()


@pytest.fixture
def in_memory() -> Iterator[Path]:
    """A folder on a tmpfs."""
    if not Path("/dev/shm").is_dir():
        pytest.skip("there is no /dev/shm")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)


class TestMemoryMaps:
    # With few files all are read in any case.
    OBJECTS = {f"a/{number}": b"before" * 1000 for number in range(30)}  # noqa: RUF012 - never written

    @staticmethod
    def write_mapped(path: Path) -> None:
        with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            # Read first: on tmpfs a page that was touched by a read is written without a trace.
            assert mapped[:6] == b"before"
            mapped[6:12] = b"after!"

    @pytest.mark.parametrize("place", ["disk", "memory"])
    def test_a_file_that_was_written_through_a_map_is_found(
        self, work: Work, on_disk: Path, in_memory: Path, place: str
    ) -> None:
        root = in_memory if place == "memory" else on_disk

        def body(folder: Path) -> None:
            self.write_mapped(folder / "a/7")

        assert changes_by(work, root, self.OBJECTS, body) == ({"a/7"}, set())

    def test_on_a_memory_disk_all_that_the_task_may_change_is_read_and_the_rest_is_not(
        self, work: Work, in_memory: Path
    ) -> None:
        many = {f"{part}/{number}": b"%03d" % number for part in "ab" for number in range(30)}
        commit = work.commit("main", many)
        workspace = Workspace(work.repository, "main", commit, "", View("", writes=("a",)))
        workdir = Workdir.create(in_memory, ATTEMPT, "e1", now=0)
        workdir.fill(work.lake, workspace)
        OPENED_FILES.start(workdir.path)
        with OPENED_FILES.recorded() as files:
            workdir.result(work.lake, workspace)

        assert sorted(files) == sorted(path for path in many if path.startswith("a/"))


@pytest.mark.parametrize("other", ["symlink", "folder", "file"])
def test_a_folder_that_the_body_put_in_place_of_its_workdir_is_refused(
    work: Work, tmp_path: Path, other: str
) -> None:
    workdir, workspace = filled_workdir(work, tmp_path / "work", {"a": b"a"})
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "secret").write_text("not the task's")
    workdir.path.rename(tmp_path / "moved")
    if other == "symlink":
        workdir.path.symlink_to(elsewhere)
    elif other == "file":
        workdir.path.write_text("a file")
    else:
        elsewhere.rename(workdir.path)

    with pytest.raises(PostGuardrailViolation, match="replaced its workspace folder"):
        workdir.result(work.lake, workspace)

    workdir.drop()
    assert not workdir.path.is_symlink()
    assert not workdir.path.exists()
    assert other == "folder" or (elsewhere / "secret").exists()


def test_a_workdir_that_the_body_removed_is_refused(work: Work, tmp_path: Path) -> None:
    workdir, workspace = filled_workdir(work, tmp_path, {"a": b"a"})
    shutil.rmtree(workdir.path)

    with pytest.raises(PostGuardrailViolation, match="removed its workspace folder"):
        workdir.result(work.lake, workspace)
