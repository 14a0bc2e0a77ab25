"""Backfills that are one transaction: readers see all partitions or none, whoever is killed, and whenever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perago.errors import RuntimeConfigError
from perago.lake.local.lake import LocalLake
from perago.runtime.maps.rows import Row
from tests.support.faults.ports import Wrapped
from tests.support.worlds.backfill_world import BackfillWorld, Killed, daily_task, failing_on

TWO = "day=2026-01-01..2026-01-02"
REBASE: dict[str, Any] = {}
IN_ORDER: dict[str, Any] = {"on_abandoned": "replace", "on_advanced": "refuse"}
CHANGES = frozenset(
    {
        "create_branch",
        "create_object",
        "create_tag",
        "commit",
        "merge",
        "relocate",
        "upload",
        "delete",
        "copy",
        "drop_branch",
        "barrier",
    }
)


def statuses(world: BackfillWorld) -> dict[str, str]:
    return {one.names["day"]: one.status for one in world.states()}


def new_commits(world: BackfillWorld, origin: str) -> list[str]:
    ids = [commit.id for commit in world.history()]
    return ids[: ids.index(origin)]


@pytest.mark.parametrize("spec", [REBASE, IN_ORDER])
def test_all_partitions_are_one_commit_and_each_is_known_to_the_ledger(
    world: BackfillWorld, spec: dict[str, Any]
) -> None:
    world.task = daily_task(**spec)
    days = world.days(4)
    origin = world.head().id
    seen: list[int] = []
    world.dies = lambda _row, step: bool(step == "publish" and seen.append(len(new_commits(world, origin))))

    session = world.run("day=2026-01-01..2026-01-04", atomic=True)

    assert session.row_counts().done == 5
    assert seen == [0, 0, 0, 0]
    assert len(new_commits(world, origin)) == 1
    assert world.files() == {f"clean/day={day}/part.csv": f"cleaned: lines of {day}" for day in days}
    assert statuses(world) == {str(day): "published" for day in days}
    assert world.plan("day=2026-01-01..2026-01-05")[1].rows[0].partition == {"day": "2026-01-05"}
    assert world.leftovers() == []


@pytest.mark.parametrize("spec", [REBASE, IN_ORDER])
def test_one_failed_row_publishes_nothing_and_resuming_continues_there(
    world: BackfillWorld, spec: dict[str, Any]
) -> None:
    world.task = daily_task(failing_on(2), **spec)
    days = world.days(3)
    origin = world.head().id
    run_file, session = world.start("day=2026-01-01..2026-01-03", atomic=True)

    world.drive(session)

    assert world.head().id == origin
    assert (session.row_counts().done, session.row_counts().failed, session.row_counts().left) == (2, 1, 1)
    assert statuses(world) == {"2026-01-02": "failed"}
    assert len(world.plan("day=2026-01-01..2026-01-03")[1].rows) == 3
    world.task = daily_task(**spec)
    world.ran.clear()
    session = world.drive(world.resumed(run_file))
    assert session.row_counts().done == 4
    assert world.ran == ["2026-01-02"]
    assert len(new_commits(world, origin)) == 1
    assert statuses(world) == {str(day): "published" for day in days}


def test_others_commits_do_no_harm_unless_they_change_what_a_row_has_seen(world: BackfillWorld) -> None:
    world.days(2)
    first, second = (world.start(TWO, atomic=True)[1] for _ in range(2))
    world.commit({"other.txt": "others go on"})

    assert world.drive(first).row_counts().done == 3
    late = world.drive(second)

    assert (late.row_counts().done, late.row_counts().failed) == (2, 1)
    assert "clean/day=2026-01-0" in late.known[3].reason


def test_without_rebase_a_branch_that_has_moved_is_refused(world: BackfillWorld) -> None:
    world.task = daily_task(**IN_ORDER)
    world.days(2)
    run_file, session = world.start(TWO, atomic=True)
    moved = world.commit({"other.txt": "others go on"})

    assert world.drive(session).row_counts().failed == 1
    assert world.drive(world.resumed(run_file)).row_counts().failed == 1
    assert world.head().id == moved


def test_a_run_branch_that_is_gone_is_said(world: BackfillWorld) -> None:
    world.task = daily_task(failing_on(1))
    world.days(2)
    run_file, session = world.start(TWO, atomic=True)
    world.drive(session)
    for branch in world.lake.branches(world.repository, "perago-run-"):
        world.lake.drop_branch(world.repository, branch.name)

    with pytest.raises(RuntimeConfigError, match="is gone, and with it the rows that were done: start a new"):
        world.drive(world.resumed(run_file))


def test_a_commit_by_hand_on_the_run_branch_is_not_published(world: BackfillWorld) -> None:
    world.task = daily_task(failing_on(2))
    world.days(2)
    origin = world.head().id
    run_file, session = world.start(TWO, atomic=True)
    world.drive(session)
    [branch] = world.lake.branches(world.repository, "perago-run-")
    world.commit({"stray.txt": "by hand"}, branch.name)
    world.task = daily_task()

    session = world.drive(world.resumed(run_file))

    assert session.row_counts().failed == 1
    assert "which no step of this workflow made" in session.known[3].reason
    assert world.head().id == origin


@pytest.mark.parametrize("step", ["body", "publish", "hand over"])
@pytest.mark.parametrize("spec", [REBASE, IN_ORDER])
def test_an_executor_that_dies_is_replaced(world: BackfillWorld, spec: dict[str, Any], step: str) -> None:
    world.task = daily_task(**spec)
    world.days(2)
    origin = world.head().id
    died: Counter[str] = Counter()

    def dies(row: Row, begun: str) -> bool:
        if row.number == 1 and begun == step and not died:
            died[begun] += 1
            return True
        return False

    world.dies = dies
    session = world.run(TWO, atomic=True)

    assert (session.row_counts().done, died.total()) == (3, 1)
    assert len(new_commits(world, origin)) == 1
    assert set(statuses(world).values()) == {"published"}


class Power:
    """Cuts the power right after the nth call that changes a lake: nothing that follows reaches the lake."""

    def __init__(self, lake: Any, after: int | None) -> None:
        self.lake: Any = Wrapped(lake, self._intercept)
        self.count = 0
        self._after = after

    def _intercept(self, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if self._after is not None and self.count >= self._after:
            raise Killed
        try:
            return call(*arguments)
        finally:
            self.count += name in CHANGES


def fresh(folder: Path, spec: dict[str, Any]) -> BackfillWorld:
    lake = LocalLake(folder / "lake")
    lake.create_repository("songs")
    world = BackfillWorld(lake, "songs", folder, daily_task(**spec))
    world.days(2)
    return world


def violations(world: BackfillWorld, after: int) -> Iterator[str]:
    """Cut the power, check what readers see, resume, and yield everything that is wrong."""
    origin = world.head().id
    run_file, session = world.start(TWO, atomic=True)
    cut = replace(world, lake=Power(world.lake, after).lake)
    session.record = type(session.record)(cut.lake, session.plan.run)
    with pytest.raises(Killed):
        cut.drive(session)
    if len(new_commits(world, origin)) > 1 or len(world.files()) not in (0, 2):
        yield f"readers saw {sorted(world.files())} in {len(new_commits(world, origin))} commits"
    resumed = world.drive(world.resumed(run_file))
    if resumed.row_counts().done != 3:
        yield f"{[one.reason for one in resumed.known.values() if not one.done]}"
    if len(new_commits(world, origin)) != 1 or len(world.files()) != 2:
        yield f"published {len(new_commits(world, origin))} times: {sorted(world.files())}"
    if set(statuses(world).values()) != {"published"}:
        yield str(statuses(world))


@pytest.mark.parametrize("spec", [REBASE, IN_ORDER], ids=["rebase", "in order"])
def test_a_cut_of_the_power_after_every_change_of_the_lake(tmp_path: Path, spec: dict[str, Any]) -> None:
    whole = fresh(tmp_path / "whole", spec)
    power = Power(whole.lake, None)
    _, session = whole.start(TWO, atomic=True)
    replace(whole, lake=power.lake).drive(session)
    assert power.count > 30

    wrong = [
        f"after change {number}: {said}"
        for number in range(power.count)
        for said in violations(fresh(tmp_path / str(number), spec), number)
    ]

    assert wrong == []


def test_a_run_that_was_published_is_found_although_its_branch_is_gone(tmp_path: Path) -> None:
    cuts = 0
    for number in range(1000):
        world = fresh(tmp_path / str(number), REBASE)
        origin = world.head().id
        run_file, session = world.start(TWO, atomic=True)
        cut = replace(world, lake=Power(world.lake, number).lake)
        session.record = type(session.record)(cut.lake, session.plan.run)
        try:
            cut.drive(session)
        except Killed:
            pass
        else:
            break
        if not new_commits(world, origin):
            continue
        cuts += 1
        for branch in world.lake.branches("songs", "perago-run-"):
            world.lake.drop_branch("songs", branch.name)

        assert world.drive(world.resumed(run_file)).row_counts().done == 3, number
        assert len(new_commits(world, origin)) == 1
    assert cuts > 2
