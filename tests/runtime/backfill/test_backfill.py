"""Backfills from their start to their end: what runs, what is left out, and what a killed driver or executor leaves."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from perago.protocol.metadata import KEY, WRITES
from perago.runtime.maps.record import RowClaim
from perago.runtime.maps.row_runner import MapRows, attempt_of
from perago.runtime.maps.rows import Row, partition_text
from tests.support.worlds.backfill_world import (
    BackfillWorld,
    Day,
    Died,
    Killed,
    Lines,
    clean,
    daily_task,
    failing_on,
)

JANUARY = "day=2026-01-01..2026-01-31"


def over(first: int, last: int) -> str:
    return f"day=2026-01-{first:02d}..2026-01-{last:02d}"


def writes_of(world: BackfillWorld) -> Counter[str]:
    """Return how many publications each partition has."""
    made = [commit.metadata for commit in world.history() if "/" in commit.metadata.get(KEY, "")]
    return Counter(json.loads(one[WRITES])[0] for one in made)


def statuses(world: BackfillWorld, *asked: str) -> dict[str, str]:
    return {partition_text(one.names)[-2:]: one.status for one in world.states(*asked)}


class TestPartitionsOfABackfill:
    def test_each_row_is_its_own_publication_and_the_record_has_all_of_them(
        self, world: BackfillWorld
    ) -> None:
        days = world.days(3)
        before = world.head().id

        session = world.run(over(1, 3))

        assert session.row_counts().done == 3
        assert world.files() == {f"clean/day={day}/part.csv": f"cleaned: lines of {day}" for day in days}
        assert set(writes_of(world).values()) == {1}
        assert [commit.id for commit in world.history()][3] == before
        assert world.ran == [str(day) for day in days]
        assert world.leftovers() == []
        assert {one.partition["day"] for one in session.record.outcomes()} == set(world.ran)

    def test_missing_ones_are_those_without_a_publication_that_stands(self, world: BackfillWorld) -> None:
        world.days(5)
        world.run(over(2, 3))
        world.commit({"clean/day=2026-01-03/part.csv": "by hand"})
        world.ran.clear()

        choices, backfill = world.plan(over(1, 5))
        reasons = {str(one.partition)[-2:]: (one.runs, one.reason) for one in choices}
        world.run(over(1, 5))

        assert [row.partition["day"][-2:] for row in backfill.rows] == ["01", "03", "04", "05"]
        assert reasons["02"][1].startswith("published by ")
        assert "has changed its output, clean/day=2026-01-03/part.csv" in reasons["03"][1]
        assert world.ran == [f"2026-01-0{day}" for day in (1, 3, 4, 5)]
        assert statuses(world) == dict.fromkeys(("01", "02", "03", "04", "05"), "published")

    def test_all_runs_them_again_and_skips_none_if_forced(self, world: BackfillWorld) -> None:
        bodies: list[str] = []

        def body(workspace: Path, params: Day) -> Lines:
            bodies.append(str(params.day))
            return clean(workspace, params)

        world.task = daily_task(body, skip_unchanged=True)
        world.days(2)
        world.run(over(1, 2))
        assert len(bodies) == 2

        skipped = world.run(over(1, 2), only="all")
        assert (skipped.row_counts().done, len(bodies)) == (2, 2)
        for flag in ("force", "full"):
            bodies.clear()
            assert world.run(over(1, 2), only="all", **{flag: True}).row_counts().done == 2
            assert len(bodies) == 2

    def test_the_flags_are_those_of_the_record_when_it_is_resumed(self, world: BackfillWorld) -> None:
        world.task = daily_task(failing_on(1), skip_unchanged=True)
        world.days(1)
        run_file, session = world.start(over(1, 1), full=True, retries=0, order="desc")
        world.drive(session)

        again = world.resumed(run_file)

        assert (again.plan.full, again.plan.force, again.plan.retries) == (True, False, 0)
        assert again.plan.recompute("row_1").full

    @pytest.mark.parametrize(("order", "first"), [("asc", "2026-01-01"), ("desc", "2026-01-05")])
    def test_rows_begin_in_order(self, world: BackfillWorld, order: str, first: str) -> None:
        days = [str(day) for day in world.days(5)]

        world.run(over(1, 5), order=order)

        assert world.ran == (days if order == "asc" else days[::-1])
        assert world.ran[0] == first


class TestOneAfterAnother:
    """A task that does not rebase: each row starts from what the one before it has left."""

    def test_a_row_starts_from_the_publication_of_the_one_before_it(self, world: BackfillWorld) -> None:
        world.task = daily_task(on_abandoned="replace", on_advanced="refuse")
        world.days(4)

        session = world.run(over(1, 4), order="desc")

        outcomes = [session.known[number] for number in (1, 2, 3, 4)]
        assert [one.status for one in outcomes] == ["COMPLETED"] * 4
        assert [one.ref for one in outcomes[1:]] == [one.published for one in outcomes[:-1]]
        assert world.ran == [f"2026-01-0{day}" for day in (4, 3, 2, 1)]

    @pytest.mark.parametrize("step", ["body", "publish", "hand over", "cleanup"])
    def test_an_executor_that_dies_is_replaced_before_the_next_row_begins(
        self, world: BackfillWorld, step: str
    ) -> None:
        world.task = daily_task(on_abandoned="replace", on_advanced="refuse")
        world.days(3)
        died: list[int] = []

        def dies(row: Row, begun: str) -> bool:
            if row.number == 2 and begun == step and not died:
                died.append(row.number)
                return True
            return False

        world.dies = dies
        session = world.run(over(1, 3))

        assert (session.row_counts().done, died) == (3, [2])
        assert set(writes_of(world).values()) == {1}

    def test_a_row_that_failed_does_not_stop_the_others(self, world: BackfillWorld) -> None:
        world.task = daily_task(failing_on(2), on_abandoned="replace", on_advanced="refuse")
        world.days(3)
        run_file, session = world.start(over(1, 3))
        world.drive(session)
        assert [session.known[number].done for number in (1, 2, 3)] == [True, False, True]

        world.task = daily_task(on_abandoned="replace", on_advanced="refuse")
        assert world.drive(world.resumed(run_file)).row_counts().done == 3


class TestADeadExecutor:
    """The row of an executor that died runs again, after others have moved the branch."""

    @pytest.mark.parametrize("policy", ["supersede", "reuse"])
    @pytest.mark.parametrize("step", ["revoke", "download", "body", "stage", "claim", "publish", "hand over"])
    def test_leaves_a_row_that_ends_with_one_result(
        self, world: BackfillWorld, policy: str, step: str
    ) -> None:
        world.task = daily_task(on_abandoned=policy)
        days = world.days(2)
        died: list[str] = []

        def dies(row: Row, begun: str) -> bool:
            if row.number == 1 and begun == step and not died:
                died.append(begun)
                world.commit({"other.txt": "others go on"})
                return True
            return False

        world.dies = dies
        session = world.run(over(1, 2))

        assert (session.row_counts().done, died) == (2, [step])
        assert world.files() == {f"clean/day={day}/part.csv": f"cleaned: lines of {day}" for day in days}
        assert set(statuses(world).values()) == {"published"}
        # What the dead execution has published stays, and its row adds nothing to it.
        assert set(writes_of(world).values()) == {1}

    def test_is_known_to_the_sweep_by_the_record(self, world: BackfillWorld) -> None:
        world.days(1)
        _, session = world.start(over(1, 1))
        [row] = session.left()
        world.dies = lambda _row, step: step == "body"
        with pytest.raises(Died):
            world.runner(session.plan, row).run(row)
        claim = session.record.last(1)
        assert isinstance(claim, RowClaim)
        attempt = attempt_of(session.plan.run, session.plan.started, "clean_day", claim)
        during = MapRows(world.lake).current(attempt).status

        world.dies = lambda _row, _step: False
        world.drive(session)

        assert (during, MapRows(world.lake).current(attempt).status) == ("IN_PROGRESS", "CANCELED")


class TestManyRows:
    def test_sixty_partitions_with_failures_a_dead_executor_and_a_killed_driver(
        self, world: BackfillWorld, request: pytest.FixtureRequest
    ) -> None:
        embedded = "local" in request.node.name
        count, failing, threads = (60, (5, 15, 25), 4) if embedded else (12, (5, 11), 2)
        days = [str(day) for day in world.days(count)]
        asked = f"day={days[0]}..{days[-1]}"
        bad = [day for day in days if int(day[-2:]) in failing]
        died: Counter[int] = Counter()

        def dies(row: Row, step: str) -> bool:
            # One executor dies inside a body, one after it has published and before anybody knows.
            if (row.number, step) in ((8, "body"), (9, "hand over")) and died[row.number] == 0:
                died[row.number] += 1
                return True
            return False

        world.task, world.dies, world.threads = daily_task(failing_on(*failing)), dies, threads
        world.killed_after = count // 2
        run_file, session = world.start(asked)
        with pytest.raises(Killed):
            world.drive(session)
        world.killed_after = None
        ended = {one.partition["day"] for one in session.record.outcomes() if one.done}
        assert len(ended) >= count // 2 - len(bad)

        world.ran.clear()
        session = world.drive(world.resumed(run_file))
        assert sorted(world.ran) == sorted(set(days) - ended)
        assert (session.row_counts().done, session.row_counts().failed) == (count - len(bad), len(bad))
        assert sorted(died) == [8, 9]
        assert {
            key: status for key, status in _by_day(world).items() if status != "published"
        } == dict.fromkeys(bad, "failed")

        world.task = daily_task()
        world.ran.clear()
        assert world.run(asked, only="failed").row_counts().done == len(bad)
        assert sorted(world.ran) == bad
        assert world.plan(asked, only="failed")[1].rows == []
        assert world.plan(asked)[1].rows == []
        assert set(writes_of(world).values()) == {1}
        assert len(writes_of(world)) == count
        assert world.leftovers() == []

    def test_two_backfills_of_disjoint_ranges_at_once(self, world: BackfillWorld) -> None:
        days = world.days(8)
        one, other = world.start(over(1, 4))[1], world.start(over(5, 8))[1]
        rows = [
            item
            for pair in zip(
                [(one, row) for row in one.left()], [(other, row) for row in other.left()], strict=True
            )
            for item in pair
        ]
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(2) as pool:
            ended = list(pool.map(lambda item: world._run(item[0].plan, item[1]), rows))

        assert all(outcome.done for outcome in ended)
        assert len(writes_of(world)) == len(days)
        assert set(statuses(world).values()) == {"published"}

    def test_two_backfills_of_one_partition_publish_one_result(self, world: BackfillWorld) -> None:
        world.days(1)
        first, second = world.start(over(1, 1))[1], world.start(over(1, 1))[1]
        world.task = daily_task()
        world.drive(first)
        world.commit({"raw/day=2026-01-01/b.csv": "more"})

        late = world.drive(second)

        # What it would publish is no longer what the branch holds, so the second one is refused.
        assert late.row_counts().failed == 1
        assert "clean/day=2026-01-01" in late.known[1].reason or "raw/day=2026-01-01" in late.known[1].reason
        assert len(writes_of(world)) == 1


class TestFarFromTheInput:
    """A publication looks back 1,024 commits: a row that sees the same at the head starts from there."""

    def test_a_row_of_a_long_backfill_starts_at_the_head(self, world: BackfillWorld) -> None:
        world.days(3)
        session = world.start(over(1, 3))[1]
        before = world.head().id
        for number in range(3):
            world.commit({"other.txt": str(number)})

        world.drive(session)

        assert session.row_counts().done == 3
        assert all(one.ref != before for one in session.known.values())
        assert [commit.metadata.get("perago.rebased_over") for commit in world.history()[:3]] == ["0"] * 3

    def test_a_row_whose_input_has_changed_keeps_the_commit_and_is_refused(
        self, world: BackfillWorld
    ) -> None:
        world.days(2)
        session = world.start(over(1, 2))[1]
        before = world.head().id
        world.commit({"raw/day=2026-01-02/late.csv": "late"})

        world.drive(session)

        assert [session.known[number].done for number in (1, 2)] == [True, False]
        assert session.known[2].ref == before
        assert "raw/day=2026-01-02/late.csv" in session.known[2].reason


class TestStates:
    def test_tell_published_stale_failed_rewritten_and_missing_apart(self, world: BackfillWorld) -> None:
        world.days(6)
        world.task = daily_task(failing_on(4))
        start = world.head().id
        world.run(over(1, 4))
        world.commit({"raw/day=2026-01-02/late.csv": "late", "clean/day=2026-01-03/part.csv": "by hand"})

        found = {partition_text(one.names)[-2:]: one for one in world.states(over(1, 5))}

        assert {day: one.status for day, one in found.items()} == {
            "01": "published",
            "02": "stale",
            "03": "rewritten",
            "04": "failed",
            "05": "missing",
        }
        assert found["01"].input == start
        assert "raw/day=2026-01-02/late.csv" in found["02"].reason
        assert found["04"].reason == "2026-01-04 cannot be cleaned yet"
        assert set(statuses(world)) == {"01", "02", "03", "04"}

    def test_a_failure_is_over_once_the_partition_is_published_by_anybody(self, world: BackfillWorld) -> None:
        world.days(2)
        world.task = daily_task(failing_on(1, 2))
        world.run(over(1, 2))
        world.task = daily_task()
        world.run(over(2, 2))

        assert statuses(world) == {"01": "failed", "02": "published"}
        world.task = daily_task(failing_on(2))
        world.run(over(2, 2), only="all")
        assert statuses(world) == {"01": "failed", "02": "failed"}

    def test_a_task_with_a_ledger_key_has_a_state_for_each_of_its_values(self, world: BackfillWorld) -> None:
        world.task = daily_task(ledger_key=("title",))
        world.days(2)

        world.run(over(1, 2))

        found = [(one.names["day"], one.params, one.status) for one in world.states()]
        assert found == [(day, '{"title":"cleaned"}', "published") for day in ("2026-01-01", "2026-01-02")]
        assert world.plan(over(1, 2))[1].rows == []

    def test_hostile_values_are_shown_as_they_were_given(self, world: BackfillWorld) -> None:
        world.task = regional_task()
        values = ["a b", "x%2Fy", "ü*", "a=b", "'q\"", "#1", "a/b"]
        for value in values:
            assert world.run(f"region={value}").row_counts().done == 1

        assert sorted(one.names["region"] for one in world.states()) == sorted(values)
        assert all(path.count("/") == 2 for path in world.files())


def regional_task() -> Any:
    from pydantic import BaseModel

    from perago import WorkspaceSpec, task

    class Region(BaseModel):
        region: str

    @task(
        name="clean_region",
        version="1",
        owner_email="tests@example.com",
        workspace=WorkspaceSpec(
            reads=("raw/{region}",),
            writes=("clean/{region}",),
            on_abandoned="supersede",
            on_advanced="rebase",
        ),
    )
    def clean_region(workspace: Path, params: Region) -> Lines:
        from perago.protocol.partitions import escaped

        folder = workspace / "clean" / escaped(params.region)
        folder.mkdir(parents=True)
        (folder / "made.txt").write_text(params.region)
        return Lines(lines=1)

    return clean_region.__perago_task__


def _by_day(world: BackfillWorld) -> dict[str, str]:
    return {one.names["day"]: one.status for one in world.states()}
