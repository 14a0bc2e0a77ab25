"""An empty prefix: no error by itself, and reported if a check misses files."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from perago import require_glob
from perago.errors import LakeUnavailable
from perago.protocol.outcome import Outcome
from perago.runtime.attempt.listing import with_missing_files_hint
from perago.runtime.attempt.publisher import Publisher
from tests.support.faults.ports import before
from tests.support.worlds.world import Made, Params, World, make_task, published_ref


def read_a_file(workspace: Path, params: Params) -> Made:
    return Made(said=(workspace / "input.txt").read_text())


def fail_otherwise(workspace: Path, params: Params) -> Made:
    raise ValueError("input.txt is no table")


HINT = "folders there: data/; did you mean 'data/'?"


def test_a_pre_check_on_a_wrong_prefix_names_the_folders_there_are(world: World) -> None:
    settled = world.run(make_task(prefix="/dta", pre=[require_glob("*.txt")]))

    assert settled.outcome.status == "FAILED_WITH_TERMINAL_ERROR"
    assert f"there is nothing below 'dta/' at {world.head().id} of" in (settled.outcome.reason or "")
    assert HINT in (settled.outcome.reason or "")


def test_a_body_that_misses_a_file_below_a_wrong_prefix_names_the_folders_there_are(world: World) -> None:
    settled = world.run(make_task(read_a_file, prefix="/dta"))

    assert settled.outcome.status == "FAILED"
    assert "FileNotFoundError" in (settled.outcome.reason or "")
    assert HINT in (settled.outcome.reason or "")


def test_a_deep_prefix_names_the_folders_beside_it(world: World) -> None:
    settled = world.run(make_task(read_a_file, prefix="/data/deeper"))

    assert "folders there: data/deep/; did you mean 'data/deep/'?" in (settled.outcome.reason or "")


def test_nothing_is_said_where_the_prefix_holds_files_or_something_else_failed(world: World) -> None:
    for task in (
        make_task(pre=[require_glob("*.csv")]),
        make_task(lambda workspace, params: read_a_file(workspace / "no", params)),
        make_task(fail_otherwise, prefix="/dta"),
    ):
        assert "there is nothing below" not in (world.run(task).outcome.reason or "")


def test_a_task_may_be_the_first_to_write_below_its_prefix(world: World) -> None:
    ref = published_ref(world.run(make_task(prefix="/new")))

    assert world.files(ref)["new/result.txt"] == "made"


@pytest.mark.parametrize("error", [LakeUnavailable("the lake is away"), RuntimeError("a bug of ours")])
def test_a_lake_that_cannot_be_asked_leaves_the_reason_as_it_is(world: World, error: Exception) -> None:
    task = make_task(read_a_file, prefix="/dta")
    world.start(task)

    def refuse() -> None:
        raise error

    # The first listing is the download's.
    settled = world.execute(task, world.poll(task), lake=before(world.lake, "list", refuse, nth=2))

    assert (settled.outcome.reason or "").startswith("FileNotFoundError")
    assert "there is nothing below" not in (settled.outcome.reason or "")


def test_a_failure_does_not_wait_for_a_lake_that_hangs() -> None:
    never: Future[Any] = Future()
    staging = SimpleNamespace(overlap=lambda _work: never)
    publisher = cast(
        Publisher, SimpleNamespace(staging=staging, lake=None, signature=SimpleNamespace(workspace=None))
    )
    failed = Outcome("FAILED", reason="FileNotFoundError: input.txt")

    assert with_missing_files_hint(failed, FileNotFoundError("input.txt"), publisher, timeout=0) == failed
    assert never.cancelled()
