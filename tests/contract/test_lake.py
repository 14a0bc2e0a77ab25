"""The contract of every lake.  No test here names a backend."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import pytest

from perago.errors import (
    LakeNotFound,
    NothingToCommit,
)
from perago.lake.base import Lake
from tests.support.worlds.clock import eventually
from tests.support.worlds.lake_work import Work


class TestRepositories:
    def test_a_repository_is_listed_once(self, lake: Lake, repository: str) -> None:
        assert list(lake.repositories()).count(repository) == 1


class TestListing:
    def test_paths_come_in_the_order_of_their_utf8_bytes(self, work: Work) -> None:
        paths = ["b", "a/b", "a-b", "a", "a0", "B", "é", "z", "a/b/c", "😀", "\uffee", "a.b"]
        commit = work.commit("main", {path: path.encode() for path in paths})
        assert work.paths(commit) == sorted(paths, key=str.encode)

    def test_a_prefix_is_cut_at_its_slash(self, work: Work) -> None:
        objects = ["audio", "audio/a", "audio/b/c", "audiobook/x", "audio-old/y", "b/audio/z"]
        commit = work.commit("main", dict.fromkeys(objects, b"x"))
        assert work.paths(commit, "audio/") == ["audio/a", "audio/b/c"]

    def test_a_prefix_that_nothing_has_lists_nothing(self, work: Work) -> None:
        commit = work.commit("main", {"a/b": b"x", "c/d": b"x"})
        assert work.paths(commit, "b/") == []
        assert work.paths(commit, "zz/") == []

    def test_a_fresh_repository_lists_nothing(self, work: Work) -> None:
        assert work.paths("main") == []

    def test_entries_hold_the_size_and_the_checksum_of_the_bytes(self, lake: Lake, work: Work) -> None:
        commit = work.commit("main", {"a": b"hello", "b": b""})
        for entry, data in zip(lake.list(work.repository, commit, ""), [b"hello", b""], strict=True):
            assert entry.size == len(data)
            assert entry.checksum in {None, hashlib.new(lake.checksum_algorithm, data).hexdigest()}

    def test_hundreds_of_objects_are_listed_each_once(self, work: Work) -> None:
        objects = {f"many/{n % 7}/{n:05}": b"%d" % n for n in range(1200)}
        commit = work.commit("main", objects)
        assert work.paths(commit) == sorted(objects)
        assert work.paths(commit, "many/3/") == sorted(path for path in objects if "/3/" in path)

    def test_stat_of_an_object_equals_its_listing(self, lake: Lake, work: Work) -> None:
        objects = {"a/b": b"hello", "a/b/c": b"below", "a/b-c": b"beside", "d/": b"", "é": b"x"}
        commit = work.commit("main", objects)
        listed = {entry.path: entry for entry in lake.list(work.repository, commit, "")}
        assert {path: lake.stat(work.repository, commit, path) for path in objects} == listed

    def test_an_object_that_is_not_there_is_not_found_though_names_begin_alike(
        self, lake: Lake, work: Work
    ) -> None:
        commit = work.commit("main", {"plays-old": b"x", "plays/1": b"x", "playsX": b"x"})
        for ref, path in [(commit, "plays"), (commit, "plays/"), (commit, ""), ("no-such-ref", "plays-old")]:
            with pytest.raises(LakeNotFound):
                lake.stat(work.repository, ref, path)

    def test_stat_of_an_object_on_a_branch_sees_uncommitted_changes(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"a": b"1", "b": b"1"})
        work.put("main", {"a": b"three"})
        lake.delete(work.repository, "main", ["b"])
        assert lake.stat(work.repository, "main", "a").size == 5
        with pytest.raises(LakeNotFound):
            lake.stat(work.repository, "main", "b")

    def test_a_listing_of_an_unknown_ref_is_not_found(self, work: Work) -> None:
        with pytest.raises(LakeNotFound):
            work.paths("no-such-ref")

    def test_a_listing_of_an_unknown_repository_is_not_found(self, lake: Lake) -> None:
        with pytest.raises(LakeNotFound):
            list(lake.list("no-such-repository", "main", ""))


class TestUncommitted:
    def test_uploads_are_seen_on_their_branch_and_nowhere_else(self, work: Work) -> None:
        first = work.commit("main", {"old": b"1"})
        work.lake.create_branch(work.repository, "side", first)
        work.put("side", {"new": b"2", "old": b"3"})
        assert work.contents("side") == {"new": b"2", "old": b"3"}
        assert work.contents("main") == work.contents(first) == {"old": b"1"}

    def test_uncommitted_objects_are_listed_in_order_and_by_prefix(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"a/1": b"1", "b/1": b"1", "b/3": b"1", "c/1": b"1"})
        work.put("main", {"b/2": b"2", "b/4": b"2", "a/2": b"2", "c/2": b"2", "bb": b"2"})
        lake.delete(work.repository, "main", ["b/1"])
        assert work.paths("main", "b/") == ["b/2", "b/3", "b/4"]
        assert work.paths("main") == ["a/1", "a/2", "b/2", "b/3", "b/4", "bb", "c/1", "c/2"]

    def test_deletes_are_seen_on_their_branch_before_the_commit(self, lake: Lake, work: Work) -> None:
        commit = work.commit("main", {"a": b"1", "b": b"2", "c/d": b"3"})
        lake.delete(work.repository, "main", ["a", "c/d"])
        assert work.paths("main") == ["b"]
        assert work.paths(commit) == ["a", "b", "c/d"]

    def test_a_deleted_object_cannot_be_read(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"a": b"1"})
        lake.delete(work.repository, "main", ["a"])
        with pytest.raises(LakeNotFound):
            work.bytes_at("main", "a")

    def test_a_branch_says_whether_it_holds_uncommitted_changes(self, lake: Lake, work: Work) -> None:
        assert not lake.has_uncommitted_changes(work.repository, "main")
        work.put("main", {"a": b"1"})
        assert lake.has_uncommitted_changes(work.repository, "main")
        lake.commit(work.repository, "main", "take it", {})
        assert not lake.has_uncommitted_changes(work.repository, "main")
        lake.delete(work.repository, "main", ["a"])
        assert lake.has_uncommitted_changes(work.repository, "main")

    def test_a_branch_lists_the_paths_of_its_uncommitted_changes_in_order(
        self, lake: Lake, work: Work
    ) -> None:
        work.commit("main", {"a/1": b"1", "a/2": b"1", "b": b"1", "c/1": b"1"})
        assert list(lake.uncommitted_paths(work.repository, "main")) == []
        work.put("main", {"a/1": b"2", "new": b"2", "ab": b"2"})
        lake.delete(work.repository, "main", ["c/1"])
        assert list(lake.uncommitted_paths(work.repository, "main")) == ["a/1", "ab", "c/1", "new"]
        assert list(lake.uncommitted_paths(work.repository, "main", prefix="a/")) == ["a/1"]
        assert list(lake.uncommitted_paths(work.repository, "main", after="ab")) == ["c/1", "new"]
        lake.commit(work.repository, "main", "take them", {})
        assert list(lake.uncommitted_paths(work.repository, "main")) == []

    def test_the_uncommitted_changes_of_a_branch_that_is_not_there_are_not_found(
        self, lake: Lake, work: Work
    ) -> None:
        with pytest.raises(LakeNotFound):
            list(lake.uncommitted_paths(work.repository, "nowhere"))

    def test_objects_are_copied_from_another_ref_and_are_uncommitted_there(
        self, lake: Lake, work: Work
    ) -> None:
        a = work.head()
        held = work.stage("held", a, {"data/one": b"one", "data/two": b"two", "data/other": b"other"})
        lake.create_branch(work.repository, "stage", a)
        lake.copy(work.repository, "stage", held, ["data/one", "data/two"])
        assert work.contents("stage") == {"data/one": b"one", "data/two": b"two"}
        assert work.head("stage") == a
        lake.commit(work.repository, "stage", "copied", {})
        assert work.contents("stage") == {"data/one": b"one", "data/two": b"two"}

    def test_copying_what_is_not_there_is_an_error(self, lake: Lake, work: Work) -> None:
        lake.create_branch(work.repository, "stage", work.head())
        with pytest.raises(LakeNotFound):
            lake.copy(work.repository, "stage", work.head(), ["data/none"])

    def test_deleting_what_is_not_there_is_no_error_and_no_change(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"a": b"1"})
        lake.delete(work.repository, "main", ["b", "a/b"])
        assert not lake.has_uncommitted_changes(work.repository, "main")
        assert work.paths("main") == ["a"]

    def test_deleting_an_uncommitted_upload_takes_it_back(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"a": b"1"})
        work.put("main", {"b": b"2"})
        lake.delete(work.repository, "main", ["b"])
        assert work.paths("main") == ["a"]

    def test_an_upload_after_a_delete_brings_the_object_back(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"a": b"1", "b": b"1"})
        lake.delete(work.repository, "main", ["a"])
        work.put("main", {"a": b"2"})
        lake.commit(work.repository, "main", "again", {})
        assert work.contents("main") == {"a": b"2", "b": b"1"}

    def test_the_last_of_two_uploads_to_one_path_counts(self, work: Work) -> None:
        work.put("main", {"a": b"first"})
        commit = work.commit("main", {"a": b"second"})
        assert work.contents(commit) == {"a": b"second"}

    def test_upload_to_an_unknown_branch_is_not_found(self, work: Work) -> None:
        with pytest.raises(LakeNotFound):
            work.put("no-such-branch", {"a": b"1"})

    def test_an_upload_of_no_files_and_a_delete_of_no_paths_do_nothing(self, lake: Lake, work: Work) -> None:
        lake.upload(work.repository, "main", [])
        lake.delete(work.repository, "main", [])
        assert not lake.has_uncommitted_changes(work.repository, "main")


class TestCommit:
    def test_a_commit_has_one_parent_a_message_metadata_and_a_time(self, lake: Lake, work: Work) -> None:
        before = work.head()
        work.put("main", {"a": b"1"})
        made = lake.commit(work.repository, "main", "a message: ü", {"perago.phase": "try", "k": "ü=1"})
        commit = lake.commit_at(work.repository, made)
        assert (commit.id, commit.parents, commit.message) == (made, (before,), "a message: ü")
        assert commit.metadata["perago.phase"] == "try"
        assert commit.metadata["k"] == "ü=1"
        assert commit.created > 1_500_000_000
        assert work.head() == made

    def test_commits_never_change(self, lake: Lake, work: Work) -> None:
        first = work.commit("main", {"a": b"1", "b": b"1"})
        second = work.commit("main", {"a": b"2"})
        lake.delete(work.repository, "main", ["b"])
        third = lake.commit(work.repository, "main", "drop b", {})
        assert work.contents(first) == {"a": b"1", "b": b"1"}
        assert work.contents(second) == {"a": b"2", "b": b"1"}
        assert work.contents(third) == {"a": b"2"}

    def test_a_clean_branch_has_nothing_to_commit(self, lake: Lake, work: Work) -> None:
        head = work.commit("main", {"a": b"1"})
        with pytest.raises(NothingToCommit):
            lake.commit(work.repository, "main", "again", {})
        assert work.head() == head

    def test_bytes_that_are_there_already_are_nothing_to_commit(self, lake: Lake, work: Work) -> None:
        head = work.commit("main", {"a": b"1"})
        work.put("main", {"a": b"1"})
        with pytest.raises(NothingToCommit):
            lake.commit(work.repository, "main", "again", {})
        assert work.head() == head

    def test_a_commit_of_deletes_alone_is_a_commit(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"a": b"1"})
        lake.delete(work.repository, "main", ["a"])
        commit = lake.commit(work.repository, "main", "empty again", {})
        assert work.paths(commit) == []

    def test_a_commit_on_an_unknown_branch_is_not_found(self, lake: Lake, repository: str) -> None:
        with pytest.raises(LakeNotFound):
            lake.commit(repository, "no-such-branch", "m", {})


def test_a_closed_lake_has_given_its_connections_back_and_may_be_closed_and_used_again(
    lake: Lake, work: Work
) -> None:
    lake.close()
    before = connections()
    commit = work.commit("main", {"a": b"1"})
    assert work.bytes_at(commit, "a") == b"1"
    assert connections() - before

    lake.close()
    lake.close()

    # A library may close its sockets on another thread.
    eventually(lambda: not connections() - before, "everything is closed")


def connections() -> set[tuple[str, str]]:
    """The files and sockets that this process has open; not the event loop that a library keeps for the whole process."""
    found = set()
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found.add((link.name, os.readlink(link)))
    return {(number, target) for number, target in found if not target.startswith("anon_inode:")}
