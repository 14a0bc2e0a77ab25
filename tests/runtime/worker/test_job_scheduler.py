from __future__ import annotations

import threading
from queue import SimpleQueue

from perago.runtime.worker.job_scheduler import JobScheduler


def test_a_job_runs_again_after_the_time_it_asks_for_until_it_is_done() -> None:
    runs: SimpleQueue[int] = SimpleQueue()
    over = threading.Event()

    def job() -> float | None:
        runs.put(1)
        if runs.qsize() < 3:
            return 0.0
        over.set()
        return None

    with JobScheduler("test", threads=1) as table:
        table.add("job", job)
        assert over.wait(10)

    assert runs.qsize() == 3
    assert len(table) == 0


def test_a_job_that_waits_for_its_time_holds_up_no_other() -> None:
    ran = threading.Event()

    with JobScheduler("test", threads=1) as table:
        table.add("later", lambda: None, after=600)
        table.add("now", ran.set)
        assert ran.wait(10)

        assert len(table) == 1


def test_a_cancelled_job_does_not_run_again() -> None:
    began, go_on, again = threading.Event(), threading.Event(), threading.Event()

    def job() -> float | None:
        if began.is_set():
            again.set()
        began.set()
        go_on.wait(10)
        return 0.0

    with JobScheduler("test", threads=2) as table:
        table.add("job", job)
        assert began.wait(10)
        table.cancel("job")
        go_on.set()
        after = threading.Event()
        table.add("after", after.set)
        assert after.wait(10)

    assert not again.is_set()


def test_a_job_added_under_the_same_key_takes_the_place_of_the_first() -> None:
    first, second = threading.Event(), threading.Event()

    with JobScheduler("test", threads=1) as table:
        table.add("key", first.set, after=600)
        table.add("key", second.set)
        assert second.wait(10)

        assert len(table) == 0
    assert not first.is_set()
