from __future__ import annotations

from perago.runtime.worker.lifecycle import KILLED_SECONDS, Shutdown


def test_a_worker_that_works_is_never_over() -> None:
    assert not Shutdown(None, 30).over(0, busy=False, executors=False, unsent=False)


def test_a_drain_ends_when_nothing_is_busy_no_executor_lives_and_all_is_sent() -> None:
    end = Shutdown(None, 30)
    end.drain(0)

    assert not end.over(1, busy=True, executors=False, unsent=False)
    assert not end.over(1, busy=False, executors=True, unsent=False)
    assert not end.over(1, busy=False, executors=False, unsent=True)
    assert end.over(1, busy=False, executors=False, unsent=False)


def test_a_drain_waits_for_results_to_be_taken_but_not_for_ever() -> None:
    end = Shutdown(None, 30)
    end.drain(0)

    assert not end.over(100, busy=False, executors=False, unsent=True)
    assert not end.over(129, busy=False, executors=False, unsent=True)
    assert end.over(130, busy=False, executors=False, unsent=True)


def test_without_a_limit_a_drain_is_never_out_of_time() -> None:
    end = Shutdown(None, 30)
    end.drain(0)

    assert not end.out_of_time(1e9)


def test_with_a_limit_a_drain_is_out_of_time_after_it() -> None:
    end = Shutdown(10, 30)
    assert not end.out_of_time(1e9)
    end.drain(5)

    assert not end.out_of_time(14)
    assert end.out_of_time(15)


def test_a_forced_worker_leaves_when_its_executors_are_dead_or_will_not_die() -> None:
    end = Shutdown(None, 30)
    end.drain(0)
    end.force(100)

    assert end.over(100, busy=True, executors=False, unsent=True)
    assert not end.over(100, busy=True, executors=True, unsent=True)
    assert end.over(100 + KILLED_SECONDS, busy=True, executors=True, unsent=True)
