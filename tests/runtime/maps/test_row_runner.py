"""Rows as transactions: however often a row runs, its branch gets one commit and its record one outcome."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from perago import TaskFailed, TaskTerminalError
from perago.declare.code_origin import provenance_of
from perago.errors import LakeUnavailable
from perago.protocol.provenance import Provenance
from perago.runtime.maps.plan import MOST_DEATHS
from perago.runtime.maps.record import REPOSITORY, Ended, RowClaim
from perago.runtime.maps.row_runner import MapRows, attempt_of
from perago.runtime.maps.rows import Row
from tests.support.worlds.map_world import STARTED, MapWorld
from tests.support.worlds.world import Made, Params, make_task, write_result


class Died(BaseException):
    """The process is gone."""


def dies_at(step: str, *, times: int = 1):  # type: ignore[no-untyped-def]
    """An observer under which the process dies when a step begins, the first times."""
    left = itertools.count(times, -1)

    def observe(begun: str) -> None:
        if begun == step and next(left) > 0:
            raise Died

    return observe


def failing(times: int):  # type: ignore[no-untyped-def]
    """A body that fails the first times."""
    left = itertools.count(times, -1)

    def body(workspace: Path, params: Params) -> Made:
        if next(left) > 0:
            raise TaskFailed("not yet")
        return write_result(workspace, params)

    return body


def terminal(workspace: Path, params: Params) -> Made:
    raise TaskTerminalError("never")


class TestARow:
    def test_publishes_one_commit_and_tells_all_about_it(self, mapped: MapWorld) -> None:
        before = mapped.history()

        outcome = mapped.runner().run(replace(mapped.row, params={"text": "mapped"}))

        head, *rest = mapped.history()
        assert rest == before
        assert (outcome.status, outcome.published, outcome.ref) == ("COMPLETED", head.id, before[0].id)
        assert Provenance.of(head.metadata) == provenance_of(mapped.task)
        assert (outcome.attempts, outcome.changed, outcome.result) == (1, 1, {"said": "mapped"})
        assert outcome.uploaded == len("mapped")
        assert {"download", "body", "publish"} <= outcome.steps.keys()
        assert head.metadata["perago.logical_task_key"] == f"{mapped.run}/row_7"
        assert mapped.leftovers() == []
        assert list(mapped.record.outcomes()) == [outcome]

    def test_a_finished_row_is_not_run_again(self, mapped: MapWorld) -> None:
        first = mapped.runner().run(mapped.row)

        again = mapped.runner().run(mapped.row), mapped.resumed().runner().run(mapped.row)

        assert again == (first, first)
        assert len(mapped.history()) == 3

    def test_starts_from_the_commit_that_the_table_names(self, mapped: MapWorld) -> None:
        mapped.task = make_task(on_abandoned="supersede")
        old = mapped.history()[0].id
        mapped.commit({"other.txt": "since"})

        outcome = mapped.runner().run(replace(mapped.row, ref=old))

        assert (outcome.status, outcome.ref) == ("FAILED", old)
        assert len(mapped.history()) == 3

    def test_a_row_with_params_that_do_not_fit_fails_for_good(self, mapped: MapWorld) -> None:
        mapped.retries = 3

        outcome = mapped.runner().run(replace(mapped.row, params={"text": 3}))

        assert (outcome.status, outcome.attempts) == ("FAILED_WITH_TERMINAL_ERROR", 1)
        assert "params.text" in outcome.reason

    def test_a_row_of_a_missing_repository_fails_and_names_it(self, mapped: MapWorld) -> None:
        outcome = mapped.runner().run(Row(3, "no-such-repository", "main"))

        assert outcome.status == "FAILED"
        assert "no-such-repository" in outcome.reason
        assert list(mapped.record.outcomes()) == [outcome]

    def test_a_row_with_a_wrong_table_entry_is_recorded_as_failed(self, mapped: MapWorld) -> None:
        outcome = mapped.runner().run(replace(mapped.row, diagnostic="params is not JSON"))

        assert (outcome.status, outcome.reason) == ("FAILED_WITH_TERMINAL_ERROR", "params is not JSON")
        assert list(mapped.record.outcomes()) == [outcome]


class TestRetries:
    def test_a_row_is_tried_again_as_often_as_it_may(self, mapped: MapWorld) -> None:
        mapped.task, mapped.retries = make_task(failing(2)), 2

        outcome = mapped.runner().run(mapped.row)

        assert (outcome.status, outcome.attempts, len(mapped.pauses)) == ("COMPLETED", 3, 2)
        assert len(mapped.history()) == 3

    def test_a_row_is_retried_no_more_than_allowed(self, mapped: MapWorld) -> None:
        mapped.task, mapped.retries = make_task(failing(9)), 2

        outcome = mapped.runner().run(mapped.row)
        again = mapped.runner().run(mapped.row)

        assert (outcome.status, outcome.attempts, outcome.reason) == ("FAILED", 3, "not yet")
        assert again == outcome

    def test_a_terminal_failure_is_not_tried_again(self, mapped: MapWorld) -> None:
        mapped.task, mapped.retries = make_task(terminal), 2

        assert mapped.runner().run(mapped.row).attempts == 1

    def test_a_resumed_run_tries_what_failed_once_more(self, mapped: MapWorld) -> None:
        mapped.task = make_task(failing(1))
        failed = mapped.runner().run(mapped.row)

        done = mapped.resumed().runner().run(mapped.row)

        assert (failed.status, done.status, done.attempts) == ("FAILED", "COMPLETED", 2)

    def test_a_row_that_means_the_head_continues_from_a_head_that_others_moved(
        self, mapped: MapWorld
    ) -> None:
        moving = iter([True])

        def body(workspace: Path, params: Params) -> Made:
            if next(moving, False):
                mapped.commit({"other.txt": "meanwhile"})
            return write_result(workspace, params)

        mapped.task, mapped.retries = make_task(body, on_abandoned="supersede"), 1

        outcome = mapped.runner().run(mapped.row)

        head, others, *_ = mapped.history()
        assert (outcome.status, outcome.attempts) == ("COMPLETED", 2)
        assert (outcome.published, outcome.ref) == (head.id, others.id)


class TestDeaths:
    @pytest.mark.parametrize("step", ["download", "body", "stage", "claim", "publish", "hand over"])
    def test_a_row_whose_executor_died_is_claimed_again_and_published_once(
        self, mapped: MapWorld, step: str
    ) -> None:
        before = len(mapped.history())
        with pytest.raises(Died):
            mapped.runner(dies_at(step)).run(mapped.row)

        outcome = mapped.runner().run(mapped.row)

        assert (outcome.status, outcome.attempts) == ("COMPLETED", 2)
        assert len(mapped.history()) == before + 1
        assert mapped.history()[0].id == outcome.published
        assert mapped.leftovers() == []

    def test_a_row_that_kills_every_executor_fails_after_some(self, mapped: MapWorld) -> None:
        for _ in range(MOST_DEATHS):
            with pytest.raises(Died):
                mapped.runner(dies_at("body")).run(mapped.row)

        outcome = mapped.runner().run(mapped.row)

        assert (outcome.status, outcome.attempts) == ("FAILED", MOST_DEATHS)
        assert "died 3 times in a row" in outcome.reason
        assert len(mapped.history()) == 2

    def test_a_killed_row_is_tried_again_when_the_run_is_resumed(self, mapped: MapWorld) -> None:
        for _ in range(MOST_DEATHS):
            with pytest.raises(Died):
                mapped.runner(dies_at("body")).run(mapped.row)
        mapped.runner().run(mapped.row)

        assert mapped.resumed().runner().run(mapped.row).status == "COMPLETED"

    @pytest.mark.parametrize("step", ["body", "stage", "claim", "publish", "hand over"])
    def test_an_execution_whose_row_was_claimed_again_is_stale(self, mapped: MapWorld, step: str) -> None:
        others = []

        def take_over(begun: str) -> None:
            if begun == step and not others:
                others.append(mapped.resumed().runner().run(mapped.row))

        outcome = mapped.runner(take_over).run(mapped.row)

        [other] = others
        assert outcome == other
        assert other.status == "COMPLETED"
        assert [commit.id for commit in mapped.history()][:2] == [other.published, other.ref]
        assert len(list(mapped.record.outcomes())) == 1
        assert mapped.leftovers() == []


class TestTheRecord:
    def test_one_of_two_writers_gets_the_next_slot_of_the_record(self, mapped: MapWorld) -> None:
        first = RowClaim(7, 1, "a" * 16, "session-1")
        assert mapped.record.add(first)

        assert not mapped.record.add(replace(first, execution="b" * 16))
        assert mapped.record.last(7) == first

    def test_the_same_slot_again_is_the_same(self, mapped: MapWorld) -> None:
        slot = RowClaim(7, 1, "a" * 16, "session-1")
        mapped.record.add(slot)

        assert mapped.record.add(slot)

    def test_a_write_without_an_answer_is_read_back(self, mapped: MapWorld) -> None:
        class Deaf:
            """The lake, whose answer to a write is lost."""

            def __getattr__(self, name: str) -> object:
                return getattr(mapped.lake, name)

            def create_object(self, *arguments: object) -> None:
                mapped.lake.create_object(*arguments)  # type: ignore[arg-type]
                raise LakeUnavailable("cut")

        outcome = mapped.runner(lake=Deaf()).run(mapped.row)  # type: ignore[arg-type]

        assert outcome.status == "COMPLETED"
        assert len(mapped.history()) == 3

    def test_a_lost_record_lets_nothing_through(self, mapped: MapWorld) -> None:
        def lose(begun: str) -> None:
            if begun == "body":
                mapped.lake.drop_branch(REPOSITORY, mapped.run)

        outcome = mapped.runner(lose).run(mapped.row)

        assert outcome.status == "UNSETTLED"
        assert len(mapped.history()) == 2

    def test_a_sweep_is_told_whether_a_row_is_in_progress(self, mapped: MapWorld) -> None:
        claim = RowClaim(7, 1, "a" * 16, "session-1")
        mapped.record.add(claim)
        attempt = attempt_of(mapped.run, STARTED, "make", claim)
        during = MapRows(mapped.lake).current(attempt).status

        ended = mapped.runner().run(mapped.row)

        assert isinstance(mapped.record.last(7), Ended)
        assert (during, ended.status) == ("IN_PROGRESS", "COMPLETED")
        assert MapRows(mapped.lake).current(attempt).status == "CANCELED"
