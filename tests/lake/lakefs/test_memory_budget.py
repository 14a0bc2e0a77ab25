"""The memory budget: bytes in flight never exceed it, and no request waits for ever."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from perago.lake.lakefs.transfer.concurrency import MemoryBudget


def test_bytes_are_reserved_up_to_the_bound_and_released() -> None:
    budget = MemoryBudget(100)
    assert budget.take(60, wait=False)
    assert budget.take(40, wait=False)
    assert not budget.take(1, wait=False)
    budget.give_back(60)
    assert budget.take(60, wait=False)


def test_a_wish_above_the_bound_is_granted_alone() -> None:
    budget = MemoryBudget(100)
    assert budget.take(500, wait=False)
    assert not budget.take(1, wait=False)
    budget.give_back(500)
    assert budget.take(1, wait=False)
    assert not budget.take(500, wait=False)


def test_a_waiting_request_continues_when_there_is_room() -> None:
    budget = MemoryBudget(100)
    budget.take(100, wait=True)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(budget.take, 50, wait=True)
        budget.give_back(100)
        assert waiting.result(timeout=30)


def test_many_at_once_never_hold_more_than_the_bound() -> None:
    budget, lock = MemoryBudget(100), threading.Lock()
    held, most = 0, 0

    def use(size: int) -> None:
        nonlocal held, most
        with budget.hold(size):
            with lock:
                held += size
                most = max(most, held)
            with lock:
                held -= size

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(use, [7, 31, 60, 99, 100] * 40))
    assert 0 < most <= 100
    assert held == 0
