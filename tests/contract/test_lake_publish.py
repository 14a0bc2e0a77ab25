"""Moving a branch on every lake: merge and relocate, with their outcomes.  No test here names a backend."""

from __future__ import annotations

import pytest

from perago.errors import (
    BranchDirty,
    HeadMoved,
    LakeNotFound,
    LakeRefused,
    LandedElsewhere,
    NothingToCommit,
)
from perago.lake.base import Lake, Merge
from tests.support.worlds.lake_work import Work, at_once


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
        # Past a soft fence a merge may land on top of another one, and says so.
        assert all(isinstance(end, LakeRefused | LandedElsewhere) for end in losers)
        assert landed == {commit.id for commit in lake.log(work.repository, "main", 100)} & landed
        if lake.fence_level(work.repository, "side-0") == "hard":
            assert len(landed) == 1
            assert not any(isinstance(end, LandedElsewhere) for end in losers)
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


class TestThreeWayMerge:
    """A source that was made at an earlier commit of the target: what it changed comes in, what others did stays."""

    def test_a_three_way_merge_has_both_sides_and_a_linear_history(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"keep": b"0", "ours": b"0", "drop": b"0", "theirs": b"0"})
        lake.create_branch(work.repository, "side", base)
        lake.delete(work.repository, "side", ["drop"])
        work.commit("side", {"ours": b"1", "new": b"1"})
        lake.delete(work.repository, "main", ["keep"])
        head = work.commit("main", {"theirs": b"2", "by-others": b"2"})
        made = work.merge("side", head)
        assert lake.head(work.repository, "main").parents == (head,)
        assert work.contents(made) == {"ours": b"1", "new": b"1", "theirs": b"2", "by-others": b"2"}

    def test_many_stagings_of_one_commit_all_come_in_one_after_the_other(
        self, lake: Lake, work: Work
    ) -> None:
        base = work.commit("main", {"a": b"0"})
        for number in range(5):
            work.stage(f"side-{number}", base, {f"by-{number}": b"x"})
        heads = [base]
        for number in range(5):
            heads.append(work.merge(f"side-{number}", heads[-1]))
        assert [commit.id for commit in lake.log(work.repository, "main", 6)] == heads[::-1]
        assert work.contents("main") == {"a": b"0", **{f"by-{n}": b"x" for n in range(5)}}

    @pytest.mark.parametrize(
        ("ours", "theirs"),
        [
            ({"x": b"1"}, {"x": b"2"}),
            ({"new": b"1"}, {"new": b"2"}),
            ({"x": None}, {"x": b"2"}),
            ({"x": b"1"}, {"x": None}),
        ],
        ids=["changed by both", "added by both", "deleted and changed", "changed and deleted"],
    )
    def test_a_conflict_is_a_moved_head_and_changes_nothing(
        self, lake: Lake, work: Work, ours: dict[str, bytes | None], theirs: dict[str, bytes | None]
    ) -> None:
        base = work.commit("main", {"x": b"0", "y": b"0"})
        lake.create_branch(work.repository, "side", base)
        heads = [work.edit("side", ours), work.edit("main", theirs)]
        with pytest.raises(HeadMoved, match="conflict"):
            work.merge("side", heads[1])
        assert work.head() == heads[1]

    def test_the_same_change_on_both_sides_is_no_conflict(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"x": b"0", "y": b"0"})
        lake.create_branch(work.repository, "side", base)
        work.edit("side", {"x": None, "z": b"1"})
        head = work.edit("main", {"x": None})
        work.merge("side", head)
        assert work.contents("main") == {"y": b"0", "z": b"1"}

    def test_a_source_whose_changes_the_target_has_already_lands_and_changes_nothing(
        self, lake: Lake, work: Work
    ) -> None:
        base = work.commit("main", {"x": b"0", "y": b"0"})
        lake.create_branch(work.repository, "side", base)
        lake.delete(work.repository, "side", ["x"])
        # With the same words, within one second, lakeFS makes one and the same commit of both.
        lake.commit(work.repository, "side", "other words", {})
        head = work.edit("main", {"x": None})
        made = work.merge("side", head)
        assert (work.head(), lake.head(work.repository, "main").first_parent) == (made, head)
        assert work.contents("main") == {"y": b"0"}

    def test_a_source_that_has_changed_nothing_is_refused(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"x": b"0"})
        lake.create_branch(work.repository, "side", base)
        head = work.commit("main", {"y": b"0"})
        with pytest.raises(LakeRefused):
            work.merge("side", head)
        assert work.head() == head

    def test_the_expected_head_is_compared_all_the_same(self, work: Work) -> None:
        base = work.commit("main", {"a": b"0"})
        work.stage("side", base, {"b": b"1"})
        passed = work.commit("main", {"c": b"1"})
        moved = work.commit("main", {"d": b"1"})
        for other in (base, passed):
            with pytest.raises(HeadMoved):
                work.merge("side", other)
        assert work.head() == moved


