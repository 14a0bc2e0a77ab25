"""Objects in and out of every lake: their bytes and their names.  No test here names a backend."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from perago.errors import (
    LakeConflict,
    LakeError,
    LakeNotFound,
)
from perago.lake.base import Download, Entry, Lake, Upload, Verification
from tests.support.worlds.lake_work import Work, at_once

ODD_NAMES = [
    "a space.txt",
    "hash#mark",
    "per%cent%20",
    "question?mark=1&b=2",
    "plus+plus",
    "quote'and\"double",
    "semi;colon,comma",
    "back\\slash",
    "[brackets]{braces}",
    "~tilde^caret@at$dollar",
    "ünïcödé/Straße.txt",
    "漢字/かな.txt",
    "emoji-😀.bin",
    "e\u0301 is not \u00e9",
    ".hidden",
    "dots...in.name",
    "UPPER and lower",
]


class TestBytes:
    def test_downloads_write_the_bytes_and_return_their_checksums(
        self, lake: Lake, work: Work, tmp_path: Path
    ) -> None:
        objects = {"a": b"hello", "b/c": b"x" * 70_000, "empty": b"", "b/d": bytes(range(256)) * 9000}
        commit = work.commit("main", objects)
        entries = list(lake.list(work.repository, commit, ""))
        files = [Download(entry, tmp_path / f"out-{n}") for n, entry in enumerate(entries)]
        moved: list[tuple[int, int]] = []
        checksums = lake.download(work.repository, commit, files, lambda *step: moved.append(step))
        assert {file.entry.path: file.target.read_bytes() for file in files} == objects
        assert checksums == {
            path: hashlib.new(lake.checksum_algorithm, data).hexdigest() for path, data in objects.items()
        }
        assert tuple(map(sum, zip(*moved, strict=True))) == (4, sum(map(len, objects.values())))

    def test_a_deferred_verification_confirms_the_download(
        self, lake: Lake, work: Work, tmp_path: Path
    ) -> None:
        objects = {"small": b"1", "large": bytes(range(251)) * 80_000}
        commit = work.commit("main", objects)
        for name in ("first", "again"):
            files = [
                Download(entry, tmp_path / f"{name}-{entry.path}")
                for entry in lake.list(work.repository, commit, "")
            ]
            with Verification() as verification:
                checksums = lake.download(work.repository, commit, files, verification=verification)
                assert {file.entry.path: file.target.read_bytes() for file in files} == objects
                assert {**checksums, **verification.wait()} == {
                    path: hashlib.new(lake.checksum_algorithm, data).hexdigest()
                    for path, data in objects.items()
                }

    def test_a_download_replaces_the_file_that_is_there(self, lake: Lake, work: Work, tmp_path: Path) -> None:
        commit = work.commit("main", {"a": b"new"})
        (tmp_path / "out").write_bytes(b"something longer that was here before")
        [entry] = lake.list(work.repository, commit, "")
        lake.download(work.repository, commit, [Download(entry, tmp_path / "out")])
        assert (tmp_path / "out").read_bytes() == b"new"

    @pytest.mark.parametrize("size", [3, 100_000])
    def test_changing_a_downloaded_file_does_not_change_the_object(
        self, lake: Lake, work: Work, tmp_path: Path, size: int
    ) -> None:
        commit = work.commit("main", {"a": b"o" * size})
        [entry] = lake.list(work.repository, commit, "")
        lake.download(work.repository, commit, [Download(entry, tmp_path / "out")])
        with open(tmp_path / "out", "r+b") as file:
            file.write(b"changed")
        assert work.bytes_at(commit, "a") == b"o" * size

    @pytest.mark.parametrize("size", [3, 100_000])
    def test_changing_an_uploaded_file_afterwards_does_not_change_the_object(
        self, lake: Lake, work: Work, size: int
    ) -> None:
        upload = work.an_upload("a", b"o" * size)
        lake.upload(work.repository, "main", [upload])
        upload.source.write_bytes(b"changed")
        commit = lake.commit(work.repository, "main", "m", {})
        assert work.bytes_at(commit, "a") == b"o" * size

    @pytest.mark.parametrize("data", [b"other", b"o" * 100_000, b"longer than it was"])
    def test_bytes_that_are_not_those_of_the_checksum_are_refused_by_name(
        self, lake: Lake, work: Work, data: bytes
    ) -> None:
        upload = work.an_upload("some/path", b"seen!" if len(data) < 99 else b"s" * 100_000)
        upload.source.write_bytes(data)
        with pytest.raises(LakeError, match="some/path"):
            lake.upload(work.repository, "main", [upload])
        assert work.paths("main") == []

    def test_a_missing_file_is_refused_by_name(self, lake: Lake, work: Work, tmp_path: Path) -> None:
        missing = Upload(tmp_path / "gone", "some/path", 3, "0" * 32)
        with pytest.raises(LakeError, match="some/path"):
            lake.upload(work.repository, "main", [missing])

    def test_uploads_report_what_they_moved(self, lake: Lake, work: Work) -> None:
        moved: list[tuple[int, int]] = []
        uploads = [work.an_upload(f"f{n}", b"x" * n * 5000) for n in range(6)]
        lake.upload(work.repository, "main", uploads, lambda *step: moved.append(step))
        assert tuple(map(sum, zip(*moved, strict=True))) == (6, 75_000)

    def test_reading_a_missing_object_is_not_found(self, work: Work) -> None:
        commit = work.commit("main", {"a/b": b"1"})
        for path in ("a", "a/", "a/b/c", "b"):
            with pytest.raises(LakeNotFound):
                work.bytes_at(commit, path)

    def test_downloading_a_missing_object_is_not_found(self, lake: Lake, work: Work, tmp_path: Path) -> None:
        missing = Download(Entry("no/such", 3, None), tmp_path / "out")
        with pytest.raises(LakeNotFound):
            lake.download(work.repository, work.head(), [missing])
        assert not (tmp_path / "out").exists()

    def test_empty_files_are_objects(self, lake: Lake, work: Work) -> None:
        commit = work.commit("main", {"empty": b""})
        assert [(entry.path, entry.size) for entry in lake.list(work.repository, commit, "")] == [
            ("empty", 0)
        ]
        assert work.bytes_at(commit, "empty") == b""

    def test_many_files_with_equal_bytes_are_many_objects(self, work: Work) -> None:
        objects = {f"copy-{n}": b"the same" for n in range(20)}
        assert work.contents(work.commit("main", objects)) == objects

    def test_large_files_come_in_pieces_and_whole(self, work: Work) -> None:
        data = bytes(range(251)) * 20_000
        assert work.bytes_at(work.commit("main", {"large": data}), "large") == data


class TestNames:
    def test_odd_names_go_through_upload_list_read_download_and_delete(
        self, lake: Lake, work: Work, tmp_path: Path
    ) -> None:
        objects = {f"odd/{name}": name.encode() for name in ODD_NAMES}
        commit = work.commit("main", objects)
        assert work.paths(commit, "odd/") == sorted(objects, key=str.encode)
        assert work.contents(commit) == objects
        entries = list(lake.list(work.repository, commit, ""))
        files = [Download(entry, tmp_path / f"out-{n}") for n, entry in enumerate(entries)]
        assert lake.download(work.repository, commit, files).keys() == objects.keys()
        assert {file.entry.path: file.target.read_bytes() for file in files} == objects
        lake.delete(work.repository, "main", list(objects))
        assert work.paths("main") == []

    def test_names_of_many_hundred_bytes_are_taken(self, work: Work) -> None:
        deep = "/".join(f"folder-{n:03}" for n in range(60)) + "/file"
        objects = {deep: b"1", "ü" * 120 + ".txt": b"2", "long/" + "n" * 240: b"3"}
        assert work.contents(work.commit("main", objects)) == objects

    def test_an_object_and_a_folder_may_share_a_name(self, lake: Lake, work: Work) -> None:
        commit = work.commit("main", {"a": b"file", "a/b": b"inside", "a-": b"beside"})
        assert work.contents(commit) == {"a": b"file", "a-": b"beside", "a/b": b"inside"}
        lake.delete(work.repository, "main", ["a"])
        assert work.paths("main") == ["a-", "a/b"]

    def test_a_file_becomes_a_folder_and_back(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"x": b"file"})
        lake.delete(work.repository, "main", ["x"])
        folder = work.commit("main", {"x/y": b"inside"})
        lake.delete(work.repository, "main", ["x/y"])
        file = work.commit("main", {"x": b"file again"})
        assert work.contents(folder) == {"x/y": b"inside"}
        assert work.contents(file) == {"x": b"file again"}

    def test_zero_byte_folder_markers_are_objects(self, work: Work) -> None:
        commit = work.commit("main", {"x/": b"", "x/a": b"1"})
        assert work.paths(commit) == ["x/", "x/a"]
        assert work.paths(commit, "x/") == ["x/", "x/a"]


class TestCreatedObjects:
    def test_an_object_is_made_where_there_is_none(self, lake: Lake, work: Work) -> None:
        lake.create_branch(work.repository, "notes", "main")
        for path, content in {"rows/1": b"small", "rows/2": b"x" * 70_000, "ünï 1": b"\x00\xff"}.items():
            lake.create_object(work.repository, "notes", path, content)
            assert work.bytes_at("notes", path) == content
        assert work.paths("notes", "rows/") == ["rows/1", "rows/2"]

    def test_creating_an_existing_object_is_a_conflict_and_it_stays(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"committed": b"old"})
        lake.create_branch(work.repository, "notes", "main")
        lake.create_object(work.repository, "notes", "made", b"first")
        for path, before in {"made": b"first", "committed": b"old"}.items():
            with pytest.raises(LakeConflict):
                lake.create_object(work.repository, "notes", path, b"second")
            assert work.bytes_at("notes", path) == before

    def test_a_removed_object_may_be_created_again(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"gone": b"old"})
        lake.create_branch(work.repository, "notes", "main")
        lake.delete(work.repository, "notes", ["gone"])
        lake.create_object(work.repository, "notes", "gone", b"new")
        assert work.bytes_at("notes", "gone") == b"new"

    def test_one_of_many_concurrent_creations_puts_its_bytes(self, lake: Lake, work: Work) -> None:
        lake.create_branch(work.repository, "notes", "main")
        for turn in range(5):
            path = f"rows/{turn}"

            def make(number: int, path: str = path) -> bytes:
                content = b"by %d" % number
                lake.create_object(work.repository, "notes", path, content)
                return content

            won = [one for one in at_once(8, make) if not isinstance(one, LakeError)]
            assert [work.bytes_at("notes", path)] == won

    def test_a_branch_or_repository_that_is_not_there_is_not_found(self, lake: Lake, work: Work) -> None:
        with pytest.raises(LakeNotFound):
            lake.create_object(work.repository, "nowhere", "a", b"1")
        with pytest.raises(LakeNotFound):
            lake.create_object("no-such-repository", "main", "a", b"1")
