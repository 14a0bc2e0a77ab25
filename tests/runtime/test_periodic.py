from __future__ import annotations

import threading

from perago.runtime.periodic import call_periodically


def test_a_periodic_call_repeats_until_the_block_ends_and_its_thread_ends_with_it() -> None:
    twice = threading.Event()
    threads: list[str] = []

    def call() -> bool:
        threads.append(threading.current_thread().name)
        if len(threads) > 1:
            twice.set()
        return True

    with call_periodically(call, every=0.001, name="repeating-here"):
        assert twice.wait(10)

    assert set(threads) == {"repeating-here"}
    assert "repeating-here" not in [thread.name for thread in threading.enumerate()]


def test_a_periodic_call_stops_once_it_returns_false() -> None:
    threads: list[threading.Thread] = []

    def call() -> bool:
        threads.append(threading.current_thread())
        return False

    with call_periodically(call, every=0.0, name="repeating-once"):
        [thread] = [thread for thread in threading.enumerate() if thread.name == "repeating-once"] or threads
        thread.join(10)
        assert not thread.is_alive()

    assert len(threads) == 1