class TestMergeWithTwoParents:
    """Merges without `squash`: the source's head is the second parent, and the next merge starts from there."""

    def merge(self, lake: Lake, work: Work, source: str, **options: bool) -> str:
        merge = Merge(source, "main", work.head(), "merge", {}, 30, squash=False, **options)
        return lake.merge(work.repository, merge)

    def test_its_parents_are_the_expected_head_and_the_source(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        source = work.stage("side", base, {"a": b"2"})
        head = work.commit("main", {"b": b"1"})
        made = self.merge(lake, work, "side")
        assert lake.commit_at(work.repository, made).parents == (head, source)
        assert [commit.id for commit in lake.log(work.repository, "main", 3)] == [made, head, base]
        assert work.contents("main") == {"a": b"2", "b": b"1"}

    def test_a_branch_that_was_merged_is_compared_with_that_commit_the_next_time(
        self, lake: Lake, work: Work
    ) -> None:
        base = work.commit("main", {"a": b"1", "b": b"1"})
        work.stage("side", base, {"a": b"2"})
        self.merge(lake, work, "side")
        with pytest.raises(NothingToCommit):
            self.merge(lake, work, "side")
        work.commit("side", {"a": b"3"})
        work.commit("main", {"b": b"2"})
        self.merge(lake, work, "side")
        assert work.contents("main") == {"a": b"3", "b": b"2"}

    def test_a_merge_by_way_of_a_third_branch_counts_too(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        work.stage("side", base, {"a": b"2"})
        lake.create_branch(work.repository, "middle", base)
        lake.merge(work.repository, Merge("side", "middle", base, "merge", {}, 30, squash=False))
        self.merge(lake, work, "middle")
        work.commit("side", {"a": b"3"})
        self.merge(lake, work, "side")
        assert work.contents("main") == {"a": b"3"}

    def test_both_directions_merge(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1", "b": b"1"})
        side = work.stage("side", base, {"a": b"2"})
        work.commit("main", {"b": b"2"})
        lake.merge(work.repository, Merge("main", "side", side, "merge", {}, 30, squash=False))
        assert work.contents("side") == {"a": b"2", "b": b"2"}
        work.commit("side", {"b": b"3"})
        self.merge(lake, work, "side")
        assert work.contents("main") == {"a": b"2", "b": b"3"}

    def test_an_empty_one_is_made_only_if_it_is_allowed(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        lake.create_branch(work.repository, "side", base)
        with pytest.raises(NothingToCommit):
            self.merge(lake, work, "side")
        made = self.merge(lake, work, "side", allow_empty=True)
        assert lake.head(work.repository, "main").parents[0] == base
        assert work.head() == made

    def test_conflicts_are_listed_with_the_paths_that_differ_on_both_sides(
        self, lake: Lake, work: Work
    ) -> None:
        base = work.commit("main", dict.fromkeys(("a", "b", "gone", "same", "ours", "theirs"), b"1"))
        lake.create_branch(work.repository, "side", base)
        work.edit("side", {"a": b"2", "b": b"2", "gone": None, "same": b"2", "ours": b"2"})
        head = work.edit("main", {"a": b"3", "b": b"3", "gone": b"3", "same": b"2", "theirs": b"3"})
        assert list(lake.conflicts(work.repository, "side", head, 10)) == ["a", "b", "gone"]
        assert list(lake.conflicts(work.repository, "side", head, 2)) == ["a", "b"]
        assert list(lake.conflicts(work.repository, "side", base, 10)) == []
        with pytest.raises(HeadMoved):
            self.merge(lake, work, "side")
        assert work.head() == head


class TestDiffering:
    def diff_paths(self, lake: Lake, work: Work, left: str, right: str, *roots: str) -> list[str]:
        return list(lake.diff_paths(work.repository, left, right, roots))

    def test_added_changed_and_deleted_paths_are_listed_in_order(self, lake: Lake, work: Work) -> None:
        left = work.commit("main", {"t/a": b"0", "t/b": b"0", "t/keep": b"0", "u/a": b"0"})
        right = work.edit("main", {"t/a": None, "t/b": b"1", "t/c": b"1", "u/a": b"1"})
        for pair in ((left, right), (right, left)):
            assert self.diff_paths(lake, work, *pair, "t/") == ["t/a", "t/b", "t/c"]
            assert self.diff_paths(lake, work, *pair, "") == ["t/a", "t/b", "t/c", "u/a"]
        assert self.diff_paths(lake, work, right, right, "") == []

    def test_a_root_is_an_object_or_a_folder_and_never_a_beginning(self, lake: Lake, work: Work) -> None:
        left = work.commit("main", {"x": b"0"})
        olds = dict.fromkeys(("plays-old", "plays-old/a", "plays.csv", "plays0", "playsx/a", "play"), b"1")
        right = work.commit("main", olds)
        assert self.diff_paths(lake, work, left, right, "plays") == []
        folder = work.commit("main", {"plays/a": b"1", "plays/b/c": b"1"})
        assert self.diff_paths(lake, work, left, folder, "plays") == ["plays/a", "plays/b/c"]
        assert self.diff_paths(lake, work, right, folder, "plays/b") == ["plays/b/c"]
        both = work.commit("main", {"plays": b"1"})
        assert self.diff_paths(lake, work, folder, both, "plays") == ["plays"]
        assert self.diff_paths(lake, work, left, both, "plays") == ["plays", "plays/a", "plays/b/c"]
        assert self.diff_paths(lake, work, folder, both, "plays/") == []

    def test_roots_are_told_one_after_the_other(self, lake: Lake, work: Work) -> None:
        left = work.commit("main", {"b": b"0", "a/x": b"0"})
        right = work.commit("main", {"b": b"1", "a/x": b"1", "c": b"1"})
        assert self.diff_paths(lake, work, left, right, "b", "a") == ["b", "a/x"]
        assert self.diff_paths(lake, work, left, right, "nothing", "c") == ["c"]
        assert self.diff_paths(lake, work, left, right) == []

    def test_a_change_that_is_taken_back_is_none(self, lake: Lake, work: Work) -> None:
        left = work.commit("main", {"t/a": b"0"})
        work.commit("main", {"t/new": b"1"})
        right = work.edit("main", {"t/new": None})
        assert left != right
        assert self.diff_paths(lake, work, left, right, "t") == []

    def test_more_than_a_page_is_told_whole(self, lake: Lake, work: Work) -> None:
        left = work.commit("main", {"x": b"0"})
        names = [f"t/{number:04}" for number in range(1100)]
        right = work.commit("main", dict.fromkeys(names, b""))
        assert self.diff_paths(lake, work, left, right, "t") == names

    def test_the_first_is_had_without_the_rest(self, lake: Lake, work: Work) -> None:
        left = work.commit("main", {"x": b"0"})
        right = work.commit("main", {f"t/{number}": b"1" for number in range(5)})
        assert next(iter(lake.diff_paths(work.repository, left, right, ["t"]))) == "t/0"

    def test_a_commit_that_is_not_there_is_not_found(self, lake: Lake, work: Work) -> None:
        head = work.commit("main", {"x": b"0"})
        with pytest.raises(LakeNotFound):
            list(lake.diff_paths(work.repository, head, "f" * 64, ["x"]))


class TestRelocate:
    def test_a_branch_moves_to_the_sources_head_itself(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        abandoned = work.commit("main", {"a": b"abandoned"})
        staged = work.stage("side", base, {"a": b"2"})
        lake.relocate(work.repository, "main", "side", abandoned, 60)
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
        lake.relocate(work.repository, "main", "perago-claim", abandoned, 60)
        assert work.head() == base

    def test_a_branch_that_moved_is_not_relocated(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        abandoned = work.commit("main", {"a": b"abandoned"})
        work.stage("side", base, {"a": b"2"})
        moved = work.commit("main", {"b": b"someone else"})
        with pytest.raises(HeadMoved):
            lake.relocate(work.repository, "main", "side", abandoned, 60)
        assert work.head() == moved

    def test_a_relocation_from_a_dropped_branch_is_not_found(self, lake: Lake, work: Work) -> None:
        base = work.commit("main", {"a": b"1"})
        abandoned = work.commit("main", {"a": b"abandoned"})
        work.stage("side", base, {"a": b"2"})
        lake.drop_branch(work.repository, "side")
        with pytest.raises(LakeNotFound):
            lake.relocate(work.repository, "main", "side", abandoned, 60)
        assert work.head() == abandoned
