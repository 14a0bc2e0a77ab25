"""Commits, branches and tags of every lake, by whatever name they are asked for."""

from __future__ import annotations

import pytest

from perago.errors import (
    LakeConflict,
    LakeError,
    LakeNotFound,
)
from perago.lake.base import Lake
from tests.support.worlds.lake_work import Work, at_once


class TestRefs:
    def test_a_commit_is_found_by_id_prefix_branch_and_tag(self, lake: Lake, work: Work) -> None:
        commit = work.commit("main", {"a": b"1"})
        lake.create_tag(work.repository, "a-tag", commit)
        for ref in (commit, commit[:20], "main", "a-tag"):
            assert lake.commit_at(work.repository, ref).id == commit

    @pytest.mark.parametrize("ref", ["no-such-ref", "0" * 64, "abcdef0123456789"])
    def test_an_unknown_ref_is_not_found(self, lake: Lake, repository: str, ref: str) -> None:
        with pytest.raises(LakeNotFound):
            lake.commit_at(repository, ref)

    def test_the_head_of_an_unknown_branch_is_not_found(self, lake: Lake, repository: str) -> None:
        with pytest.raises(LakeNotFound):
            lake.head(repository, "no-such-branch")

    def test_a_head_is_asked_of_branches_only(self, lake: Lake, work: Work) -> None:
        commit = work.commit("main", {"a": b"1"})
        lake.create_tag(work.repository, "a-tag", commit)
        with pytest.raises(LakeError):
            lake.head(work.repository, "a-tag")

    def test_the_log_goes_along_first_parents_newest_first(self, lake: Lake, work: Work) -> None:
        first = work.head()
        made = [work.commit("main", {"a": b"%d" % n}) for n in range(5)]
        ids = [commit.id for commit in lake.log(work.repository, "main", 100)]
        assert ids == [*reversed(made), first]
        assert [commit.id for commit in lake.log(work.repository, made[1], 100)] == [made[1], made[0], first]

    def test_the_log_stops_at_its_limit(self, lake: Lake, work: Work) -> None:
        made = [work.commit("main", {"a": b"%d" % n}) for n in range(4)]
        ids = [commit.id for commit in lake.log(work.repository, "main", 2)]
        assert ids == [made[3], made[2]]

    def test_the_log_of_an_unknown_ref_is_not_found(self, lake: Lake, repository: str) -> None:
        with pytest.raises(LakeNotFound):
            list(lake.log(repository, "no-such-ref", 10))

    def test_hidden_and_open_branches_are_listed_by_prefix(self, lake: Lake, work: Work) -> None:
        head = work.head()
        lake.create_branch(work.repository, "perago-staging-a", "main", hidden=True)
        lake.create_branch(work.repository, "perago-staging-b", "main", hidden=False)
        lake.create_branch(work.repository, "perago-claim-a", "main")
        listed = lake.branches(work.repository, "perago-staging-")
        assert [(ref.name, ref.commit) for ref in listed] == [
            ("perago-staging-a", head),
            ("perago-staging-b", head),
        ]
        assert [ref.name for ref in lake.branches(work.repository, "main")] == ["main"]

    def test_a_branch_name_of_some_hundred_characters_is_taken(self, lake: Lake, repository: str) -> None:
        name = "perago-staging-" + "x_-" * 75
        lake.create_branch(repository, name, "main")
        assert [ref.name for ref in lake.branches(repository, name)] == [name]

    @pytest.mark.parametrize("name", ["with space", "dot.dot", "sla/sh", "ü", "-dash-first", ""])
    def test_a_branch_name_that_is_not_allowed_is_refused(
        self, lake: Lake, repository: str, name: str
    ) -> None:
        with pytest.raises(LakeError):
            lake.create_branch(repository, name, "main")

    def test_a_branch_starts_at_any_commit(self, lake: Lake, work: Work) -> None:
        first = work.commit("main", {"a": b"1"})
        work.commit("main", {"a": b"2"})
        lake.create_branch(work.repository, "back", first)
        assert work.head("back") == first
        assert work.contents("back") == {"a": b"1"}

    def test_a_branch_from_an_unknown_source_is_not_found(self, lake: Lake, repository: str) -> None:
        with pytest.raises(LakeNotFound):
            lake.create_branch(repository, "side", "no-such-ref")

    def test_a_branch_name_is_given_once(self, lake: Lake, work: Work) -> None:
        lake.create_branch(work.repository, "side", "main")
        with pytest.raises(LakeConflict):
            lake.create_branch(work.repository, "side", "main")

    def test_one_of_eight_concurrent_creations_gets_the_branch_name(
        self, lake: Lake, repository: str
    ) -> None:
        for round_ in range(3):
            name = f"perago-claim-{round_}"
            ends = at_once(8, lambda _, name=name: lake.create_branch(repository, name, "main"))
            assert ends.count(None) == 1
            assert sum(isinstance(end, LakeConflict) for end in ends) == 7

    def test_a_dropped_branch_is_gone_with_what_was_uncommitted(self, lake: Lake, work: Work) -> None:
        lake.create_branch(work.repository, "side", "main")
        work.put("side", {"a": b"1"})
        lake.drop_branch(work.repository, "side")
        assert lake.branches(work.repository, "side") == []
        with pytest.raises(LakeNotFound):
            lake.head(work.repository, "side")
        lake.create_branch(work.repository, "side", "main")
        assert work.paths("side") == []
        assert not lake.has_uncommitted_changes(work.repository, "side")

    def test_commits_stay_when_their_branch_is_dropped(self, lake: Lake, work: Work) -> None:
        commit = work.stage("side", "main", {"a": b"1"})
        lake.drop_branch(work.repository, "side")
        assert work.contents(commit) == {"a": b"1"}

    def test_dropping_what_is_not_there_is_no_error(self, lake: Lake, repository: str) -> None:
        lake.drop_branch(repository, "no-such-branch")
        lake.drop_tag(repository, "no-such-tag")

    def test_a_tag_keeps_its_commit_and_its_name_is_given_once(self, lake: Lake, work: Work) -> None:
        first = work.commit("main", {"a": b"1"})
        second = work.commit("main", {"a": b"2"})
        lake.create_tag(work.repository, "perago-replaced-1", first)
        with pytest.raises(LakeConflict):
            lake.create_tag(work.repository, "perago-replaced-1", second)
        assert lake.commit_at(work.repository, "perago-replaced-1").id == first

    def test_tags_are_listed_by_prefix_and_dropped(self, lake: Lake, work: Work) -> None:
        commit = work.commit("main", {"a": b"1"})
        for name in ("perago-replaced-1", "perago-replaced-2", "other"):
            lake.create_tag(work.repository, name, commit)
        listed = lake.tags(work.repository, "perago-replaced-")
        assert [(ref.name, ref.commit) for ref in listed] == [
            ("perago-replaced-1", commit),
            ("perago-replaced-2", commit),
        ]
        lake.drop_tag(work.repository, "perago-replaced-1")
        assert [ref.name for ref in lake.tags(work.repository, "perago-replaced-")] == ["perago-replaced-2"]

    def test_a_tag_on_an_unknown_commit_is_not_found(self, lake: Lake, repository: str) -> None:
        with pytest.raises(LakeNotFound):
            lake.create_tag(repository, "a-tag", "0" * 64)
