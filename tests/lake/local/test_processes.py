"""The embedded lake under several processes: killed ones lose nothing, racing ones overwrite nothing."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from perago.lake.local.lake import LocalLake
from tests.support.processes.lake_writers import (
    REPOSITORY,
    publish,
    publish_many,
    upload_of,
    write_until_killed,
)


@pytest.fixture
def processes() -> ForkServerContext:
    """Clean processes that start in milliseconds: the fork server has imported the writers already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", write_until_killed.__module__])
    return context


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[LocalLake]:
    lake = LocalLake(tmp_path / "lake")
    lake.create_repository(REPOSITORY)
    yield lake
    lake.close()


def acknowledged_until_killed(
    processes: ForkServerContext, folder: Path, run: int, delay: float
) -> list[tuple[str, str, str]]:
    """Return what a writer acknowledged before it was killed with -9, that long after it started."""
    receiver, sender = processes.Pipe(duplex=False)
    writer = processes.Process(
        target=write_until_killed, args=(folder / "lake", folder / "scratch", run, sender)
    )
    writer.start()
    sender.close()
    lines = [receiver.recv_bytes()]
    time.sleep(delay)
    writer.kill()
    writer.join()
    assert writer.exitcode == -9
    with receiver, suppress(EOFError):
        while True:
            lines.append(receiver.recv_bytes())
    return [(commit, path, checksum) for commit, path, checksum in (line.decode().split() for line in lines)]


@pytest.mark.slow
def test_eight_processes_that_publish_at_once_lose_no_update(
    lake: LocalLake, processes: ForkServerContext, tmp_path: Path
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    writers = [
        processes.Process(target=publish_many, args=(tmp_path / "lake", scratch, number, 10))
        for number in range(8)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 8
    landed = [commit for number in range(8) for commit in (scratch / f"landed-{number}").read_text().split()]
    history = [commit.id for commit in lake.log(REPOSITORY, "main", 1000)]
    assert len(landed) == 80
    assert sorted(history[:-1]) == sorted(landed)
    files = {entry.path for entry in lake.list(REPOSITORY, "main", "")}
    assert files == {f"by-{writer}/{number}" for writer in range(8) for number in range(10)}
    assert [ref.name for ref in lake.branches(REPOSITORY, "")] == ["main"]
    assert lake.fsck() == []


@pytest.mark.slow
def test_eight_processes_may_make_one_lake_at_once(processes: ForkServerContext, tmp_path: Path) -> None:
    makers = [processes.Process(target=_make, args=(tmp_path / "lake", f"repo-{n}")) for n in range(8)]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    lake = LocalLake(tmp_path / "lake")
    assert [maker.exitcode for maker in makers] == [0] * 8
    assert lake.repositories() == [f"repo-{n}" for n in range(8)]
    lake.close()


def _make(folder: Path, repository: str) -> None:
    LocalLake(folder).create_repository(repository)


def test_a_forked_child_opens_its_own_connections(lake: LocalLake, tmp_path: Path) -> None:
    before = lake.head(REPOSITORY, "main").id
    child = os.fork()
    if child == 0:
        try:
            publish(lake, upload_of(tmp_path / "scratch", "by/child", b"1"), "child", before)
            lake.close()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    middle = lake.head(REPOSITORY, "main")
    assert middle.parents == (before,)
    publish(lake, upload_of(tmp_path / "scratch", "by/parent", b"2"), "parent", middle.id)
    assert [entry.path for entry in lake.list(REPOSITORY, "main", "")] == ["by/child", "by/parent"]


def test_a_lake_goes_to_spawned_processes_by_pickle(lake: LocalLake) -> None:
    other = pickle.loads(pickle.dumps(lake))
    assert other.head(REPOSITORY, "main") == lake.head(REPOSITORY, "main")
    other.close()


@pytest.mark.slow
def test_a_hundred_kills_lose_no_acknowledged_commit(
    lake: LocalLake, processes: ForkServerContext, tmp_path: Path
) -> None:
    toss = random.Random(4)
    total = 0
    for run in range(100):
        acknowledged = acknowledged_until_killed(processes, tmp_path, run, toss.uniform(0, 0.04))
        head = lake.head(REPOSITORY, "main").id
        history = {commit.id for commit in lake.log(REPOSITORY, head, len(acknowledged) + 2)}
        assert {commit for commit, _, _ in acknowledged} <= history
        for commit, path, checksum in acknowledged[-3:]:
            [entry] = [e for e in lake.list(REPOSITORY, commit, path) if e.path == path]
            assert entry.checksum == checksum
        assert lake.fsck() == []
        total += len(acknowledged)
    assert len(list(lake.log(REPOSITORY, "main", 10**6))) >= total
