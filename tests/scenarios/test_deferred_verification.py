"""Attempts whose input is still being verified while their bodies run: nothing counts before the verdict."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from perago import TaskFailed, TaskTerminalError, require_file
from perago.errors import LakeError
from perago.lake.base import Entry
from tests.support.faults.deferred_downloads import DeferringLake, Verdict
from tests.support.faults.ports import recording
from tests.support.worlds.world import (
    Made,
    Params,
    World,
    change_nothing,
    fails,
    make_task,
    published_ref,
    write_result,
)

BAD = "download object 'data/input.txt': it was damaged on its way, try again"


def bad() -> Verdict:
    return Verdict("data/input.txt", error=LakeError(BAD))


def terminal(_workspace: Path, _params: Params) -> Made:
    raise TaskTerminalError("no use")


def failing(_workspace: Path, _params: Params) -> Made:
    raise TaskFailed("no")


def broken(_workspace: Path, _params: Params) -> Made:
    raise ValueError("by the body")


def wrong_result(_workspace: Path, _params: Params) -> Any:
    return {"not": "a result"}


class TestGoodVerdicts:
    def test_the_body_runs_before_the_verdict_and_the_lake_is_written_to_after_it(self, world: World) -> None:
        gate, calls = threading.Event(), list[str]()
        left = Verdict("data/input.txt", gate=gate)
        lake = recording(DeferringLake(world.lake, left), calls)

        def body(workspace: Path, params: Params) -> Made:
            assert not left.verified
            return write_result(workspace, params)

        def at(step: str) -> None:
            if step == "verify":
                assert not {"create_branch", "upload", "commit", "merge"} & set(calls)
                gate.set()
            if step == "changes":
                assert left.verified

        definition = make_task(body)
        world.start(definition)
        settled = world.execute(definition, world.poll(definition), lake=lake, observe=at)

        assert published_ref(settled) == world.head().id
        assert left.drops == 1

    @pytest.mark.parametrize(
        ("body", "status"),
        [(terminal, "FAILED_WITH_TERMINAL_ERROR"), (broken, "FAILED")],
        ids=["terminal", "broken"],
    )
    def test_a_good_verdict_leaves_a_failure_as_it_is(
        self, world: World, body: Callable[..., Made], status: str
    ) -> None:
        definition = make_task(body)
        world.start(definition)
        left = Verdict("data/input.txt")
        settled = world.execute(definition, world.poll(definition), lake=DeferringLake(world.lake, left))

        assert (settled.outcome.status, settled.step) == (status, "body")
        assert settled.seen.trace
        assert left.verified

    def test_a_checksum_that_only_the_bytes_tell_is_what_files_are_compared_with(self, world: World) -> None:
        class Odd(DeferringLake):
            """Lists a checksum that is no hash of the bytes, and finds the right one later."""

            def list(self, *args: Any) -> Iterator[Entry]:
                for entry in world.lake.list(*args):
                    odd = entry.path == "data/input.txt"
                    yield replace(entry, checksum="0" * len(entry.checksum or "")) if odd else entry

            def download(self, repository: str, ref: str, files: Any, *args: Any, **options: Any) -> Any:
                real = {entry.path: entry for entry in world.lake.list(repository, ref, "")}
                wanted = [replace(file, entry=real[file.entry.path]) for file in files]
                listed = {file.entry.path: file.entry.checksum for file in files}
                super().download(repository, ref, wanted, *args, **options)
                return listed

        def write_again(workspace: Path, params: Params) -> Made:
            (workspace / "input.txt").write_text("in")
            return Made(said=params.text)

        md5 = hashlib.new(world.lake.checksum_algorithm, b"in").hexdigest()
        definition, before = make_task(write_again), world.head().id
        world.start(definition)
        lake = Odd(world.lake, Verdict("data/input.txt", checksum=md5))
        settled = world.execute(definition, world.poll(definition), lake=lake)

        assert published_ref(settled) == before, "nothing has changed"


class TestBadVerdicts:
    @pytest.mark.parametrize(
        "body",
        [write_result, change_nothing, terminal, failing, broken, wrong_result],
        ids=lambda b: b.__name__,
    )
    def test_an_attempt_with_bad_input_fails_with_the_lakes_error_and_may_be_retried(
        self, world: World, body: Callable[..., Any]
    ) -> None:
        definition = make_task(body)
        world.start(definition)
        left = bad()
        fails(world, definition, "FAILED", BAD, lake=DeferringLake(world.lake, left))
        assert left.drops == 1

    @pytest.mark.parametrize("phase", ["pre", "post"])
    def test_a_check_that_did_not_hold_is_not_what_is_told(self, world: World, phase: str) -> None:
        definition = make_task(**{phase: [require_file("no-such-file")]})
        world.start(definition)
        fails(world, definition, "FAILED", BAD, lake=DeferringLake(world.lake, bad()))

    def test_a_read_only_task_does_not_complete(self, world: World) -> None:
        definition = make_task(change_nothing, read_only=True)
        world.start(definition)
        fails(world, definition, "FAILED", BAD, lake=DeferringLake(world.lake, bad()))

    def test_an_attempt_with_a_bad_verdict_fails_without_the_bodys_traceback_and_the_retry_completes(
        self, world: World
    ) -> None:
        definition = make_task(broken)
        workflow = world.start(definition)
        settled = world.execute(definition, world.poll(definition), lake=DeferringLake(world.lake, bad()))
        assert (settled.step, settled.seen.trace, settled.outcome.reason) == ("verify", (), BAD)

        sound = make_task()
        published_ref(world.execute(sound, world.poll(sound)))
        assert world.workflow(workflow).status == "COMPLETED"


class TestWithoutAVerdict:
    def test_an_attempt_whose_body_is_not_run_stops_the_verification(self, world: World) -> None:
        definition = make_task()
        world.start(definition)
        world.commit({"data/fence.txt": "x"}, metadata={"perago.logical_task_key": "perago-fence"})
        left = Verdict("data/input.txt", gate=threading.Event())
        settled = world.execute(definition, world.poll(definition), lake=DeferringLake(world.lake, left))

        assert "The body was not run" in (settled.outcome.reason or "")
        assert (left.verified, left.drops) == (False, 1)
        assert world.workdirs() == []

    def test_an_interrupted_attempt_drops_its_unverified_objects(self, world: World) -> None:
        def interrupted(_workspace: Path, _params: Params) -> Made:
            raise SystemExit(3)

        definition = make_task(interrupted)
        world.start(definition)
        left = Verdict("data/input.txt")
        world.execute(definition, world.poll(definition), lake=DeferringLake(world.lake, left))
        assert left.drops == 1
