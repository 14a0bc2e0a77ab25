"""The embedded lake beyond the port: its repositories, refusals, texts and bytes on disk."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from perago.errors import BranchDirty, HeadMoved, LakeConflict, LakeError, LakeNotFound, LakeRefused
from perago.lake.base import Download, Merge
from perago.lake.file_copy import copy_whole
from perago.lake.local.blobs import MOST_IN_DATABASE
from perago.lake.local.lake import LocalLake
from tests.support.worlds.lake_work import Work

LARGE = MOST_IN_DATABASE + 1


class Clock:
    """A clock in nanoseconds that only the test advances."""

    def __init__(self) -> None:
        self.now = 1_700_000_000 * 10**9

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lake(tmp_path: Path, clock: Clock) -> Iterator[LocalLake]:
    lake = LocalLake(tmp_path / "lake", clock=clock)
    lake.create_repository("repo")
    yield lake
    lake.close()


@pytest.fixture
def work(lake: LocalLake, tmp_path: Path) -> Work:
    return Work(lake, "repo", tmp_path / "files")


def object_files(lake_folder: Path) -> list[Path]:
    return [file for file in (lake_folder / "objects").rglob("*") if file.is_file()]


class TestRepositories:
    def test_a_repository_starts_with_one_empty_commit_on_main(self, lake: LocalLake) -> None:
        head = lake.head("repo", "main")
        assert (head.parents, head.message, head.created) == ((), "Repository created", 1_700_000_000)
        assert list(lake.list("repo", "main", "")) == []

    def test_repositories_are_listed_by_name(self, lake: LocalLake) -> None:
        lake.create_repository("another")
        assert lake.repositories() == ["another", "repo"]

    def test_a_repository_name_is_given_once(self, lake: LocalLake) -> None:
        with pytest.raises(LakeConflict, match="'repo' exists already"):
            lake.create_repository("repo")

    @pytest.mark.parametrize(
        "name", ["ab", "x" * 64, "Upper", "under_score", "-dash", "dot.dot", "ü" * 5, "new\n"]
    )
    def test_a_repository_name_that_lakefs_would_not_take_is_refused(
        self, lake: LocalLake, name: str
    ) -> None:
        with pytest.raises(LakeRefused, match="3 to 63 lower-case"):
            lake.create_repository(name)

    def test_repositories_do_not_see_each_others_refs(self, lake: LocalLake, work: Work) -> None:
        commit = work.commit("main", {"a": b"1"})
        lake.create_repository("another")
        with pytest.raises(LakeNotFound):
            lake.commit_at("another", commit)
        assert list(lake.list("another", "main", "")) == []

    def test_the_default_branch_is_not_dropped(self, lake: LocalLake) -> None:
        with pytest.raises(LakeRefused, match="default branch"):
            lake.drop_branch("repo", "main")


class TestRefs:
    def test_a_commit_id_is_64_hex_digits(self, work: Work) -> None:
        assert re.fullmatch("[0-9a-f]{64}", work.commit("main", {"a": b"1"}))

    def test_equal_commits_of_one_moment_on_two_branches_are_one_commit(
        self, lake: LocalLake, work: Work, clock: Clock
    ) -> None:
        base = work.head()
        one = work.stage("one", base, {"a": b"1"})
        same = work.stage("two", base, {"a": b"1"})
        clock.now += 1
        later = work.stage("three", base, {"a": b"1"})
        assert one == same != later

    def test_an_id_prefix_of_two_commits_names_none(self, lake: LocalLake, work: Work) -> None:
        made = [work.commit("main", {"a": b"%d" % n}) for n in range(20)]
        shared = next(one[0] for one in made if sum(other[0] == one[0] for other in made) > 1)
        with pytest.raises(LakeNotFound, match="more than one commit"):
            lake.commit_at("repo", shared)

    def test_a_branch_named_like_a_commit_does_not_hide_the_commit(self, lake: LocalLake, work: Work) -> None:
        first = work.commit("main", {"a": b"1"})
        second = work.commit("main", {"a": b"2"})
        lake.create_branch("repo", first, second)
        assert lake.commit_at("repo", first).id == first

    @pytest.mark.parametrize("path", ["", "x" * 1025, "ü" * 513, "bad-\udcff"])
    def test_an_object_path_that_lakefs_would_not_take_is_refused(self, work: Work, path: str) -> None:
        with pytest.raises(LakeRefused, match="object path"):
            work.put("main", {path: b"1"})

    def test_the_longest_object_path_is_taken(self, work: Work) -> None:
        assert work.contents(work.commit("main", {"x" * 1024: b"1"})) == {"x" * 1024: b"1"}

    def test_an_upload_in_flight_does_not_land_on_a_new_branch_of_the_same_name(
        self, lake: LocalLake, work: Work
    ) -> None:
        lake.create_branch("repo", "side", "main")

        def another_takes_the_name(files: int, size: int) -> None:
            lake.drop_branch("repo", "side")
            lake.create_branch("repo", "side", "main")

        with pytest.raises(LakeNotFound, match="dropped meanwhile"):
            lake.upload("repo", "side", [work.an_upload("a", b"1")], another_takes_the_name)
        assert not lake.has_uncommitted_changes("repo", "side")


class TestPublish:
    def test_a_refusal_names_both_heads_and_who_signed_the_one_that_is_there(self, work: Work) -> None:
        base = work.head()
        work.stage("one", base, {"a": b"1"})
        work.stage("two", base, {"a": b"2"})
        landed = work.merge("one", base)
        with pytest.raises(HeadMoved) as refused:
            work.merge("two", base)
        for part in (base, landed, "signed by wf/step", "'main'"):
            assert part in str(refused.value)

    def test_a_refusal_says_when_no_task_signed_the_head(self, work: Work) -> None:
        base = work.head()
        work.stage("side", base, {"a": b"1"})
        work.commit("main", {"b": b"by hand"})
        with pytest.raises(HeadMoved, match="not signed by any task"):
            work.merge("side", base)

    def test_several_commits_on_the_source_become_one(self, lake: LocalLake, work: Work) -> None:
        base = work.head()
        work.stage("side", base, {"a": b"1"})
        work.commit("side", {"b": b"2"})
        work.merge("side", base)
        assert lake.head("repo", "main").parents == (base,)
        assert work.contents("main") == {"a": b"1", "b": b"2"}

    def test_a_conflict_names_the_paths_and_the_commit_that_both_grew_from(self, work: Work) -> None:
        start = work.commit("main", {"same": b"1"})
        work.stage("side", start, {f"both-{n}": b"ours" for n in range(7)})
        base = work.commit("main", {f"both-{n}": b"theirs" for n in range(7)})
        with pytest.raises(HeadMoved) as refused:
            work.merge("side", base)
        told = str(refused.value)
        assert f"at {base}: both have changed 'both-0', 'both-1'" in told
        assert f"and 2 more since {start}" in told
        assert work.head() == base

    def test_branches_without_a_commit_in_common_are_not_merged(self, lake: LocalLake, work: Work) -> None:
        lake.create_repository("other")
        Work(lake, "other", work.folder).stage("side", "main", {"a": b"1"})
        head = lake.head("other", "side").id
        with lake._store.write(durable=False) as db:
            # No call of the lake makes such branches: the history is cut by hand.
            db.execute("UPDATE commits SET parents = '[]' WHERE id = ?", (head,))
        with pytest.raises(LakeRefused, match="no commit in common"):
            lake.merge("other", Merge("side", "main", lake.head("other", "main").id, "m", {}, 30))

    def test_a_branch_with_uncommitted_objects_is_not_relocated(self, lake: LocalLake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        work.stage("side", base, {"a": b"2"})
        work.put("main", {"b": b"someone is at work"})
        with pytest.raises(BranchDirty):
            lake.relocate("repo", "main", "side", base, 60)
        assert work.head() == base

    def test_the_fence_is_hard_everywhere(self, lake: LocalLake) -> None:
        assert lake.fence_level("repo", "main") == "hard"

    def test_a_merge_that_cannot_get_the_lock_in_time_is_unknown_and_changes_nothing(
        self, lake: LocalLake, work: Work, tmp_path: Path
    ) -> None:
        base = work.head()
        work.stage("side", base, {"a": b"1"})
        other = sqlite3.connect(tmp_path / "lake" / "lake.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LakeError, match="locked"):
            lake.merge("repo", Merge("side", "main", base, "m", {}, 0.01))
        other.execute("ROLLBACK")
        other.close()
        assert work.head() == base
        assert work.merge("side", base) == work.head()


class TestBytes:
    def test_small_objects_are_in_the_database_and_large_ones_are_read_only_files(
        self, work: Work, tmp_path: Path
    ) -> None:
        work.commit("main", {"small": b"s" * MOST_IN_DATABASE, "large": b"l" * LARGE})
        [file] = object_files(tmp_path / "lake")
        assert file.read_bytes() == b"l" * LARGE
        assert file.stat().st_mode & 0o777 == 0o444

    def test_equal_bytes_are_kept_once(self, work: Work, tmp_path: Path) -> None:
        work.commit("main", {f"copy-{n}": b"l" * LARGE for n in range(6)})
        work.commit("main", {"another": b"l" * LARGE})
        assert len(object_files(tmp_path / "lake")) == 1

    @pytest.mark.parametrize("size", [1, LARGE])
    def test_no_file_shares_an_inode_with_the_lake_and_downloads_may_be_written(
        self, lake: LocalLake, work: Work, tmp_path: Path, size: int
    ) -> None:
        upload = work.an_upload("a", b"x" * size)
        lake.upload("repo", "main", [upload])
        [entry] = lake.list("repo", "main", "")
        target = tmp_path / "out"
        lake.download("repo", "main", [Download(entry, target)])
        files = [upload.source, target, *object_files(tmp_path / "lake")]
        assert {file.stat().st_nlink for file in files} == {1}
        assert os.access(target, os.W_OK)

    def test_nothing_is_left_in_the_folders_after_a_download_or_a_refused_upload(
        self, lake: LocalLake, work: Work, tmp_path: Path
    ) -> None:
        work.commit("main", {"a": b"x" * LARGE})
        upload = work.an_upload("b", b"x" * LARGE * 2)
        upload.source.write_bytes(b"y" * LARGE * 2)
        with pytest.raises(LakeError, match="still writes to"):
            lake.upload("repo", "main", [upload])
        out = tmp_path / "out"
        out.mkdir()
        [entry] = lake.list("repo", "main", "")
        lake.download("repo", "main", [Download(entry, out / "a")])
        assert list((tmp_path / "lake" / "incoming").iterdir()) == []
        assert [file.name for file in out.iterdir()] == ["a"]

    def test_a_download_into_a_folder_that_is_not_there_names_the_object(
        self, lake: LocalLake, work: Work, tmp_path: Path
    ) -> None:
        work.commit("main", {"some/path": b"1"})
        [entry] = lake.list("repo", "main", "")
        with pytest.raises(LakeError, match="some/path"):
            lake.download("repo", "main", [Download(entry, tmp_path / "no" / "folder")])

    def test_bytes_are_copied_by_hand_where_the_kernel_cannot(self, tmp_path: Path) -> None:
        reader, writer = os.pipe()
        os.write(writer, b"a pipe can be neither cloned nor copied by range")
        os.close(writer)
        out = os.open(tmp_path / "out", os.O_RDWR | os.O_CREAT)
        copy_whole(reader, out)
        os.close(reader)
        os.close(out)
        assert (tmp_path / "out").read_bytes() == b"a pipe can be neither cloned nor copied by range"

    def test_leftovers_of_killed_processes_go_after_a_day(self, tmp_path: Path, clock: Clock) -> None:
        incoming = tmp_path / "lake" / "incoming"
        incoming.mkdir(parents=True)
        for name, age in (("old", 25 * 3600), ("young", 3600)):
            (incoming / name).write_bytes(b"half")
            then = clock.now // 10**9 - age
            os.utime(incoming / name, (then, then))
        LocalLake(tmp_path / "lake", clock=clock).close()
        assert [file.name for file in incoming.iterdir()] == ["young"]

    def test_a_lake_of_another_format_is_refused_by_number(self, tmp_path: Path) -> None:
        (tmp_path / "lake").mkdir()
        with sqlite3.connect(tmp_path / "lake" / "lake.db") as db:
            db.execute("PRAGMA user_version = 99")
        db.close()
        lake = LocalLake(tmp_path / "lake")
        with pytest.raises(LakeError, match="format 99"):
            lake.repositories()

    def test_a_lake_may_be_used_again_after_it_was_closed(self, lake: LocalLake, work: Work) -> None:
        lake.close()
        work.commit("main", {"a": b"1"})
        assert work.contents("main") == {"a": b"1"}
