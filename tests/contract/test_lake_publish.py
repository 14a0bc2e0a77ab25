"""How every lake moves a branch: merge and relocate, with their endings.  No test here names a backend."""

from __future__ import annotations

import pytest

from perago.errors import (
    BranchDirty,
    HeadMoved,
    LakeNotFound,
    LakeRefused,
)
from perago.lake.base import Lake, Merge
from tests.support.lake_work import Work, at_once


class TestMerge:
    def test_a_merge_is_one_commit_on_the_expected_head_with_the_sources_files(
        self, lake: Lake, work: Work
    ) -> None:
        base = work.commit("main", {"keep": b"1", "change": b"1", "drop": b"1"})
        lake.create_branch(work.repository, "side", base)
        lake.delete(work.repository, "side", ["drop"])
        work.commit("side", {"change": b"2", "new": b"2"})
        metadata = {"perago.logical_task_key": "wf/step", "perago.phase": "confirm"}
        merge = Merge("side", "main", base, "a message", metadata, 30)
        made = lake.merge(work.repository, merge)
        head = lake.head(work.repository, "main")
        assert (head.id, head.parents, head.message) == (made, (base,), "a message")
        assert head.metadata.items() >= metadata.items()
        assert work.contents("main") == {"keep": b"1", "change": b"2", "new": b"2"}

    def test_the_source_stays_as_it_is(self, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        staged = work.stage("side", base, {"a": b"2"})
        assert work.merge("side", base) != staged
        assert work.head("side") == staged

    def test_a_merge_onto_a_moved_head_is_refused(self, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        work.stage("side", base, {"a": b"2"})
        moved = work.commit("main", {"b": b"1"})
        with pytest.raises(HeadMoved):
            work.merge("side", base)
        assert work.head() == moved

    def test_the_second_of_two_merges_from_one_head_is_refused(self, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        work.stage("one", base, {"a": b"2"})
        work.stage("two", base, {"b": b"2"})
        landed = work.merge("one", base)
        with pytest.raises(HeadMoved):
            work.merge("two", base)
        assert work.head() == landed

    def test_a_merge_that_is_sent_twice_lands_once(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        work.stage("side", base, {"a": b"2"})
        landed = work.merge("side", base)
        with pytest.raises(LakeRefused):
            work.merge("side", base)
        assert [commit.id for commit in lake.log(work.repository, "main", 2)] == [landed, base]

    def test_of_eight_racing_merges_a_hard_fence_lets_one_through(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"0"})
        for number in range(8):
            work.stage(f"side-{number}", base, {f"by-{number}": b"x"})
        ends = at_once(8, lambda number: work.merge(f"side-{number}", base))
        landed = {end for end in ends if isinstance(end, str)}
        losers = [end for end in ends if not isinstance(end, str)]
        assert all(isinstance(end, LakeRefused) for end in losers)
        assert landed == {commit.id for commit in lake.log(work.repository, "main", 100)} & landed
        if lake.fence_level(work.repository, "side-0") == "hard":
            assert len(landed) == 1
            assert lake.head(work.repository, "main").parents == (base,)
        assert landed

    def test_a_merge_onto_a_branch_with_uncommitted_objects_is_refused(self, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        work.stage("side", base, {"a": b"2"})
        work.put("main", {"b": b"someone is at work"})
        with pytest.raises(BranchDirty):
            work.merge("side", base)
        assert work.head() == base
        assert work.contents("main") == {"a": b"1", "b": b"someone is at work"}

    def test_a_merge_takes_only_what_its_source_has_committed(self, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        work.stage("side", base, {"a": b"2"})
        work.put("side", {"late": b"not committed"})
        work.merge("side", base)
        assert work.contents("main") == {"a": b"2"}

    def test_a_merge_from_a_dropped_branch_is_not_found(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        work.stage("side", base, {"a": b"2"})
        lake.drop_branch(work.repository, "side")
        with pytest.raises(LakeNotFound):
            work.merge("side", base)
        assert work.head() == base

    def test_a_merge_onto_an_unknown_branch_is_not_found(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        work.stage("side", base, {"a": b"2"})
        with pytest.raises(LakeNotFound):
            lake.merge(work.repository, Merge("side", "no-such-branch", base, "m", {}, 30))

    def test_a_merge_without_changes_is_refused(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        lake.create_branch(work.repository, "side", base)
        with pytest.raises(LakeRefused):
            work.merge("side", base)
        assert work.head() == base

    def test_a_chain_of_merges_is_a_chain_of_commits(self, lake: Lake, work: Work) -> None:
        heads = [work.commit("main", {"a": b"0"})]
        for number in range(1, 4):
            work.stage(f"side-{number}", heads[-1], {"a": b"%d" % number})
            heads.append(work.merge(f"side-{number}", heads[-1]))
        assert [commit.id for commit in lake.log(work.repository, "main", 4)] == heads[::-1]
        assert work.contents("main") == {"a": b"3"}


class TestRelocate:
    def test_a_branch_moves_to_the_sources_head_itself(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        abandoned = work.commit("main", {"a": b"abandoned"})
        staged = work.stage("side", base, {"a": b"2"})
        lake.relocate(work.repository, "main", "side", abandoned)
        assert [commit.id for commit in lake.log(work.repository, "main", 2)] == [staged, base]
        assert work.contents("main") == {"a": b"2"}
        assert work.contents(abandoned) == {"a": b"abandoned"}

    def test_nothing_stands_in_its_way_on_a_branch_without_actions(self, lake: Lake, work: Work) -> None:
        work.commit("main", {"a": b"1"})
        assert list(lake.gates(work.repository, "main", "main")) == []

    def test_a_branch_moves_back_to_where_a_claim_is(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        abandoned = work.commit("main", {"a": b"abandoned"})
        lake.create_branch(work.repository, "perago-claim", base)
        lake.relocate(work.repository, "main", "perago-claim", abandoned)
        assert work.head() == base

    def test_a_branch_that_moved_is_not_relocated(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        abandoned = work.commit("main", {"a": b"abandoned"})
        work.stage("side", base, {"a": b"2"})
        moved = work.commit("main", {"b": b"someone else"})
        with pytest.raises(HeadMoved):
            lake.relocate(work.repository, "main", "side", abandoned)
        assert work.head() == moved

    def test_a_relocation_from_a_dropped_branch_is_not_found(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        abandoned = work.commit("main", {"a": b"abandoned"})
        work.stage("side", base, {"a": b"2"})
        lake.drop_branch(work.repository, "side")
        with pytest.raises(LakeNotFound):
            lake.relocate(work.repository, "main", "side", abandoned)
        assert work.head() == abandoned
