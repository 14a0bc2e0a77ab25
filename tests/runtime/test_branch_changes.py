"""Merges and restores while others write to the branch: refused by name, and never half done."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from perago.errors import LakeRefused, LakeUnavailable
from perago.protocol.names import put_branch_name
from perago.runtime.branch_changes import own_commits, plan_restore, restore, stage_merge
from perago.runtime.branch_commit import MERGE, RESTORE, BranchCommit, CommandKind
from tests.contract.lakes import LAKES
from tests.support.faults.ports import Wrapped, before
from tests.support.worlds.lake_work import Work


@pytest.fixture(
    params=[pytest.param(name, marks=kind.marks) for name, kind in LAKES.items() if name != "production"]
)
def work(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Work]:
    with LAKES[request.param].open(request) as opened:
        made = Work(opened.lake, opened.repository, tmp_path / "files")
        made.commit("main", {"a": b"1", "b": b"1"})
        made.lake.create_branch(made.repository, "dev", "main", hidden=False)
        made.commit("dev", {"a": b"2"})
        yield made
        assert [one.name for one in made.lake.branches(made.repository, "perago-")] == []


_numbers = itertools.count()


def names() -> Iterator[str]:
    return (put_branch_name(1e9, f"{number:012x}") for number in _numbers)


def target(work: Work, lake: Any, kind: CommandKind, **options: Any) -> BranchCommit:
    return BranchCommit(lake, kind, work.repository, "main", options.get("fence", "auto"), names())


def merge(work: Work, lake: Any = None, **options: Any) -> str:
    with stage_merge(target(work, lake or work.lake, MERGE, **options), "dev", None) as staged:
        return staged.publish()


def test_a_merge_whose_target_moved_is_refused_with_who_moved_it(work: Work) -> None:
    head = work.head()
    moved: list[str] = []

    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == "merge" and arguments[1].target == "main":
            moved.append(work.commit("main", {"c": b"3"}))
        return call(*arguments)

    with pytest.raises(LakeRefused, match="nothing was merged: run the command again") as refused:
        merge(work, Wrapped(work.lake, around))

    assert f"moved from {head} to {moved[0]} meanwhile (not made by Perago: 'put 1')" in str(refused.value)
    assert work.contents("main") == {"a": b"1", "b": b"1", "c": b"3"}
    merge(work)
    assert work.contents("main") == {"a": b"2", "b": b"1", "c": b"3"}


def test_what_is_merged_is_the_commit_that_was_shown(work: Work) -> None:
    with stage_merge(target(work, work.lake, MERGE), "dev", None) as staged:
        work.commit("dev", {"a": b"3", "late": b"3"})
        made = work.lake.commit_at(work.repository, staged.publish())

    assert work.contents("main") == {"a": b"2", "b": b"1"}
    assert made.metadata["perago.merged_commit"] == staged.merged


@pytest.mark.parametrize("landed", [True, False])
def test_a_merge_without_an_answer_is_settled_by_the_branch(work: Work, landed: bool) -> None:
    def around(name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == "merge" and arguments[1].target == "main":
            if landed:
                call(*arguments)
            raise LakeUnavailable("the connection was cut")
        return call(*arguments)

    if landed:
        assert merge(work, Wrapped(work.lake, around)) == work.head()
    else:
        with pytest.raises(LakeUnavailable, match="nothing was merged, run the command again"):
            merge(work, Wrapped(work.lake, around))
    assert work.contents("main")["a"] == (b"2" if landed else b"1")


def test_a_merge_into_a_branch_with_uncommitted_objects_is_refused(work: Work) -> None:
    work.put("main", {"loose": b"1"})
    with pytest.raises(LakeRefused, match="has uncommitted objects, and nothing was merged"):
        merge(work)


def test_a_merge_with_a_hard_fence_that_is_not_there_is_refused(work: Work) -> None:
    soft = Wrapped(
        work.lake,
        lambda name, call, arguments: (
            {"fence_level": "soft", "fence_gap": "carries no fence"}.get(name) or call(*arguments)
        ),
    )
    with pytest.raises(LakeRefused, match=r"PERAGO_FENCE=hard, but .* carries no fence"):
        merge(work, soft, fence="hard")
    assert work.contents("main")["a"] == b"1"


def test_a_restore_whose_branch_moved_is_refused_and_covers_nothing(work: Work) -> None:
    old = work.head()
    work.commit("main", {"a": b"2"})
    lake = before(work.lake, "merge", lambda: work.commit("main", {"a": b"theirs"}))
    plan = plan_restore(work.lake, work.repository, "main", old, ["a"])

    with pytest.raises(LakeRefused, match="nothing was restored: run the command again"):
        restore(target(work, lake, RESTORE), plan, "restore")

    assert work.contents("main")["a"] == b"theirs"


def test_a_conflict_does_not_touch_the_target_and_names_at_most_five_paths(work: Work) -> None:
    work.commit("dev", {f"file-{number}": b"dev" for number in range(8)})
    head = work.commit("main", {f"file-{number}": b"main" for number in range(8)})

    with pytest.raises(LakeRefused, match=r"both have changed 'file-0', .* 'file-4' and more since"):
        merge(work)

    assert work.head() == head


def test_commits_of_a_branch_are_its_own_until_another_has_or_has_merged_them(work: Work) -> None:
    assert [one.message for one in own_commits(work.lake, work.repository, "dev")] == ["put 1"]
    merge(work)
    assert own_commits(work.lake, work.repository, "dev") == []
    newest = work.commit("dev", {"x": b"1"})
    assert [one.id for one in own_commits(work.lake, work.repository, "dev")] == [newest]
    work.lake.create_tag(work.repository, "kept", newest)
    assert own_commits(work.lake, work.repository, "dev") == []
